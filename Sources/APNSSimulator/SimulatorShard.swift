import EventLoop
import Glibc
import HTTP2
import SluiceModel

/// A loop of the simulator with the state that its connections share. Used on the loop's thread only, after init.
// Sendable: other threads touch only `loop`, `listener.port` and `counters`, which are made for several threads.
final class SimulatorShard: @unchecked Sendable {
    let options: SimulatorOptions
    let loop: EventLoop
    let counters = SimulatorCounters()
    let delays: DelayQueue
    /// Delay of null mode with a latency; nil otherwise.
    let nullDelay: NullDelay?
    let log: PushLogWriter?
    let faults: FaultMix
    /// Faults by script.
    let script: ShardFaults
    var random: SeededGenerator
    /// Generator of `apns-id` and the other identifiers. Differs at each start, unless the options have a seed.
    var identifiers: SeededGenerator
    private(set) var listener: ServerListener!
    /// Listener of channel management, on the first shard only; nil when none is served.
    private(set) var management: ServerListener?
    let channels: ChannelRegistry
    let tokenUpdates: TokenUpdateRegistry
    private let verifier: ProviderTokenVerifier
    /// Tokens whose signature was found good, by their bytes.
    private var verified: [[UInt8]: VerifiedToken] = [:]
    private let deviceRate: DeviceRate?
    private let deviceRules: [(prefix: [UInt8], reason: Reason)]
    private let bodies: ErrorBodies
    /// Body of the last answer with a timestamp of its own.
    private var ownBody = ByteWriter(minimumCapacity: 128)
    /// Fields of an answer and their texts, reused for each answer.
    private let fields: UnsafeMutablePointer<ResponseField>
    private let texts: UnsafeMutableRawPointer
    /// Value of `retry-after` in answers that ask for patience; nil to omit the field.
    private let retryAfter: [UInt8]?

    /// Options in the units of their use.
    private let latency: UInt64
    private let jitter: UInt64
    let tokenUpdateInterval: UInt64
    let maximumTokenAge: Int64
    let futureTolerance: Int64

    private static let verifiedLimit = 1_000

    init(
        options: SimulatorOptions, index: Int, port: UInt16, tls: TLSContext, channels: ChannelRegistry,
        tokenUpdates: TokenUpdateRegistry, faults registry: FaultRegistry
    ) throws {
        self.options = options
        self.channels = channels
        self.tokenUpdates = tokenUpdates
        loop = try EventLoop(name: "apns-\(index)")
        delays = DelayQueue(loop: loop)
        let delaysNull = options.mode == .null && options.latency > .zero
        nullDelay = delaysNull ? NullDelay(loop: loop, delay: options.latency.wholeNanoseconds) : nil
        log = try options.pushLog.map { [loop] in try PushLogWriter($0, loop: loop) }
        faults = FaultMix(options.faults)
        script = ShardFaults(registry: registry, loop: loop, index: index)
        let offset = UInt64(index) &* 0x1000_0000_1B3
        random = SeededGenerator(seed: (options.seed ?? 1) &+ offset)
        identifiers = SeededGenerator(seed: options.identifierSeed &+ offset)
        verifier = try ProviderTokenVerifier(options.providerTokens, isLenient: options.acceptsLenientTokens)
        if let limit = options.requestsPerDeviceSecond {
            deviceRate = DeviceRate(limit: limit)
        } else {
            deviceRate = nil
        }
        deviceRules = options.deviceRules.map { (Array($0.prefix.lowercased().utf8), $0.reason) }
        latency = options.latency.wholeNanoseconds
        jitter = options.jitter.wholeNanoseconds
        tokenUpdateInterval = options.tokenUpdateInterval.wholeNanoseconds
        maximumTokenAge = options.maximumTokenAge.components.seconds
        futureTolerance = options.futureTolerance.components.seconds
        bodies = ErrorBodies(timestamp: wallClockMilliseconds())
        fields = .allocate(capacity: 4)
        texts = .allocate(byteCount: 2 * APNSID.textLength, alignment: 16)
        retryAfter = options.retryAfterSeconds.map { Array(String($0).utf8) }
        listener = try ServerListener(
            loop: loop, address: options.address, port: port, reusesPort: options.threads > 1, tls: tls,
            options: Self.serverOptions(options)
        ) { [unowned self] connection in
            let handler: any ServerRequestHandler =
                self.options.mode == .null
                ? NullHandler(counters: self.counters, delay: self.nullDelay, connection: connection)
                : PushHandler(shard: self, connection: connection)
            let isReliable = self.options.unansweredShare == 0 && self.options.requestsPerConnection == nil
            return isReliable ? handler : UnreliableHandler(handler, shard: self)
        }
        try listener.start()
        script.start(listener, tls: tls)
        if index == 0, options.mode == .full, let port = options.managementPort {
            let management = try ServerListener(
                loop: loop, address: options.address, port: port, tls: tls,
                options: Self.serverOptions(options)
            ) { [unowned self] _ in ManagementHandler(shard: self) }
            self.management = management
            try management.start()
        }
    }

