import EventLoop
import Glibc
import TestSupport

@testable import HTTP2

/// Records the calls to a connection's owner.
// Sendable because only the loop's thread uses the record.
final class ConnectionRecord: ClientConnectionOwner, @unchecked Sendable {
    fileprivate(set) var connection: ClientConnection!
    fileprivate let body = UnsafeMutableRawBufferPointer.allocate(byteCount: 100, alignment: 8)

    private(set) var opened = 0
    private(set) var closed: [ConnectionCloseReason] = []
    /// Final statuses by request number; 0 stands for an unknown outcome.
    private(set) var ends: [UInt32: [UInt16]] = [:]
    /// Requests that the server certainly did not act on.
    private(set) var notProcessed: Set<UInt32> = []
    /// `isSuspended` at each change of availability.
    private(set) var suspensions: [Bool] = []
    /// Addresses that had failed when the connection opened, or closed without opening.
    private(set) var failedAddresses: [SocketAddress] = []

    fileprivate init() { body.initializeMemory(as: UInt8.self, repeating: UInt8(ascii: "b")) }
    deinit { body.deallocate() }

    func connectionOpened(_ connection: ClientConnection) {
        opened += 1
        failedAddresses = connection.failedAddresses
    }

    func connection(_ connection: ClientConnection, received events: UnsafeBufferPointer<ClientEvent>) {
        for event in events {
            switch event.kind {
            case .response: ends[event.tag, default: []].append(event.status)
            case .failed:
                ends[event.tag, default: []].append(0)
                if event.processed == .no { notProcessed.insert(event.tag) }
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

/// A client connection on its own event loop. The loop ends with this object, also when a test throws.
final class ConnectionClient: Sendable {
    let loop: EventLoop
    private let record = ConnectionRecord()
    private let authority: StableFields.ID

    init(
        addresses: [SocketAddress], serverName: String = "localhost", port: UInt16 = 443, context: TLSContext,
        _ change: (inout ClientConnection.Configuration) -> Void = { _ in }
    ) throws {
        loop = try EventLoop(name: "client")
        let fields = StableFields()
        authority = fields.add(name: ":authority", value: Array("localhost".utf8))
        var configuration = ClientConnection.Configuration()
        configuration.session.waitsForAuthentication = false
        change(&configuration)
        record.connection = ClientConnection(
            number: 0, addresses: addresses, serverName: serverName, port: port, context: context,
            fields: fields, configuration: configuration, loop: loop, owner: record)
        loop.start()
        loop.execute { [record] in record.connection.connect() }
    }

    deinit { stop() }

    func stop() {
        _ = loop.runBlockingIfRunning { [record] in record.connection.close() }
        loop.stop()
        loop.join()
    }

    func read<T: Sendable>(_ body: @escaping @Sendable (ConnectionRecord) -> T) -> T {
        loop.runBlocking { [record] in body(record) }
    }

    var address: SocketAddress { read { $0.connection.address } }
    var statistics: ConnectionStatistics { read { $0.connection.statistics } }
    var availableStreams: Int { read { $0.connection.availableStreams } }
    func close() { read { $0.connection.close() } }

    func send(_ numbers: Range<UInt32>) -> [ClientSession.SubmitResult] {
        read { [authority] record in
            numbers.map { number in
                record.connection.submit(tag: number, body: UnsafeRawBufferPointer(record.body)) { block in
                    block.indexedStatic(3)
                    block.indexedStatic(7)
                    block.stable(authority)
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
}

/// A listening socket that accepts nothing. Its full queue drops SYNs, as a dead host does.
final class DeafListener: Sendable {
    /// Number of connections that fill the queue. The queue takes one more than the backlog; the others are a
    /// reserve.
    static let fillers = 4

    let address: SocketAddress
    private let descriptors: [Int32]

    init() {
        let stream = Int32(SOCK_STREAM.rawValue) | Int32(SOCK_CLOEXEC.rawValue)
        let listening = socket(AF_INET, stream, 0)
        let any = SocketAddress("127.0.0.1", port: 0)!
        _ = any.withPointer { bind(listening, $0, $1) }
        precondition(listen(listening, 0) == 0)
        let address = SocketAddress("127.0.0.1", port: SocketAddress.port(of: listening)!)!
        self.address = address
        let fillers = (0..<Self.fillers).map { _ in
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
