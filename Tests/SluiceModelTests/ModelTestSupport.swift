import SluiceModel

extension String {
    func withBytes<Result>(_ body: (UnsafeRawBufferPointer) throws -> Result) rethrows -> Result {
        try Array(utf8).withUnsafeBytes(body)
    }
}

extension UnsafeRawBufferPointer {
    var text: String { String(decoding: self, as: UTF8.self) }
}

extension StaticString {
    /// For interpolation and comparison in tests.
    var text: String { description }
}

/// A record that owns its bytes. Each part is a heap block of exactly its size, without padding.
struct TestRecord {
    var key: [UInt8]?
    var value: [UInt8]?
    var headers: [(name: String, value: [UInt8]?)]
    var topic = "jobs"
    var partition: Int32 = 3
    var offset: Int64 = 42
    var timestamp: Int64 = 1_700_000_000_123

    init(key: [UInt8]?, value: [UInt8]?, headers: [(name: String, value: [UInt8]?)]) {
        self.key = key
        self.value = value
        self.headers = headers
    }

    init(key: String?, value: String?, headers: [(String, String?)] = []) {
        self.init(
            key: key.map { Array($0.utf8) }, value: value.map { Array($0.utf8) },
            headers: headers.map { (name: $0.0, value: $0.1.map { Array($0.utf8) }) })
    }

    init(_ job: EncodedJob) {
        self.init(
            key: job.key, value: job.value, headers: job.headers.map { (name: $0.name, value: $0.value) })
    }

    /// A record in structured mode.
    init(document: String, key: String? = TestRecord.token) {
        self.init(key: key, value: document, headers: [("content-type", "application/json")])
    }

    static let token = String(repeating: "0123456789abcdef", count: 4)
    static let payload = #"{"aps":{"alert":"Hello"}}"#

    /// A valid push in binary mode, with `changes` applied to its headers. A nil value removes its header.
    static func push(
        _ changes: [(String, String?)] = [], key: String? = token, value: String? = payload
    )
        -> TestRecord
    {
        var headers: [(String, String?)] = [("apns-topic", "com.example.app"), ("apns-push-type", "alert")]
        for (name, value) in changes {
            headers.removeAll { $0.0 == name }
            if let value { headers.append((name, value)) }
        }
        return TestRecord(key: key, value: value, headers: headers)
    }

    func withRecord<Result>(_ body: (JobRecord) throws -> Result) rethrows -> Result {
        var blocks: [UnsafeMutableRawBufferPointer] = []
        defer { for block in blocks { block.deallocate() } }
        func block(_ bytes: some Collection<UInt8>) -> UnsafeRawBufferPointer {
            let block = UnsafeMutableRawBufferPointer.allocate(byteCount: bytes.count, alignment: 1)
            block.copyBytes(from: bytes)
            blocks.append(block)
            return UnsafeRawBufferPointer(block)
        }
        let borrowed = headers.map {
            RecordHeader(name: block($0.name.utf8), value: $0.value.map { block($0) })
        }
        return try borrowed.withUnsafeBufferPointer { headers in
            try body(
                JobRecord(
                    key: key.map { block($0) }, value: value.map { block($0) }, headers: headers,
                    topic: block(topic.utf8), partition: partition, offset: offset,
                    timestampMilliseconds: timestamp))
        }
    }
}

extension PassedHeaders {
    /// Headers as `name: value`; a null value is "null".
    var texts: [String] {
        var texts: [String] = []
        forEach { texts.append("\($0.name.text): \($0.value?.text ?? "null")") }
        return texts
    }
}

/// A decoded job that outlives its record.
enum OwnedJob: Equatable {
    struct Push: Equatable {
        var deviceToken: String
        var isBroadcast = false
        var topic, payload: String
        var pushType: PushType
        var priority: Priority
        var apnsID: APNSID
        var expiration: Expiration
        var collapseIdentifier: String?
        var deliverAt: Int64?
        var delivery: DeliveryMode
        var receiptTimeout: UInt32
        var registeredAt: Int64?
        var duplicates: DuplicatePolicy
        var environment: JobEnvironment?
        var created: Int64
        var adjustments: JobAdjustments
        /// Passed headers as `name: value`; a null value is "null".
        var headers: [String]
    }

    case push(Push)
    case control(kind: JobKind, address: String, topic: String, detail: String)

    var push: Push? {
        guard case .push(let push) = self else { return nil }
        return push
    }

    init(_ job: DecodedJob, now: Int64) {
        switch job {
        case .push(let push):
            self = .push(
                Push(
                    deviceToken: push.deviceToken.text, isBroadcast: push.isBroadcast, topic: push.topic.text,
                    payload: push.payload.text,
                    pushType: push.pushType, priority: push.priority, apnsID: push.apnsID,
                    expiration: push.expiration, collapseIdentifier: push.collapseIdentifier?.text,
                    deliverAt: push.deliverAtMilliseconds, delivery: push.delivery,
                    receiptTimeout: push.receiptTimeoutSeconds, registeredAt: push.registeredAtMilliseconds,
                    duplicates: push.duplicates, environment: push.environment,
                    created: push.createdMilliseconds, adjustments: push.adjustments,
                    headers: push.passedHeaders.texts))
            push.release()
        case .control(let control):
            let detail =
                switch control.detail {
                case .cancelCollapseIdentifier(let text): "collapse \(text.text)"
                case .cancelNotification(let id): "cancel \(id)"
                case .online: "online"
                case .offline: "offline"
                case .unregistered: "unregistered"
                case .erase: "erase"
                case .receipt(let id): "receipt \(id)"
                case .tokenChanged(let token): "token \(token.text)"
                }
            self = .control(
                kind: control.kind, address: control.address.text, topic: control.topic.text, detail: detail)
            control.release()
        }
    }
}

/// Decodes all records with one decoder, as a worker does.
final class TestDecoder {
    private var decoder: JobDecoder
    var now: Int64 = 1_700_000_100_000

    init(_ settings: JobDecoder.Settings = .init()) { decoder = JobDecoder(settings) }

    var counts: JobDecoder.Counts { decoder.counts }

    func decode(_ record: TestRecord) -> Result<OwnedJob, JobError> {
        record.withRecord { record in
            do throws(JobError) {
                return .success(OwnedJob(try decoder.decode(record, nowMilliseconds: now), now: now))
            } catch {
                return .failure(error)
            }
        }
    }

    func error(_ record: TestRecord) -> JobError? {
        guard case .failure(let error) = decode(record) else { return nil }
        return error
    }

    func push(_ record: TestRecord) -> OwnedJob.Push? { try? decode(record).get().push }
}