    /// Ends all connections with GOAWAY (`Shutdown`), and calls `completion` when they are gone.
    func stop(_ completion: @escaping () -> Void) {
        let debugData = "{\"reason\":\"Shutdown\"}"
        script.stop()
        listener.stop(debugData: debugData) { [self] in
            delays.removeAll()
            nullDelay?.removeAll()
            guard let management else { return completion() }
            management.stop(debugData: debugData, completion: completion)
        }
    }

    deinit {
        fields.deallocate()
        texts.deallocate()
    }

    static func serverOptions(_ options: SimulatorOptions) -> ServerOptions {
        var server = ServerOptions()
        server.maximumConcurrentStreams = options.maximumStreams
        server.excessStreams = options.excessStreams
        server.connectionWindowSize = options.connectionWindow
        server.maximumBodySize = PushType.maximumBroadcastPayloadSize
        server.idleTimeout = options.idleTimeout
        server.idleDebugData = "{\"reason\":\"IdleTimeout\"}"
        server.maximumConnections = options.maximumConnections
        if options.mode == .null {
            server.requestParts = []
            server.checksMessages = false
        }
        return server
    }

    // MARK: - Checks that need more than the request

    func verify(_ token: UnsafeRawBufferPointer) -> VerifiedToken? {
        let bytes = Array(token)
        if let known = verified[bytes] { return known }
        guard let result = verifier.verify(token) else { return nil }
        if verified.count >= Self.verifiedLimit { verified.removeAll(keepingCapacity: true) }
        verified[bytes] = result
        return result
    }

    func key(of token: VerifiedToken) -> SimulatorKey? { token.key.flatMap { verifier.key($0) } }

    func isKnown(_ topic: UnsafeRawBufferPointer) -> Bool {
        options.topics?.contains { topic.isTopic(of: $0) } ?? true
    }

    /// Returns whether the topic is the bundle identifier of a known app.
    func isBundle(_ topic: UnsafeRawBufferPointer) -> Bool {
        options.topics?.contains { name in
            var name = name
            return name.withUTF8 { topic.equals(UnsafeRawBufferPointer($0)) }
        } ?? false
    }

    func checkDevice(_ token: UnsafeRawBufferPointer) -> Reason {
        for rule in deviceRules where token.hasHexPrefix(rule.prefix) { return rule.reason }
        if deviceRate?.admit(token, second: loop.now.nanoseconds / 1_000_000_000) == false {
            return .tooManyRequests
        }
        return .absent
    }

    // MARK: - Answers

    /// Returns the time at which an answer is due; nil for at once.
    func answerTime() -> UInt64? {
        if !script.isQuiet, let delay = script.latency() {
            return delay == 0 ? nil : loop.now.nanoseconds + delay
        }
        var delay = latency
        if jitter > 0 { delay += UInt64(random.fraction() * Double(jitter)) }
        return delay == 0 ? nil : loop.now.nanoseconds + delay
    }

    /// Answers a request. A 200 is a header block alone. An error has a body; a 410's body has the time at which the
    /// token ended.
    /// - Parameters:
    ///   - since: timestamp of a 410 in milliseconds since 1970; nil for the simulator's start.
    ///   - isFirst: whether this is the connection's first answer, whose names enter the HPACK table. Later answers
    ///     refer to the names.
    func respond(
        on connection: ServerConnection, stream: Int32, reason: Reason, identifier: APNSID,
        since: Int64? = nil, isFirst: Bool
    ) {
        identifier.write(to: texts)
        fields[0] = ResponseField("apns-id", text(0), isIndexed: isFirst)
        var count = 1
        if options.environment == .sandbox {
            identifiers.identifier().write(to: texts + APNSID.textLength)
            fields[count] = ResponseField("apns-unique-id", text(1), isIndexed: isFirst)
            count += 1
        }
        var body = PushRequest.none
        var status: UInt16 = 200
        if reason != .absent {
            let type: StaticString = "application/json"
            fields[count] = ResponseField(
                "content-type", UnsafeRawBufferPointer(start: type.utf8Start, count: type.utf8CodeUnitCount),
                isIndexed: true)
            count += 1
            body = since.map { goneBody(reason, since: $0) } ?? bodies[reason]
            status = reason.status
        }
        guard let retryAfter, reason == .tooManyRequests || reason == .serviceUnavailable else {
            return connection.respond(
                stream: stream, status: status, headers: UnsafeBufferPointer(start: fields, count: count),
                body: body)
        }
        retryAfter.withUnsafeBytes { value in
            fields[count] = ResponseField("retry-after", value, isIndexed: false)
            connection.respond(
                stream: stream, status: status, headers: UnsafeBufferPointer(start: fields, count: count + 1),
                body: body)
        }
    }

