import COpenSSL
import DeviceModel

/// Decrypts AES-GCM messages, as a service extension does.
enum MessageDecryption {
    /// Bytes of the nonce before the cipher text, and of the tag behind it.
    static let nonceLength = 12
    static let tagLength = 16

    /// - Parameters:
    ///   - data: nonce, cipher text and tag.
    ///   - key: 16, 24 or 32 bytes.
    static func decrypt(_ data: [UInt8], key: [UInt8]) -> WorkResult {
        let cipher: OpaquePointer?
        switch key.count {
        case 16: cipher = EVP_aes_128_gcm()
        case 24: cipher = EVP_aes_192_gcm()
        case 32: cipher = EVP_aes_256_gcm()
        default: return .failed("the key has \(key.count) bytes, but must have 16, 24 or 32")
        }
        guard data.count >= nonceLength + tagLength else {
            return .failed(
                "the message has \(data.count) bytes, but nonce and tag alone have \(nonceLength + tagLength)"
            )
        }
        guard let context = CipherContext() else { return .failed("OpenSSL has no memory for a cipher") }
        return context.open(data, cipher: cipher, key: key).map { .decrypted($0) }
            ?? .failed("the tag does not match: the key is another one, or the message was changed")
    }
}

/// Owner of a cipher context of OpenSSL, which is freed with the value.
private struct CipherContext: ~Copyable {
    private let pointer: OpaquePointer

    /// Nil without memory.
    init?() {
        guard let pointer = EVP_CIPHER_CTX_new() else { return nil }
        self.pointer = pointer
    }

    deinit { EVP_CIPHER_CTX_free(pointer) }

    /// Returns the clear text; nil when the tag does not match.
    func open(_ data: [UInt8], cipher: OpaquePointer?, key: [UInt8]) -> [UInt8]? {
        let nonce = Array(data.prefix(MessageDecryption.nonceLength))
        let text = Array(data.dropFirst(nonce.count).dropLast(MessageDecryption.tagLength))
        var tag = Array(data.suffix(MessageDecryption.tagLength))
        // The length of the nonce is AES-GCM's default, 12 bytes.
        guard EVP_DecryptInit_ex(pointer, cipher, nil, key, nonce) == 1 else { return nil }
        var clear = [UInt8](repeating: 0, count: text.count + 16)
        var length: Int32 = 0
        guard EVP_DecryptUpdate(pointer, &clear, &length, text, Int32(text.count)) == 1 else { return nil }
        guard
            EVP_CIPHER_CTX_ctrl(pointer, EVP_CTRL_GCM_SET_TAG, Int32(tag.count), &tag) == 1
        else { return nil }
        var rest: Int32 = 0
        var end = [UInt8](repeating: 0, count: 16)
        guard EVP_DecryptFinal_ex(pointer, &end, &rest) == 1 else { return nil }
        return Array(clear.prefix(Int(length)))
    }
}
