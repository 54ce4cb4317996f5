/// Fields of a record that need not be a valid job, as far as they can be read. For tools: allocates.
public struct JobGlimpse: Equatable, Sendable {
    /// Value of `apns-topic`; nil where it can't be read.
    public var topic: String?
    /// Value of `apns-push-type`; nil where it can't be read.
    public var pushType: String?
    /// Value of `apns-id`; nil where it can't be read.
    public var apnsID: String?

    /// Fields that a glimpse shows.
    private static let fields: [JobField] = [.topic, .pushType, .apnsID]
    /// Longest value that is read, in bytes; a longer one is no value of these fields.
    private static let longest = 255

    /// Reads headers, lines in packed mode, or members of a document.
    public init(_ record: JobRecord) {
        for header in record.headers { set(header.name, header.value) { $0.headerName } }
        if var lines = PackedFields.Lines(record.value) {
            while let line = try? lines.line() { set(line.name, line.value) { $0.headerName } }
            return
        }
        guard let value = record.value, value.count <= JobLimits.maximumDocumentSize,
            value.first(where: { $0 > UInt8(ascii: " ") }) == UInt8(ascii: "{"),
            (try? JSONScanner.validateObject(value)) != nil
        else { return }
        let document = Members(value)
        let event = document["data"].flatMap { $0.first == UInt8(ascii: "{") ? Members($0) : nil }
        for field in Self.fields {
            let name = field.memberName.description
            guard let text = document.text(named: name) ?? event?.text(named: name) else { continue }
            var copy = text
            copy.withUTF8 { set(field.memberName.bytes, UnsafeRawBufferPointer($0)) { $0.memberName } }
        }
    }

    private mutating func set(
        _ name: UnsafeRawBufferPointer, _ value: UnsafeRawBufferPointer?,
        _ nameOf: (JobField) -> StaticString?
    ) {
        guard let value, (1...Self.longest).contains(value.count),
            let field = Self.fields.first(where: { nameOf($0).map(name.equalsIgnoringCase) ?? false })
        else { return }
        let text = String(decoding: value, as: UTF8.self)
        switch field {
        case .topic: topic = topic ?? text
        case .pushType: pushType = pushType ?? text
        case .apnsID: apnsID = apnsID ?? text
        default: break
        }
    }
}
