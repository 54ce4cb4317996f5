import Gateway
import SluiceModel

extension CheckResult {
    /// Result as lines of a table: sign, part and finding, then the remedy.
    var lines: [String] {
        let width = 28
        let padding = String(repeating: " ", count: max(0, width - part.count))
        let line = "\(verdict.sign) \(part)\(padding)  \(finding)"
        guard let remedy else { return [line] }
        return [line, String(repeating: " ", count: width + 4) + "→ \(remedy)"]
    }

    /// Result as a JSON document.
    var json: String {
        var writer = ByteWriter()
        writer.append("{")
        let members = [
            ("verdict", verdict.rawValue), ("part", part), ("finding", finding), ("remedy", remedy),
        ]
        for (index, (name, value)) in members.enumerated() {
            writer.append(text: "\(index == 0 ? "" : ",")\"\(name)\":")
            guard var text = value else {
                writer.append("null")
                continue
            }
            text.withUTF8 { writer.append(jsonString: UnsafeRawBufferPointer($0)) }
        }
        writer.append("}")
        return String(decoding: writer.bytes, as: UTF8.self)
    }
}
