import Foundation

/// A terminal that a view takes whole: alternate screen, keys without echo. ``leave()`` restores the terminal.
final class TopTerminal {
    private let before: termios
    private let hasColour: Bool
    private var isEntered = false
    private var lastFrame: [TopLine] = []

    /// Keys that a view knows.
    enum Key: Equatable {
        case character(Character)
        case up, down, pageUp, pageDown, home, end, tab, backTab
    }

    /// Nil when standard input or output is no terminal.
    init?(hasColour: Bool) {
        guard isatty(STDIN_FILENO) == 1, isatty(STDOUT_FILENO) == 1 else { return nil }
        var attributes = termios()
        guard tcgetattr(STDIN_FILENO, &attributes) == 0 else { return nil }
        before = attributes
        self.hasColour = hasColour
    }

    deinit { leave() }

    /// Takes the screen. Signals of keys, such as Ctrl-C, stay in effect.
    func enter() {
        guard !isEntered else { return }
        isEntered = true
        var raw = before
        raw.c_lflag &= ~tcflag_t(ICANON | ECHO)
        tcsetattr(STDIN_FILENO, TCSANOW, &raw)
        // Alternate screen, no cursor, no wrapping of lines.
        Terminal.write("\u{1B}[?1049h\u{1B}[?25l\u{1B}[?7l", to: STDOUT_FILENO)
        lastFrame = []
    }

    /// Gives the screen back as it was.
    func leave() {
        guard isEntered else { return }
        isEntered = false
        Terminal.write("\u{1B}[0m\u{1B}[?7h\u{1B}[?25h\u{1B}[?1049l", to: STDOUT_FILENO)
        var attributes = before
        tcsetattr(STDIN_FILENO, TCSANOW, &attributes)
    }

    /// Columns and rows; 80 × 24 when the terminal doesn't report them.
    var size: (columns: Int, rows: Int) {
        var size = winsize()
        guard ioctl(STDOUT_FILENO, UInt(TIOCGWINSZ), &size) == 0, size.ws_col > 0, size.ws_row > 0 else {
            return (80, 24)
        }
        return (Int(size.ws_col), Int(size.ws_row))
    }

    /// Draws a frame whose lines fit. Only lines that changed are written, unless `isWhole`.
    /// Returns false when nobody reads the terminal any more.
    func draw(_ frame: [TopLine], isWhole: Bool) -> Bool {
        var text = isWhole ? "\u{1B}[2J" : ""
        // Rows of a larger terminal before are gone: the terminal would take its last row for them.
        let rows = isWhole ? frame.count : max(frame.count, lastFrame.count)
        for row in 0..<rows {
            let line = row < frame.count ? frame[row] : TopLine()
            if !isWhole, row < lastFrame.count, lastFrame[row] == line { continue }
            text += "\u{1B}[\(row + 1);1H\u{1B}[K" + TopTerminal.ansi(line, hasColour: hasColour)
        }
        lastFrame = frame
        return text.isEmpty || Terminal.write(text, to: STDOUT_FILENO)
    }

    /// Returns a line with the terminal's codes for its styles.
    static func ansi(_ line: TopLine, hasColour: Bool) -> String {
        line.spans.map { span in
            let code =
                switch span.style {
                case .plain: ""
                case .heading: "1"
                case .faint: "2"
                case .good: hasColour ? "32" : ""
                case .warning: hasColour ? "33" : ""
                case .bad: hasColour ? "1;31" : "1"
                }
            return code.isEmpty ? span.text : "\u{1B}[\(code)m\(span.text)\u{1B}[0m"
        }.joined()
    }

    /// Waits for keys, at most `milliseconds`. Returns nil at the end of the input.
    func keys(within milliseconds: Int32) -> [Key]? {
        var entry = pollfd(fd: STDIN_FILENO, events: Int16(POLLIN), revents: 0)
        guard poll(&entry, 1, milliseconds) > 0 else { return [] }
        var bytes = [UInt8](repeating: 0, count: 256)
        let count = read(STDIN_FILENO, &bytes, bytes.count)
        if count < 0, errno == EINTR || errno == EAGAIN { return [] }
        guard count > 0 else { return nil }
        return Self.keys(Array(bytes[..<count]))
    }

    /// Reads keys, and the sequences of arrows and the like.
    static func keys(_ bytes: [UInt8]) -> [Key] {
        let sequences: [(String, Key)] = [
            ("\u{1B}[A", .up), ("\u{1B}OA", .up), ("\u{1B}[B", .down), ("\u{1B}OB", .down),
            ("\u{1B}[5~", .pageUp),
            ("\u{1B}[6~", .pageDown), ("\u{1B}[H", .home), ("\u{1B}[1~", .home), ("\u{1B}[F", .end),
            ("\u{1B}[4~", .end), ("\u{1B}[Z", .backTab), ("\t", .tab),
        ]
        var keys: [Key] = []
        var rest = bytes[...]
        while let byte = rest.first {
            if let (text, key) = sequences.first(where: { rest.starts(with: Array($0.0.utf8)) }) {
                keys.append(key)
                rest = rest.dropFirst(text.utf8.count)
            } else if byte == 0x1B {
                // A sequence of another key ends with a letter or `~`.
                rest = rest.dropFirst()
                if rest.first == UInt8(ascii: "[") || rest.first == UInt8(ascii: "O") {
                    rest = rest.dropFirst().drop { !((0x40...0x7E).contains($0)) }.dropFirst()
                }
            } else {
                if byte >= 0x20, byte < 0x7F { keys.append(.character(Character(Unicode.Scalar(byte)))) }
                rest = rest.dropFirst()
            }
        }
        return keys
    }
}
