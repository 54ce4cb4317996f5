import Foundation
import Synchronization

/// A request to an admin endpoint, on a connection of its own.
enum AdminCall {
    struct Answer: Sendable, Equatable {
        /// Status of the answer, 100 to 999.
        var status: Int
        var body: [UInt8]
    }

    /// Fault of a request, in words.
    struct Failure: Error, Sendable, Equatable, CustomStringConvertible {
        var description: String
        /// Number of the system's error; nil when the fault is none of the system.
        var code: Int32?

        init(_ description: String, code: Int32? = nil) {
            self.description = description
            self.code = code
        }
    }

    /// A command's endpoint.
    enum Endpoint: Sendable, Equatable, CustomStringConvertible {
        /// A socket of the file system.
        case socket(String)
        /// An address, with the token that commands present; nil: none.
        case address(AdminAddress, token: String?)

        var description: String {
            switch self {
            case .socket(let path): path
            case .address(let address, _): "http://\(address)"
            }
        }

        /// Returns the remedy for a connection that the system refused with this error; nil when there is no advice.
        func remedy(for code: Int32) -> String? {
            switch (self, code) {
            case (.socket, ENOENT):
                "no worker has made the socket: compare the path with admin.socket, and check that the worker runs"
            case (.socket, ECONNREFUSED): "no worker listens there: check that it runs"
            case (.socket, EACCES):
                "only the worker's user and root may use the socket: repeat the command as one of them"
            case (.address, ECONNREFUSED):
                "no worker listens there: check that it runs, or name it with --config, --socket or --admin"
            default: nil
            }
        }
    }

    /// Sends a request to a command's endpoint and returns its answer. Blocks the calling thread, for at most `limit`.
    static func send(
        _ method: String, _ path: String, to endpoint: Endpoint, limit: Duration
    ) throws(Failure) -> Answer {
        let deadline = ContinuousClock.now + limit
        do throws(Failure) {
            switch endpoint {
            case .address(let address, let token):
                let field = token.map { "Authorization: Bearer \($0)\r\n" } ?? ""
                return try exchange(
                    "\(method) \(path)", host: "\(address)", field,
                    with: try resolve(address, deadline: deadline),
                    deadline: deadline)
            case .socket(let file):
                guard let target = SocketTarget(path: file) else {
                    throw Failure("the path has more bytes than the system accepts")
                }
                return try exchange(
                    "\(method) \(path)", host: "localhost", "", with: [target], deadline: deadline)
            }
        } catch {
            guard let code = error.code, let remedy = endpoint.remedy(for: code) else { throw error }
            throw Failure("\(error.description); \(remedy)", code: code)
        }
    }

    /// Sends a GET request and returns its answer. Blocks the calling thread, for at most `limit`.
    ///
    /// - Parameters:
    ///   - mostBytes: greatest size of an answer with its head.
    /// - Throws: ``Failure`` when there is no complete answer within the limit.
    static func get(
        _ path: String, from address: AdminAddress, limit: Duration, mostBytes: Int = 32 << 20
    ) throws(Failure) -> Answer {
        let deadline = ContinuousClock.now + limit
        return try exchange(
            "GET \(path)", host: "\(address)", "", with: try resolve(address, deadline: deadline),
            deadline: deadline, mostBytes: mostBytes)
    }

    /// Sends a request to the first target that accepts it.
    /// - Parameter fields: further fields, each with its line end.
    private static func exchange(
        _ start: String, host: String, _ fields: String, with targets: [SocketTarget],
        deadline: ContinuousClock.Instant, mostBytes: Int = 1 << 20
    ) throws(Failure) -> Answer {
        var failure = Failure("the name has no address")
        for target in targets {
            do throws(Failure) {
                let socket = try CallConnection(to: target, deadline: deadline)
                let request = "\(start) HTTP/1.1\r\nHost: \(host)\r\n\(fields)Connection: close\r\n\r\n"
                try socket.send(Array(request.utf8))
                return try AdminAnswerReader.read(socket, mostBytes: mostBytes)
            } catch {
                failure = error
            }
        }
        throw failure
    }

