/// A file that holds one secret, such as a password.
public enum SecretFile {
    /// Largest size in bytes.
    static let largest = 64 << 10

    /// Fault of a file with a secret; never the secret.
    public struct Fault: Error {
        /// The file and its fault.
        public var text: String
    }

    /// Returns the secret, without a line break at its end.
    public static func read(_ path: String) -> Result<String, Fault> {
        func fault(_ text: String) -> Result<String, Fault> { .failure(Fault(text: "\(path) \(text)")) }
        var bytes: [UInt8]
        do throws(BoundedFile.Failure) {
            bytes = try BoundedFile.read(path, limit: largest)
        } catch {
            switch error {
            case .unreadable(let reason): return fault(reason)
            case .tooLarge: return fault("is larger than 64 KB, which no secret needs")
            }
        }
        defer { BoundedFile.erase(&bytes) }
        if bytes.last == UInt8(ascii: "\n") { bytes.removeLast() }
        if bytes.last == UInt8(ascii: "\r") { bytes.removeLast() }
        guard !bytes.isEmpty else { return fault("is empty; write the secret into it") }
        guard !bytes.contains(0), let text = String(validating: bytes, as: UTF8.self) else {
            return fault("is not UTF-8 text")
        }
        return .success(text)
    }
}
