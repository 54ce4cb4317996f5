import COpenSSL

/// Bytes of a secret, erased when the value ends. The value can't be copied, so that no copy stays behind.
struct SecretBytes: ~Copyable {
    /// The bytes, owned.
    let bytes: UnsafeMutableBufferPointer<UInt8>

    init(repeating byte: UInt8, count: Int) {
        bytes = .allocate(capacity: count)
        bytes.initialize(repeating: byte)
    }

    deinit {
        OPENSSL_cleanse(bytes.baseAddress, bytes.count)
        bytes.deallocate()
    }

    var start: UnsafeMutablePointer<UInt8> { bytes.baseAddress! }
}
