extension StoredPush {
    /// Returns the bytes that ``init(decoding:tokenText:)`` needs for the device token's text; 0 where the token is
    /// stored as text.
    public static func tokenTextLength(of bytes: UnsafeRawBufferPointer) throws(StoredPushError) -> Int {
        let flags = try checkedFlags(of: bytes)
        return flags.isDisjoint(with: .packedToken) ? 0 : 2 * Int(bytes[Place.tokenCount])
    }

    /// Reads a stored push without copying: the push's slices point into `bytes`. Only the digits of a packed device
    /// token are written to `tokenText`. Both buffers must outlive the push, which owns neither.
    ///
    /// Only the form is checked here. A push of another version may exceed a limit of this version: see
    /// ``unsendablePart``.
    /// - Parameter tokenText: room for ``tokenTextLength(of:)`` bytes, ``longestToken`` at the most.
    public init(
        decoding bytes: UnsafeRawBufferPointer, tokenText: UnsafeMutableRawBufferPointer
    ) throws(StoredPushError) {
        let flags = try Self.checkedFlags(of: bytes)
        let codes = bytes[Place.codes]
        guard let pushType = PushType(storedCode: codes & 15) else { throw .invalid(.pushType) }
        guard let priority = Priority(storedCode: codes >> 4 & 3) else { throw .invalid(.priority) }
        guard let delivery = DeliveryMode(storedCode: codes >> 6) else { throw .invalid(.delivery) }

        var reader = NumberReader(bytes, from: Place.end)
        let created = try reader.signed(.created)
        guard Self.instants.contains(created) else { throw .invalid(.created) }
        let polled = try reader.instant(.polled, since: created)
        guard let partition = Int32(exactly: try reader.signed(.partition)) else {
            throw .invalid(.partition)
        }
        let offset = try reader.signed(.offset)
        var expiration = flags.contains(.expiresOnce) ? Expiration.once : .unspecified
        if flags.contains(.expiration) {
            let seconds = created / 1000 &+ (try reader.signed(.expiration))
            guard let seconds = UInt32(exactly: seconds) else { throw .invalid(.expiration) }
            expiration = .at(seconds)
        }
        let deliverAt = try flags.contains(.deliverAt) ? reader.instant(.deliverAt, since: created) : nil
        let registered =
            try flags.contains(.registeredAt) ? reader.instant(.registeredAt, since: created) : nil
        let timeout =
            try flags.contains(.receiptTimeout)
            ? reader.small(.receiptTimeout) : JobLimits.defaultReceiptTimeout
        var progress = Progress(wait: flags.wait ?? .none)
        if flags.contains(.attempts) {
            progress.attempts = try reader.small(.attempts)
            progress.failures = try reader.small(.failures)
        }
        if flags.contains(.firstSent) {
            progress.firstSentMilliseconds = try reader.instant(.firstSent, since: created)
        }
        if flags.contains(.expiry) {
            progress.expiryMilliseconds = try reader.instant(.expiry, since: created)
        }
        if flags.contains(.wake) { progress.wakeMilliseconds = try reader.instant(.wake, since: created) }
        if flags.contains(.storeVersion) { progress.storeVersion = try reader.number(.storeVersion) }
        var further: Extension = []
        var passed = PassedHeaders.none
        if bytes[0] == Self.extendedVersion {
            further = Extension(rawValue: try reader.number(.extendedFlags))
            guard further.isValid else { throw .invalid(.extendedFlags) }
            if further.contains(.passedHeaders) {
                guard let headers = PassedHeaders(checking: try reader.bytes(.passedHeaders)),
                    !headers.isEmpty
                else { throw .invalid(.passedHeaders) }
                passed = headers
            }
        }

        let texts = try Texts(bytes, from: reader.index, flags, tokenText: tokenText)
        self.init(
            push: PushJob(
                deviceToken: texts.deviceToken, topic: texts.topic, pushType: pushType, priority: priority,
                apnsID: APNSID(
                    high: UInt64(
                        littleEndian: bytes.loadUnaligned(fromByteOffset: Place.apnsID, as: UInt64.self)),
                    low: UInt64(
                        littleEndian: bytes.loadUnaligned(fromByteOffset: Place.apnsID + 8, as: UInt64.self))),
                expiration: expiration, collapseIdentifier: texts.collapseIdentifier, payload: texts.payload,
                deliverAtMilliseconds: deliverAt, delivery: delivery, receiptTimeoutSeconds: timeout,
                registeredAtMilliseconds: registered,
                duplicates: flags.contains(.avoidsDuplicates) ? .avoid : .allow,
                environment: further.environment, createdMilliseconds: created,
                adjustments: further.adjustments, passedHeaders: passed),
            progress: progress, partition: partition, offset: offset, polledMilliseconds: polled)
    }

