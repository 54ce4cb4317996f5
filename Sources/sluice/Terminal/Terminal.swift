import Foundation
import SluiceModel

/// Writes to standard output and standard error, and describes them. Lines never have characters that a terminal obeys,
/// whoever wrote their parts.
enum Terminal {
    /// Whether standard error, which shows progress, is a terminal that can redraw a line.
    static let isInteractive: Bool =
        isatty(STDERR_FILENO) == 1 && ProcessInfo.processInfo.environment["TERM"] != "dumb"

    /// Columns of the terminal; 80 when the terminal doesn't report them.
    static var columns: Int {
        var size = winsize()
        guard ioctl(STDERR_FILENO, UInt(TIOCGWINSZ), &size) == 0, size.ws_col > 0 else { return 80 }
        return Int(size.ws_col)
    }

    /// Writes a line to standard error.
    static func error(_ line: String) {
        write(ForeignText.escaped(line) + "\n", to: STDERR_FILENO)
    }

    /// Writes the lines of a text to standard error.
    static func error(lines text: String) {
        write(escapedLines(text) + "\n", to: STDERR_FILENO)
    }

    /// Writes a line to standard output. Returns false when nobody reads it any more.
    @discardableResult
    static func output(_ line: String) -> Bool {
        write(ForeignText.escaped(line) + "\n", to: STDOUT_FILENO)
    }

    /// Writes a text with its line ends to standard output.
    static func output(lines text: String) {
        write(escapedLines(text), to: STDOUT_FILENO)
    }

    /// Writes a question to standard error, and leaves the line open.
    static func ask(_ question: String) {
        write(ForeignText.escaped(question), to: STDERR_FILENO)
    }

    private static func escapedLines(_ text: String) -> String {
        text.split(separator: "\n", omittingEmptySubsequences: false).map { ForeignText.escaped(String($0)) }
            .joined(separator: "\n")
    }

    /// Writes text unchanged: only for text of Sluice's own with sequences for a terminal. Returns false when it could not
    /// be written.
    @discardableResult
    static func write(_ text: String, to descriptor: Int32) -> Bool {
        var text = text
        return text.withUTF8 { bytes in
            var rest = UnsafeRawBufferPointer(bytes)
            while !rest.isEmpty {
                let count = Glibc.write(descriptor, rest.baseAddress, rest.count)
                if count < 0, errno == EINTR { continue }
                if count <= 0 { return false }
                rest = UnsafeRawBufferPointer(rebasing: rest[count...])
            }
            return true
        }
    }
}

/// Text in columns, each as wide as its widest cell.
struct TextTable {
    private var rows: [[String]] = []
    /// Columns of numbers, which are aligned to the right.
    var rightAligned: Set<Int> = []

    mutating func add(_ cells: String...) { rows.append(cells) }

    func lines(indent: Int = 0) -> [String] {
        let columns = rows.map(\.count).max() ?? 0
        let widths = (0..<columns).map { column in
            rows.map { column < $0.count ? $0[column].count : 0 }.max() ?? 0
        }
        return rows.map { row in
            var line = String(repeating: " ", count: indent)
            for (column, cell) in row.enumerated() {
                let padding = String(repeating: " ", count: widths[column] - cell.count)
                line += rightAligned.contains(column) ? padding + cell : cell + padding
                line += "  "
            }
            while line.last == " " { line.removeLast() }
            return line
        }
    }
}
