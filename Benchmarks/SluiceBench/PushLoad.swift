import APNS
import DeliveryCore
import EventLoop
import Glibc
import HTTP2
import SluiceModel

/// What one run of a load measured.
struct LoadResult: Sendable {
    var pushes: Int
    var accepted: Int
    var otherAnswers: Int
    var unanswered: Int
    var seconds: Double
    var cpuSeconds: Double

    var pushesPerSecond: Double { Double(pushes) / seconds }
    var cpuMicrosecondsPerPush: Double { cpuSeconds * 1e6 / Double(pushes) }
}

/// Pushes through the connection layer as fast as it takes them: the scheduler, the pool, the frame layer and TLS,
/// on one event loop, with nothing above. Distinct device tokens, realistic headers.
// Sendable: touched on the loop's thread; the result is read after `done`.
final class PushLoad: ConnectionPoolDelegate, TurnEndHandler, @unchecked Sendable {
    struct Settings: Sendable {
        var host = "localhost"
        var port: UInt16 = 0
        var caFile = ""
        var connections = 1
        var inFlight = 1000
        var pushes = 200_000
        var warmUp = 20_000
        var payloadBytes = 250
        var deviceTokens = 10_000
    }

    private let settings: Settings
    private let loop: EventLoop
    private var pool: ConnectionPool!
    private let encoder: PushRequestEncoder
    private let topics: [PushRequestEncoder.Topic]
    private let topicNames: [UnsafeRawBufferPointer]
    private let tokens: UnsafeMutableRawBufferPointer
    private let payload: UnsafeMutableRawBufferPointer
    private let collapseIdentifier: UnsafeMutableRawBufferPointer
    private let fields = StableFields()
    let done = BlockingFlag()
    private(set) var result: LoadResult?

    private var started = 0
    private var finished = 0
    private var counts = (accepted: 0, other: 0, unanswered: 0)
    private var turnEndAsked = false
    private var measureFrom: (time: UInt64, cpu: Double, finished: Int)?

    init(_ settings: Settings) throws {
        self.settings = settings
        loop = try EventLoop(name: "load")
        encoder = PushRequestEncoder(fields: fields, authority: "\(settings.host):\(settings.port)")
        // As long as a provider token is; its content does not matter to a server that does not look.
        encoder.setAuthorization(
            Array(("bearer " + String(repeating: "eyJhbGciOiJFUzI1NiIs", count: 9)).utf8))
        topicNames = (0..<4).map { Self.copy("com.example.app\($0)") }
        topics = topicNames.map { [encoder] in encoder.topic($0) }
        tokens = .allocate(byteCount: settings.deviceTokens * 64, alignment: 8)
        var generator = SeededGenerator(seed: 7)
        let digits = Array("0123456789abcdef".utf8)
        for index in tokens.indices { tokens[index] = digits[Int(generator.next() & 15)] }
        let text = #"{"aps":{"alert":{"title":"Benchmark","body":""#
        let filler = max(0, settings.payloadBytes - text.utf8.count - 5)
        let bytes = Array((text + String(repeating: "x", count: filler) + "\"}}}").utf8)
        payload = .allocate(byteCount: bytes.count, alignment: 8)
        payload.copyBytes(from: bytes)
        collapseIdentifier = .allocate(byteCount: 16, alignment: 8)
        collapseIdentifier.copyBytes(from: Array("score-update-123".utf8))

        var options = ClientTLSOptions()
        options.trust = .authorities(.file(settings.caFile))
        options.minimumVersion = .tls13
        var configuration = ConnectionPool.Configuration(host: settings.host, port: settings.port)
        configuration.connections = settings.connections
        configuration.openInterval = .zero
        configuration.connection.session.maximumStreams = settings.inFlight
        pool = ConnectionPool(
            configuration: configuration, context: try TLSContext.client(options), fields: fields,
            notifications: NotificationTable(capacity: settings.inFlight * settings.connections), loop: loop,
            delegate: self)
    }

