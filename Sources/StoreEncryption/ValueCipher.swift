import COpenSSL
import SluiceModel

/// Encrypts and decrypts values with the keys of a keyring. The algorithm is XAES-256-GCM (c2sp.org/XAES-256-GCM): each
/// value has a random nonce of 24 bytes, and a key that is derived from the half of it.
///
/// For use on one thread. A value costs no allocation.
public final class ValueCipher {
    /// Keys of this cipher.
    public let keyring: StoreKeyring
    /// Values encrypted since the cipher was made.
    public private(set) var sealed = 0

    private struct Key {
        var key: StoreKey
        /// Encrypts single blocks under the key. Freed in deinit.
        var blocks: OpaquePointer
        /// CMAC's first subkey.
        var subkey: (UInt64, UInt64)
    }

    private var keys: [Key] = []
    /// Contexts of AES-256-GCM, freed in deinit.
    private let encryption: OpaquePointer
    private let decryption: OpaquePointer
    /// Random bytes for the next nonces, freed in deinit.
    private let random: UnsafeMutableRawBufferPointer
    /// First random byte that no nonce had yet.
    private var nextRandom: Int

    /// Random bytes that are fetched at once, because a call costs as much as the encryption of a value.
    private static let randomCount = SealedValue.nonceCount * 128

    /// - Throws: the call of OpenSSL that failed.
    public init(_ keyring: StoreKeyring) throws(CipherFailure) {
        self.keyring = keyring
        guard let encryption = Self.context(EVP_aes_256_gcm(), encrypts: true) else {
            throw CipherFailure(call: "EVP_EncryptInit_ex2")
        }
        guard let decryption = Self.context(EVP_aes_256_gcm(), encrypts: false) else {
            EVP_CIPHER_CTX_free(encryption)
            throw CipherFailure(call: "EVP_DecryptInit_ex2")
        }
        self.encryption = encryption
        self.decryption = decryption
        random = .allocate(byteCount: Self.randomCount, alignment: 8)
        nextRandom = Self.randomCount
        for key in keyring.keys { keys.append(try Self.prepared(key)) }
    }

    deinit {
        for key in keys { EVP_CIPHER_CTX_free(key.blocks) }
        EVP_CIPHER_CTX_free(encryption)
        EVP_CIPHER_CTX_free(decryption)
        random.deallocate()
    }

    private static func context(_ cipher: OpaquePointer?, encrypts: Bool) -> OpaquePointer? {
        guard let context = EVP_CIPHER_CTX_new() else { return nil }
        let isMade =
            encrypts
            ? EVP_EncryptInit_ex2(context, cipher, nil, nil, nil)
            : EVP_DecryptInit_ex2(context, cipher, nil, nil, nil)
        guard isMade == 1 else {
            ERR_clear_error()
            EVP_CIPHER_CTX_free(context)
            return nil
        }
        return context
    }

    private static func prepared(_ key: StoreKey) throws(CipherFailure) -> Key {
        guard let blocks = context(EVP_aes_256_ecb(), encrypts: true) else {
            throw CipherFailure(call: "EVP_EncryptInit_ex2")
        }
        var zero: (UInt64, UInt64) = (0, 0)
        var count: Int32 = 0
        let isDone = withUnsafeMutableBytes(of: &zero) { block in
            let bytes = block.baseAddress!.assumingMemoryBound(to: UInt8.self)
            return key.withBytes { EVP_EncryptInit_ex2(blocks, nil, $0, nil, nil) } == 1
                && EVP_CIPHER_CTX_set_padding(blocks, 0) == 1
                && EVP_EncryptUpdate(blocks, bytes, &count, bytes, 16) == 1
        }
        guard isDone, count == 16 else {
            ERR_clear_error()
            EVP_CIPHER_CTX_free(blocks)
            throw CipherFailure(call: "EVP_EncryptUpdate")
        }
        // The encrypted zero block, shifted by one bit; the bit that leaves it is folded in.
        let (high, low) = (UInt64(bigEndian: zero.0), UInt64(bigEndian: zero.1))
        let carry: UInt64 = high >> 63 == 0 ? 0 : 0x87
        return Key(
            key: key, blocks: blocks,
            subkey: ((high << 1 | low >> 63).bigEndian, (low << 1 ^ carry).bigEndian))
    }

