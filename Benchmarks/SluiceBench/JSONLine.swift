/// A flat JSON object on a line, which each measurement prints.
struct JSONLine {
    private var text = ""

    /// Names are plain identifiers, written as they are.
    mutating func add(_ name: String, _ value: Int) { append(name, "\(value)") }

    mutating func add(_ name: String, _ value: Double) { append(name, value.isFinite ? "\(value)" : "null") }

    mutating func add(_ name: String, _ values: [Double]) {
        append(name, "[" + values.map { $0.isFinite ? "\($0)" : "null" }.joined(separator: ",") + "]")
    }

    mutating func add(_ name: String, _ value: String) {
        var quoted = "\""
        for scalar in value.unicodeScalars {
            switch scalar {
            case "\"", "\\": quoted += "\\\(scalar)"
            case "\n": quoted += "\\n"
            case "\u{20}"...: quoted.unicodeScalars.append(scalar)
            default: quoted += " "
            }
        }
        append(name, quoted + "\"")
    }

    private mutating func append(_ name: String, _ value: String) {
        text += "\(text.isEmpty ? "" : ",")\"\(name)\":\(value)"
    }

    func print() { Swift.print("{\(text)}") }
}
