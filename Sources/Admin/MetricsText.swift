/// Prometheus' text format, version 0.0.4: https://prometheus.io/docs/instrumenting/exposition_formats/
struct MetricsText {
    static let contentType = "text/plain; version=0.0.4; charset=utf-8"

    private(set) var text = ""

    /// Appends a value that only grows while the process lives. Its name gets the suffix `_total`.
    mutating func counter(_ name: String, _ help: String, _ value: Int) {
        beginFamily(name + "_total", "counter", help)
        sample(name + "_total", nil, "\(value)")
    }

    /// Appends such values by a label.
    mutating func counter(_ name: String, _ help: String, by label: String, _ values: [(String, Int)]) {
        beginFamily(name + "_total", "counter", help)
        for (value, count) in values { sample(name + "_total", (label, value), "\(count)") }
    }

    mutating func gauge(_ name: String, _ help: String, _ value: Int) {
        beginFamily(name, "gauge", help)
        sample(name, nil, "\(value)")
    }

    mutating func gauge(_ name: String, _ help: String, _ value: Double) {
        beginFamily(name, "gauge", help)
        sample(name, nil, "\(value)")
    }

    mutating func gauge(_ name: String, _ help: String, by label: String, _ values: [(String, Int)]) {
        beginFamily(name, "gauge", help)
        for (value, count) in values { sample(name, (label, value), "\(count)") }
    }

    private mutating func beginFamily(_ name: String, _ type: String, _ help: String) {
        text += "# HELP sluice_\(name) \(Self.escaped(help, quotes: false))\n# TYPE sluice_\(name) \(type)\n"
    }

    private mutating func sample(_ name: String, _ label: (String, String)?, _ value: String) {
        text += "sluice_\(name)"
        if let (label, labelValue) = label {
            text += "{\(label)=\"\(Self.escaped(labelValue, quotes: true))\"}"
        }
        text += " \(value)\n"
    }

    private static func escaped(_ text: String, quotes: Bool) -> String {
        var escaped = ""
        for character in text.unicodeScalars {
            switch character {
            case "\\": escaped += "\\\\"
            case "\n": escaped += "\\n"
            case "\"" where quotes: escaped += "\\\""
            default: escaped.unicodeScalars.append(character)
            }
        }
        return escaped
    }
}