    func run() -> LoadResult {
        loop.start()
        loop.execute { [self] in pool.start() }
        done.wait()
        let outcome = result!
        loop.runBlocking { [self] in pool.close() }
        loop.stop()
        loop.join()
        return outcome
    }

    // MARK: Load

    private func enqueue(_ slot: UInt32) {
        guard started < settings.warmUp + settings.pushes else { return }
        started += 1
        pool.scheduler.enqueue(
            slot: slot, app: 0, priority: .immediate, bytes: payload.count, now: loop.now.nanoseconds)
    }

    func turnEnded() {
        turnEndAsked = false
        while let (slot, connection) = pool.nextAssignment() {
            let number = (finished &+ Int(slot)) % settings.deviceTokens
            let topic = number & 3
            let push = PushJob(
                deviceToken: UnsafeRawBufferPointer(rebasing: tokens[number * 64..<number * 64 + 64]),
                topic: topicNames[topic], pushType: .alert, priority: .immediate,
                apnsID: APNSID(high: UInt64(finished), low: UInt64(slot) &* 0x9e37_79b9_7f4a_7c15),
                expiration: .at(1_900_000_000),
                collapseIdentifier: UnsafeRawBufferPointer(collapseIdentifier),
                payload: UnsafeRawBufferPointer(payload), createdMilliseconds: 0)
            let sent = connection.submit(tag: slot, body: push.payload) { [encoder, topics] block in
                encoder.encode(push, topic: topics[topic], into: &block)
            }
            guard sent == .submitted else {
                pool.withdraw(slot, from: connection)
                pool.scheduler.enqueue(
                    slot: slot, app: 0, priority: .immediate, bytes: payload.count, now: loop.now.nanoseconds,
                    atFront: true)
                continue
            }
        }
    }

    func pool(
        _ pool: ConnectionPool, received events: UnsafeBufferPointer<ClientEvent>,
        on connection: ClientConnection
    ) {
        for event in events {
            switch event.kind {
            case .response:
                if event.status == 200 { counts.accepted += 1 } else { counts.other += 1 }
            case .failed: counts.unanswered += 1
            default: continue
            }
            finished += 1
            enqueue(event.tag)
        }
        if measureFrom == nil, finished >= settings.warmUp {
            measureFrom = (MonotonicTime.read().nanoseconds, Self.cpuSeconds(), finished)
        }
        if finished >= settings.warmUp + settings.pushes, result == nil, let from = measureFrom {
            result = LoadResult(
                pushes: finished - from.finished, accepted: counts.accepted, otherAnswers: counts.other,
                unanswered: counts.unanswered,
                seconds: Double(MonotonicTime.read().nanoseconds - from.time) / 1e9,
                cpuSeconds: Self.cpuSeconds() - from.cpu)
            done.set()
        }
    }

    func poolHasCapacity(_ pool: ConnectionPool) {
        if started == 0 {
            for slot in 0..<settings.inFlight * settings.connections { enqueue(UInt32(slot)) }
        }
        guard !turnEndAsked else { return }
        turnEndAsked = true
        loop.atTurnEnd(self)
    }

    func pool(_ pool: ConnectionPool, happened event: PoolEvent) {
        if case .closed(_, let reason) = event, result == nil {
            FileHandleText.error("connection closed: \(reason)\n")
        }
    }

    private static func copy(_ text: String) -> UnsafeRawBufferPointer {
        let bytes = UnsafeMutableRawBufferPointer.allocate(byteCount: text.utf8.count, alignment: 1)
        bytes.copyBytes(from: text.utf8)
        return UnsafeRawBufferPointer(bytes)
    }

    /// User and system time of this process.
    static func cpuSeconds() -> Double {
        var usage = rusage()
        getrusage(RUSAGE_SELF.rawValue, &usage)
        let seconds = { (time: timeval) in Double(time.tv_sec) + Double(time.tv_usec) / 1e6 }
        return seconds(usage.ru_utime) + seconds(usage.ru_stime)
    }
}

enum FileHandleText {
    static func error(_ text: String) {
        _ = text.withCString { write(2, $0, strlen($0)) }
    }
}
