import COpenSSL
import Glibc

/// Reads and checks .p8 files for ``SigningKey``.
enum SigningKeyFile {
    /// Largest size in bytes. Apple's files are 257 bytes; a larger file is something else.
    static let largest = 64 * 1024

    static func read(_ path: String) throws(SigningKeyError) -> [UInt8] {
        let descriptor = open(path, O_RDONLY | O_CLOEXEC | O_NOCTTY | O_NONBLOCK)
        guard descriptor >= 0 else { throw SigningKeyError(.unreadable(systemReason(errno))) }
        defer { close(descriptor) }
        var bytes = [UInt8](repeating: 0, count: largest + 1)
        var count = 0
        defer { OPENSSL_cleanse(&bytes, count) }
        while count < bytes.count {
            let free = bytes.count - count
            let received = bytes.withUnsafeMutableBytes { buffer in
                Glibc.read(descriptor, buffer.baseAddress.map { $0 + count }, free)
            }
            if received < 0 {
                let code = errno
                if code == EINTR { continue }
                throw SigningKeyError(.unreadable(systemReason(code)))
            }
            if received == 0 { break }
            count += received
        }
        guard count <= largest else { throw SigningKeyError(.tooLarge) }
        return Array(bytes[..<count])
    }

    /// Returns the key, which the caller owns. Throws when the PEM has no usable P-256 private key.
    static func parse(_ pem: [UInt8]) throws(SigningKeyError) -> OpaquePointer {
        guard !pem.isEmpty else { throw SigningKeyError(.empty) }
        guard pem.count <= largest else { throw SigningKeyError(.tooLarge) }
        try checkLabels(pem)

        ERR_clear_error()
        guard let input = BIO_new_mem_buf(pem, Int32(pem.count)) else {
            throw SigningKeyError(.malformed(libraryReason()))
        }
        defer { BIO_free(input) }
        // Without a callback OpenSSL would request a passphrase on the terminal.
        guard let key = PEM_read_bio_PrivateKey(input, nil, { _, _, _, _ in -1 }, nil) else {
            throw SigningKeyError(.malformed(libraryReason()))
        }
        do throws(SigningKeyError) {
            try checkCurve(key)
        } catch {
            EVP_PKEY_free(key)
            throw error
        }
        return key
    }

    private static func checkLabels(_ pem: [UInt8]) throws(SigningKeyError) {
        var labels: [String] = []
        for line in pem.split(whereSeparator: { $0 == 10 || $0 == 13 }) {
            if line.starts(with: "Proc-Type: 4,ENCRYPTED".utf8) { throw SigningKeyError(.encrypted) }
            guard line.starts(with: "-----BEGIN ".utf8) else { continue }
            let label = line.dropFirst(11).prefix { $0 != UInt8(ascii: "-") }
            labels.append(String(decoding: label, as: UTF8.self))
        }
        guard let first = labels.first else { throw SigningKeyError(.notPEM) }
        if labels.contains("ENCRYPTED PRIVATE KEY") { throw SigningKeyError(.encrypted) }
        guard labels.contains(where: { $0.hasSuffix("PRIVATE KEY") }) else {
            throw SigningKeyError(.noPrivateKey(found: first))
        }
    }

    private static func checkCurve(_ key: OpaquePointer) throws(SigningKeyError) {
        guard EVP_PKEY_get_base_id(key) == EVP_PKEY_EC else {
            let type = EVP_PKEY_get0_type_name(key).map { String(cString: $0) } ?? "unknown"
            throw SigningKeyError(.notEllipticCurve(found: type))
        }
        var name = [CChar](repeating: 0, count: 80)
        var length = 0
        guard EVP_PKEY_get_group_name(key, &name, name.count, &length) == 1 else {
            throw SigningKeyError(.wrongCurve(found: "without a name"))
        }
        let curve = String(decoding: name[..<length].map { UInt8(bitPattern: $0) }, as: UTF8.self)
        guard curve == "prime256v1" else { throw SigningKeyError(.wrongCurve(found: curve)) }
    }

    /// Returns the reason of the oldest entry in OpenSSL's error queue, and clears the queue.
    static func libraryReason() -> String {
        let code = ERR_get_error()
        ERR_clear_error()
        guard code != 0, let reason = ERR_reason_error_string(code) else { return "unknown reason" }
        return String(cString: reason)
    }

    private static func systemReason(_ code: Int32) -> String {
        var text = [CChar](repeating: 0, count: 128)
        guard strerror_r(code, &text, text.count) == 0 else { return "error \(code)" }
        return String(decoding: text.prefix { $0 != 0 }.map { UInt8(bitPattern: $0) }, as: UTF8.self)
    }
}