    /// Answers a broadcast, which has other identifiers than a push.
    func respondToBroadcast(
        on connection: ServerConnection, stream: Int32, reason: Reason, identifier: APNSID
    ) {
        var headers: [(StaticString, String)] = [("apns-request-id", "\(identifier)")]
        if reason == .absent { headers.append(("apns-unique-id", "\(identifiers.identifier())")) }
        respond(
            on: connection, stream: stream, status: reason == .absent ? 200 : reason.status, reason: reason,
            headers: headers, json: "")
    }

    /// Answers a request with fields of its own. Not for pushes, because the fields are copied.
    /// - Parameters:
    ///   - reason: reason of an error; `absent` for a success with `json` as its content, if that is not empty.
    ///   - headers: at most ten.
    func respond(
        on connection: ServerConnection, stream: Int32, status: UInt16, reason: Reason,
        headers: [(StaticString, String)], json: String
    ) {
        var headers = headers
        if reason != .absent || !json.isEmpty { headers.append(("content-type", "application/json")) }
        if let retryAfter, reason == .tooManyRequests || reason == .serviceUnavailable {
            headers.append(("retry-after", String(decoding: retryAfter, as: UTF8.self)))
        }
        var texts = ByteWriter(minimumCapacity: 1_024)
        var ends: [Int] = []
        for header in headers {
            texts.append(text: header.1)
            ends.append(texts.count)
        }
        let bytes = texts.bytes
        let fields = headers.indices.map { index in
            let start = index == 0 ? 0 : ends[index - 1]
            return ResponseField(
                headers[index].0, UnsafeRawBufferPointer(rebasing: bytes[start..<ends[index]]),
                isIndexed: false)
        }
        fields.withUnsafeBufferPointer { fields in
            guard reason == .absent else {
                return connection.respond(
                    stream: stream, status: status, headers: fields, body: bodies[reason])
            }
            var json = json
            json.withUTF8 {
                connection.respond(
                    stream: stream, status: status, headers: fields, body: UnsafeRawBufferPointer($0))
            }
        }
    }

    /// Answers a request whose header list is too long. No page of Apple has a reason for it; the name is assumed, after
    /// RFC 6585 §5.
    func respondToOversized(
        _ request: ServerRequest, on connection: ServerConnection, name: StaticString, _ identifier: APNSID
    ) {
        respond(
            on: connection, stream: request.stream, status: 431, reason: .absent,
            headers: [(name, "\(identifier)")], json: "{\"reason\":\"RequestHeaderFieldsTooLarge\"}")
    }

    /// Returns a body that is valid until the next call.
    private func goneBody(_ reason: Reason, since: Int64) -> UnsafeRawBufferPointer {
        ownBody.removeAll()
        ownBody.append(reason, timestamp: since)
        return ownBody.bytes
    }

    private func text(_ index: Int) -> UnsafeRawBufferPointer {
        UnsafeRawBufferPointer(start: texts + index * APNSID.textLength, count: APNSID.textLength)
    }

    /// Ends a connection as APNs does for a bad certificate: GOAWAY with NO_ERROR and the reason, no stream served.
    func refuse(_ connection: ServerConnection, _ reason: Reason) {
        connection.goAway(debugData: "{\"reason\":\"\(reason.name)\"}")
    }
}

/// Bodies of all error answers, made once.
private struct ErrorBodies: ~Copyable {
    private let offsets: [Reason: Range<Int>]
    private let writer: ByteWriter

    /// - Parameter timestamp: time in the 410s at which the tokens became invalid, in ms since 1970.
    init(timestamp: Int64) {
        var offsets: [Reason: Range<Int>] = [:]
        var writer = ByteWriter(minimumCapacity: 4_096)
        for reason in Reason.allCases {
            let start = writer.count
            writer.append(reason, timestamp: reason.status == 410 ? timestamp : nil)
            offsets[reason] = start..<writer.count
        }
        self.offsets = offsets
        self.writer = writer
    }

    subscript(reason: Reason) -> UnsafeRawBufferPointer {
        UnsafeRawBufferPointer(rebasing: writer.bytes[offsets[reason]!])
    }
}

extension ByteWriter {
    /// Appends the body of an error.
    fileprivate mutating func append(_ reason: Reason, timestamp: Int64?) {
        append("{\"reason\":\"")
        append(reason.name)
        append("\"")
        if let timestamp {
            append(",\"timestamp\":")
            append(decimal: timestamp)
        }
        append("}")
    }
}

extension UnsafeRawBufferPointer {
    /// Returns whether this hexadecimal text begins with a lower-case prefix.
    fileprivate func hasHexPrefix(_ prefix: [UInt8]) -> Bool {
        guard count >= prefix.count else { return false }
        for index in prefix.indices where self[index].lowerCase != prefix[index] { return false }
        return true
    }
}
