import Foundation
import SluiceModel

/// Progress of a long task on standard error. A terminal shows a single line that is redrawn; other outputs get plain
/// lines at intervals.
struct Progress {
    private let isInteractive: Bool
    private let interval: Duration
    private var lastShown: ContinuousClock.Instant?
    private var hasOpenLine = false

    /// - Parameter plainInterval: Time between plain lines.
    init(plainInterval: Duration = .seconds(2), isInteractive: Bool = Terminal.isInteractive) {
        self.isInteractive = isInteractive
        interval = isInteractive ? .milliseconds(100) : plainInterval
    }

    /// Shows a state when it is time for it.
    ///
    /// - Parameters:
    ///   - fraction: 0…1 draws a bar on a terminal; nil where the whole isn't known.
    ///   - text: Called only when the text is shown.
    mutating func show(fraction: Double?, _ text: () -> String) {
        let now = ContinuousClock.now
        if let lastShown, now - lastShown < interval { return }
        // The first plain line follows after an interval, because a quick task needs none.
        defer { lastShown = now }
        if lastShown == nil, !isInteractive { return }
        draw(fraction: fraction, text())
    }

    /// Shows the last state and ends the line.
    mutating func finish(fraction: Double?, _ text: String) {
        draw(fraction: fraction, text)
        if hasOpenLine { Terminal.write("\n", to: STDERR_FILENO) }
        hasOpenLine = false
    }

    /// Removes the line, so that something else can be written.
    mutating func clear() {
        if hasOpenLine { Terminal.write("\r\u{1B}[K", to: STDERR_FILENO) }
        hasOpenLine = false
    }

    private mutating func draw(fraction: Double?, _ text: String) {
        guard isInteractive else {
            let percent = fraction.map { "\(Int($0 * 100))%  " } ?? ""
            Terminal.error(percent + text)
            return
        }
        let columns = Terminal.columns - 1
        var line = ""
        if let fraction {
            let width = max(10, min(40, columns - 65))
            let filled = Int((Double(width) * min(max(fraction, 0), 1)).rounded())
            let percent = "\(Int(fraction * 100))"
            line +=
                "[" + String(repeating: "█", count: filled) + String(repeating: "·", count: width - filled)
                + "] "
            line += String(repeating: " ", count: max(0, 3 - percent.count)) + percent + "%  "
        }
        line += ForeignText.escaped(text)
        Terminal.write("\r\u{1B}[K" + String(line.prefix(columns)), to: STDERR_FILENO)
        hasOpenLine = true
    }
}

/// Formats numbers for people.
enum Numbers {
    /// `1,234,567`
    static func grouped(_ number: Int) -> String {
        let digits = Array(String(number.magnitude))
        var text = number < 0 ? "-" : ""
        for (index, digit) in digits.enumerated() {
            if index > 0, (digits.count - index) % 3 == 0 { text.append(",") }
            text.append(digit)
        }
        return text
    }

    /// `1 job`, `2 jobs`: a number with its noun, whose plural ends in `s` unless it is given.
    static func counted(_ number: Int, _ noun: String, plural: String? = nil) -> String {
        "\(grouped(number)) \(number == 1 ? noun : plural ?? noun + "s")"
    }

    /// Formats milliseconds with a fitting unit: `0.4 ms`, `12 ms`, `1.25 s`.
    static func milliseconds(_ value: Double) -> String {
        if value >= 1_000 { return fixed(value / 1_000, 2) + " s" }
        return fixed(value, value < 10 ? 1 : 0) + " ms"
    }

    /// Formats a count by time, per second.
    static func rate(_ count: Int, over duration: Duration) -> String {
        let seconds = duration / .seconds(1)
        return seconds > 0 ? grouped(Int((Double(count) / seconds).rounded())) + "/s" : "–"
    }

    static func fixed(_ value: Double, _ digits: Int) -> String {
        String(format: "%.\(digits)f", value)
    }
}
