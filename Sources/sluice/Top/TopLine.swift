import SluiceModel

/// A line of a view: texts with styles.
struct TopLine: Sendable, Equatable {
    enum Style: Sendable, Equatable {
        case plain, heading, faint, good, warning, bad
    }

    struct Span: Sendable, Equatable {
        var text: String
        var style: Style
    }

    private(set) var spans: [Span] = []

    init() {}

    init(_ text: String, _ style: Style = .plain) { add(text, style) }

    /// Adds a text. Labels are foreign, so characters that a terminal obeys are escaped.
    mutating func add(_ text: String, _ style: Style = .plain) {
        if !text.isEmpty { spans.append(Span(text: ForeignText.escaped(text), style: style)) }
    }

    mutating func add(_ line: TopLine) { spans += line.spans }

    /// Adds blanks up to a column.
    mutating func pad(to column: Int) {
        let missing = column - width
        if missing > 0 {
            spans.append(Span(text: String(repeating: " ", count: missing), style: .plain))
        }
    }

    /// The line without styles.
    var text: String { spans.map(\.text).joined() }

    /// Columns of a terminal that the line takes.
    var width: Int { spans.reduce(0) { $0 + Self.width($1.text) } }

    /// Returns the columns from `start` on, at most `columns` of them.
    func clipped(to columns: Int, from start: Int = 0) -> TopLine {
        var line = TopLine()
        var position = 0
        for span in spans {
            var kept = ""
            for character in span.text {
                let width = Self.width(character)
                if position >= start, position + width - start <= columns { kept.append(character) }
                position += width
            }
            line.add(kept, span.style)
        }
        return line
    }

    static func width(_ text: String) -> Int { text.reduce(0) { $0 + width($1) } }

    /// Columns of a character: 2 for those of East Asia and pictures, 1 for others. Estimated from the first scalar.
    private static func width(_ character: Character) -> Int {
        guard let value = character.unicodeScalars.first?.value, value >= 0x1100 else { return 1 }
        switch value {
        case 0x1100...0x115F, 0x2E80...0x303E, 0x3041...0xA4CF, 0xAC00...0xD7A3, 0xF900...0xFAFF,
            0xFE30...0xFE6F,
            0xFF00...0xFF60, 0xFFE0...0xFFE6, 0x1F300...0x1FAFF, 0x20000...0x3FFFD:
            return 2
        default: return 1
        }
    }
}

/// Cells in columns, each as wide as its widest cell.
struct TopTable {
    private var rows: [[TopLine]] = []
    /// Number of columns at the left that are aligned to the left; the others are numbers.
    private let leftColumns: Int

    init(leftColumns: Int, _ heading: [String]) {
        self.leftColumns = leftColumns
        rows = [heading.map { TopLine($0, .faint) }]
    }

    mutating func add(_ cells: [TopLine]) { rows.append(cells) }

    var lines: [TopLine] {
        let count = rows.map(\.count).max() ?? 0
        let widths = (0..<count).map { column in
            rows.map { column < $0.count ? $0[column].width : 0 }.max() ?? 0
        }
        return rows.map { cells in
            var line = TopLine("  ")
            for (column, cell) in cells.enumerated() {
                let start = line.width
                if column >= leftColumns { line.pad(to: start + widths[column] - cell.width) }
                line.add(cell)
                if column + 1 < cells.count { line.pad(to: start + widths[column] + 2) }
            }
            return line
        }
    }
}
