/// First requests of a client's connection: answers requests for the protocol's versions that the mock cluster garbles.
///
/// A client begins with an ApiVersions request of the newest version that it knows. A broker that doesn't know the version
/// answers with error 35 in the form of version 0, and names the versions that it knows (KIP-511). librdkafka's mock has
/// a wrong answer to versions from 3 on, which kafka-python 3 can't read. All else goes to the broker unchanged.
struct VersionNegotiation {
    /// API key of ApiVersions.
    private static let apiVersions: Int16 = 18
    /// Newest version of ApiVersions that the mock answers well.
    private static let newestVersion: Int16 = 2
    /// Error code UNSUPPORTED_VERSION.
    private static let unsupportedVersion: Int16 = 35
    /// Bytes of the request header up to the correlation identifier: API key, version, identifier.
    private static let headerCount = 8
    /// Bytes of the largest ApiVersions request.
    private static let largestRequest = 65_536

    /// Start of the connection that isn't judged yet.
    private var buffer: [UInt8] = []
    /// Whether a request of another kind has passed. All later bytes pass unread.
    private(set) var isDone = false

    /// Takes bytes that the client sent.
    /// - Returns: bytes for the broker, and bytes that answer the client.
    mutating func take(_ bytes: [UInt8]) -> (forward: [UInt8], answer: [UInt8]) {
        if isDone { return (bytes, []) }
        buffer += bytes
        var answer: [UInt8] = []
        while buffer.count >= 4 + Self.headerCount {
            let size = Int(integer(at: 0, as: Int32.self))
            guard (Self.headerCount...Self.largestRequest).contains(size),
                integer(at: 4, as: Int16.self) == Self.apiVersions,
                integer(at: 6, as: Int16.self) > Self.newestVersion
            else {
                isDone = true
                defer { buffer = [] }
                return (buffer, answer)
            }
            guard buffer.count >= 4 + size else { break }
            answer += Self.refusal(correlation: integer(at: 8, as: Int32.self))
            buffer.removeFirst(4 + size)
        }
        return ([], answer)
    }

    /// Response in version 0: size, correlation identifier, error, and a list with the versions of ApiVersions alone.
    private static func refusal(correlation: Int32) -> [UInt8] {
        let body =
            bytes(correlation) + bytes(unsupportedVersion) + bytes(Int32(1)) + bytes(apiVersions)
            + bytes(Int16(0)) + bytes(newestVersion)
        return bytes(Int32(body.count)) + body
    }

    private func integer<Value: FixedWidthInteger>(at start: Int, as type: Value.Type) -> Value {
        buffer[start..<start + Value.bitWidth / 8].reduce(0) { $0 << 8 | Value(truncatingIfNeeded: $1) }
    }

    private static func bytes<Value: FixedWidthInteger>(_ value: Value) -> [UInt8] {
        withUnsafeBytes(of: value.bigEndian) { Array($0) }
    }
}
