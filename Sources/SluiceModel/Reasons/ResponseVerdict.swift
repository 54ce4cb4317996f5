/// APNs' answer to a push, classified.
public struct ResponseVerdict: Sendable {
    /// HTTP status.
    public var status: UInt16
    /// Parsed reason; ``Reason/absent`` when the body has no readable reason.
    public var reason: Reason
    /// Text of a reason that is ``Reason/unknown``; empty otherwise.
    public var unknownReason: ReasonText
    /// Class of the answer, by its reason or else its status.
    public var `class`: ReasonClass
    /// Time at which APNs established that the token was invalid, in milliseconds since the epoch. Sent with 410; nil
    /// without it.
    public var timestampMilliseconds: Int64?

    /// Classifies an answer. A body other than the documented JSON is no error: the status decides then.
    public static func classify(status: UInt16, body: UnsafeRawBufferPointer) -> ResponseVerdict {
        if (200..<300).contains(status) {
            return ResponseVerdict(
                status: status, reason: .absent, unknownReason: ReasonText(), class: .accepted,
                timestampMilliseconds: nil)
        }
        let content = ReasonBody(body)
        let isKnown = content.reason != .absent && content.reason != .unknown
        return ResponseVerdict(
            status: status, reason: content.reason, unknownReason: content.unknownReason,
            class: isKnown ? content.reason.class : .fallback(status: status),
            timestampMilliseconds: content.timestampMilliseconds)
    }

    /// Text of the reason for people; `none` without a reason.
    public var reasonText: String {
        switch reason {
        case .absent: "none"
        case .unknown: "\(unknownReason)"
        default: "\(reason.name)"
        }
    }

    /// Returns whether the sender should delete the device token.
    ///
    /// True only with 410, and when the device didn't register the token again after the instant that APNs names.
    /// - Parameter registeredAtMilliseconds: when the app registered the token, in milliseconds since the epoch; nil:
    ///   unknown.
    public func retiresToken(registeredAtMilliseconds: Int64?) -> Bool {
        guard `class` == .token, status == 410 else { return false }
        guard let registered = registeredAtMilliseconds else { return true }
        return timestampMilliseconds.map { registered < $0 } ?? false
    }

    /// True when the device token may be at fault. Environment or topic may be at fault as well: a wrong setting makes
    /// them wrong for every token.
    public var suspectsToken: Bool { `class` == .token && status != 410 }
}

/// The JSON that APNs sends with an error and as the debug data of a GOAWAY:
/// `{"reason":"…","timestamp":…}`.
public struct ReasonBody: Sendable {
    /// Parsed reason; ``Reason/absent`` when the body has no readable reason.
    public private(set) var reason = Reason.absent
    /// Text of an unknown reason.
    public private(set) var unknownReason = ReasonText()
    /// Timestamp in milliseconds since the epoch; nil when the body has none.
    public private(set) var timestampMilliseconds: Int64?

    /// Longest parsed body, in bytes; APNs sends less than 100 bytes.
    static let maximumLength = 4096

    /// Parses a body; any bytes are valid input.
    public init(_ body: UnsafeRawBufferPointer) {
        guard body.count <= Self.maximumLength else { return }
        var members = JSONMembers(body)
        while let member = members.next() {
            if member.name.elementsEqual(bytesOf: "reason"), member.value[0] == UInt8(ascii: "\"") {
                let text = member.value.slice(1..<member.value.count - 1)
                reason = Reason.parse(name: text)
                unknownReason = reason == .unknown ? ReasonText(text) : ReasonText()
            } else if member.name.elementsEqual(bytesOf: "timestamp"), isDigit(member.value[0]) {
                timestampMilliseconds = jsonInteger(member.value)
            }
        }
    }
}

/// An unknown reason of 1 to 48 letters, inline; `unknown` for any other text. A server may repeat what it was sent, and
/// neither a device token nor a provider token consists of so few letters alone.
public struct ReasonText: Sendable, CustomStringConvertible {
    static let capacity = 48
    private var storage = InlineArray<48, UInt8>(repeating: 0)
    /// Number of letters, 0 to 48; 0 only without a text.
    public private(set) var count = 0

    /// The empty text.
    public init() {}

    /// Keeps a text of 1 to 48 ASCII letters; `unknown` takes the place of another.
    public init(_ text: UnsafeRawBufferPointer) {
        let isShown = (1...Self.capacity).contains(text.count) && text.allSatisfy { isLetter($0) }
        for byte in isShown ? text : ("unknown" as StaticString).bytes {
            storage[count] = byte
            count += 1
        }
    }

    /// Keeps a text of 1 to 48 ASCII letters; `unknown` takes the place of another.
    init(_ text: String) {
        var text = text
        self = text.withUTF8 { ReasonText(UnsafeRawBufferPointer($0)) }
    }

    subscript(index: Int) -> UInt8 { storage[index] }

    public var description: String {
        String(unsafeUninitializedCapacity: Self.capacity) { buffer in
            for index in 0..<count { buffer[index] = storage[index] }
            return count
        }
    }
}