    /// Returns ``topicHash(_:)`` of a stored push that waits with its topic. Nil: the push waits for something else, or
    /// the bytes aren't a stored push.
    public static func suspendedTopic(of bytes: UnsafeRawBufferPointer) -> UInt32? {
        guard let flags = try? checkedFlags(of: bytes), flags.wait == .suspended else { return nil }
        let length = Int(bytes[Place.topicCount])
        let payload = bytes.loadUnaligned(fromByteOffset: Place.payloadCount, as: UInt16.self)
        let start =
            bytes.count - Int(UInt16(littleEndian: payload)) - Int(bytes[Place.collapseCount]) - length
        guard start >= Place.end else { return nil }
        let environment = bytes[0] == extendedVersion ? further(of: bytes, flags)?.environment : nil
        return topicHash(UnsafeRawBufferPointer(rebasing: bytes[start..<start + length]), environment)
    }

    /// Returns the flags of further parts without decoding the parts before; nil when the bytes end before.
    private static func further(of bytes: UnsafeRawBufferPointer, _ flags: Flags) -> Extension? {
        // Created, polled, partition and offset; failures follow attempts.
        let optional: [Flags] = [
            .expiration, .deliverAt, .registeredAt, .receiptTimeout, .attempts, .attempts, .firstSent,
            .expiry,
            .wake, .storeVersion,
        ]
        let numbers = 4 + optional.count { flags.contains($0) }
        var reader = NumberReader(bytes, from: Place.end)
        for _ in 0..<numbers {
            guard (try? reader.number(.extendedFlags)) != nil else { return nil }
        }
        return (try? reader.number(.extendedFlags)).map { Extension(rawValue: $0) }
    }

    /// Returns a hash of a topic's name and of the environment that a push names (FNV-1a). By the hash a store finds
    /// the pushes that wait with the topic. Two topics may have the same hash.
    public static func topicHash(
        _ name: UnsafeRawBufferPointer, _ environment: JobEnvironment? = nil
    ) -> UInt32 {
        var hash: UInt32 = 0x811c_9dc5
        for byte in name { hash = (hash ^ UInt32(byte)) &* 0x0100_0193 }
        if let environment { hash = (hash ^ UInt32(environment.rawValue) ^ 0xff) &* 0x0100_0193 }
        return hash
    }

    /// Returns the flags of a complete head of a known version.
    private static func checkedFlags(of bytes: UnsafeRawBufferPointer) throws(StoredPushError) -> Flags {
        guard bytes.count > 0 else { throw .truncated }
        guard bytes[0] == plainVersion || bytes[0] == extendedVersion else { throw .version(bytes[0]) }
        guard bytes.count >= Place.end else { throw .truncated }
        let flags = Flags(
            rawValue: UInt16(
                littleEndian: bytes.loadUnaligned(fromByteOffset: Place.flags, as: UInt16.self)))
        guard flags.wait != nil, !flags.isSuperset(of: .packedToken),
            !flags.isSuperset(of: [.expiresOnce, .expiration])
        else { throw .invalid(.flags) }
        return flags
    }

