/// Rules for the `apns-topic` of a job.
public enum Topic {
    /// Longest topic in bytes. Apple's bundle identifiers have at most 155 characters; the longest suffix
    /// adds 23.
    public static let maximumLength = 255

    /// Returns whether the topic has only letters, digits, hyphens, underscores and periods, and no empty label.
    ///
    /// Apple documents no underscores in bundle identifiers, but its tools accept some. APNs decides on them.
    static func isWellFormed(_ topic: UnsafeRawBufferPointer) -> Bool {
        guard let first = topic.first, let last = topic.last else { return false }
        let period = UInt8(ascii: ".")
        // Without a branch per byte, so that the compiler can vectorise both loops.
        var foreign: UInt8 = 0
        for byte in topic {
            let isNoLetter: UInt8 = (byte | 0x20) &- UInt8(ascii: "a") > 25 ? 1 : 0
            let isNoDigit: UInt8 = byte &- UInt8(ascii: "0") > 9 ? 1 : 0
            let isNoMark: UInt8 =
                byte != period && byte != UInt8(ascii: "-") && byte != UInt8(ascii: "_") ? 1 : 0
            foreign |= isNoLetter & isNoDigit & isNoMark
        }
        var empty: UInt8 = 0
        for index in 1..<topic.count {
            empty |= topic[index] == period && topic[index &- 1] == period ? 1 : 0
        }
        return foreign | empty == 0 && first != period && last != period
    }

    /// Returns whether a text can be the topic of a job.
    public static func isValid(_ text: String) -> Bool {
        var text = text
        return text.withUTF8 { $0.count <= maximumLength && isWellFormed(UnsafeRawBufferPointer($0)) }
    }

    /// Returns whether the topic has the push type's prefix or suffix, with a name beside it. A type without a suffix
    /// refuses a suffix that is reserved for another type.
    static func matches(_ topic: UnsafeRawBufferPointer, _ type: PushType) -> Bool {
        if type == .mdm {
            return topic.count > type.topicPrefix.utf8CodeUnitCount && topic.hasPrefix(type.topicPrefix)
        }
        let suffix = type.topicSuffix
        if suffix.utf8CodeUnitCount == 0 { return !hasReservedSuffix(topic) }
        return topic.count > suffix.utf8CodeUnitCount && topic.hasSuffix(suffix)
    }

    /// Returns whether the topic has a suffix that only its own push type uses. A bundle identifier may well end in
    /// `.voip`, so the short suffixes are not reserved.
    static func hasReservedSuffix(_ topic: UnsafeRawBufferPointer) -> Bool {
        topic.hasSuffix(".push-type.liveactivity") || topic.hasSuffix(".push-type.widgets")
            || topic.hasSuffix(".push-type.controls") || topic.hasSuffix(".pushkit.fileprovider")
    }
}

/// Rules for device tokens: opaque bytes in hexadecimal text.
///
/// Their length is variable by APNs' contract ("do not hard-code"). Ordinary tokens have 32 bytes, and Live Activity
/// tokens of 80 bytes were seen. The limits leave room on both sides, and still catch a truncated token and a key that
/// is something else.
public enum DeviceToken {
    /// Fewest hexadecimal digits: 16 bytes.
    public static let minimumLength = 32
    /// Most hexadecimal digits: 200 bytes.
    public static let maximumLength = 400
    /// Form of a device token, for people.
    public static let grammar = "an even number of hexadecimal digits, \(minimumLength) to \(maximumLength)"

    /// Returns whether a text is a device token.
    public static func isValid(_ text: String) -> Bool {
        var text = text
        return text.withUTF8 { violation(UnsafeRawBufferPointer($0)) == nil }
    }

    /// Returns the rule that a text breaks; nil when it is a device token. Either case of hexadecimal digits is
    /// accepted and kept, because tokens are passed to APNs unmodified.
    public static func violation(_ text: UnsafeRawBufferPointer) -> JobRule? {
        // Has no branch per byte, so that the compiler can vectorise the loop.
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
    /// Returns the rule that bytes break; nil when they are a collapse identifier. Valid are 1 to
    /// ``JobLimits/maximumCollapseIdentifierLength`` bytes of printable ASCII without a blank at either end. Such bytes
    /// are always a legal field value in HTTP/2 (RFC 9113 §8.2.1), and 64 bytes are 64 characters.
    public static func violation(_ text: UnsafeRawBufferPointer) -> JobRule? {
        guard (1...JobLimits.maximumCollapseIdentifierLength).contains(text.count) else { return .length }
        for byte in text where !(0x20...0x7E).contains(byte) { return .charset }
        return text[0] == 0x20 || text[text.count - 1] == 0x20 ? .charset : nil
    }
}