    // MARK: Values

    /// Appends the encrypted form of a value, under the key that encrypts.
    /// - Parameter suspended: hash of the topic with which a push waits, which stays readable; nil: it waits with none.
    /// - Throws: the call of OpenSSL that failed. The writer may then have a part of the value.
    public func seal(
        _ plain: UnsafeRawBufferPointer, at place: ValuePlace, suspended: UInt32? = nil,
        into writer: inout ByteWriter
    ) throws(CipherFailure) {
        let start = writer.count
        SealedValue.Head.write(keyring.primary, suspended: suspended, into: &writer)
        let headCount = writer.count - start
        let nonce = try nextNonce()
        writer.append(UnsafeRawBufferPointer(nonce))
        let isSealed = Self.withAuthenticated(
            UnsafeRawBufferPointer(rebasing: writer.bytes[start..<start + headCount]), place
        ) { authenticated in
            writer.append(count: plain.count + SealedValue.tagCount) {
                encrypt(plain, key: 0, nonce: nonce.baseAddress!, authenticated, to: $0)
            }
        }
        guard isSealed else {
            ERR_clear_error()
            throw CipherFailure(call: "EVP_EncryptUpdate")
        }
        sealed &+= 1
    }

    /// Appends the plain form of an encrypted value.
    /// - Throws: the reason for which the value can't be read. The writer is then unchanged.
    public func open(
        _ bytes: UnsafeRawBufferPointer, at place: ValuePlace, into writer: inout ByteWriter
    ) throws(SealedValueError) {
        guard let head = SealedValue.Head(bytes) else { throw .malformed }
        guard let index = keys.firstIndex(where: { head.isOf($0.key) }) else {
            throw SealedValue.fault(of: bytes, with: keyring) ?? .malformed
        }
        let nonce = bytes.baseAddress! + head.count
        let sealed = UnsafeRawBufferPointer(rebasing: bytes[(head.count + SealedValue.nonceCount)...])
        let isAuthentic = Self.withAuthenticated(
            UnsafeRawBufferPointer(rebasing: bytes[..<head.count]), place
        ) { authenticated in
            writer.append(count: sealed.count - SealedValue.tagCount) {
                decrypt(sealed, key: index, nonce: nonce, authenticated, to: $0)
            }
        }
        guard isAuthentic else {
            ERR_clear_error()
            throw .notAuthentic(key: keys[index].key.name)
        }
    }

    /// Passes the bytes that the tag covers besides the value.
    @inline(__always)
    private static func withAuthenticated<Result>(
        _ head: UnsafeRawBufferPointer, _ place: ValuePlace, _ body: (UnsafeRawBufferPointer) -> Result
    ) -> Result {
        withUnsafeTemporaryAllocation(
            byteCount: ValuePlace.count + SealedValue.longestHead, alignment: 8
        ) { bytes in
            place.write(to: bytes.baseAddress!)
            (bytes.baseAddress! + ValuePlace.count).copyMemory(
                from: head.baseAddress!, byteCount: head.count)
            return body(UnsafeRawBufferPointer(rebasing: bytes[..<(ValuePlace.count + head.count)]))
        }
    }

    /// Returns random bytes that no other nonce has, valid until the next call.
    private func nextNonce() throws(CipherFailure) -> UnsafeRawBufferPointer {
        if nextRandom == Self.randomCount {
            let target = random.baseAddress!.assumingMemoryBound(to: UInt8.self)
            guard RAND_bytes(target, Int32(Self.randomCount)) == 1 else {
                ERR_clear_error()
                throw CipherFailure(call: "RAND_bytes")
            }
            nextRandom = 0
        }
        defer { nextRandom += SealedValue.nonceCount }
        return UnsafeRawBufferPointer(rebasing: random[nextRandom..<nextRandom + SealedValue.nonceCount])
    }

    // MARK: XAES-256-GCM

