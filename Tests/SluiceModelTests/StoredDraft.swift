import SluiceModel

/// A stored push that owns its bytes.
struct StoredDraft: Equatable {
    var token, topic, payload: String
    var collapse: String?
    var type: PushType
    var priority: Priority
    var apnsID: APNSID
    var expiration: Expiration
    var deliverAt: Int64?
    var delivery: DeliveryMode
    var receiptTimeout: UInt32
    var registeredAt: Int64?
    var duplicates: DuplicatePolicy
    var environment: JobEnvironment?
    var adjustments: JobAdjustments
    /// Row of the passed headers.
    var headers: [UInt8]
    var created: Int64
    var partition: Int32
    var offset: Int64
    var polled: Int64
    var progress: StoredPush.Progress

    /// Any valid push. Each optional part is present half of the time.
    init(seed: UInt64) {
        var random = SeededGenerator(seed: seed)
        func chance() -> Bool { random.next() & 1 == 0 }
        func instant() -> Int64 { .random(in: JobLimits.instant, using: &random) }
        func optionalInstant() -> Int64? { chance() ? instant() : nil }
        func text(_ characters: String, _ count: ClosedRange<Int>) -> String {
            String(
                (0..<Int.random(in: count, using: &random)).map { _ in
                    characters.randomElement(using: &random)!
                })
        }
        let digits = ["0123456789abcdef", "0123456789ABCDEF", "0123456789abcdefABCDEF", "0123456789"]
        token = text(digits.randomElement(using: &random)!, 16...200)
        token += text("0123456789", token.utf8.count...token.utf8.count)
        topic = text("abcXYZ019-", 1...80) + "." + text("abcXYZ019-", 1...80)
        payload = #"{"aps":{"alert":""# + text("aé💌 ", 0...300) + #""}}"#
        collapse = chance() ? "!" + text(" abc~\"\\", 0...62) + "~" : nil
        type = PushType.allCases.randomElement(using: &random)!
        priority = Priority.allCases.randomElement(using: &random)!
        apnsID = APNSID(high: random.next(), low: random.next())
        expiration =
            chance() ? .at(UInt32(truncatingIfNeeded: random.next())) : chance() ? .once : .unspecified
        deliverAt = optionalInstant()
        delivery = DeliveryMode.allCases.randomElement(using: &random)!
        receiptTimeout =
            chance() ? JobLimits.defaultReceiptTimeout : UInt32.random(in: 1...86_400, using: &random)
        registeredAt = optionalInstant()
        duplicates = chance() ? .allow : .avoid
        created = instant()
        partition = .random(in: 0...1000, using: &random)
        offset = .random(in: 0...(1 << UInt64.random(in: 0...62, using: &random)), using: &random)
        polled = created + .random(in: -5000...5_000_000, using: &random)
        progress = StoredPush.Progress(
            attempts: chance() ? 0 : .random(in: 1...1000, using: &random),
            failures: chance() ? 0 : .random(in: 1...1000, using: &random),
            firstSentMilliseconds: optionalInstant(), expiryMilliseconds: optionalInstant(),
            wait: StoredPush.Wait.allCases.randomElement(using: &random)!,
            wakeMilliseconds: optionalInstant(),
            storeVersion: chance() ? 0 : random.next())
        environment = chance() ? nil : JobEnvironment.allCases.randomElement(using: &random)!
        let adjusted: [JobAdjustments] = [.createdAt, .registeredAt, .timestamp]
        adjustments = chance() ? [] : adjusted.randomElement(using: &random)!
        headers = []
        if chance() {
            for _ in 0..<Int.random(in: 1...4, using: &random) {
                let value = chance() ? nil : text("0123456789abcdef-", 0...55)
                headers += Self.row([(text("abx-", 1...20), value)])
            }
        }
    }

    init(_ stored: StoredPush) {
        let push = stored.push
        token = push.deviceToken.text
        topic = push.topic.text
        payload = push.payload.text
        collapse = push.collapseIdentifier?.text
        type = push.pushType
        priority = push.priority
        apnsID = push.apnsID
        expiration = push.expiration
        deliverAt = push.deliverAtMilliseconds
        delivery = push.delivery
        receiptTimeout = push.receiptTimeoutSeconds
        registeredAt = push.registeredAtMilliseconds
        duplicates = push.duplicates
        environment = push.environment
        adjustments = push.adjustments
        headers = Array(push.passedHeaders.bytes)
        created = push.createdMilliseconds
        partition = stored.partition
        offset = stored.offset
        polled = stored.polledMilliseconds
        progress = stored.progress
    }

    /// Row of passed headers.
    static func row(_ headers: [(String, String?)]) -> [UInt8] {
        headers.flatMap { name, value in
            let count = UInt16(value?.utf8.count ?? 0xFFFF)
            return [UInt8(name.utf8.count), UInt8(truncatingIfNeeded: count), UInt8(count >> 8)]
                + Array(name.utf8) + Array((value ?? "").utf8)
        }
    }

    func encoded() -> [UInt8] {
        headers.withUnsafeBytes { encoded(PassedHeaders(checking: $0) ?? .none) }
    }

    private func encoded(_ headers: PassedHeaders) -> [UInt8] {
        token.withBytes { token in
            topic.withBytes { topic in
                payload.withBytes { payload in
                    (collapse ?? "").withBytes { identifier in
                        let push = PushJob(
                            deviceToken: token, topic: topic, pushType: type, priority: priority,
                            apnsID: apnsID, expiration: expiration,
                            collapseIdentifier: collapse == nil ? nil : identifier, payload: payload,
                            deliverAtMilliseconds: deliverAt, delivery: delivery,
                            receiptTimeoutSeconds: receiptTimeout, registeredAtMilliseconds: registeredAt,
                            duplicates: duplicates, environment: environment, createdMilliseconds: created,
                            adjustments: adjustments, passedHeaders: headers)
                        var writer = ByteWriter(minimumCapacity: 1)
                        StoredPush(
                            push: push, progress: progress, partition: partition, offset: offset,
                            polledMilliseconds: polled
                        ).encode(into: &writer)
                        return Array(writer.bytes)
                    }
                }
            }
        }
    }

    /// Nil: the bytes are not a stored push.
    init?(decoding bytes: [UInt8]) {
        guard case .success(let draft) = Self.decode(bytes, room: StoredPush.longestToken) else {
            return nil
        }
        self = draft
    }

    static func error(decoding bytes: [UInt8], room: Int = StoredPush.longestToken) -> StoredPushError? {
        guard case .failure(let error) = decode(bytes, room: room) else { return nil }
        return error
    }

    /// Decodes from blocks of exactly the size.
    private static func decode(_ bytes: [UInt8], room: Int) -> Result<StoredDraft, StoredPushError> {
        let block = UnsafeMutableRawBufferPointer.allocate(byteCount: bytes.count, alignment: 1)
        block.copyBytes(from: bytes)
        let text = UnsafeMutableRawBufferPointer.allocate(byteCount: room, alignment: 1)
        defer {
            block.deallocate()
            text.deallocate()
        }
        do throws(StoredPushError) {
            return .success(
                StoredDraft(try StoredPush(decoding: UnsafeRawBufferPointer(block), tokenText: text)))
        } catch {
            return .failure(error)
        }
    }
}
