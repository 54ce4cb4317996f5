/// Text that others wrote: producers, servers, clients, files. A terminal obeys some of its characters, and a reader of
/// lines takes some for a line's end. All output for people and all lines of JSON pass through ``escaped(_:limit:)``.
public enum ForeignText {
    /// Returns whether a terminal obeys the character, or may show nothing for it.
    public static func isObeyed(_ scalar: Unicode.Scalar) -> Bool {
        switch scalar.properties.generalCategory {
        case .control, .format, .surrogate, .privateUse, .unassigned, .lineSeparator, .paragraphSeparator:
            true
        default: false
        }
    }

    /// Returns the text with JSON's escapes, such as `\u001b`, for characters that a terminal obeys. Other characters stay,
    /// so that escaping again changes nothing, and a JSON document without line ends keeps its meaning.
    ///
    /// - Parameter limit: most characters of the text; `…` stands for the rest.
    public static func escaped(_ text: String, limit: Int = .max) -> String {
        let scalars = text.unicodeScalars
        if text.utf8.count <= limit, text.utf8.allSatisfy({ (0x20...0x7E).contains($0) }) { return text }
        var result = ""
        for (index, scalar) in scalars.enumerated() {
            guard index < limit else { return result + "…" }
            switch scalar {
            case "\n": result += "\\n"
            case "\r": result += "\\r"
            case "\t": result += "\\t"
            case _ where isObeyed(scalar):
                for unit in UTF16.encode(scalar)! {
                    let digits = String(unit, radix: 16)
                    result += "\\u" + String(repeating: "0", count: 4 - digits.count) + digits
                }
            default: result.unicodeScalars.append(scalar)
            }
        }
        return result
    }

    /// Returns a JSON object on one line, without characters that a terminal obeys; nil for bytes that are no JSON object.
    public static func jsonLine(_ bytes: [UInt8]) -> String? {
        let isObject = bytes.withUnsafeBytes { bytes in
            do throws(JSONFault) { try JSONScanner.validateObject(bytes) } catch { return false }
            return true
        }
        guard isObject else { return nil }
        // Line ends and tabs stand between the tokens of a valid document, never inside of a string.
        return escaped(String(decoding: bytes.map { $0 < 0x20 ? 0x20 : $0 }, as: UTF8.self))
    }
}
