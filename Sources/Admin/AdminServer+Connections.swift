import FlyingSocks
import Foundation

extension AdminServer {
    struct Connection {
        /// Socket, open as long as the connection is in the table.
        var descriptor: Int32
        /// Start of the connection's present state.
        var since = ContinuousClock.now
        var deadline: ContinuousClock.Instant
        /// Task that finds the answer.
        var handling: Task<AdminResponse, Never>?
        /// Whether the system has all of the answer. The other end is to close first.
        var isAnswered = false
        /// Whether the connection is about to end.
        var isCut = false
    }

    func admit(_ socket: AsyncSocket) {
        guard !isStopping else {
            try? socket.close()
            return
        }
        admitted += 1
        let id = admitted
        _ = fcntl(socket.socket.file.rawValue, F_SETFD, FD_CLOEXEC)
        connections[id] = Connection(
            descriptor: socket.socket.file.rawValue, deadline: .now + limits.transfer)
        Task(executorPreference: executor) { await self.serve(socket, id) }
        arm()
    }

    private func serve(_ socket: AsyncSocket, _ id: UInt64) async {
        await converse(socket, id)
        connections[id] = nil
        try? socket.close()
        resume()
        checkEnd()
    }

    /// Returns whether there is room for another connection. Slow clients can't keep probes out.
    func makeRoom() -> Bool {
        let open = connections.filter { !$0.value.isCut }
        guard open.count >= limits.connections else { return true }
        let late = ContinuousClock.now - limits.patience
        let slow = open.filter {
            $0.value.isAnswered || ($0.value.handling == nil && $0.value.since < late)
        }
        guard let slowest = slow.min(by: { $0.value.since < $1.value.since }) else { return false }
        cut(slowest.key)
        return true
    }

    /// Ends a connection. Tasks that wait for the connection resume and find it closed.
    func cut(_ id: UInt64) {
        guard let connection = connections[id], !connection.isCut else { return }
        connections[id]?.isCut = true
        connection.handling?.cancel()
        shutdown(connection.descriptor, Int32(SHUT_RDWR))
    }

    func closeLate() {
        let now = ContinuousClock.now
        for (id, connection) in connections where connection.deadline <= now { cut(id) }
    }

    // MARK: One connection

    private func converse(_ socket: AsyncSocket, _ id: UInt64) async {
        guard let request = await readRequest(socket) else { return }
        let routes = routes
        let misdirected = misdirected(request, socket)
        let handling = Task(executorPreference: executor) {
            if let misdirected { return misdirected }
            switch request {
            case .success(let request): return await Self.answer(request, routes)
            case .failure(let refusal): return refusal.response
            }
        }
        connections[id]?.handling = handling
        connections[id]?.deadline = .now + limits.handling
        // A client that leaves needs no answer. Anything else that arrives is ignored.
        let listening = Task(executorPreference: executor) {
            var surplus = 0
            while surplus < 1 << 20, let bytes = try? await socket.read(atMost: 4096) {
                surplus += bytes.count
            }
            handling.cancel()
        }
        let response = await handling.value
        connections[id]?.handling = nil
        connections[id]?.since = .now
        connections[id]?.deadline = .now + limits.transfer
        try? await socket.write(response.encoded())
        // The other end closes first, because closing with unread bytes would destroy an answer not read yet.
        shutdown(socket.socket.file.rawValue, Int32(SHUT_WR))
        connections[id]?.isAnswered = true
        await listening.value
    }

    private struct Refusal: Error {
        var response: AdminResponse
    }

    /// Returns the request; nil when the connection ended before there was one.
    private func readRequest(_ socket: AsyncSocket) async -> Result<AdminRequest, Refusal>? {
        var bytes: [UInt8] = []
        while bytes.count <= AdminRequest.longestHead {
            guard let more = try? await socket.read(atMost: 4096) else { return nil }
            bytes += more
            if let end = AdminRequest.headEnd(bytes), end <= AdminRequest.longestHead {
                return AdminRequest(head: bytes[..<end]).map { .success($0) }
                    ?? .failure(
                        Refusal(response: .error(400, "the request is not a valid HTTP/1.1 request")))
            }
        }
        return .failure(
            Refusal(
                response: .error(431, "a request's header must not exceed \(AdminRequest.longestHead) bytes"))
        )
    }

    /// Returns the answer to a request that is meant for another host (RFC 9110, 15.5.20); nil for other requests.
    private func misdirected(
        _ request: Result<AdminRequest, Refusal>, _ socket: AsyncSocket
    ) -> AdminResponse? {
        guard case .success(let request) = request else { return nil }
        var local: String?
        switch try? socket.socket.sockname() {
        case .ip4(let host, _), .ip6(let host, _): local = host
        default: break
        }
        guard !hosts.allows(request.host, local: local) else { return nil }
        refusedHosts.add()
        return .error(
            421,
            "the request is for host `\(request.host ?? "")`, which is not a known name of this worker: "
                + "add the name to `admin.allowed-hosts`, or `*` for any host")
    }

    private static func answer(_ request: AdminRequest, _ routes: [String: Handler]) async -> AdminResponse {
        guard let handler = routes[request.path] else {
            return .json(404, ["error": "there is no such path", "paths": routes.keys.sorted()])
        }
        guard request.method == "GET" else {
            var response = AdminResponse.error(405, "only GET is allowed")
            response.fields = [("Allow", "GET")]
            return response
        }
        return await handler(request)
    }
}
