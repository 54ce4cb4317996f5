import Foundation

/// Text of a page. All text from a result passes through `escaped`.
enum Markup {
    /// Returns text that is safe in content and in quoted attributes. Control characters, and characters that change
    /// the direction of other text, become U+FFFD.
    static func escaped(_ text: String) -> String {
        var result = ""
        result.reserveCapacity(text.utf8.count)
        for scalar in text.unicodeScalars {
            switch scalar {
            case "&": result += "&amp;"
            case "<": result += "&lt;"
            case ">": result += "&gt;"
            case "\"": result += "&quot;"
            case "'": result += "&#39;"
            case "\n", "\t": result.unicodeScalars.append(scalar)
            case "\u{202A}"..."\u{202E}", "\u{2066}"..."\u{2069}", "\u{200E}", "\u{200F}", "\u{FFFE}",
                "\u{FFFF}":
                result += "\u{FFFD}"
            default:
                let isControl = scalar.value < 0x20 || (0x7F...0x9F).contains(scalar.value)
                result.unicodeScalars.append(isControl ? "\u{FFFD}" : scalar)
            }
        }
        return result
    }

    /// Returns escaped text that may be broken within words of more than twenty characters.
    static func breakable(_ text: String) -> String {
        text.split(separator: " ", omittingEmptySubsequences: false).map { word in
            stride(from: 0, to: max(1, word.count), by: 20).map {
                escaped(String(word.dropFirst($0).prefix(20)))
            }
            .joined(separator: "<wbr>")
        }.joined(separator: " ")
    }

    /// Returns a table in a scrolling group. Cells are markup already.
    /// - Parameter numeric: columns with numbers, which are aligned to the right.
    static func table(
        _ caption: String, head: [String], rows: [[String]], numeric: Set<Int>, isCaptionHidden: Bool = false
    ) -> String {
        var text =
            #"<div class="scroll" role="group" tabindex="0" aria-label="\#(escaped(caption)), table"><table>"#
        text +=
            #"<caption\#(isCaptionHidden ? #" class="hidden""# : "")>\#(escaped(caption))</caption><thead><tr>"#
        for (column, name) in head.enumerated() {
            text +=
                #"<th scope="col"\#(numeric.contains(column) ? #" class="n""# : "")>\#(breakable(name))</th>"#
        }
        text += "</tr></thead><tbody>\n"
        for row in rows {
            text += "<tr>"
            for (column, cell) in row.enumerated() {
                let kind = numeric.contains(column) ? #" class="n""# : ""
                text += column == 0 ? #"<th scope="row"\#(kind)>\#(cell)</th>"# : "<td\(kind)>\(cell)</td>"
            }
            text += "</tr>\n"
        }
        return text + "</tbody></table></div>\n"
    }
}

/// Numbers for readers. A number that is not finite, or is absent, is a dash.
public enum FigureText {
    static let absent = "–"

    /// Three significant digits at least, all digits of the whole part, with commas.
    public static func number(_ value: Double?) -> String {
        guard let value, value.isFinite else { return absent }
        let size = abs(value)
        if size == 0 { return "0" }
        if size >= 1e15 || size < 0.000_5 { return scientific(value) }
        if size >= 99.95 { return count(Int(value.rounded())) }
        if size >= 9.995 { return trimmed(String(format: "%.1f", value)) }
        if size >= 0.1 { return trimmed(String(format: "%.2f", value)) }
        return trimmed(String(format: "%.4f", value))
    }

    public static func count(_ value: Int) -> String {
        let digits = String(value.magnitude)
        var text = ""
        for (index, digit) in digits.enumerated() {
            if index > 0, (digits.count - index).isMultiple(of: 3) { text += "," }
            text.append(digit)
        }
        return value < 0 ? "−" + text : text
    }

    /// Milliseconds; seconds from ten of them on.
    public static func milliseconds(_ value: Double?) -> String {
        guard let value, value.isFinite else { return absent }
        return abs(value) >= 10_000 ? "\(number(value / 1_000)) s" : "\(number(value)) ms"
    }

    public static func microseconds(_ value: Double?) -> String {
        guard let value, value.isFinite else { return absent }
        return "\(number(value)) µs"
    }

    public static func percent(_ share: Double?) -> String {
        guard let share, share.isFinite else { return absent }
        return "\(number(share * 100)) %"
    }

    public static func bytes(_ value: Double?) -> String {
        guard let value, value.isFinite else { return absent }
        let unit = ByteUnit(for: value)
        return "\(number(value / unit.size)) \(unit.name)"
    }

    /// A moment of a run.
    static func seconds(_ value: Double) -> String { "\(number(value)) s" }

    /// Two significant digits and an exponent, such as 1.5e−8.
    private static func scientific(_ value: Double) -> String {
        let parts = String(format: "%.1e", value).split(separator: "e")
        guard parts.count == 2, let exponent = Int(parts[1]) else { return absent }
        return "\(trimmed(String(parts[0])))e\(exponent < 0 ? "−" : "")\(abs(exponent))"
    }

    private static func trimmed(_ text: String) -> String {
        var text = text
        while text.last == "0" { text.removeLast() }
        if text.last == "." { text.removeLast() }
        return text == "-0" ? "0" : text.replacing("-", with: "−")
    }
}

struct ByteUnit {
    let name: String
    let size: Double

    init(for value: Double) {
        let units = [("B", 1.0), ("KiB", 1_024), ("MiB", 1_048_576), ("GiB", 1_073_741_824)]
        (name, size) = units.last { abs(value) >= $0.1 } ?? units[0]
    }
}
