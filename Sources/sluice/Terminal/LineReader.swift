import Foundation

/// Reads lines of a file or of standard input.
final class LineReader {
    private let descriptor: Int32
    private let size: Int?
    private var buffer: [UInt8] = []
    private var start = 0
    private var bytesRead = 0
    private var isAtEnd = false
    /// Number of the last returned line, from 1.
    private(set) var number = 0

    /// Opens the input; nil, with `errno`, when it can't be read.
    /// - Parameter path: `-` is standard input.
    init?(path: String) {
        descriptor = path == "-" ? STDIN_FILENO : open(path, O_RDONLY | O_CLOEXEC)
        guard descriptor >= 0 else { return nil }
        var status = stat()
        if fstat(descriptor, &status) == 0, status.st_mode & S_IFMT == S_IFDIR {
            errno = EISDIR
            return nil
        }
        let isFile = fstat(descriptor, &status) == 0 && status.st_mode & S_IFMT == S_IFREG
        size = isFile ? Int(status.st_size) : nil
    }

    deinit {
        if descriptor != STDIN_FILENO { close(descriptor) }
    }

    /// Share of the input that has been returned, 0 to 1; nil when the size isn't known.
    var fraction: Double? {
        guard let size, size > 0 else { return nil }
        return Double(bytesRead - (buffer.count - start)) / Double(size)
    }

    /// Returns the next line without its end; nil when there is none.
    func next() -> [UInt8]? {
        var searched = start
        while true {
            if let end = buffer[searched...].firstIndex(of: 0x0a) {
                defer { start = end + 1 }
                number += 1
                return Array(buffer[start..<end])
            }
            searched = buffer.count
            if isAtEnd {
                guard start < buffer.count else { return nil }
                defer { start = buffer.count }
                number += 1
                return Array(buffer[start...])
            }
            buffer.removeFirst(start)
            searched -= start
            start = 0
            fill()
        }
    }

    private func fill() {
        var chunk = [UInt8](repeating: 0, count: 64 << 10)
        while true {
            let count = read(descriptor, &chunk, chunk.count)
            if count < 0, errno == EINTR { continue }
            if count <= 0 {
                isAtEnd = true
            } else {
                buffer += chunk[..<count]
                bytesRead += count
            }
            return
        }
    }
}
