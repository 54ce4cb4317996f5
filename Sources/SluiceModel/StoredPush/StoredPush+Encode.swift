extension StoredPush {
    /// Appends the stored form. The push must fit into the format, as every decoded push does.
    public func encode(into writer: inout ByteWriter) {
        let token = push.deviceToken
        precondition(isStorable, "a push that does not fit into the format can't be stored")
        let flags = flags
        let further = Extension(of: push)
        writer.append(further.isEmpty ? Self.plainVersion : Self.extendedVersion)
        writer.append(littleEndian: flags.rawValue)
        writer.append(
            push.pushType.storedCode | push.priority.storedCode << 4 | push.delivery.storedCode << 6)
        writer.append(UInt8(token.count / 2))
        writer.append(UInt8(push.topic.count))
        writer.append(UInt8(push.collapseIdentifier?.count ?? 0))
        writer.append(littleEndian: UInt16(push.payload.count))
        writer.append(littleEndian: push.apnsID.high)
        writer.append(littleEndian: push.apnsID.low)
        encodeNumbers(flags, into: &writer)
        if !further.isEmpty { writer.append(varint: further.rawValue) }
        if further.contains(.passedHeaders) {
            writer.append(varint: UInt64(push.passedHeaders.bytes.count))
            writer.append(push.passedHeaders.bytes)
        }
        if flags.isDisjoint(with: .packedToken) {
            writer.append(token)
        } else {
            writer.append(packing: token)
        }
        writer.append(push.topic)
        if let identifier = push.collapseIdentifier { writer.append(identifier) }
        writer.append(push.payload)
    }

    /// True when the encoded push can be decoded.
    private var isStorable: Bool {
        let token = push.deviceToken
        return (1...Self.longestToken).contains(token.count) && token.count & 1 == 0
            && DeviceToken.violation(token) != .hex
            && push.topic.count <= UInt8.max
            && (1...Int(UInt8.max)).contains(push.collapseIdentifier?.count ?? 1)
            && push.payload.count <= UInt16.max
    }

    private func encodeNumbers(_ flags: Flags, into writer: inout ByteWriter) {
        let created = push.createdMilliseconds
        func instant(_ milliseconds: Int64, _ writer: inout ByteWriter) {
            writer.append(varint: zigzag(milliseconds &- created))
        }
        writer.append(varint: zigzag(created))
        instant(polledMilliseconds, &writer)
        writer.append(varint: zigzag(Int64(partition)))
        writer.append(varint: zigzag(offset))
        if case .at(let seconds) = push.expiration {
            writer.append(varint: zigzag(Int64(seconds) - created / 1000))
        }
        if let deliverAt = push.deliverAtMilliseconds { instant(deliverAt, &writer) }
        if let registered = push.registeredAtMilliseconds { instant(registered, &writer) }
        if flags.contains(.receiptTimeout) { writer.append(varint: UInt64(push.receiptTimeoutSeconds)) }
        if flags.contains(.attempts) {
            writer.append(varint: UInt64(progress.attempts))
            writer.append(varint: UInt64(progress.failures))
        }
        if let sent = progress.firstSentMilliseconds { instant(sent, &writer) }
        if let expiry = progress.expiryMilliseconds { instant(expiry, &writer) }
        if let wake = progress.wakeMilliseconds { instant(wake, &writer) }
        if flags.contains(.storeVersion) { writer.append(varint: progress.storeVersion) }
    }

    private var flags: Flags {
        var flags = Flags.wait(progress.wait)
        switch HexadecimalText.letterCases(push.deviceToken) {
        case (_, false): flags.insert(.lowerCaseToken)
        case (false, true): flags.insert(.upperCaseToken)
        case (true, true): break
        }
        switch push.expiration {
        case .unspecified: break
        case .once: flags.insert(.expiresOnce)
        case .at: flags.insert(.expiration)
        }
        if push.deliverAtMilliseconds != nil { flags.insert(.deliverAt) }
        if push.registeredAtMilliseconds != nil { flags.insert(.registeredAt) }
        if push.receiptTimeoutSeconds != JobLimits.defaultReceiptTimeout { flags.insert(.receiptTimeout) }
        if push.duplicates == .avoid { flags.insert(.avoidsDuplicates) }
        if progress.attempts != 0 || progress.failures != 0 { flags.insert(.attempts) }
        if progress.firstSentMilliseconds != nil { flags.insert(.firstSent) }
        if progress.expiryMilliseconds != nil { flags.insert(.expiry) }
        if progress.storeVersion != 0 { flags.insert(.storeVersion) }
        if progress.wakeMilliseconds != nil { flags.insert(.wake) }
        return flags
    }
}

/// Maps small integers of either sign to small unsigned ones: 0, -1, 1, -2, 2, ….
func zigzag(_ value: Int64) -> UInt64 { UInt64(bitPattern: value &<< 1 ^ value &>> 63) }

/// Reverses `zigzag`.
func unzigzag(_ value: UInt64) -> Int64 { Int64(bitPattern: value &>> 1) ^ -Int64(bitPattern: value & 1) }

// Codes of the format. They never change when cases are added, so they are no raw values.

extension PushType {
    var storedCode: UInt8 {
        switch self {
        case .alert: 0
        case .background: 1
        case .voip: 2
        case .complication: 3
        case .fileProvider: 4
        case .mdm: 5
        case .location: 6
        case .liveActivity: 7
        case .pushToTalk: 8
        case .widgets: 9
        case .controls: 10
        }
    }

    init?(storedCode: UInt8) {
        switch storedCode {
        case 0: self = .alert
        case 1: self = .background
        case 2: self = .voip
        case 3: self = .complication
        case 4: self = .fileProvider
        case 5: self = .mdm
        case 6: self = .location
        case 7: self = .liveActivity
        case 8: self = .pushToTalk
        case 9: self = .widgets
        case 10: self = .controls
        default: return nil
        }
    }
}

extension Priority {
    var storedCode: UInt8 {
        switch self {
        case .immediate: 0
        case .powerAware: 1
        case .lowPower: 2
        }
    }

    init?(storedCode: UInt8) {
        switch storedCode {
        case 0: self = .immediate
        case 1: self = .powerAware
        case 2: self = .lowPower
        default: return nil
        }
    }
}

extension DeliveryMode {
    var storedCode: UInt8 {
        switch self {
        case .accept: 0
        case .holdWhileOffline: 1
        case .confirm: 2
        }
    }

    init?(storedCode: UInt8) {
        switch storedCode {
        case 0: self = .accept
        case 1: self = .holdWhileOffline
        case 2: self = .confirm
        default: return nil
        }
    }
}

extension StoredPush.Wait {
    var storedCode: UInt8 {
        switch self {
        case .none: 0
        case .retrying: 1
        case .confirming: 2
        case .held: 3
        case .suspended: 4
        }
    }

    init?(storedCode: UInt8) {
        switch storedCode {
        case 0: self = .none
        case 1: self = .retrying
        case 2: self = .confirming
        case 3: self = .held
        case 4: self = .suspended
        default: return nil
        }
    }
}
