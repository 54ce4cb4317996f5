import CNghttp2
import Testing

@testable import HTTP2

/// Reads the paths of one connection's requests, with nghttp2's decoder.
final class PathInflater {
    private var inflater: OpaquePointer?

    init() { nghttp2_hd_inflate_new(&inflater) }
    deinit { nghttp2_hd_inflate_del(inflater) }

    /// The number at the end of `:path`; nil without a number, or when the block doesn't decode.
    func number(_ block: [UInt8]) -> UInt32? {
        var block = block
        var offset = 0
        var number: UInt32?
        while true {
            var field = nghttp2_nv()
            var flags: Int32 = 0
            let used = block.withUnsafeMutableBufferPointer {
                nghttp2_hd_inflate_hd2(
                    inflater, &field, &flags, $0.baseAddress! + offset, $0.count - offset, 1)
            }
            guard used >= 0 else { return nil }
            offset += used
            if flags & Int32(NGHTTP2_HD_INFLATE_EMIT.rawValue) != 0,
                String(decoding: UnsafeBufferPointer(start: field.name, count: field.namelen), as: UTF8.self)
                    == ":path"
            {
                let path = UnsafeBufferPointer(start: field.value, count: field.valuelen)
                number = String(decoding: path, as: UTF8.self).split(separator: "/").last.flatMap {
                    UInt32($0)
                }
            }
            if flags & Int32(NGHTTP2_HD_INFLATE_FINAL.rawValue) != 0 { break }
        }
        nghttp2_hd_inflate_end_headers(inflater)
        return number
    }
}

/// A pool and a ``FaultServer`` whose records must agree. Both stop with this object, also when a test throws.
final class FaultBed {
    let server: FaultServer
    let client: PoolClient
    private var isStopped = false

    init(
        _ server: FaultServer, bodyBytes: Int = 250,
        _ change: (inout ConnectionPool.Configuration) -> Void = { _ in }
    ) throws {
        self.server = server
        client = try PoolClient(
            port: server.port, context: .client(server.tls.clientOptions), bodyBytes: bodyBytes, change)
    }

    deinit { stop() }

    func stop() {
        guard !isStopped else { return }
        isStopped = true
        client.stop()
        server.stop()
    }

    var ended: Int { client.read { $0.ends.count } }
    var counters: PoolCounters { client.snapshot.counters }
    var happened: [String] { client.read { $0.happened } }

    /// Expects requests `0..<count` to have ended once each. A 200 needs a request that the server accepted
    /// once; `unknown` requests end as unknown.
    func expectExactlyOnce(
        _ count: Int, unknown: Int = 0, other: [UInt16] = [], at location: SourceLocation = #_sourceLocation
    ) {
        let ends = client.read { $0.ends }
        let accepted = server.record.now.accepted
        #expect(ends.count == count, sourceLocation: location)
        #expect(ends.keys.allSatisfy { $0 < count }, sourceLocation: location)
        let twice = ends.filter { $0.value.count != 1 }
        #expect(twice.isEmpty, "ended more than once", sourceLocation: location)
        let lost = ends.filter { $0.value == [200] && accepted[$0.key] != 1 }
        #expect(lost.isEmpty, "answered, and not accepted exactly once", sourceLocation: location)
        let doubled = accepted.filter { $0.value > 1 }
        #expect(doubled.isEmpty, "accepted more than once", sourceLocation: location)
        #expect(
            ends.values.count { $0 == [0] } == unknown, "number of unknown ends", sourceLocation: location)
        let strange = ends.filter { !([0, 200] + other).contains($0.value[0]) }
        #expect(strange.isEmpty, "unexpected ends", sourceLocation: location)
        #expect(client.read { $0.pool.inFlight } == 0, sourceLocation: location)
        #expect(client.read { $0.pool.scheduler.waiting } == 0, sourceLocation: location)
    }
}
