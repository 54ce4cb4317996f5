import EventLoop
import HTTP2
import SluiceModel

/// APNs in a simulation: a real HTTP/2 server over the simulated network, whose answers the world draws.
final class SimulatedAPNS {
    /// A request as the server has received it.
    struct Push {
        var job: Int
        /// Device token, or channel of a broadcast.
        var address: String
        var topic = ""
        /// Values of the request's `apns-id` or `apns-request-id`, `apns-collapse-id` and `apns-priority`; nil without one.
        var identifier: String?
        var collapse: String?
        var priority: Int?
        /// Value of `apns-expiration`; nil without one.
        var expiration: Int64?
        /// Whether the connection has had another provider token a moment ago.
        var hasNewToken = false
        /// Number of the server's connection.
        var connection: Int
        /// Process that has sent the request; nil: it is unknown.
        var process: SimulatedProcess?
        /// The network's connection; nil: it is unknown.
        var link: SimulatedLink?

        /// Number of the host that has sent the request; nil: it is unknown.
        var host: Int? { process.flatMap { Int($0.name.split(separator: "-")[1]) } }
    }

    enum Answer {
        case accepted
        /// - Parameters:
        ///   - retryAfter: value of `retry-after` in seconds; nil without one.
        ///   - timestamp: value of `timestamp` in milliseconds since the epoch; nil without one.
        case status(UInt16, String, retryAfter: Int? = nil, timestamp: Int64? = nil)
        case reset(errorCode: UInt32)
        /// GOAWAY takes the place of the answer. A push on the newest stream isn't processed.
        case goAway(reason: String, atOnce: Bool)
        case none
    }

    static let address = "10.0.0.1"
    static let port: UInt16 = 443
    static let host = "apns.example"

    private let scheduler: Scheduler
    private let process = SimulatedProcess("apns")
    private let loop: EventLoop
    private var listener: ServerListener!
    private let receive: (Push) -> (answer: Answer, after: UInt64)
    private let closed: (Int) -> Void
    private var connections = 0

    /// - Parameters:
    ///   - receive: decides about a push, which has arrived: the answer, and the nanoseconds until it is given.
    ///   - closed: receives the number of a connection that is gone.
    init(
        _ scheduler: Scheduler, tls: TLSContext, receive: @escaping (Push) -> (answer: Answer, after: UInt64),
        closed: @escaping (Int) -> Void
    ) throws {
        self.scheduler = scheduler
        self.receive = receive
        self.closed = closed
        loop = try process.run { try EventLoop(name: "apns") }
        SimulatedNetwork.current.names[Self.host] = .addresses([Self.address])
        listener = try process.run {
            try ServerListener(loop: loop, address: Self.address, port: Self.port, tls: tls) {
                [unowned self] _ in
                connections += 1
                return Handler(self, number: connections)
            }
        }
        try listener.start()
        loop.start()
    }

    /// Open connections, oldest first.
    var open: [ServerConnection] { listener.openConnections.filter(\.isOpen) }

    /// Runs `body` on the server's loop.
    func execute(_ body: @escaping () -> Void) {
        // nonisolated(unsafe): a simulation runs on one thread at a time.
        nonisolated(unsafe) let body = body
        loop.execute { body() }
    }

    private final class Handler: ServerRequestHandler {
        private unowned let owner: SimulatedAPNS
        private let number: Int
        private let process: SimulatedProcess?
        private let link: SimulatedLink?
        /// Nanoseconds of the connection's acceptance.
        private let openedAt: UInt64
        /// Value of `authorization` of the last push; nil before.
        private var providerToken: String?
        /// Age in nanoseconds below which a connection takes a second token as an update too many.
        private static let tokenTime: UInt64 = 1_200_000_000_000

        init(_ owner: SimulatedAPNS, number: Int) {
            self.owner = owner
            self.number = number
            let accepted = SimulatedNetwork.current.lastAccepted
            process = accepted?.client.process
            link = accepted
            openedAt = owner.scheduler.now
        }

        func connectionClosed(_ connection: ServerConnection, reason: ServerCloseReason) {
            owner.closed(number)
        }

        func requestReceived(_ request: ServerRequest, on connection: ServerConnection) {
            guard let push = push(request) else {
                return connection.respond(stream: request.stream, status: 400)
            }
            let (answer, delay) = owner.receive(push)
            let stream = request.stream
            owner.scheduler.schedule(after: delay) { [owner] in
                owner.execute { Self.give(answer, to: stream, on: connection) }
            }
        }

        private static func give(_ answer: Answer, to stream: Int32, on connection: ServerConnection) {
            switch answer {
            case .none: break
            case .reset(let code): connection.reset(stream: stream, errorCode: code)
            case .accepted: connection.respond(stream: stream, status: 200)
            case .goAway(let reason, let atOnce):
                var frame = ServerGoAway(debugData: reason.isEmpty ? "" : #"{"reason":"\#(reason)"}"#)
                if atOnce { frame.end = .now }
                if connection.newestStream == stream { frame.lastStream = max(0, stream - 2) }
                connection.goAway(frame)
            case .status(let status, let reason, let retryAfter, let timestamp):
                let since = timestamp.map { ",\"timestamp\":\($0)" } ?? ""
                let body = Array("{\"reason\":\"\(reason)\"\(since)}".utf8)
                let wait = Array((retryAfter.map { "\($0)" } ?? "").utf8)
                body.withUnsafeBytes { body in
                    wait.withUnsafeBytes { wait in
                        let field = ResponseField("retry-after", wait, isIndexed: false)
                        withUnsafePointer(to: field) {
                            connection.respond(
                                stream: stream, status: status,
                                headers: UnsafeBufferPointer(start: $0, count: wait.isEmpty ? 0 : 1),
                                body: body)
                        }
                    }
                }
            }
        }

        /// Returns nil for a request that is no push of the world.
        private func push(_ request: ServerRequest) -> Push? {
            let path = String(decoding: request.path, as: UTF8.self)
            let body = String(decoding: request.body, as: UTF8.self)
            guard let job = WorkerJob.number(inPayload: body) else { return nil }
            var push = Push(
                job: job, address: "", connection: number, process: process, link: link)
            if path.hasPrefix(Self.devices) {
                push.address = String(path.dropFirst(Self.devices.count))
            } else if path.hasPrefix(Self.channels) {
                push.topic = String(path.dropFirst(Self.channels.count))
            } else {
                return nil
            }
            for index in 0..<request.headerCount {
                let (name, value) = request.header(index)
                let text = String(decoding: value, as: UTF8.self)
                switch String(decoding: name, as: UTF8.self) {
                case "apns-channel-id": push.address = text
                case "apns-topic": push.topic = text
                case "apns-id", "apns-request-id": push.identifier = text
                case "apns-collapse-id": push.collapse = text
                case "apns-priority": push.priority = Int(text)
                case "apns-expiration": push.expiration = Int64(text)
                case "authorization":
                    guard providerToken != text else { break }
                    push.hasNewToken =
                        providerToken != nil && owner.scheduler.now < openedAt + Self.tokenTime
                    providerToken = text
                default: break
                }
            }
            return push
        }

        private static let devices = "/3/device/"
        private static let channels = "/4/broadcasts/apps/"
    }
}
