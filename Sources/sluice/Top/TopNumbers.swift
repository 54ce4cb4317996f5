/// Short forms of numbers for a narrow column. The sign `–` stands for an unknown number.
enum TopNumbers {
    static let unknown = "–"

    /// `0`, `7.5`, `1,234`, `56.7k`, `8.90M`.
    static func count(_ value: Double?) -> String {
        guard let value, value.isFinite else { return unknown }
        switch abs(value) {
        case 0..<9.95 where value.rounded() != value: return Numbers.fixed(value, 1)
        case 0..<99_999.5: return Numbers.grouped(Int(value.rounded()))
        case 0..<999_950: return Numbers.fixed(value / 1e3, 0) + "k"
        case 0..<999_950_000: return Numbers.fixed(value / 1e6, 2) + "M"
        case 0..<1e15: return Numbers.fixed(value / 1e9, 2) + "G"
        default: return ">1000T"
        }
    }

    /// `512 B`, `1.5 kB`, `2.0 GB`.
    static func bytes(_ bytes: Double?) -> String {
        guard let bytes, bytes.isFinite, bytes >= 0 else { return unknown }
        var value = bytes
        for unit in ["B", "kB", "MB", "GB", "TB"] {
            if value < 999.5 {
                return Numbers.fixed(value, unit == "B" || value >= 100 ? 0 : 1) + " " + unit
            }
            value /= 1_000
        }
        return Numbers.fixed(value, 0) + " PB"
    }

    /// `0.4 ms`, `12 ms`, `1.25 s`, `5 m 20 s`, `3 h 10 m`, `12 d`.
    static func seconds(_ value: Double?) -> String {
        guard let value, value.isFinite else { return unknown }
        let magnitude = abs(value)
        switch magnitude {
        case 0: return "0"
        case ..<0.01: return Numbers.fixed(value * 1_000, 1) + " ms"
        case ..<0.9995: return Numbers.fixed(value * 1_000, 0) + " ms"
        case ..<9.995: return Numbers.fixed(value, 2) + " s"
        case ..<119.5: return Numbers.fixed(value, 0) + " s"
        case ..<7_200: return "\(Int(value) / 60) m \(abs(Int(value) % 60)) s"
        case ..<172_800: return "\(Int(value) / 3_600) h \(abs(Int(value) / 60 % 60)) m"
        case ..<1e10: return "\(Int(value) / 86_400) d"
        default: return "∞"
        }
    }

    static func percent(_ share: Double?) -> String {
        guard let share, share.isFinite else { return unknown }
        return Numbers.fixed(share * 100, 0) + "%"
    }

    /// `a/b`, with a sign for each unknown part; only `a` where there is no `b`.
    static func ratio(_ a: String, _ b: String) -> String { b == unknown ? a : "\(a)/\(b)" }
}
