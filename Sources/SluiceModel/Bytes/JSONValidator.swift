import CSimdjson

/// Checks that a text is exactly one JSON object, with simdjson and without building a tree in Swift.
///
/// A text that simdjson accepts is valid. ``JSONScanner`` validates a refused text again, and finds the byte and the
/// reason. Used by one owner, on one thread at a time; nothing is allocated per call.
struct JSONValidator: ~Copyable {
    /// Longest text in bytes.
    static let capacity = 64 * 1024

    private let parser: OpaquePointer

    init() {
        guard let parser = csimdjson_parser_create(Self.capacity, JSONScanner.maximumDepth) else {
            fatalError("no memory for the JSON parser (about 600 KiB)")
        }
        self.parser = parser
    }

    deinit { csimdjson_parser_destroy(parser) }

    /// Returns when `bytes` are exactly one JSON object in UTF-8 (RFC 8259); throws the fault otherwise.
    func validateObject(_ bytes: UnsafeRawBufferPointer) throws(JSONFault) {
        if csimdjson_parse(parser, bytes.baseAddress, bytes.count) == CSIMDJSON_OBJECT { return }
        guard bytes.count <= Self.capacity else { throw .size(limit: Self.capacity) }
        try JSONScanner.validateObject(bytes)
    }
}