    /// Returns the addresses of a host. A name is resolved on a thread of its own, because the resolver has no limit.
    private static func resolve(
        _ address: AdminAddress, deadline: ContinuousClock.Instant
    ) throws(Failure) -> [SocketTarget] {
        if let target = SocketTarget.lookUp(address, isNumeric: true).first { return [target] }
        let box = Resolution()
        let thread = Thread { box.finish(SocketTarget.lookUp(address, isNumeric: false)) }
        thread.name = "resolver"
        thread.start()
        guard let targets = box.wait(until: deadline) else {
            throw Failure("the name `\(address.host)` was not resolved in time")
        }
        if targets.isEmpty { throw Failure("the name `\(address.host)` has no address") }
        return targets
    }
}

/// Result of a name's resolution, handed from one thread to another.
private final class Resolution: Sendable {
    private let result = Mutex<[SocketTarget]?>(nil)
    private let finished = DispatchSemaphore(value: 0)

    func finish(_ targets: [SocketTarget]) {
        result.withLock { $0 = targets }
        finished.signal()
    }

    /// Returns nil when there is no result in time.
    func wait(until deadline: ContinuousClock.Instant) -> [SocketTarget]? {
        let rest = max(.zero, deadline - .now)
        _ = finished.wait(timeout: .now() + .nanoseconds(Int(rest / .nanoseconds(1))))
        return result.withLock { $0 }
    }
}

/// An address of a server, as the system's calls take it.
private struct SocketTarget: Sendable {
    var family: Int32
    var bytes: [UInt8]

    init(family: Int32, bytes: [UInt8]) {
        self.family = family
        self.bytes = bytes
    }

    /// Makes the target of a socket in the file system; nil when the path has too many bytes.
    init?(path: String) {
        var name = sockaddr_un()
        let most = MemoryLayout.size(ofValue: name.sun_path) - 1
        guard (1...most).contains(path.utf8.count) else { return nil }
        name.sun_family = sa_family_t(AF_UNIX)
        withUnsafeMutableBytes(of: &name.sun_path) { $0.copyBytes(from: path.utf8) }
        self.init(family: AF_UNIX, bytes: withUnsafeBytes(of: name) { Array($0) })
    }

    static func lookUp(_ address: AdminAddress, isNumeric: Bool) -> [SocketTarget] {
        var hints = addrinfo()
        hints.ai_family = AF_UNSPEC
        hints.ai_socktype = Int32(SOCK_STREAM.rawValue)
        hints.ai_flags = AI_NUMERICSERV | (isNumeric ? AI_NUMERICHOST : AI_ADDRCONFIG)
        var list: UnsafeMutablePointer<addrinfo>?
        guard getaddrinfo(address.host, "\(address.port)", &hints, &list) == 0 else { return [] }
        defer { freeaddrinfo(list) }
        var targets: [SocketTarget] = []
        var next = list
        while let entry = next {
            let bytes = UnsafeRawBufferPointer(
                start: entry.pointee.ai_addr, count: Int(entry.pointee.ai_addrlen))
            targets.append(SocketTarget(family: entry.pointee.ai_family, bytes: Array(bytes)))
            next = entry.pointee.ai_next
        }
        return targets
    }
}

/// A connection whose calls end at a deadline. The socket is closed with the last reference.
final class CallConnection {
    private let descriptor: Int32
    private let deadline: ContinuousClock.Instant

    /// - Throws: ``AdminCall/Failure`` when there is no connection at the deadline.
    fileprivate init(
        to target: SocketTarget, deadline: ContinuousClock.Instant
    ) throws(AdminCall.Failure) {
        let type = Int32(SOCK_STREAM.rawValue) | Int32(SOCK_CLOEXEC.rawValue) | Int32(SOCK_NONBLOCK.rawValue)
        descriptor = socket(target.family, type, 0)
        self.deadline = deadline
        guard descriptor >= 0 else { throw Self.failure("no socket", errno) }
        let result = target.bytes.withUnsafeBytes {
            connect(descriptor, $0.assumingMemoryBound(to: sockaddr.self).baseAddress!, socklen_t($0.count))
        }
        if result == 0 { return }
        guard errno == EINPROGRESS else { throw Self.failure("no connection", errno) }
        try wait(POLLOUT, "no connection")
        var fault: Int32 = 0
        var size = socklen_t(MemoryLayout<Int32>.size)
        getsockopt(descriptor, SOL_SOCKET, SO_ERROR, &fault, &size)
        guard fault == 0 else { throw Self.failure("no connection", fault) }
    }

    deinit { if descriptor >= 0 { close(descriptor) } }

