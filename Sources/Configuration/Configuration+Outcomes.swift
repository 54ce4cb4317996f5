import Foundation

extension Configuration {
    /// Section `outcomes`.
    public struct Outcomes: Sendable, Equatable {
        /// Form of device tokens on the topics of outcomes and dead letters.
        public var deviceToken: DeviceToken
        /// File of the key; nil without hashes.
        public var hashKeyFile: String?
        /// Key of the hashes, at least 32 bytes; empty without hashes, and where files aren't read.
        public var hashKey: [UInt8]

        /// Form of a device token.
        public enum DeviceToken: String, CaseIterable, Sendable {
            /// As the job has it.
            case clear
            /// As a keyed hash. Dead letters have no value.
            case hash
        }

        public init(deviceToken: DeviceToken = .clear, hashKeyFile: String? = nil, hashKey: [UInt8] = []) {
            self.deviceToken = deviceToken
            self.hashKeyFile = hashKeyFile
            self.hashKey = hashKey
        }
    }

    /// Fewest bytes of a key for hashes of device tokens.
    static let shortestHashKey = 32

    static func readOutcomes(_ section: SectionReader, files: FileNames) -> Outcomes {
        var outcomes = Outcomes()
        outcomes.deviceToken = section.choice(
            "device-token", default: outcomes.deviceToken,
            help:
                "device tokens on the topics of outcomes and dead letters: `clear`, or a keyed `hash`; dead letters then have no value"
        )
        let key = "hash-key-file"
        let file = section.text(
            key, kind: "file", required: outcomes.deviceToken == .hash,
            help:
                "file with at least 32 random bytes in hexadecimal digits or base64, the same for all workers; with `device-token: hash`"
        )
        guard let file else { return outcomes }
        guard outcomes.deviceToken == .hash else {
            section.problem(key, "has no use without outcomes.device-token: hash")
            return outcomes
        }
        outcomes.hashKeyFile = files.resolve(file)
        switch files.secret(in: file) {
        case .failure(let fault): section.problem(key, fault.text)
        case .success(""): break
        case .success(let text):
            guard let bytes = hashKey(text), bytes.count >= shortestHashKey else {
                section.problem(
                    key,
                    "\(files.resolve(file)) must hold at least 32 random bytes in hexadecimal digits or base64; make them with `openssl rand -hex 32`"
                )
                return outcomes
            }
            outcomes.hashKey = bytes
        }
        return outcomes
    }

    /// Returns the bytes of a key's text; nil when the text is neither hexadecimal digits nor base64. An even number of
    /// hexadecimal digits isn't read as base64.
    static func hashKey(_ text: String) -> [UInt8]? {
        let digits = Array(text.utf8)
        if digits.count % 2 == 0, digits.allSatisfy({ Character(Unicode.Scalar($0)).isHexDigit }) {
            return stride(from: 0, to: digits.count, by: 2).map { index in
                UInt8(String(decoding: digits[index..<index + 2], as: UTF8.self), radix: 16) ?? 0
            }
        }
        return Data(base64Encoded: text).map { Array($0) }
    }
}
