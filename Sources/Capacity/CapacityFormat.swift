/// Numbers for a reader.
public enum CapacityFormat {
    /// Returns a value with its unit: `9.4 GB`, `12 min`, `100,000`; `never` for an infinite time.
    public static func text(_ value: Double, _ unit: String) -> String {
        guard value.isFinite else { return "never" }
        return switch unit {
        case "bytes": scaled(value, ["B", "kB", "MB", "GB", "TB", "PB"])
        case "bytes/s": scaled(value, ["B", "kB", "MB", "GB", "TB", "PB"]) + "/s"
        case "s": time(value)
        case "": number(value)
        default: number(value) + " " + unit
        }
    }

    static func time(_ seconds: Double) -> String {
        if seconds > 0, seconds < 0.001 { return number(seconds * 1_000_000) + " µs" }
        if seconds > 0, seconds < 1 { return number(seconds * 1_000) + " ms" }
        if seconds < 120 { return number(seconds) + " s" }
        if seconds < 7_200 { return number(seconds / 60) + " min" }
        if seconds < 172_800 { return number(seconds / 3_600) + " h" }
        return number(seconds / 86_400) + " d"
    }

    private static func scaled(_ value: Double, _ units: [String]) -> String {
        var value = value
        var index = 0
        while value >= 1_000, index < units.count - 1 {
            value /= 1_000
            index += 1
        }
        return number(value) + " " + units[index]
    }

    /// Returns three digits or all digits before the point, with commas between thousands.
    static func number(_ value: Double) -> String {
        guard value.isFinite, abs(value) < 1e18 else { return "\(value)" }
        if abs(value) >= 100 || value == value.rounded() {
            var digits = String(Int(value.rounded()))
            var grouped = ""
            while digits.count > 3, digits.dropLast(3) != "-" {
                grouped = "," + digits.suffix(3) + grouped
                digits.removeLast(3)
            }
            return digits + grouped
        }
        if abs(value) < 1 { return "\((value * 1_000).rounded() / 1_000)" }
        return "\((value * (abs(value) < 10 ? 100 : 10)).rounded() / (abs(value) < 10 ? 100 : 10))"
    }
}
