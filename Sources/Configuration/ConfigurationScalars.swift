/// Durations as people write them: `250ms`, `30s`, `5m`, `2h`, `30d`, also together: `1m30s`.
/// A number without a unit is refused, except 0.
package enum DurationText {
    package static let grammar = "a duration such as `250ms`, `30s`, `5m`, `1h30m` or `30d`"

    private static let units: [(suffix: String, milliseconds: Int64)] = [
        ("ms", 1), ("s", 1_000), ("m", 60_000), ("h", 3_600_000), ("d", 86_400_000),
    ]

    package static func parse(_ text: String) -> Duration? {
        if text == "0" { return .zero }
        var rest = Substring(text)
        var total: Int64 = 0
        var previousUnit = Int64.max
        guard !rest.isEmpty else { return nil }
        while !rest.isEmpty {
            let digits = rest.prefix { $0.isASCII && $0.isNumber }
            guard let number = Int64(digits) else { return nil }
            rest = rest.dropFirst(digits.count)
            let letters = rest.prefix { $0.isLetter }
            guard let unit = units.first(where: { $0.suffix == letters }) else { return nil }
            // Largest unit first, each once, because 30s1m is more likely a mistake than a duration.
            guard unit.milliseconds < previousUnit else { return nil }
            previousUnit = unit.milliseconds
            rest = rest.dropFirst(letters.count)
            let (product, overflow) = number.multipliedReportingOverflow(by: unit.milliseconds)
            let (sum, sumOverflow) = total.addingReportingOverflow(product)
            if overflow || sumOverflow { return nil }
            total = sum
        }
        return .milliseconds(total)
    }

    /// Returns the shortest text that `parse` reads as this duration, in whole milliseconds.
    package static func format(_ duration: Duration) -> String {
        var milliseconds =
            duration.components.seconds * 1_000 + duration.components.attoseconds / 1_000_000_000_000_000
        if milliseconds == 0 { return "0" }
        var text = ""
        for unit in units.reversed() where milliseconds >= unit.milliseconds {
            text += "\(milliseconds / unit.milliseconds)\(unit.suffix)"
            milliseconds %= unit.milliseconds
        }
        return text
    }
}

/// Sizes in bytes: `65536`, `64KiB`, `64MiB`, `1GiB`.
enum SizeText {
    static let grammar = "a size such as `65536`, `512KiB`, `64MiB` or `1GiB`"

    private static let units: [(suffix: String, bytes: Int)] = [
        ("KiB", 1 << 10), ("MiB", 1 << 20), ("GiB", 1 << 30),
    ]

    static func parse(_ text: String) -> Int? {
        let digits = text.prefix { $0.isASCII && $0.isNumber }
        guard let number = Int(digits) else { return nil }
        let suffix = text.dropFirst(digits.count)
        if suffix.isEmpty { return number }
        guard let unit = units.first(where: { $0.suffix == suffix }) else { return nil }
        let (product, overflow) = number.multipliedReportingOverflow(by: unit.bytes)
        return overflow ? nil : product
    }

    static func format(_ bytes: Int) -> String {
        for unit in units.reversed() where bytes >= unit.bytes && bytes % unit.bytes == 0 {
            return "\(bytes / unit.bytes)\(unit.suffix)"
        }
        return "\(bytes)"
    }
}
