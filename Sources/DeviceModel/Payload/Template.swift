/// Text with `{name}` placeholders. Braces around anything but a name stay as they are.
enum Template {
    /// Longest result in bytes; the rest is cut.
    static let longest = 16_384

    /// Fills the placeholders. Names without a value become empty.
    static func fill(_ template: String, _ value: (String) -> String?) -> String {
        var text = ""
        var rest = template[...]
        while let open = rest.firstIndex(of: "{"), text.utf8.count < longest {
            text += rest[..<open]
            let behind = rest[rest.index(after: open)...]
            if let close = behind.firstIndex(of: "}"), isName(behind[..<close]) {
                text += value(String(behind[..<close])) ?? ""
                rest = behind[behind.index(after: close)...]
            } else {
                text += "{"
                rest = behind
            }
        }
        text += rest
        return cut(text)
    }

    private static func isName(_ text: Substring) -> Bool {
        !text.isEmpty && text.utf8.count <= 100
            && text.unicodeScalars.allSatisfy {
                $0.properties.isAlphabetic || "0123456789_-.".unicodeScalars.contains($0)
            }
    }

    private static func cut(_ text: String) -> String {
        guard text.utf8.count > longest else { return text }
        var end = text.startIndex
        var length = 0
        for index in text.indices {
            length += text[index].utf8.count
            if length > longest { break }
            end = text.index(after: index)
        }
        return String(text[..<end])
    }
}

extension JSONValue {
    /// Value at a path of names that dots separate; a member whose name has dots wins.
    func value(at path: String) -> JSONValue? {
        if let found = self[path] { return found }
        guard path.utf8.contains(UInt8(ascii: ".")) else { return nil }
        var value = self
        for name in path.split(separator: ".", omittingEmptySubsequences: false) {
            guard let member = value[String(name)] else { return nil }
            value = member
        }
        return value
    }
}
