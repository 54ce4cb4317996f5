/// Rules for the `apns-topic` of a job.
public enum Topic {
    /// Longest topic in bytes. Apple's bundle identifiers have at most 155 characters; the longest suffix
    /// adds 23.
    public static let maximumLength = 255

    /// Letters, digits, hyphens and periods, no empty label: the charset of bundle identifiers.
    static func isWellFormed(_ topic: UnsafeRawBufferPointer) -> Bool {
        var previousWasPeriod = true
        for byte in topic {
            if byte == UInt8(ascii: ".") {
                if previousWasPeriod { return false }
                previousWasPeriod = true
            } else {
                guard isLetter(byte) || isDigit(byte) || byte == UInt8(ascii: "-") else { return false }
                previousWasPeriod = false
            }
        }
        return !previousWasPeriod
    }

    /// Whether the topic has the prefix or suffix that the push type asks for, with a name beside it, and not
    /// one that belongs to another type.
    static func matches(_ topic: UnsafeRawBufferPointer, _ type: PushType) -> Bool {
        if type == .mdm {
            return topic.count > type.topicPrefix.utf8CodeUnitCount && topic.hasPrefix(type.topicPrefix)
        }
        let suffix = type.topicSuffix
        if suffix.utf8CodeUnitCount == 0 { return !hasReservedSuffix(topic) }
        return topic.count > suffix.utf8CodeUnitCount && topic.hasSuffix(suffix)
    }

    /// Endings that only their own push type uses. A bundle identifier may well end in `.voip`, so the short
    /// suffixes are not among them.
    static func hasReservedSuffix(_ topic: UnsafeRawBufferPointer) -> Bool {
        topic.hasSuffix(".push-type.liveactivity") || topic.hasSuffix(".push-type.widgets")
            || topic.hasSuffix(".push-type.controls") || topic.hasSuffix(".pushkit.fileprovider")
    }
}

/// Rules for device tokens: opaque bytes in hexadecimal text.
///
/// Their length is variable by APNs' contract ("do not hard-code"). Ordinary tokens have 32 bytes and Live
/// Activity tokens of 80 bytes were seen; the limits leave room on both sides and still catch a truncated
/// token and a key that is something else.
public enum DeviceToken {
    /// Fewest hexadecimal digits: 16 bytes.
    public static let minimumLength = 32
    /// Most hexadecimal digits: 200 bytes.
    public static let maximumLength = 400

    /// Why a text is not a device token, or nil when it is one. Either case of hexadecimal digits is accepted
    /// and kept, because tokens are passed back to APNs unmodified.
    public static func violation(_ text: UnsafeRawBufferPointer) -> JobRule? {
        // Without a branch per byte, so that the compiler can take many at a time.
        var foreign: UInt8 = 0
        for byte in text {
            let isNoDigit: UInt8 = byte &- UInt8(ascii: "0") > 9 ? 1 : 0
            let isNoLetter: UInt8 = (byte | 0x20) &- UInt8(ascii: "a") > 5 ? 1 : 0
            foreign |= isNoDigit & isNoLetter
        }
        if foreign != 0 { return .hex }
        if text.count & 1 != 0 { return .evenLength }
        if text.count < minimumLength || text.count > maximumLength { return .length }
        return nil
    }
}

/// Rules for collapse identifiers.
public enum CollapseIdentifier {
    /// Why bytes are not a collapse identifier, or nil when they are one: 1 to
    /// ``JobLimits/maximumCollapseIdentifierLength`` bytes of printable ASCII without a blank at either end. That is always
    /// a legal field value in HTTP/2 (RFC 9113 §8.2.1), and the same 64 in bytes and in characters.
    public static func violation(_ text: UnsafeRawBufferPointer) -> JobRule? {
        guard (1...JobLimits.maximumCollapseIdentifierLength).contains(text.count) else { return .length }
        for byte in text where !(0x20...0x7E).contains(byte) { return .charset }
        return text[0] == 0x20 || text[text.count - 1] == 0x20 ? .charset : nil
    }
}
