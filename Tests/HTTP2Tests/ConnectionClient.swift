import EventLoop
import Glibc
import TestSupport

@testable import HTTP2

/// One client connection on a loop of its own, with an owner that keeps what it is told.
// Sendable: the state is touched on the loop's thread, or read through it.
final class ConnectionClient: ClientConnectionOwner, @unchecked Sendable {
    let loop: EventLoop
    private var connection: ClientConnection!
    private let fields = StableFields()
    private let authority: StableFields.ID
    private let body = UnsafeMutableRawBufferPointer.allocate(byteCount: 100, alignment: 8)

    private(set) var opened = 0
    private(set) var closed: [ConnectionCloseReason] = []
    /// By request: the status it ended with, 0 for "unknown".
    private(set) var ends: [UInt32: [UInt16]] = [:]
    /// `isSuspended` at each change of availability.
    private(set) var suspensions: [Bool] = []
    /// What the connection had learned of the addresses when it opened or closed.
    private(set) var failedAddresses: [SocketAddress] = []

    init(
        addresses: [SocketAddress], serverName: String = "localhost", port: UInt16 = 443, context: TLSContext,
        _ change: (inout ClientConnection.Configuration) -> Void = { _ in }
    ) throws {
        loop = try EventLoop(name: "client")
        authority = fields.add(name: ":authority", value: Array("localhost".utf8))
        body.initializeMemory(as: UInt8.self, repeating: UInt8(ascii: "b"))
        var configuration = ClientConnection.Configuration()
        configuration.session.waitsForAuthentication = false
        change(&configuration)
        connection = ClientConnection(
            number: 0, addresses: addresses, serverName: serverName, port: port, context: context,
            fields: fields, configuration: configuration, loop: loop, owner: self)
        loop.start()
        loop.execute { [self] in connection.connect() }
    }

    deinit { body.deallocate() }

    func stop() {
        close()
        loop.stop()
        loop.join()
    }

    func read<T: Sendable>(_ body: @escaping @Sendable (ConnectionClient) -> T) -> T {
        loop.runBlocking { [self] in body(self) }
    }

    var address: SocketAddress { read { $0.connection.address } }
    var statistics: ConnectionStatistics { read { $0.connection.statistics } }
    var availableStreams: Int { read { $0.connection.availableStreams } }
    func close() { loop.runBlocking { [self] in connection.close() } }
    func drain() { loop.runBlocking { [self] in connection.drain() } }

    func send(_ numbers: Range<UInt32>) -> [ClientSession.SubmitResult] {
        read { client in
            numbers.map { number in
                client.connection.submit(tag: number, body: UnsafeRawBufferPointer(client.body)) { block in
                    block.indexedStatic(3)
                    block.indexedStatic(7)
                    block.stable(client.authority)
                    Array("\(number)".utf8).withUnsafeBytes { block.path("/3/device/", $0) }
                }
            }
        }
    }

    func waitUntilOpen() throws {
        try eventually("the connection opens") {
            let (opened, reasons) = read { ($0.opened, $0.closed) }
            if let reason = reasons.first { throw Ended(reason: "\(reason)") }
            return opened == 1
        }
    }

    func waitUntilClosed() throws -> ConnectionCloseReason {
        try eventually("the connection closes") { read { $0.closed.first } }
    }

    struct Ended: Error {
        var reason: String
    }

    // MARK: Owner

    func connectionOpened(_ connection: ClientConnection) {
        opened += 1
        failedAddresses = connection.failedAddresses
    }

    func connection(_ connection: ClientConnection, received events: UnsafeBufferPointer<ClientEvent>) {
        for event in events {
            switch event.kind {
            case .response: ends[event.tag, default: []].append(event.status)
            case .failed: ends[event.tag, default: []].append(0)
            default: break
            }
        }
    }

    func connectionAvailabilityChanged(_ connection: ClientConnection) {
        suspensions.append(connection.isSuspended)
    }

    func connectionClosed(_ connection: ClientConnection, reason: ConnectionCloseReason) {
        if opened == 0 { failedAddresses = connection.failedAddresses }
        closed.append(reason)
    }
}

/// A listening socket that takes no connection: its queue is full, so that SYNs are dropped, as by a dead host.
final class DeafListener: Sendable {
    let address: SocketAddress
    private let descriptors: [Int32]

    init() {
        let stream = Int32(SOCK_STREAM.rawValue)
        let listening = socket(AF_INET, stream, 0)
        let any = SocketAddress("127.0.0.1", port: 0)!
        _ = any.withPointer { bind(listening, $0, $1) }
        precondition(listen(listening, 0) == 0)
        let address = SocketAddress("127.0.0.1", port: ListenAddress.port(of: listening)!)!
        self.address = address
        // One more than the backlog fits; the rest makes sure.
        let fillers = (0..<4).map { _ in
            let filler = socket(AF_INET, stream | Int32(SOCK_NONBLOCK.rawValue), 0)
            _ = address.withPointer { connect(filler, $0, $1) }
            return filler
        }
        descriptors = [listening] + fillers
    }

    deinit {
        for descriptor in descriptors { close(descriptor) }
    }
}
