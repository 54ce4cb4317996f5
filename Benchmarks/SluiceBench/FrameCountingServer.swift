import CNghttp2
import EventLoop
import Glibc
import HTTP2

/// A blocking server for a connection, on a thread of its own. It reads frames, counts their bytes, decodes
/// header blocks with nghttp2, and answers each request with 200.
// Sendable because everything but the listening socket belongs to the thread until `finish` has joined it.
final class FrameCountingServer: @unchecked Sendable {
    struct Counts: Sendable {
        var requests = 0
        /// Bytes of compressed header blocks, without the nine bytes of each frame header.
        var headerBlockBytes = 0
        /// Bytes of the same header fields uncompressed: names and values.
        var headerListBytes = 0
        /// Bytes of all frames, frame headers included.
        var frameBytes = 0
        var identifiers = 0
        var collapseIdentifiers = 0
        /// Length of the last `authorization` value, in bytes.
        var authorizationBytes = 0
    }

    let port: UInt16
    let authorityPEM: String
    private let listener: Int32
    private let context: TLSContext
    private let skipped: Int
    private let counted: Int
    private var seen = 0
    private var counts = Counts()
    private var failure: String?
    private var inflater: OpaquePointer?
    private var thread = pthread_t()

    private enum FrameType {
        static let data: UInt8 = 0
        static let headers: UInt8 = 1
        static let settings: UInt8 = 4
        static let continuation: UInt8 = 9
    }

    /// - Parameters:
    ///   - skipped: Number of requests before the count begins.
    ///   - counted: Number of counted requests.
    init(skipped: Int, counted: Int) throws {
        self.skipped = skipped
        self.counted = counted
        let authority = try CertificateAuthority()
        authorityPEM = authority.certificatePEM
        context = try TLSContext.server(
            ServerTLSOptions(identity: authority.issueServer(names: ["localhost"]).identity))
        let listener = socket(AF_INET, Int32(SOCK_STREAM.rawValue | SOCK_CLOEXEC.rawValue), 0)
        self.listener = listener
        var address = sockaddr_in()
        address.sin_family = sa_family_t(AF_INET)
        address.sin_addr.s_addr = UInt32(0x7f00_0001).bigEndian
        var length = socklen_t(MemoryLayout<sockaddr_in>.size)
        let isListening = withUnsafeMutablePointer(to: &address) {
            $0.withMemoryRebound(to: sockaddr.self, capacity: 1) { address in
                bind(listener, address, length) == 0 && Glibc.listen(listener, 1) == 0
                    && getsockname(listener, address, &length) == 0
            }
        }
        guard isListening else { throw SystemError(call: "listen") }
        port = UInt16(bigEndian: address.sin_port)
    }

    func start() {
        pthread_create(
            &thread, nil,
            { argument in
                Unmanaged<FrameCountingServer>.fromOpaque(argument!).takeUnretainedValue().serve()
                return nil
            }, Unmanaged.passUnretained(self).toOpaque())
    }

    /// Waits for the end of the connection.
    func finish() throws -> Counts {
        pthread_join(thread, nil)
        close(listener)
        if let failure { throw LoadError(description: failure) }
        return counts
    }

    // MARK: - The thread

    private func serve() {
        let accepted = sluice_accept_nonblocking(listener)
        guard accepted >= 0,
            let transport = try? TLSTransport(context: context, acceptedFileDescriptor: accepted)
        else { return fail("accept failed") }
        defer { transport.close() }
        nghttp2_hd_inflate_new(&inflater)
        defer { nghttp2_hd_inflate_del(inflater) }
        while true {
            switch transport.handshake() {
            case .done: return exchange(transport)
            case .wantRead: wait(transport, POLLIN)
            case .wantWrite: wait(transport, POLLOUT)
            case .failed(let error): return fail("\(error)")
            }
        }
    }

