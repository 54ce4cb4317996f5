import COpenSSL
import Configuration

/// Secret that gives access to the API. The secret itself is not kept, only its hash.
public struct APIToken: Sendable {
    /// Shortest token of a file, in bytes.
    static let shortest = 16

    private let hash: [UInt8]
    /// Value of the cookie that stands for the token in a browser; another secret, new at each start.
    let cookie: String

    /// - Parameter text: the token.
    public init(_ text: String) throws(SimulatorError) {
        guard text.utf8.count >= Self.shortest, text.utf8.allSatisfy({ (0x21...0x7E).contains($0) }) else {
            throw SimulatorError(
                "the token must have at least \(Self.shortest) characters of ASCII without spaces; "
                    + "`openssl rand -hex 32` makes one")
        }
        hash = try Self.hash(text)
        cookie = try Self.random()
    }

    /// Reads the token from a file with a single line.
    public init(file: String) throws(SimulatorError) {
        switch SecretFile.read(file) {
        case .success(let text):
            do throws(SimulatorError) {
                try self.init(text)
            } catch {
                throw SimulatorError("\(file): \(error)")
            }
        case .failure(let fault): throw SimulatorError(fault.text)
        }
    }

    /// Returns a new random token as text, 256 bits.
    public static func random() throws(SimulatorError) -> String {
        var bytes = [UInt8](repeating: 0, count: 32)
        guard RAND_bytes(&bytes, Int32(bytes.count)) == 1 else {
            throw SimulatorError("the system has no random bytes for a token")
        }
        return hexadecimal(bytes)
    }

    /// Compares in a time that does not depend on the text.
    func matches(_ text: String) -> Bool {
        guard let other = try? Self.hash(text) else { return false }
        return CRYPTO_memcmp(hash, other, hash.count) == 0
    }

    /// Compares in a time that does not depend on the text.
    func matchesCookie(_ text: String) -> Bool {
        guard let own = try? Self.hash(cookie), let other = try? Self.hash(text) else { return false }
        return CRYPTO_memcmp(own, other, own.count) == 0
    }

    private static func hash(_ text: String) throws(SimulatorError) -> [UInt8] {
        var digest = [UInt8](repeating: 0, count: 32)
        let bytes = Array(text.utf8)
        var length: UInt32 = 0
        guard EVP_Digest(bytes, bytes.count, &digest, &length, EVP_sha256(), nil) == 1, length == 32 else {
            throw SimulatorError("OpenSSL has no SHA-256")
        }
        return digest
    }
}

/// Returns bytes as lower-case hexadecimal text.
func hexadecimal(_ bytes: some Sequence<UInt8>) -> String {
    let digits = Array("0123456789abcdef".utf8)
    return String(decoding: bytes.flatMap { [digits[Int($0 >> 4)], digits[Int($0 & 15)]] }, as: UTF8.self)
}
