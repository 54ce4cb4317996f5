/// Strings table of an app in the language of a device.
struct StringsTable: Sendable {
    private let table: [String: String]

    /// Chooses the table of the language, else that of its main language, else English, else the first by name.
    init(_ tables: [String: [String: String]]?, language: String) {
        let tables = tables ?? [:]
        let main = String(language.prefix { $0 != "-" && $0 != "_" })
        table =
            tables[language] ?? tables[main] ?? tables["en"] ?? tables.min { $0.key < $1.key }?.value ?? [:]
    }

    subscript(key: String) -> String? { table[key] }
}

/// Texts with places that arguments fill.
enum FormattedText {
    /// Fills `%@` in order and `%1$@` by number. A missing argument is empty; `%%` is a percent sign; other specifiers stay.
    static func fill(_ format: String, _ arguments: [String]) -> String {
        var text: [UInt8] = []
        let bytes = Array(format.utf8)
        let percent = UInt8(ascii: "%")
        var next = 0
        var index = 0
        while index < bytes.count {
            guard bytes[index] == percent, index + 1 < bytes.count else {
                text.append(bytes[index])
                index += 1
                continue
            }
            if bytes[index + 1] == percent {
                text.append(percent)
                index += 2
            } else if bytes[index + 1] == UInt8(ascii: "@") {
                if next < arguments.count { text += Array(arguments[next].utf8) }
                next += 1
                index += 2
            } else if let (number, end) = position(bytes, index + 1) {
                if number > 0, number <= arguments.count { text += Array(arguments[number - 1].utf8) }
                index = end
            } else {
                text.append(percent)
                index += 1
            }
        }
        return String(decoding: text, as: UTF8.self)
    }

    /// Reads `1$@` at an index. Returns the number and the index behind; nil for another text.
    private static func position(_ bytes: [UInt8], _ start: Int) -> (number: Int, end: Int)? {
        var index = start
        var number = 0
        while index < bytes.count, index - start < 4, bytes[index] &- UInt8(ascii: "0") < 10 {
            number = number * 10 + Int(bytes[index] - UInt8(ascii: "0"))
            index += 1
        }
        guard index > start, index + 1 < bytes.count, bytes[index] == UInt8(ascii: "$"),
            bytes[index + 1] == UInt8(ascii: "@")
        else { return nil }
        return (number, index + 2)
    }

    /// Replaces each `%u` by a number.
    static func count(_ format: String, _ number: Int) -> String {
        var parts: [Substring] = []
        var rest = format[...]
        while let percent = rest.firstIndex(of: "%") {
            let after = rest.index(after: percent)
            guard after < rest.endIndex, rest[after] == "u" else {
                parts.append(rest[..<after])
                rest = rest[after...]
                continue
            }
            parts.append(rest[..<percent])
            parts.append("\(number)")
            rest = rest[rest.index(after: after)...]
        }
        parts.append(rest)
        return parts.joined()
    }
}
