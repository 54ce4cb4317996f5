/// The last steps of a run, kept as numbers until someone wants to read them.
struct Trace {
    /// A line's text; each `#` stands for one of the three numbers.
    typealias Text = StaticString

    private struct Entry {
        var monotonic: UInt64 = 0
        var text: Text = ""
        var place = 0
        var a = 0
        var b = 0
        var c = 0

        var line: String {
            var numbers = [a, b, c].makeIterator()
            var line = Trace.time(monotonic)
            if place >= 0 { line += " worker \(place >> 8).\(place & 255)" }
            line += " "
            for character in text.description {
                if character == "#" { line += "\(numbers.next() ?? 0)" } else { line.append(character) }
            }
            return line
        }
    }

    private static let length = 64
    private var entries = [Entry](repeating: Entry(), count: length)
    private var next = 0
    let prints: Bool

    init(prints: Bool) { self.prints = prints }

    @inline(__always)
    mutating func add(
        _ text: Text, _ a: Int = 0, _ b: Int = 0, _ c: Int = 0, at monotonic: UInt64, place: Int = -1
    ) {
        let entry = Entry(monotonic: monotonic, text: text, place: place, a: a, b: b, c: c)
        entries[next % Self.length] = entry
        next += 1
        if prints { print(entry.line) }
    }

    /// Oldest first.
    var lines: [String] {
        (max(0, next - Self.length)..<next).map { entries[$0 % Self.length].line }
    }

    /// Seconds with milliseconds and what is below.
    private static func time(_ monotonic: UInt64) -> String {
        let micros = monotonic / 1000
        let text = "\(micros % 1_000_000)"
        return "\(micros / 1_000_000)." + String(repeating: "0", count: 6 - text.count) + text
    }
}