    func send(_ bytes: [UInt8]) throws(AdminCall.Failure) {
        var rest = bytes[...]
        while !rest.isEmpty {
            let count = rest.withUnsafeBytes {
                Glibc.send(descriptor, $0.baseAddress, $0.count, Int32(MSG_NOSIGNAL))
            }
            if count > 0 {
                rest = rest.dropFirst(count)
            } else if errno == EAGAIN {
                try wait(POLLOUT, "the request could not be sent")
            } else if errno != EINTR {
                throw Self.failure("the request could not be sent", errno)
            }
        }
    }

    /// Appends what has arrived. Returns false at the end of the connection.
    func receive(into bytes: inout [UInt8]) throws(AdminCall.Failure) -> Bool {
        while true {
            var chunk = [UInt8](repeating: 0, count: 64 << 10)
            let count = recv(descriptor, &chunk, chunk.count, 0)
            if count > 0 {
                bytes += chunk[..<count]
                return true
            }
            if count == 0 { return false }
            if errno == EAGAIN {
                try wait(POLLIN, "no answer")
            } else if errno != EINTR {
                throw Self.failure("no answer", errno)
            }
        }
    }

    private func wait(_ events: Int32, _ subject: String) throws(AdminCall.Failure) {
        while true {
            let rest = deadline - .now
            guard rest > .zero else { throw AdminCall.Failure("\(subject) in time") }
            var entry = pollfd(fd: descriptor, events: Int16(events), revents: 0)
            let milliseconds = min(Int32.max / 2, Int32(clamping: Int64(rest / .milliseconds(1))) + 1)
            if poll(&entry, 1, milliseconds) > 0 { return }
        }
    }

    private static func failure(_ subject: String, _ code: Int32) -> AdminCall.Failure {
        AdminCall.Failure("\(subject): \(String(cString: strerror(code)))", code: code)
    }
}

/// Reads an answer with a head of HTTP/1.1 and a body up to its length or the connection's end.
enum AdminAnswerReader {
    static func read(
        _ connection: CallConnection, mostBytes: Int
    ) throws(AdminCall.Failure) -> AdminCall.Answer {
        var bytes: [UInt8] = []
        var head: Head?
        while true {
            if head == nil { head = try Head(bytes) }
            if let head, let length = head.length, bytes.count - head.size >= length {
                return AdminCall.Answer(
                    status: head.status, body: Array(bytes[head.size..<head.size + length]))
            }
            guard bytes.count <= mostBytes else {
                throw AdminCall.Failure("the answer is larger than \(mostBytes >> 20) MB")
            }
            guard try connection.receive(into: &bytes) else { break }
        }
        guard let head else {
            throw AdminCall.Failure("the connection ended without an answer of HTTP/1.1")
        }
        guard head.length == nil else { throw AdminCall.Failure("the connection ended within the answer") }
        return AdminCall.Answer(status: head.status, body: Array(bytes[head.size...]))
    }

    /// Status and length of an answer.
    struct Head: Equatable {
        var status: Int
        /// Bytes of the body; nil when the connection's end is the body's end.
        var length: Int?
        /// Bytes of the head with its empty line.
        var size: Int

        private static let most = 64 << 10

        /// Returns nil when the head isn't complete yet.
        init?(_ bytes: [UInt8]) throws(AdminCall.Failure) {
            let start = bytes.prefix(Self.most)
            guard let end = start.firstRange(of: Array("\r\n\r\n".utf8)) else {
                if bytes.count >= Self.most { throw AdminCall.Failure("the answer is not HTTP/1.1") }
                return nil
            }
            let lines = String(decoding: start[..<end.lowerBound], as: UTF8.self).components(
                separatedBy: "\r\n")
            let words = lines[0].split(separator: " ")
            guard words.count >= 2, words[0].hasPrefix("HTTP/1."), let status = Int(words[1]),
                (100...999).contains(status)
            else { throw AdminCall.Failure("the answer is not HTTP/1.1") }
            self.status = status
            size = end.upperBound
            for line in lines.dropFirst() {
                let parts = line.split(separator: ":", maxSplits: 1)
                guard parts.count == 2, parts[0].lowercased() == "content-length" else { continue }
                guard let length = Int(parts[1].trimmingCharacters(in: .whitespaces)), length >= 0 else {
                    throw AdminCall.Failure("the answer's length is not a number")
                }
                self.length = length
            }
        }
    }
}
