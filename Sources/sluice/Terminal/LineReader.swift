import Foundation

/// Reads lines of a file or of standard input. Memory is bounded by the longest line that is kept.
final class LineReader {
    enum Line {
        case bytes([UInt8])
        /// The line is longer than ``LineReader/longest``, and was left out.
        case tooLong
    }

    /// Longest line that is kept, in bytes: four times Kafka's default limit of a record.
    static let longest = 4 << 20
    /// Bytes after which a line without an end makes the input unusable.
    static let endless = 64 << 20

    private let path: String
    private let descriptor: Int32
    /// Bytes of a regular file; nil for other inputs.
    private let size: Int?
    private var buffer: [UInt8] = []
    private var start = 0
    private var bytesRead = 0
    /// Bytes of the present line that were left out; 0 for a line that is kept.
    private var omitted = 0
    private var isAtEnd = false
    /// Number of the last returned line, from 1.
    private(set) var number = 0

    /// Opens the input.
    /// - Parameter path: `-` is standard input.
    init(path: String) throws(CommandFailure) {
        self.path = path
        descriptor = path == "-" ? STDIN_FILENO : open(path, O_RDONLY | O_CLOEXEC)
        var status = stat()
        let isOpen = descriptor >= 0 && fstat(descriptor, &status) == 0
        size = isOpen && status.st_mode & S_IFMT == S_IFREG ? Int(status.st_size) : nil
        if !isOpen { throw Self.unreadable(path, errno) }
        if status.st_mode & S_IFMT == S_IFDIR { throw Self.unreadable(path, EISDIR) }
    }

    deinit {
        if descriptor > STDIN_FILENO { close(descriptor) }
    }

    /// Share of the input that has been returned, 0 to 1; nil when the size isn't known.
    var fraction: Double? {
        guard let size, size > 0 else { return nil }
        return Double(bytesRead - (buffer.count - start)) / Double(size)
    }

    /// Returns the next line without its end; nil at the end of the input, and after a request to stop. A UTF-8 byte order
    /// mark before the first line is skipped.
    ///
    /// - Throws: when the input can't be read, has another encoding, or has a line without an end.
    func next(until stop: StopSignals) throws(CommandFailure) -> Line? {
        var searched = start
        while !stop.isRequested {
            if let end = lineEnd(from: searched) { return line(to: end, next: end + 1) }
            if isAtEnd {
                return start < buffer.count || omitted > 0 ? line(to: buffer.count, next: buffer.count) : nil
            }
            buffer.removeFirst(start)
            start = 0
            if buffer.count > Self.longest || omitted > 0 {
                omitted += buffer.count
                buffer.removeAll(keepingCapacity: true)
            }
            guard omitted <= Self.endless else {
                throw CommandFailure(
                    .dataError,
                    "\(path):\(number + 1): the line has no end within \(Self.endless >> 20) MiB; give a file with a job on "
                        + "each line")
            }
            searched = buffer.count
            try fill(until: stop)
            if bytesRead - buffer.count == 0, omitted == 0 { try skipMark() }
        }
        return nil
    }

    private func lineEnd(from index: Int) -> Int? {
        buffer.withUnsafeBytes { bytes in
            guard index < bytes.count, let base = bytes.baseAddress,
                let found = memchr(base + index, 0x0a, bytes.count - index)
            else { return nil }
            return base.distance(to: UnsafeRawPointer(found))
        }
    }

    private func line(to end: Int, next: Int) -> Line {
        defer {
            start = next
            omitted = 0
        }
        number += 1
        return omitted > 0 || end - start > Self.longest ? .tooLong : .bytes(Array(buffer[start..<end]))
    }

    /// Skips the mark at the beginning of the input.
    private func skipMark() throws(CommandFailure) {
        if buffer.starts(with: [0xEF, 0xBB, 0xBF]) { start = 3 }
        guard buffer.starts(with: [0xFF, 0xFE]) || buffer.starts(with: [0xFE, 0xFF]) else { return }
        throw CommandFailure(
            .dataError,
            "\(path): begins with a byte order mark of UTF-16; convert it: iconv -f UTF-16 -t UTF-8")
    }

    /// Reads a chunk, or waits for one until a request to stop.
    private func fill(until stop: StopSignals) throws(CommandFailure) {
        var request = pollfd(fd: descriptor, events: Int16(POLLIN), revents: 0)
        while poll(&request, 1, 100) == 0 {
            if stop.isRequested { return }
        }
        var chunk = [UInt8](repeating: 0, count: 64 << 10)
        while true {
            let count = read(descriptor, &chunk, chunk.count)
            if count < 0, errno == EINTR { continue }
            if count < 0 { throw Self.unreadable(path, errno) }
            isAtEnd = count == 0
            buffer += chunk[..<count]
            bytesRead += count
            return
        }
    }

    private static func unreadable(_ path: String, _ code: Int32) -> CommandFailure {
        CommandFailure(
            .dataError,
            "can't read \(path): \(String(cString: strerror(code))); check that the file exists and is readable"
        )
    }
}
