import SluiceModel

/// Members of a Live Activity's `aps` that concern APNs (APNs: "Starting and updating Live Activities with ActivityKit
/// push notifications").
struct LiveActivityPayload {
    /// Value of `event`; nil when it is absent.
    private(set) var event: [UInt8]?
    /// Value of `input-push-channel`; nil when it is absent.
    private(set) var channel: [UInt8]?
    /// Value of `input-push-token`, as it is written; nil when it is absent.
    private(set) var token: [UInt8]?

    /// Reads a payload; nil when the text is not a JSON object.
    init?(_ body: UnsafeRawBufferPointer) {
        guard (try? JSONScanner.validateObject(body)) != nil else { return nil }
        var scanner = JSONScanner(body)
        try? scanner.members { name, scanner throws(JSONFault) in
            guard name.equals("\"aps\"") else { return try scanner.skipValue() }
            scanner.skipWhitespace()
            guard scanner.peek == UInt8(ascii: "{") else { return try scanner.skipValue() }
            try scanner.members { name, scanner throws(JSONFault) in
                let value = try scanner.value()
                if name.equals("\"event\"") {
                    event = Self.text(value)
                } else if name.equals("\"input-push-channel\"") {
                    channel = Self.text(value)
                } else if name.equals("\"input-push-token\"") {
                    token = Array(value)
                }
            }
        }
    }

    var isStart: Bool { event.map { $0 == Array("start".utf8) } ?? false }

    /// Checks the members that a push to a device may have. Returns `absent` if they are good. No page names the
    /// reasons, nor whether APNs checks at all.
    func checkForDevice() -> Reason {
        guard channel != nil || token != nil else { return .absent }
        guard isStart else { return .badRequestPayload }
        if let token, token != [UInt8(ascii: "1")] { return .badRequestPayload }
        if let channel, !channel.withUnsafeBytes({ ChannelIdentifier.isValid($0) }) { return .badChannelId }
        return .absent
    }

    /// Content of a JSON string without its quotes; empty for other values. An escaped slash, which some encoders write
    /// in base64, is a slash.
    private static func text(_ value: UnsafeRawBufferPointer) -> [UInt8] {
        guard value.count >= 2, value.first == UInt8(ascii: "\"") else { return [] }
        var text: [UInt8] = []
        var index = 1
        while index < value.count - 1 {
            if value[index] == UInt8(ascii: "\\"), value[index + 1] == UInt8(ascii: "/") { index += 1 }
            text.append(value[index])
            index += 1
        }
        return text
    }
}

extension JSONScanner {
    /// Walks the members of the object at the cursor. `body` receives each name with its quotes, and moves the scanner
    /// past the value.
    fileprivate mutating func members(
        _ body: (_ name: UnsafeRawBufferPointer, _ scanner: inout JSONScanner) throws(JSONFault) -> Void
    ) throws(JSONFault) {
        skipWhitespace()
        try expect(UInt8(ascii: "{"), "'{'")
        skipWhitespace()
        guard peek != UInt8(ascii: "}") else { return try expect(UInt8(ascii: "}"), "'}'") }
        while true {
            skipWhitespace()
            let start = index
            try skipString()
            let name = slice(start..<index)
            skipWhitespace()
            try expect(UInt8(ascii: ":"), "':'")
            try body(name, &self)
            skipWhitespace()
            guard peek == UInt8(ascii: ",") else { return try expect(UInt8(ascii: "}"), "'}'") }
            try expect(UInt8(ascii: ","), "','")
        }
    }

    /// Skips a value and returns its text.
    fileprivate mutating func value() throws(JSONFault) -> UnsafeRawBufferPointer {
        skipWhitespace()
        let start = index
        try skipValue()
        return slice(start..<index)
    }
}
