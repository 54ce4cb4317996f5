import COpenSSL
import Testing

@testable import StoreEncryption

/// Test vectors of c2sp.org/XAES-256-GCM.
struct XAESTests {
    private func cipher(_ key: [UInt8]) throws -> ValueCipher {
        let key = try #require(key.withUnsafeBytes { StoreKey(name: "key", $0) })
        return try ValueCipher(StoreKeyring(primary: key))
    }

    private func encrypt(
        _ plain: [UInt8], key: [UInt8], nonce: [UInt8], authenticated: [UInt8]
    ) throws -> [UInt8] {
        let cipher = try cipher(key)
        var sealed = [UInt8](repeating: 0, count: plain.count + SealedValue.tagCount)
        let isDone = sealed.withUnsafeMutableBytes { target in
            plain.withUnsafeBytes { plain in
                nonce.withUnsafeBytes { nonce in
                    authenticated.withUnsafeBytes {
                        cipher.encrypt(
                            plain, key: 0, nonce: nonce.baseAddress!, $0, to: target.baseAddress!)
                    }
                }
            }
        }
        #expect(isDone)
        var opened = [UInt8](repeating: 0, count: plain.count)
        let isAuthentic = opened.withUnsafeMutableBytes { target in
            sealed.withUnsafeBytes { sealed in
                nonce.withUnsafeBytes { nonce in
                    authenticated.withUnsafeBytes {
                        cipher.decrypt(
                            sealed, key: 0, nonce: nonce.baseAddress!, $0,
                            to: target.baseAddress ?? UnsafeMutableRawPointer(mutating: nonce.baseAddress!))
                    }
                }
            }
        }
        #expect(isAuthentic && opened == plain)
        return sealed
    }

    private func hexadecimal(_ bytes: [UInt8]) -> String {
        bytes.map { ($0 < 16 ? "0" : "") + String($0, radix: 16) }.joined()
    }

    @Test(arguments: [
        (UInt8(1), "", "ce546ef63c9cc60765923609b33a9a1974e96e52daf2fcf7075e2271"),
        (3, "c2sp.org/XAES-256-GCM", "986ec1832593df5443a179437fd083bf3fdb41abd740a21f71eb769d"),
    ])
    func vector(key: UInt8, authenticated: String, expected: String) throws {
        let sealed = try encrypt(
            Array("XAES-256-GCM".utf8), key: Array(repeating: key, count: 32),
            nonce: Array("ABCDEFGHIJKLMNOPQRSTUVWX".utf8), authenticated: Array(authenticated.utf8))
        #expect(hexadecimal(sealed) == expected)
    }

    /// SHAKE-128.
    private func digest(_ bytes: [UInt8], count: Int) throws -> [UInt8] {
        let context = try #require(EVP_MD_CTX_new())
        defer { EVP_MD_CTX_free(context) }
        var output = [UInt8](repeating: 0, count: count)
        #expect(EVP_DigestInit_ex(context, EVP_shake128(), nil) == 1)
        #expect(EVP_DigestUpdate(context, bytes, bytes.count) == 1)
        #expect(EVP_DigestFinalXOF(context, &output, count) == 1)
        return output
    }

    /// The specification's accumulated test: keys, nonces, plain texts and additional data of random lengths.
    @Test func accumulatedVectors() throws {
        let rounds = 10_000
        let stream = try digest([], count: rounds * (32 + 24 + 256 + 256))
        #expect(hexadecimal(Array(stream[..<16])) == "7f9c2ba4e88f827d616045507605853e")
        var place = 0
        func take(_ count: Int) -> [UInt8] {
            defer { place += count }
            return Array(stream[place..<place + count])
        }
        var sealed: [UInt8] = []
        for _ in 0..<rounds {
            let (key, nonce) = (take(32), take(24))
            let plain = take(Int(take(1)[0]))
            let authenticated = take(Int(take(1)[0]))
            sealed += try encrypt(plain, key: key, nonce: nonce, authenticated: authenticated)
        }
        #expect(
            hexadecimal(try digest(sealed, count: 32))
                == "e6b9edf2df6cec60c8cbd864e2211b597fb69a529160cd040d56c0c210081939")
    }
}
