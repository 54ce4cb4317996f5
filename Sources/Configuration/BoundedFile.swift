import Glibc

/// Reads small files whose size nobody has checked.
public enum BoundedFile {
    /// Reason for which a file can't be used.
    public enum Failure: Error, Equatable {
        /// The system's reason, as a clause: `does not exist`.
        case unreadable(String)
        /// The file has more bytes than allowed.
        case tooLarge
    }

    /// Returns the content of a text file with at most `limit` bytes, without a byte order mark. Reads no more than that,
    /// whatever the file is. Of a file up to 64 KB no other copy stays in memory.
    public static func read(_ path: String, limit: Int) throws(Failure) -> [UInt8] {
        let descriptor = open(path, O_RDONLY | O_CLOEXEC | O_NOCTTY | O_NONBLOCK)
        guard descriptor >= 0 else { throw .unreadable(reason(errno)) }
        defer { close(descriptor) }
        var bytes: [UInt8] = []
        var chunk = [UInt8](repeating: 0, count: 64 << 10)
        defer { chunk.withUnsafeMutableBytes { explicit_bzero($0.baseAddress!, min($0.count, bytes.count)) } }
        while bytes.count <= limit {
            let count = Glibc.read(descriptor, &chunk, min(chunk.count, limit + 1 - bytes.count))
            if count < 0 {
                let code = errno
                if code == EINTR { continue }
                throw .unreadable(reason(code))
            }
            if count == 0 {
                let mark: [UInt8] = [0xEF, 0xBB, 0xBF]
                return bytes.starts(with: mark) ? Array(bytes.dropFirst(mark.count)) : bytes
            }
            bytes += chunk[..<count]
        }
        throw .tooLarge
    }

    /// Overwrites bytes that held a secret, which nothing else may hold.
    public static func erase(_ bytes: inout [UInt8]) {
        bytes.withUnsafeMutableBytes { if let start = $0.baseAddress { explicit_bzero(start, $0.count) } }
    }

    private static func reason(_ code: Int32) -> String {
        switch code {
        case ENOENT, ENOTDIR: "does not exist"
        case EISDIR: "is a directory, not a file"
        case EACCES, EPERM: "cannot be read: permission denied"
        default: "cannot be read: \(String(cString: strerror(code)))"
        }
    }
}