    /// The four byte runs behind the numbers.
    private struct Texts {
        var deviceToken: UnsafeRawBufferPointer
        var topic: UnsafeRawBufferPointer
        var collapseIdentifier: UnsafeRawBufferPointer?
        var payload: UnsafeRawBufferPointer

        init(
            _ bytes: UnsafeRawBufferPointer, from start: Int, _ flags: Flags,
            tokenText: UnsafeMutableRawBufferPointer
        ) throws(StoredPushError) {
            let isPacked = !flags.isDisjoint(with: .packedToken)
            let digits = 2 * Int(bytes[Place.tokenCount])
            let topicStart = start + (isPacked ? digits / 2 : digits)
            let collapseStart = topicStart + Int(bytes[Place.topicCount])
            let payloadStart = collapseStart + Int(bytes[Place.collapseCount])
            let payloadCount = Int(
                UInt16(littleEndian: bytes.loadUnaligned(fromByteOffset: Place.payloadCount, as: UInt16.self))
            )
            let end = payloadStart + payloadCount
            guard end <= bytes.count else { throw .truncated }
            guard end == bytes.count else { throw .trailing(bytes.count - end) }

            let token = bytes.slice(start..<topicStart)
            if isPacked {
                guard digits > 0 else { throw .invalid(.deviceToken) }
                guard let target = tokenText.baseAddress, tokenText.count >= digits else {
                    throw .tokenText(needed: digits)
                }
                HexadecimalText.unpack(token, upperCase: flags.contains(.upperCaseToken), into: target)
                deviceToken = UnsafeRawBufferPointer(start: target, count: digits)
            } else {
                guard digits > 0, DeviceToken.violation(token) != .hex else { throw .invalid(.deviceToken) }
                deviceToken = token
            }
            topic = bytes.slice(topicStart..<collapseStart)
            if payloadStart > collapseStart {
                collapseIdentifier = bytes.slice(collapseStart..<payloadStart)
            }
            payload = bytes.slice(payloadStart..<end)
        }
    }
}

/// Reads varints (LEB128).
private struct NumberReader {
    private let bytes: UnsafeRawBufferPointer
    private(set) var index: Int

    init(_ bytes: UnsafeRawBufferPointer, from start: Int) {
        self.bytes = bytes
        index = start
    }

    mutating func number(_ part: StoredPushError.Part) throws(StoredPushError) -> UInt64 {
        var value: UInt64 = 0
        var shift: UInt64 = 0
        while index < bytes.count {
            let byte = bytes[index]
            index &+= 1
            // The tenth byte has the last bit.
            if shift == 63, byte > 1 { throw .invalid(part) }
            value |= UInt64(byte & 0x7F) &<< shift
            if byte < 0x80 { return value }
            shift &+= 7
        }
        throw .truncated
    }

    mutating func signed(_ part: StoredPushError.Part) throws(StoredPushError) -> Int64 {
        unzigzag(try number(part))
    }

    mutating func instant(_ part: StoredPushError.Part, since created: Int64) throws(StoredPushError) -> Int64
    {
        let instant = created &+ (try signed(part))
        guard StoredPush.instants.contains(instant) else { throw .invalid(part) }
        return instant
    }

    /// Reads a length and as many bytes.
    mutating func bytes(_ part: StoredPushError.Part) throws(StoredPushError) -> UnsafeRawBufferPointer {
        let count = try number(part)
        guard count <= UInt64(bytes.count - index) else { throw .truncated }
        let start = index
        index += Int(count)
        return bytes.slice(start..<index)
    }

    mutating func small(_ part: StoredPushError.Part) throws(StoredPushError) -> UInt32 {
        guard let value = UInt32(exactly: try number(part)) else { throw .invalid(part) }
        return value
    }
}
