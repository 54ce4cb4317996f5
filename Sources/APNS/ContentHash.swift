import COpenSSL
import SluiceModel

/// SHA-256 of bytes that are left out somewhere, so that people can compare them.
public enum ContentHash {
    /// Returns the 64 hexadecimal digits of the hash; zeros if OpenSSL fails.
    public static func text(of bytes: UnsafeRawBufferPointer) -> String {
        var digest = [UInt8](repeating: 0, count: 32)
        _ = EVP_Digest(bytes.baseAddress, bytes.count, &digest, nil, EVP_sha256(), nil)
        return digest.withUnsafeBytes { digest in
            withUnsafeTemporaryAllocation(byteCount: 64, alignment: 8) { text in
                HexadecimalText.unpack(digest, upperCase: false, into: text.baseAddress!)
                return String(decoding: text, as: UTF8.self)
            }
        }
    }
}
