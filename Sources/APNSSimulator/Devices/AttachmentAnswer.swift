/// Answer of an attachment's server, as it arrives. Pure.
struct AttachmentAnswer {
    /// Largest head in bytes.
    static let mostHead = 16 << 10

    /// Largest body in bytes.
    let limit: Int
    private var bytes: [UInt8] = []
    private var hasHead = false
    /// Length of the body by the head; nil when the connection's end ends the body.
    private var length: Int?

    init(limit: Int) { self.limit = limit }

    /// Whether all announced bytes are there.
    var isComplete: Bool { hasHead && length.map { bytes.count >= $0 } ?? false }

    mutating func append(_ more: [UInt8]) throws(AttachmentURL.Fault) {
        bytes += more
        if !hasHead {
            guard let end = endOfHead() else {
                guard bytes.count <= Self.mostHead else {
                    throw AttachmentURL.Fault(text: "the server's answer is no HTTP")
                }
                return
            }
            try read(head: bytes[..<end])
            bytes.removeFirst(end)
            hasHead = true
        }
        guard max(bytes.count, length ?? 0) <= limit else {
            throw AttachmentURL.Fault(text: "the file has more than \(limit) bytes")
        }
    }

    /// Returns the body.
    consuming func finish() throws(AttachmentURL.Fault) -> [UInt8] {
        guard hasHead else { throw AttachmentURL.Fault(text: "the server closed without an answer") }
        guard let length else { return bytes }
        guard bytes.count >= length else {
            throw AttachmentURL.Fault(text: "the server closed after \(bytes.count) of \(length) bytes")
        }
        return Array(bytes.prefix(length))
    }

    private func endOfHead() -> Int? {
        var index = 0
        while index < min(bytes.count, Self.mostHead) {
            if bytes[index] == UInt8(ascii: "\n") {
                let rest = bytes[(index + 1)...].prefix(2)
                if rest.first == UInt8(ascii: "\n") { return index + 2 }
                if rest.elementsEqual([UInt8(ascii: "\r"), UInt8(ascii: "\n")]) { return index + 3 }
            }
            index += 1
        }
        return nil
    }

    private mutating func read(head: ArraySlice<UInt8>) throws(AttachmentURL.Fault) {
        let lines = String(decoding: head, as: UTF8.self).split(whereSeparator: \.isNewline)
        let parts = lines.first?.split(separator: " ", maxSplits: 2) ?? []
        guard parts.count >= 2, parts[0].hasPrefix("HTTP/1."), let status = Int(parts[1]) else {
            throw AttachmentURL.Fault(text: "the server's answer is no HTTP")
        }
        if (300...399).contains(status) {
            throw AttachmentURL.Fault(text: "the server redirects (\(status)), which is not followed")
        }
        guard status == 200 else { throw AttachmentURL.Fault(text: "the server answers \(status)") }
        for line in lines.dropFirst() {
            let field = line.split(separator: ":", maxSplits: 1)
            guard field.count == 2 else { continue }
            let value = String(field[1].drop { $0 == " " }.prefix { $0 != " " })
            switch field[0].lowercased() {
            case "content-length":
                guard let number = Int(value), number >= 0 else {
                    throw AttachmentURL.Fault(text: "the server's Content-Length is no number")
                }
                length = number
            case "transfer-encoding" where value.lowercased() != "identity":
                throw AttachmentURL.Fault(text: "the server sends chunks to an HTTP/1.0 client")
            case "content-encoding" where value.lowercased() != "identity":
                throw AttachmentURL.Fault(text: "the server compresses the file, which was not asked for")
            default: break
            }
        }
    }
}
