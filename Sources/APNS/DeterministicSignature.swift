import COpenSSL

/// Makes ES256 signatures with the nonce of RFC 6979: the same key and message always give the same signature.
///
/// All replicas that sign with a key then present the same provider token. OpenSSL makes such nonces from 3.2 on only,
/// so the nonce is made here, with OpenSSL's HMAC and big numbers.
enum DeterministicSignature {
    /// Length of a scalar, a digest and an HMAC in bytes: P-256 with SHA-256.
    private static let length = 32

    /// Returns r and s, 32 bytes each, big-endian (RFC 7518 §3.4); nil when OpenSSL fails. Any thread.
    ///
    /// - Parameter key: an EC key on P-256 with its private half.
    static func sign(_ message: [UInt8], key: OpaquePointer) -> [UInt8]? {
        var digest = [UInt8](repeating: 0, count: length)
        guard EVP_Digest(message, message.count, &digest, nil, EVP_sha256(), nil) == 1,
            let group = EC_GROUP_new_by_curve_name(NID_X9_62_prime256v1)
        else { return nil }
        defer { EC_GROUP_free(group) }
        guard let context = BN_CTX_secure_new() else { return nil }
        BN_CTX_start(context)
        defer {
            BN_CTX_end(context)
            BN_CTX_free(context)
        }
        guard let order = EC_GROUP_get0_order(group) else { return nil }
        var secret: OpaquePointer?
        defer { BN_clear_free(secret) }
        guard EVP_PKEY_get_bn_param(key, "priv", &secret) == 1, let secret else { return nil }
        return sign(digest, secret: secret, group: group, order: order, context)
    }

    private static func sign(
        _ digest: [UInt8], secret: OpaquePointer, group: OpaquePointer, order: OpaquePointer,
        _ context: OpaquePointer
    ) -> [UInt8]? {
        guard let reduced = BN_CTX_get(context), let number = BN_CTX_get(context),
            BN_bin2bn(digest, Int32(length), number) != nil, BN_nnmod(reduced, number, order, context) == 1,
            let reducedBytes = bytes(of: reduced)
        else { return nil }
        let scalar = SecretBytes(repeating: 0, count: length)
        guard BN_bn2binpad(secret, scalar.start, Int32(length)) == Int32(length) else { return nil }
        let nonces = NonceGenerator()
        guard nonces.seed(scalar, digest: reducedBytes) else { return nil }
        // A nonce outside of the order's range, or a signature of zero, has a chance of about 2^-32 at most.
        for attempt in 0..<16 {
            guard nonces.next(isFirst: attempt == 0) else { return nil }
            BN_CTX_start(context)
            defer { BN_CTX_end(context) }
            guard let nonce = BN_CTX_get(context), BN_bin2bn(nonces.value.start, Int32(length), nonce) != nil
            else { return nil }
            if BN_is_zero(nonce) == 1 || BN_cmp(nonce, order) >= 0 { continue }
            guard
                let pair = signature(
                    reduced, secret: secret, nonce: nonce, group: group, order: order, context)
            else { return nil }
            if !pair.isEmpty { return pair }
        }
        return nil
    }

    /// Returns r and s for a nonce; empty when either is zero; nil when OpenSSL fails.
    ///
    /// With a random factor b, s is (k·b)⁻¹ · (b·z + b·r·d). The factor keeps the time of the operations from depending
    /// on the secret alone, and leaves the result unchanged.
    private static func signature(
        _ digest: OpaquePointer, secret: OpaquePointer, nonce: OpaquePointer, group: OpaquePointer,
        order: OpaquePointer, _ context: OpaquePointer
    ) -> [UInt8]? {
        guard let point = EC_POINT_new(group) else { return nil }
        defer { EC_POINT_clear_free(point) }
        guard let x = BN_CTX_get(context), let r = BN_CTX_get(context), let blinding = BN_CTX_get(context),
            let inverse = BN_CTX_get(context), let sum = BN_CTX_get(context), let term = BN_CTX_get(context),
            let s = BN_CTX_get(context)
        else { return nil }
        BN_set_flags(nonce, BN_FLG_CONSTTIME)
        guard EC_POINT_mul(group, point, nonce, nil, nil, context) == 1,
            EC_POINT_get_affine_coordinates(group, point, x, nil, context) == 1,
            BN_nnmod(r, x, order, context) == 1
        else { return nil }
        if BN_is_zero(r) == 1 { return [] }
        repeat {
            guard BN_priv_rand_range(blinding, order) == 1 else { return nil }
        } while BN_is_zero(blinding) == 1
        guard BN_mod_mul(term, blinding, nonce, order, context) == 1 else { return nil }
        BN_set_flags(term, BN_FLG_CONSTTIME)
        guard BN_mod_inverse(inverse, term, order, context) != nil,
            BN_mod_mul(sum, blinding, secret, order, context) == 1,
            BN_mod_mul(sum, sum, r, order, context) == 1,
            BN_mod_mul(term, blinding, digest, order, context) == 1,
            BN_mod_add(sum, sum, term, order, context) == 1,
            BN_mod_mul(s, inverse, sum, order, context) == 1
        else { return nil }
        if BN_is_zero(s) == 1 { return [] }
        guard let first = bytes(of: r), let second = bytes(of: s) else { return nil }
        return first + second
    }

    /// Returns the number as 32 bytes, big-endian; nil when it has more.
    private static func bytes(of number: OpaquePointer) -> [UInt8]? {
        var bytes = [UInt8](repeating: 0, count: length)
        return BN_bn2binpad(number, &bytes, Int32(length)) == Int32(length) ? bytes : nil
    }

    /// HMAC generator of nonces (RFC 6979 §3.2), for a digest and an order of 256 bits each. The secret could be found from
    /// its state.
    private struct NonceGenerator: ~Copyable {
        private let key = SecretBytes(repeating: 0, count: length)
        /// The candidate that ``next(isFirst:)`` made.
        let value = SecretBytes(repeating: 1, count: length)

        /// Returns false when OpenSSL fails.
        /// - Parameters:
        ///   - secret: the private key, 32 bytes.
        ///   - digest: the message's digest modulo the order, 32 bytes.
        func seed(_ secret: borrowing SecretBytes, digest: [UInt8]) -> Bool {
            let seed = SecretBytes(repeating: 0, count: 2 * length)
            seed.start.update(from: secret.start, count: length)
            (seed.start + length).update(from: digest, count: length)
            return update(0, seed) && update(1, seed)
        }

        /// Makes the next candidate, 32 bytes. Returns false when OpenSSL fails.
        func next(isFirst: Bool) -> Bool {
            guard isFirst || update(0, SecretBytes(repeating: 0, count: 0)) else { return false }
            return hash(value, into: value)
        }

        private func update(_ mark: UInt8, _ seed: borrowing SecretBytes) -> Bool {
            let input = SecretBytes(repeating: mark, count: length + 1 + seed.bytes.count)
            input.start.update(from: value.start, count: length)
            (input.start + length + 1).update(from: seed.start, count: seed.bytes.count)
            return hash(input, into: key) && hash(value, into: value)
        }

        /// Writes the input's HMAC. The output may be the key or the input, because OpenSSL has read both by then.
        private func hash(_ input: borrowing SecretBytes, into output: borrowing SecretBytes) -> Bool {
            var count: UInt32 = 0
            return HMAC(
                EVP_sha256(), key.start, Int32(length), input.start, input.bytes.count, output.start, &count)
                != nil && count == UInt32(length)
        }
    }
}
