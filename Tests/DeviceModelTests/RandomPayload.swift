import SluiceModel

/// Payloads that are likely, unlikely and broken.
enum RandomPayload {
    private static let texts = [
        "\"\"", "\"A\"", "\"message\"", "\"default\"", "\"bell.caf\"", "\"work\"", "\"critical\"",
        "\"passive\"",
        "\"time-sensitive\"", "\"\\u0041\"", "\"\\ud800\"", "\"\\ud83d\\ude00\"", "\"\\u0000\"", "\"مرحبا\"",
        "\"😀\"", "\"cr\\u0069tical\"", "\"mess\\u0061ge\"",
    ]
    private static let numbers = [
        "0", "1", "1.0", "-0", "-1", "3", "2147483648", "9223372036854775807", "99999999999999999999999999",
        "1e999",
        "1e-999", "0.5", "1E2",
    ]
    private static let names = [
        "aps", "alert", "badge", "sound", "category", "thread-id", "content-available", "mutable-content",
        "interruption-level", "relevance-score", "filter-criteria", "title", "subtitle", "body", "loc-key",
        "loc-args", "title-loc-key", "title-loc-args", "subtitle-loc-key", "name", "critical", "volume", "x",
        "al\\u0065rt", "",
    ]
    private static let apsNames = names[1...10] + ["alert", "alert"]
    private static let alertNames = names[11...18]

    /// Makes a payload; each eighth is damaged.
    static func make(_ random: inout SeededGenerator) -> [UInt8] {
        var text = "{"
        for index in 0..<Int.random(in: 0...3, using: &random) {
            if index > 0 { text += "," }
            text += Bool.random(using: &random) ? "\"aps\":\(aps(&random))" : "\"k\":\(value(&random, 3))"
        }
        var bytes = Array((text + "}").utf8)
        if Int.random(in: 0..<8, using: &random) == 0 { damage(&bytes, &random) }
        return bytes
    }

    private static func aps(_ random: inout SeededGenerator) -> String {
        object(&random, apsNames) { random in
            switch Int.random(in: 0..<5, using: &random) {
            case 0: object(&random, alertNames) { value(&$0, 1) }
            case 1: object(&random, ["name", "critical", "volume", "cr\\u0069tical"]) { value(&$0, 0) }
            default: value(&random, 2)
            }
        }
    }

    private static func object(
        _ random: inout SeededGenerator, _ names: some RandomAccessCollection<String>,
        _ value: (inout SeededGenerator) -> String
    ) -> String {
        var members: [String] = []
        for _ in 0..<Int.random(in: 0...6, using: &random) {
            let blank = Bool.random(using: &random) ? " " : ""
            let name =
                Int.random(in: 0..<10, using: &random) == 0
                ? Self.names.randomElement(using: &random)! : names.randomElement(using: &random)!
            members.append("\(blank)\"\(name)\"\(blank):\(blank)\(value(&random))\(blank)")
        }
        return "{\(members.joined(separator: ","))}"
    }

    static func value(_ random: inout SeededGenerator, _ depth: Int) -> String {
        switch Int.random(in: 0..<(depth > 0 ? 7 : 5), using: &random) {
        case 0, 1: texts.randomElement(using: &random)!
        case 2, 3: numbers.randomElement(using: &random)!
        case 4: ["true", "false", "null"].randomElement(using: &random)!
        case 5: "[\(value(&random, depth - 1)),\(value(&random, depth - 1))]"
        default: object(&random, names) { value(&$0, depth - 1) }
        }
    }

    /// Changes, removes or adds bytes.
    static func damage(_ bytes: inout [UInt8], _ random: inout SeededGenerator) {
        for _ in 0..<Int.random(in: 1...4, using: &random) where !bytes.isEmpty {
            let index = Int.random(in: 0..<bytes.count, using: &random)
            switch Int.random(in: 0..<3, using: &random) {
            case 0: bytes[index] = UInt8.random(in: 0...255, using: &random)
            case 1: bytes.remove(at: index)
            default: bytes.insert(bytes[Int.random(in: 0..<bytes.count, using: &random)], at: index)
            }
        }
    }
}
