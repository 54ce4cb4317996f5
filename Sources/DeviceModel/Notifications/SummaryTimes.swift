/// Times of the scheduled summary as text, as `8:00,18:00`.
public enum SummaryTimes {
    /// Most times of a day.
    public static let most = 12

    /// Reads times in minutes since local midnight, earliest first. An empty text is no time.
    /// - Returns: the times; nil for a text that has another form or too many times.
    public static func parse(_ text: String) -> [Int]? {
        guard text.utf8.count <= 12 * most else { return nil }
        var times: Set<Int> = []
        for part in text.split(separator: ",", omittingEmptySubsequences: false) where !text.isEmpty {
            let fields = part.trimmed.split(separator: ":", omittingEmptySubsequences: false)
            guard fields.count == 2, (1...2).contains(fields[0].utf8.count), fields[1].utf8.count == 2,
                fields.allSatisfy({
                    $0.utf8.allSatisfy { (UInt8(ascii: "0")...UInt8(ascii: "9")).contains($0) }
                }),
                let hour = Int(fields[0]), let minute = Int(fields[1]), hour < 24, minute < 60
            else { return nil }
            times.insert(60 * hour + minute)
        }
        return times.count <= most ? times.sorted() : nil
    }
}

extension Substring {
    /// Text without spaces at its ends.
    fileprivate var trimmed: Substring {
        var text = drop { $0 == " " }
        while text.last == " " { text.removeLast() }
        return text
    }
}
