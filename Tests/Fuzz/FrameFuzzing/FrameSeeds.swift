/// The fuzzer's initial inputs: conversations with a well-behaved server, in ``FrameDriver``'s notation.
public enum FrameSeeds {
    public struct Seed: Sendable {
        public var name: String
        public var bytes: [UInt8]
    }

    private static func byte(_ operation: FrameDriver.Operation, _ modifier: UInt8 = 0) -> UInt8 {
        operation.rawValue | modifier << 4
    }

    private static func word(_ value: UInt32) -> [UInt8] {
        [UInt8(value >> 24), UInt8(value >> 16 & 255), UInt8(value >> 8 & 255), UInt8(value & 255)]
    }

    static func frame(
        _ operation: FrameDriver.Operation, flags: UInt8 = 0, stream: UInt8 = 0, modifier: UInt8 = 0,
        _ payload: [UInt8] = []
    ) -> [UInt8] {
        [byte(operation, modifier), flags, stream, UInt8(payload.count)] + payload
    }

    static func settings(_ values: [(UInt16, UInt32)]) -> [UInt8] {
        frame(.settings, values.flatMap { [UInt8($0.0 >> 8), UInt8($0.0 & 255)] + word($0.1) })
    }

    static func submit(_ size: UInt8 = 3, times: Int = 1) -> [UInt8] {
        [UInt8](repeating: byte(.submit, size), count: times)
    }

    static let consume = [byte(.consume)]

    static func literal(_ name: String, _ value: String) -> [UInt8] {
        [0x40, UInt8(name.utf8.count)] + name.utf8 + [UInt8(value.utf8.count)] + value.utf8
    }

    static func ok(_ stream: UInt8) -> [UInt8] {
        frame(.headers, flags: 5, stream: stream, [0x88] + literal("apns-id", "0f"))
    }

    static func refused(_ stream: UInt8, status: [UInt8], reason: String) -> [UInt8] {
        frame(.headers, flags: 4, stream: stream, status)
            + frame(.data, flags: 1, stream: stream, Array("{\"reason\":\"\(reason)\"}".utf8))
    }

    /// A seed. Its first byte has the wait for the credential, the index of the stream limit, and the chunk
    /// size.
    private static func seed(
        _ name: String, waits: Bool = false, limit: UInt8 = 2, chunk: UInt8 = 0, _ operations: [UInt8]...
    ) -> Seed {
        Seed(name: name, bytes: [(waits ? 1 : 0) | limit << 1 | chunk << 4] + operations.flatMap { $0 })
    }

    private static let four = submit(times: 4) + consume
    private static let token: [UInt8] = [0x08, 3] + Array("403".utf8)

    public static let all: [Seed] = [
        seed("ok", settings([(3, 100)]), four, ok(1), ok(3), ok(5), ok(7)),
        seed(
            "bytewise", chunk: 1, settings([(3, 100)]), four, ok(3),
            refused(1, status: [0x8c], reason: "BadTopic")),
        seed("waits", waits: true, settings([(3, 100)]), submit(times: 2), ok(1), submit(times: 4)),
        seed(
            "token", waits: true, settings([(3, 100)]), submit(),
            refused(1, status: token, reason: "Expired"),
            [byte(.replaceToken)], submit(), ok(3)),
        seed(
            "goaway", settings([]), four, frame(.goAway, word(3) + word(0) + Array("{}".utf8)), ok(1), ok(3)),
        seed(
            "goaways", settings([]), four, frame(.goAway, word(0x7fff_ffff) + word(0)),
            frame(.goAway, word(1) + word(0))),
        seed(
            "reset", settings([]), four, frame(.reset, stream: 1, word(7)), frame(.reset, stream: 3, word(2))),
        seed(
            "ping", settings([]), [byte(.ping, 5)], frame(.pingFrame, flags: 1, [0, 0, 0, 0, 0, 0, 0, 5]),
            frame(.pingFrame, [1, 2, 3, 4, 5, 6, 7, 8])),
        seed(
            "window", settings([(4, 6)]), four, frame(.windowUpdate, stream: 1, word(4)),
            settings([(4, 300)]),
            frame(.windowUpdate, word(65_535)), settings([(4, 0)]), submit(7), settings([(4, 70_000)])),
        seed(
            "blocked", settings([(4, 0), (3, 1)]), submit(), [byte(.expire), 100], submit(), ok(3), submit(),
            ok(5)),
        seed(
            "large", settings([(5, 20_000), (4, 1 << 20)]), submit(12), submit(8),
            frame(.windowUpdate, word(1 << 20))),
        seed(
            "table", settings([(1, 0)]), four, settings([(1, 100)]), submit(), settings([(1, 0)]),
            settings([(1, 1 << 20)]),
            submit(times: 3)),
        seed(
            "limits", settings([(3, 1)]), submit(times: 2), settings([(3, 3)]), submit(times: 3),
            settings([(3, 0)]), ok(1)),
        seed(
            "continued", settings([]), four, frame(.headers, flags: 1, stream: 1, [0x88]),
            frame(.continuation, stream: 1, literal("x", "y")), frame(.continuation, flags: 4, stream: 1)),
        seed(
            "padded", settings([]), four,
            frame(.headers, flags: 0x2c, stream: 1, [2, 0, 0, 0, 0, 9, 0x8c, 0, 0]),
            frame(.data, flags: 8, stream: 1, [1, 0x61, 0]), frame(.data, flags: 1, stream: 1, [0x62])),
        seed(
            "trailers", settings([]), four,
            frame(.headers, flags: 4, stream: 1, [0x08, 3] + Array("103".utf8)),
            frame(.headers, flags: 4, stream: 1, [0x8c]), frame(.data, stream: 1, [0x61]),
            frame(.headers, flags: 5, stream: 1, literal("x", "y"))),
        seed(
            "body", settings([]), four, frame(.headers, flags: 4, stream: 1, [0x8c]),
            frame(.data, stream: 1, modifier: 2, [0x61, 0x62]) + [63],
            frame(.data, flags: 1, stream: 1, modifier: 2, [0x61, 0x62]) + [63]),
        seed(
            "expire", settings([]), four, [byte(.expire), 200], ok(1),
            frame(.data, stream: 3, [1]), submit()),
        seed("abandon", settings([]), four, [byte(.abandon, 15)]),
        seed(
            "floods", settings([]), frame(.pingFrame, modifier: 12, [0, 0, 0, 0, 0, 0, 0, 0]),
            frame(.settings, modifier: 12)),
        seed(
            "other", settings([]), [byte(.other), 10, 0, 0, 2, 0x61, 0x62],
            [byte(.other), 2, 0, 1, 5, 0, 0, 0, 0, 1],
            [byte(.other), 5, 0, 1, 4, 0, 0, 0, 2]),
        seed(
            "retry", settings([]), four,
            frame(
                .headers, flags: 5, stream: 1,
                [0x08, 3] + Array("503".utf8)
                    + literal("retry-after", "120"))),
        seed(
            "raw", [byte(.raw), 9, 0, 0, 0, 4, 0, 0, 0, 0, 0], submit(),
            [byte(.raw), 10, 0, 0, 1, 1, 5, 0, 0, 0, 1, 0x88]),
        seed("http1", [byte(.raw), 12] + Array("HTTP/1.1 400".utf8)),
    ]
}
