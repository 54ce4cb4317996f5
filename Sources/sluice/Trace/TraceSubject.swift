import Foundation
import SluiceModel

/// Jobs that a trace looks for, and the quick test of a record. Pure.
struct TraceSubject: Sendable {
    /// Identifiers that are looked for: the one asked for, and successors that were found. Empty: any of the device.
    private(set) var identifiers: [APNSID]
    /// Texts of the identifiers, in lower and in upper case. A job in upper case is a dead letter.
    private var texts: [[UInt8]]
    /// Device token in lower case, and its hash where outcomes have that in the token's place; empty: any.
    private let tokens: [[UInt8]]
    /// The same in lower and in upper case.
    private let tokenTexts: [[UInt8]]

    /// Most successors that are followed.
    static let longestChain = 32

    /// - Parameter tokenHash: text of the token's hash; nil where outcomes have the token itself.
    init(_ identifier: APNSID?, deviceToken: String?, tokenHash: String? = nil) {
        identifiers = identifier.map { [$0] } ?? []
        texts = identifiers.flatMap { Self.cases("\($0)") }
        let known = [deviceToken, tokenHash].compactMap(\.self)
        tokens = known.map { Array($0.lowercased().utf8) }
        tokenTexts = known.flatMap { Self.cases($0) }
    }

    /// Returns a text in lower and in upper case, once when both are equal.
    private static func cases(_ text: String) -> [[UInt8]] {
        let (lower, upper) = (text.lowercased(), text.uppercased())
        return (lower == upper ? [lower] : [lower, upper]).map { Array($0.utf8) }
    }

    /// Also looks for a successor. Returns false when the chain is too long.
    mutating func follow(_ successor: APNSID) -> Bool {
        if identifiers.isEmpty || identifiers.contains(successor) { return true }
        guard identifiers.count <= Self.longestChain else { return false }
        identifiers.append(successor)
        texts += Self.cases("\(successor)")
        return true
    }

    func wants(_ identifier: APNSID) -> Bool { identifiers.isEmpty || identifiers.contains(identifier) }

    /// Returns whether a token or a key is the device token, or its hash.
    func wants(token: UnsafeRawBufferPointer) -> Bool {
        tokens.isEmpty
            || tokens.contains { wanted in
                token.count == wanted.count && zip(token, wanted).allSatisfy { lowered($0) == $1 }
            }
    }

    func wants(token: String) -> Bool {
        tokens.isEmpty || tokens.contains { token.lowercased().utf8.elementsEqual($0) }
    }

    /// Returns whether the value of an outcome may be of a job that is looked for.
    func mayBeOutcome(_ value: UnsafeRawBufferPointer) -> Bool {
        guard tokens.isEmpty || namesToken(value) else { return false }
        return identifiers.isEmpty || names(value)
    }

    private func lowered(_ byte: UInt8) -> UInt8 {
        (UInt8(ascii: "A")...UInt8(ascii: "Z")).contains(byte) ? byte | 0x20 : byte
    }

    /// Returns whether bytes contain one of the identifiers.
    func names(_ bytes: UnsafeRawBufferPointer) -> Bool {
        texts.contains { text in text.withUnsafeBytes { bytes.contains($0) } }
    }

    /// Returns whether a job without an `apns-id` at this place has one of the identifiers.
    func isDerived(topic: UnsafeRawBufferPointer, partition: Int32, offset: Int64) -> Bool {
        // Derived identifiers are UUIDs of version 8.
        guard identifiers.contains(where: { $0.high & 0xF000 == 0x8000 }) else { return false }
        return identifiers.contains(
            APNSID.derived(topic: topic, partition: partition, offset: offset))
    }

    /// Returns whether a record may be of a job that is looked for. A dead letter can't be decoded, so this is all that
    /// is known of its job.
    func mayBe(
        key: UnsafeRawBufferPointer?, value: UnsafeRawBufferPointer?, source: RecordAddress,
        headers: ((UnsafeRawBufferPointer) -> Void) -> Void
    ) -> Bool {
        if !tokens.isEmpty {
            // In structured mode the token may be in the document alone.
            let isKey = key.map { wants(token: $0) } ?? false
            guard isKey || value.map({ namesToken($0) }) ?? false else { return false }
            if identifiers.isEmpty { return true }
        }
        if let value, names(value) { return true }
        var isNamed = false
        headers { if names($0) { isNamed = true } }
        if isNamed { return true }
        return Array(source.topic.utf8).withUnsafeBytes {
            isDerived(topic: $0, partition: source.partition, offset: source.offset)
        }
    }

    /// Returns whether bytes contain the device token in either case, or its hash.
    private func namesToken(_ bytes: UnsafeRawBufferPointer) -> Bool {
        tokenTexts.contains { text in text.withUnsafeBytes { bytes.contains($0) } }
    }
}

extension UnsafeRawBufferPointer {
    /// Returns whether these bytes contain others, which are not empty. Looks for the first byte with `memchr`, because
    /// topics are long.
    fileprivate func contains(_ other: UnsafeRawBufferPointer) -> Bool {
        guard let first = other.first, let text = other.baseAddress, var place = baseAddress else {
            return false
        }
        var left = count - other.count
        while left >= 0 {
            guard let found = memchr(place, Int32(first), left + 1) else { return false }
            let start = UnsafeRawPointer(found)
            if memcmp(start, text, other.count) == 0 { return true }
            left -= start - place + 1
            place = start + 1
        }
        return false
    }
}
