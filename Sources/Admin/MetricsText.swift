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

    /// Labels of a sample with its value.
    typealias Sample = (labels: [(String, String)], value: Int)

    /// Appends values that only grow while the process lives, by several labels.
    mutating func counter(_ name: String, _ help: String, _ samples: [Sample]) {
        beginFamily(name + "_total", "counter", help)
        for each in samples { sample(name + "_total", each.labels, "\(each.value)") }
    }

    /// Appends values by several labels.
    mutating func gauge(_ name: String, _ help: String, _ samples: [Sample]) {
        beginFamily(name, "gauge", help)
        for each in samples { sample(name, each.labels, "\(each.value)") }
    }

    private mutating func beginFamily(_ name: String, _ type: String, _ help: String) {
        text += "# HELP sluice_\(name) \(Self.escaped(help, quotes: false))\n# TYPE sluice_\(name) \(type)\n"
    }

    private mutating func sample(_ name: String, _ label: (String, String)?, _ value: String) {
        sample(name, label.map { [$0] } ?? [], value)
    }

    private mutating func sample(_ name: String, _ labels: [(String, String)], _ value: String) {
        text += "sluice_\(name)"
        if !labels.isEmpty {
            let pairs = labels.map { "\($0.0)=\"\(Self.escaped($0.1, quotes: true))\"" }
            text += "{\(pairs.joined(separator: ","))}"
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