    private func exchange(_ transport: TLSTransport) {
        var input = ByteQueue(capacity: 1 << 16)
        var output = ByteQueue(capacity: 1 << 16)
        // SETTINGS with 1,000 streams, and the largest window for the connection.
        write(&output, FrameType.settings, 0, 0, [0, 3, 0, 0, 3, 232])
        write(&output, 8, 0, 0, [0x7f, 0xff, 0, 0])
        var isFirst = true
        while true {
            while !output.isEmpty {
                switch transport.write(output.readable) {
                case .bytes(let count): output.consume(count)
                case .wantRead, .wantWrite: wait(transport, POLLOUT)
                case .failed(let error): return fail("\(error)")
                }
            }
            switch transport.read(into: input.prepare(1 << 15)) {
            case .bytes(let count): input.commit(count)
            case .wantRead, .wantWrite:
                wait(transport, POLLIN)
                continue
            case .closed: return
            case .failed(let error): return fail("\(error)")
            }
            if isFirst {
                // RFC 9113 §3.4: the client's preface.
                guard input.count >= 24 else { continue }
                input.consume(24)
                isFirst = false
            }
            while takeFrame(&input, &output) {}
        }
    }

    private func takeFrame(_ input: inout ByteQueue, _ output: inout ByteQueue) -> Bool {
        let bytes = input.readable
        guard bytes.count >= 9 else { return false }
        let length = Int(bytes[0]) << 16 | Int(bytes[1]) << 8 | Int(bytes[2])
        guard bytes.count >= 9 + length else { return false }
        let (type, flags) = (bytes[3], bytes[4])
        let isCounted = seen >= skipped && seen < skipped + counted
        if isCounted { counts.frameBytes += 9 + length }
        let payload = UnsafeRawBufferPointer(rebasing: bytes[9..<9 + length])
        switch type {
        case FrameType.headers:
            // Padding, priority or a split block would change the count.
            if flags & 0x28 != 0 || flags & 4 == 0 { fail("a HEADERS frame with flags \(flags)") }
            inflate(payload, isCounted)
        case FrameType.continuation: fail("a CONTINUATION frame")
        case FrameType.settings where flags & 1 == 0: write(&output, FrameType.settings, 1, 0, [])
        case FrameType.data where flags & 1 != 0:
            seen += 1
            if isCounted { counts.requests += 1 }
            let stream = bytes[5..<9].reduce(UInt32(0)) { $0 << 8 | UInt32($1) }
            // `:status: 200` is entry 8 of the static table (RFC 7541, appendix A).
            write(&output, FrameType.headers, 5, stream, [0x88])
        default: break
        }
        input.consume(9 + length)
        return true
    }

    private func inflate(_ block: UnsafeRawBufferPointer, _ isCounted: Bool) {
        if isCounted { counts.headerBlockBytes += block.count }
        var rest = block
        while true {
            var field = nghttp2_nv()
            var flags: Int32 = 0
            let used = nghttp2_hd_inflate_hd2(
                inflater, &field, &flags, rest.baseAddress?.assumingMemoryBound(to: UInt8.self), rest.count, 1
            )
            guard used >= 0 else { return fail("a header block that can't be decoded") }
            rest = UnsafeRawBufferPointer(rebasing: rest[Int(used)...])
            if flags & Int32(NGHTTP2_HD_INFLATE_EMIT.rawValue) != 0, isCounted {
                counts.headerListBytes += field.namelen + field.valuelen
                let name = String(
                    decoding: UnsafeBufferPointer(start: field.name, count: field.namelen), as: UTF8.self)
                switch name {
                case "apns-id": counts.identifiers += 1
                case "apns-collapse-id": counts.collapseIdentifiers += 1
                case "authorization": counts.authorizationBytes = field.valuelen
                default: break
                }
            }
            if flags & Int32(NGHTTP2_HD_INFLATE_FINAL.rawValue) != 0 {
                nghttp2_hd_inflate_end_headers(inflater)
                return
            }
        }
    }

    private func write(
        _ output: inout ByteQueue, _ type: UInt8, _ flags: UInt8, _ stream: UInt32, _ payload: [UInt8]
    ) {
        let length = payload.count
        let frame: [UInt8] =
            [UInt8(length >> 16), UInt8(length >> 8 & 0xff), UInt8(length & 0xff), type, flags]
            + (0..<4).map { UInt8(stream >> UInt32(24 - 8 * $0) & 0xff) } + payload
        frame.withUnsafeBytes { output.append($0) }
    }

    private func wait(_ transport: TLSTransport, _ events: Int32) {
        var descriptor = pollfd(fd: transport.fileDescriptor, events: Int16(events), revents: 0)
        poll(&descriptor, 1, 10_000)
    }

    private func fail(_ text: String) {
        if failure == nil { failure = text }
    }
}
