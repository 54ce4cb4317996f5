import EventLoop
import HTTP2
import SluiceModel

/// APNs in a simulation: a real HTTP/2 server over the simulated network, whose answers the world draws.
final class SimulatedAPNS {
    /// A request as the server has received it.
    struct Push {
        var job: Int
        var token: String
        /// Value of `apns-expiration`; nil without one.
        var expiration: Int64?
        /// Number of the server's connection.
        var connection: Int
        /// Process that has sent the request; nil: it is unknown.
        var process: SimulatedProcess?
        /// The network's number of the connection.
        var link: Int
        /// Nanoseconds at which the worker has closed its end; nil: it hasn't.
        var closedAt: UInt64?

        /// Number of the host that has sent the request; nil: it is unknown.
        var host: Int? { process.flatMap { Int($0.name.split(separator: "-")[1]) } }
    }

    enum Answer {
        case status(UInt16, reason: String)
        case reset(errorCode: UInt32)
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

        init(_ owner: SimulatedAPNS, number: Int) {
            self.owner = owner
            self.number = number
            let accepted = SimulatedNetwork.current.lastAccepted
            process = accepted?.client.process
            link = accepted
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
            case .status(200, _): connection.respond(stream: stream, status: 200)
            case .status(let status, let reason):
                let body = Array(#"{"reason":"\#(reason)"}"#.utf8)
                body.withUnsafeBytes {
                    connection.respond(
                        stream: stream, status: status, headers: UnsafeBufferPointer(start: nil, count: 0),
                        body: $0)
                }
            }
        }

        /// Returns nil for a request that is no push of the world.
        private func push(_ request: ServerRequest) -> Push? {
            let path = String(decoding: request.path, as: UTF8.self)
            let body = String(decoding: request.body, as: UTF8.self)
            guard path.hasPrefix("/3/device/"), let job = WorkerJob.number(inPayload: body) else {
                return nil
            }
            var push = Push(
                job: job, token: String(path.dropFirst("/3/device/".count)), expiration: nil,
                connection: number,
                process: process, link: link?.number ?? 0, closedAt: link?.client.closedAt)
            for index in 0..<request.headerCount {
                let (name, value) = request.header(index)
                if name.elementsEqual("apns-expiration".utf8) {
                    push.expiration = Int64(String(decoding: value, as: UTF8.self))
                }
            }
            return push
        }
    }
}
