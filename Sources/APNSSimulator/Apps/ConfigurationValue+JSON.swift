import Configuration
import DeviceModel

extension ConfigurationValue {
    /// A JSON value as a document's tree. Each place in it is the document as a whole.
    init(_ value: JSONValue, name: String) {
        let location = ConfigurationProblem.Location.file(name: name, line: 0, column: 0)
        let content: Content =
            switch value {
            case .null: .empty
            case .string(let text): .scalar(text, plain: false)
            case .bool, .integer, .number: .scalar(value.plainText, plain: true)
            case .array(let elements): .list(elements.map { ConfigurationValue($0, name: name) })
            case .object(let members):
                .map(
                    members.sorted { $0.key < $1.key }.map {
                        Entry(
                            key: $0.key, keyLocation: location,
                            value: ConfigurationValue($0.value, name: name))
                    })
            }
        self.init(content: content, location: location)
    }

    /// The tree as a JSON value. Plain scalars get the types of YAML's core schema.
    var json: JSONValue {
        switch content {
        case .empty: .null
        case .list(let elements): .array(elements.map(\.json))
        case .map(let entries):
            .object(Dictionary(entries.map { ($0.key, $0.value.json) }) { first, _ in first })
        case .scalar(let text, let isPlain):
            if !isPlain {
                .string(text)
            } else if text == "true" || text == "false" {
                .bool(text == "true")
            } else if let number = Int64(text) {
                .integer(number)
            } else if let number = Double(text), number.isFinite, text.utf8.contains(where: Self.isDigit) {
                .number(number)
            } else {
                .string(text)
            }
        }
    }

    private static func isDigit(_ byte: UInt8) -> Bool {
        (UInt8(ascii: "0")...UInt8(ascii: "9")).contains(byte)
    }
}
