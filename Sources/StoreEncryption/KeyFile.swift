import COpenSSL

/// The text of a key file: a key on each line, the key that encrypts first.
///
/// ```
/// # made by: openssl rand -base64 32
/// 2026-11 3q2+7wAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAA=
/// ```
public enum KeyFile {
    /// Largest file in bytes.
    public static let largest = 64 << 10
    /// Most keys of a file, because each value is compared with them.
    public static let mostKeys = 64
    /// Base64 digits of a key, with the padding.
    private static let digits = 44

    /// Reads the keys of a file's text.
    /// - Parameters:
    ///   - bytes: the file's content.
    ///   - path: name of the file, for errors.
    /// - Throws: an error with the file, the line and the remedy; never a part of a key.
    public static func read(
        _ bytes: UnsafeRawBufferPointer, path: String
    ) throws(KeyFileError) -> StoreKeyring {
        var keys: [(key: StoreKey, line: Int)] = []
        var (start, number) = (0, 0)
        while start < bytes.count {
            let end = bytes[start...].firstIndex(of: UInt8(ascii: "\n")) ?? bytes.count
            number += 1
            let line = trimmed(bytes, start..<end)
            start = end + 1
            if line.isEmpty || line[0] == UInt8(ascii: "#") { continue }
            let key = try key(line, number, path)
            if let same = keys.first(where: { $0.key.name == key.name }) {
                throw KeyFileError(path: path, line: number, fault: .repeatedName(of: same.line))
            }
            if let same = keys.first(where: { $0.key.check == key.check }) {
                throw KeyFileError(path: path, line: number, fault: .repeatedKey(of: same.line))
            }
            guard keys.count < mostKeys else {
                throw KeyFileError(path: path, line: number, fault: .tooMany)
            }
            keys.append((key, number))
        }
        guard let primary = keys.first?.key else { throw KeyFileError(path: path, line: nil, fault: .empty) }
        return StoreKeyring(primary: primary, others: keys.dropFirst().map(\.key))
    }

    private static func key(
        _ line: UnsafeRawBufferPointer, _ number: Int, _ path: String
    ) throws(KeyFileError) -> StoreKey {
        guard let space = line.firstIndex(where: isSpace) else {
            throw KeyFileError(path: path, line: number, fault: .form)
        }
        let name = UnsafeRawBufferPointer(rebasing: line[..<space])
        guard StoreKey.isName(name) else { throw KeyFileError(path: path, line: number, fault: .name) }
        let text = trimmed(line, space..<line.count)
        guard let key = decode(text, name: String(decoding: name, as: UTF8.self)) else {
            throw KeyFileError(path: path, line: number, fault: .key)
        }
        return key
    }

    private static func decode(_ text: UnsafeRawBufferPointer, name: String) -> StoreKey? {
        guard text.count == digits, text[digits - 1] == UInt8(ascii: "="),
            text.dropLast().allSatisfy(isDigit)
        else { return nil }
        return withUnsafeTemporaryAllocation(of: UInt8.self, capacity: digits) { bytes in
            defer { OPENSSL_cleanse(bytes.baseAddress!, digits) }
            let source = text.baseAddress!.assumingMemoryBound(to: UInt8.self)
            // The count includes a zero byte for the padding.
            guard EVP_DecodeBlock(bytes.baseAddress!, source, Int32(digits)) == StoreKey.count + 1 else {
                ERR_clear_error()
                return nil
            }
            return StoreKey(
                name: name, UnsafeRawBufferPointer(start: bytes.baseAddress, count: StoreKey.count))
        }
    }

    private static func isDigit(_ byte: UInt8) -> Bool {
        switch byte {
        case UInt8(ascii: "0")...UInt8(ascii: "9"), UInt8(ascii: "a")...UInt8(ascii: "z"),
            UInt8(ascii: "A")...UInt8(ascii: "Z"), UInt8(ascii: "+"), UInt8(ascii: "/"):
            true
        default: false
        }
    }

    private static func isSpace(_ byte: UInt8) -> Bool {
        byte == UInt8(ascii: " ") || byte == UInt8(ascii: "\t") || byte == UInt8(ascii: "\r")
    }

    private static func trimmed(
        _ bytes: UnsafeRawBufferPointer, _ range: Range<Int>
    ) -> UnsafeRawBufferPointer {
        var (start, end) = (range.lowerBound, range.upperBound)
        while start < end, isSpace(bytes[start]) { start += 1 }
        while end > start, isSpace(bytes[end - 1]) { end -= 1 }
        return UnsafeRawBufferPointer(rebasing: bytes[start..<end])
    }
}

/// Fault of a key file: the file, the line and the remedy.
public struct KeyFileError: Error, Hashable, Sendable, CustomStringConvertible {
    /// Kind of the fault. A fault has no part of the file, because a line may be a key without its name.
    public enum Fault: Hashable, Sendable {
        /// The file can't be read: the reason as a clause.
        case unreadable(String)
        /// The file has more bytes than allowed.
        case tooLarge
        /// No line has a key.
        case empty
        /// A line lacks the name or the key.
        case form
        /// The name has other characters, or too many.
        case name
        /// The key isn't the Base64 text of 32 bytes.
        case key
        /// An earlier line has the same name.
        case repeatedName(of: Int)
        /// An earlier line has the same key.
        case repeatedKey(of: Int)
        /// The file has more keys than allowed.
        case tooMany
    }

    /// Name of the file.
    public var path: String
    /// Number of the line, from 1 on; nil: the fault is the whole file's.
    public var line: Int?
    public var fault: Fault

    public init(path: String, line: Int? = nil, fault: Fault) {
        self.path = path
        self.line = line
        self.fault = fault
    }

    private static let remedy = "make a key with `openssl rand -base64 32`"

    public var description: String {
        let place = line.map { "\(path), line \($0)" } ?? path
        let text =
            switch fault {
            case .unreadable(let reason): reason
            case .tooLarge: "is larger than 64 KB, which no key file needs"
            case .empty: "has no key: write a line with a name, a space and a key; \(Self.remedy)"
            case .form: "needs a name, a space and a key: put a name before the key"
            case .name:
                "needs a name of 1 to \(StoreKey.longestName) letters, digits or hyphens before the key"
            case .key: "needs the Base64 text of 32 bytes behind the name: \(Self.remedy)"
            case .repeatedName(let other): "has the name of line \(other): give each key a name of its own"
            case .repeatedKey(let other): "has the key of line \(other): \(Self.remedy)"
            case .tooMany:
                "is one key too many: keep at most \(KeyFile.mostKeys), and remove keys that no value needs"
            }
        return "\(place) \(text)"
    }
}