    /// Writes the ciphertext and its tag. Returns false when OpenSSL failed.
    func encrypt(
        _ plain: UnsafeRawBufferPointer, key: Int, nonce: UnsafeRawPointer,
        _ authenticated: UnsafeRawBufferPointer, to target: UnsafeMutableRawPointer
    ) -> Bool {
        let output = target.assumingMemoryBound(to: UInt8.self)
        let shortNonce = (nonce + 12).assumingMemoryBound(to: UInt8.self)
        var count: Int32 = 0
        return withDerivedKey(key, nonce) { derived in
            EVP_EncryptInit_ex2(encryption, nil, derived, shortNonce, nil) == 1
                && EVP_EncryptUpdate(
                    encryption, nil, &count, authenticated.baseAddress?.assumingMemoryBound(to: UInt8.self),
                    Int32(authenticated.count)) == 1
                && EVP_EncryptUpdate(
                    encryption, output, &count, plain.baseAddress?.assumingMemoryBound(to: UInt8.self),
                    Int32(plain.count)) == 1
                && EVP_EncryptFinal_ex(encryption, output + plain.count, &count) == 1
                && EVP_CIPHER_CTX_ctrl(
                    encryption, EVP_CTRL_AEAD_GET_TAG, Int32(SealedValue.tagCount), output + plain.count) == 1
        }
    }

    /// Writes the plain bytes. Returns false when the tag doesn't fit; the written bytes are then meaningless.
    func decrypt(
        _ sealed: UnsafeRawBufferPointer, key: Int, nonce: UnsafeRawPointer,
        _ authenticated: UnsafeRawBufferPointer, to target: UnsafeMutableRawPointer
    ) -> Bool {
        let count = sealed.count - SealedValue.tagCount
        let output = target.assumingMemoryBound(to: UInt8.self)
        let input = sealed.baseAddress!.assumingMemoryBound(to: UInt8.self)
        let shortNonce = (nonce + 12).assumingMemoryBound(to: UInt8.self)
        // OpenSSL copies the tag, and changes nothing of it.
        let tag = UnsafeMutableRawPointer(mutating: sealed.baseAddress! + count)
        var written: Int32 = 0
        return withDerivedKey(key, nonce) { derived in
            EVP_DecryptInit_ex2(decryption, nil, derived, shortNonce, nil) == 1
                && EVP_CIPHER_CTX_ctrl(
                    decryption, EVP_CTRL_AEAD_SET_TAG, Int32(SealedValue.tagCount), tag) == 1
                && EVP_DecryptUpdate(
                    decryption, nil, &written, authenticated.baseAddress?.assumingMemoryBound(to: UInt8.self),
                    Int32(authenticated.count)) == 1
                && EVP_DecryptUpdate(decryption, output, &written, input, Int32(count)) == 1
                && EVP_DecryptFinal_ex(decryption, output + count, &written) == 1
        }
    }

    /// Passes the key of a nonce's first 12 bytes: two blocks, numbered and encrypted (NIST SP 800-108r1 with CMAC).
    /// The nonce's remaining 12 bytes are that of AES-256-GCM.
    @inline(__always)
    private func withDerivedKey(
        _ key: Int, _ nonce: UnsafeRawPointer, _ body: (UnsafePointer<UInt8>) -> Bool
    ) -> Bool {
        withUnsafeTemporaryAllocation(byteCount: 32, alignment: 8) { blocks in
            let (subkey, context) = (keys[key].subkey, keys[key].blocks)
            let start = nonce.loadUnaligned(as: UInt32.self)
            let end = nonce.loadUnaligned(fromByteOffset: 4, as: UInt64.self)
            for number in 0..<2 {
                let label = (UInt32(number + 1) << 16 | 0x5800).bigEndian
                let head = UInt64(label).littleEndian | UInt64(start.littleEndian) << 32
                blocks.storeBytes(
                    of: head.littleEndian ^ subkey.0, toByteOffset: 16 * number, as: UInt64.self)
                blocks.storeBytes(of: end ^ subkey.1, toByteOffset: 16 * number + 8, as: UInt64.self)
            }
            let bytes = blocks.baseAddress!.assumingMemoryBound(to: UInt8.self)
            defer { OPENSSL_cleanse(bytes, 32) }
            var count: Int32 = 0
            return EVP_EncryptUpdate(context, bytes, &count, bytes, 32) == 1 && count == 32 && body(bytes)
        }
    }
}
