import COpenSSL
import SluiceModel

/// Keyed hash of device tokens: the first 16 bytes of HMAC-SHA256 over the token in lower case, in 32 hexadecimal digits.
///
/// Workers with the same key give a token the same hash. Without the key nobody can try tokens. Any thread.
// @unchecked: the states are written once, before the value is shared, and OpenSSL reads copies of them.
public struct DeviceTokenHash: @unchecked Sendable {
    /// Bytes of a hash's text.
    public static let textLength = 32
    /// Fewest bytes of a key.
    public static let shortestKey = 32
    /// Longest text that is hashed, in bytes; more bytes count as absent. A token has at most 200.
    private static let longestText = 4_096

    private var state = sluice_HMAC_SHA256()

    /// - Parameter key: at least ``shortestKey`` random bytes.
    public init(key: [UInt8]) {
        sluice_HMAC_SHA256_begin(&state, key, key.count)
    }

    /// Writes the ``textLength`` bytes of a token's hash. Allocates nothing.
    public func write(_ token: UnsafeRawBufferPointer, to text: UnsafeMutableRawPointer) {
        let count = min(token.count, Self.longestText)
        // Token in lower case, digest.
        withUnsafeTemporaryAllocation(byteCount: count + 32, alignment: 8) { buffer in
            let start = buffer.baseAddress!
            for index in 0..<count {
                let byte = token[index]
                let isUpper = byte >= UInt8(ascii: "A") && byte <= UInt8(ascii: "Z")
                start.storeBytes(of: isUpper ? byte | 0x20 : byte, toByteOffset: index, as: UInt8.self)
            }
            let digest = start + count
            withUnsafePointer(to: state) { state in
                sluice_HMAC_SHA256_of(
                    state, start.assumingMemoryBound(to: UInt8.self), count,
                    digest.assumingMemoryBound(to: UInt8.self))
            }
            HexadecimalText.unpack(
                UnsafeRawBufferPointer(start: digest, count: Self.textLength / 2), upperCase: false,
                into: text)
        }
    }

    /// Returns the text of a token's hash, for tools.
    public func text(of token: String) -> String {
        Array(token.utf8).withUnsafeBytes { token in
            withUnsafeTemporaryAllocation(byteCount: Self.textLength, alignment: 8) { text in
                write(token, to: text.baseAddress!)
                return String(decoding: text, as: UTF8.self)
            }
        }
    }
}
