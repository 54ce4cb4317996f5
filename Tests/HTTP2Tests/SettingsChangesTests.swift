import CNghttp2
import Testing

@testable import HTTP2

/// Tests SETTINGS that change tables, windows, frame sizes and stream limits on an open connection.
@Suite struct SettingsChangesTests {
    /// Decodes header blocks with nghttp2's inflater, at the table size that our ACK confirmed.
    final class Inflater {
        private var inflater: OpaquePointer?
        init() { nghttp2_hd_inflate_new(&inflater) }
        deinit { nghttp2_hd_inflate_del(inflater) }

        func limit(_ size: Int) { nghttp2_hd_inflate_change_table_size(inflater, size) }

        func count(_ block: [UInt8]) -> Int? {
            var block = block
            var offset = 0
            var fields = 0
            while true {
                var pair = nghttp2_nv()
                var flags: Int32 = 0
                let used = block.withUnsafeMutableBufferPointer {
                    nghttp2_hd_inflate_hd2(
                        inflater, &pair, &flags, $0.baseAddress! + offset, $0.count - offset, 1)
                }
                guard used >= 0 else { return nil }
                offset += used
                if flags & Int32(NGHTTP2_HD_INFLATE_EMIT.rawValue) != 0 { fields += 1 }
                if flags & Int32(NGHTTP2_HD_INFLATE_FINAL.rawValue) != 0 { break }
            }
            nghttp2_hd_inflate_end_headers(inflater)
            return fields
        }
    }

    private func block(_ harness: Harness) -> [UInt8] {
        harness.frames().last { $0.type == 1 }?.payload ?? []
    }

    @Test func tableSizeChangesAreAnnouncedInTheNextBlock() {
        let harness = HostileServerTests.opened(requests: 0)
        let inflater = Inflater()
        var tag: UInt32 = 10
        func next() -> [UInt8] {
            tag += 1
            #expect(harness.submit(tag) == .submitted)
            return block(harness)
        }
        func request(after sizes: [UInt32], updates: [UInt8], then: (_ size: Int, _ first: Int) -> Bool) {
            for size in sizes {
                #expect(harness.receive(Raw.settings([(1, size)])) == nil)
                inflater.limit(Int(size))
            }
            let first = next()
            #expect(Array(first.prefix(updates.count)) == updates, "after \(sizes)")
            #expect(inflater.count(first) == 5, "after \(sizes)")
            // The second block announces nothing, and uses table entries where there is room.
            let second = next()
            #expect(second.first.map { $0 & 0xe0 != 0x20 } == true)
            #expect(inflater.count(second) == 5)
            #expect(then(second.count, first.count), "\(second.count) after \(first.count)")
        }
        let tableOfDefaultSize: [UInt8] = [0x3f, 0xe1, 0x1f]
        request(after: [], updates: []) { $0 < $1 }
        // RFC 7541 §4.2: announces the smallest size in between, then the last.
        request(after: [0, 4096], updates: [0x20] + tableOfDefaultSize) { $0 < $1 }
        request(after: [0], updates: [0x20]) { $0 >= $1 - 1 }
        request(after: [.max], updates: [0x20] + tableOfDefaultSize) { $0 < $1 }
        // Sizes of our own limit or more change nothing.
        request(after: [65_536, 4096, 1 << 20], updates: []) { $0 == $1 }
        request(after: [100, 0, 50, 90], updates: [0x20, 0x3f, 59]) { $0 < $1 }
    }

    @Test func negativeWindowHoldsContentUntilUpdated() {
        let harness = HostileServerTests.opened([(4, 100)], requests: 0)
        #expect(harness.submit(1, bytes: 150) == .submitted)
        #expect(harness.frames().map(\.payload.count).last == 100)
        // The window goes from -90 to -40, 0 and 1.
        #expect(harness.receive(Raw.settings([(4, 10)])) == nil)
        #expect(harness.receive(Raw.windowUpdate(1, 50)) == nil)
        #expect(harness.receive(Raw.windowUpdate(1, 40)) == nil)
        #expect(harness.frames().map(\.type) == [4])
        #expect(harness.receive(Raw.windowUpdate(1, 1)) == nil)
        #expect(harness.frames().map(\.payload.count) == [1])
        #expect(harness.receive(Raw.settings([(4, 0), (4, 100)])) == nil)
        let rest = harness.frames()
        #expect(rest.map(\.payload.count) == [0, 49])
        #expect(rest.last?.flags == 1)
    }

    /// As many values as a frame has room for.
    @Test func windowSizesOfAFullFrameCostOnePass() {
        let harness = HostileServerTests.opened(requests: 99)
        let before = harness.session.windowPasses
        let values = (0..<2729).map { (UInt16(4), UInt32($0 % 2 == 0 ? 0 : 1_000_000)) }
        #expect(harness.receive(Raw.settings(values + [(4, 7)])) == nil)
        #expect(harness.session.windowPasses == before + 1)
        _ = harness.frames()
        // The last value applies: to new streams in full, to open streams less their sent bytes.
        #expect(harness.submit(200, bytes: 20) == .submitted)
        #expect(harness.frames().map(\.payload.count).last == 7)
        #expect(harness.session.brokenInvariant() == nil)
        // The same value again changes nothing.
        #expect(harness.receive(Raw.settings([(4, 7), (4, 7)])) == nil)
        #expect(harness.session.windowPasses == before + 1)
    }

    /// RFC 9113 §6.5.3, §6.9.2: values apply in order, so each value may overflow a window.
    @Test func intermediateWindowOverflowEndsTheConnection() {
        for settings: [(UInt16, UInt32)] in [
            [(4, 0x7fff_ffff), (4, 100)],
            [(4, 5), (4, 0x7fff_ffff), (4, 65_535)],
            // The first error counts.
            [(4, 0x7fff_ffff), (5, 1)],
            [(4, 0x7fff_ffff), (2, 1)],
        ] {
            let harness = HostileServerTests.opened()
            #expect(harness.receive(Raw.windowUpdate(1, 100)) == nil)
            #expect(harness.receive(Raw.settings(settings))?.code == .flowControlError, "\(settings)")
        }
        let harness = HostileServerTests.opened()
        #expect(harness.receive(Raw.windowUpdate(1, 100)) == nil)
        // The overflow follows another error.
        #expect(harness.receive(Raw.settings([(5, 1), (4, 0x7fff_ffff)]))?.code == .protocolError)
        let other = HostileServerTests.opened()
        #expect(other.receive(Raw.settings([(4, 0x8000_0000), (4, 100)]))?.code == .flowControlError)
    }

    @Test func connectionWindowServesStreamsInOrder() {
        let harness = HostileServerTests.opened(requests: 0)
        #expect(harness.submit(1, bytes: 65_535) == .submitted)
        #expect(harness.submit(2, bytes: 70_000) == .submitted)
        #expect(harness.submit(3, bytes: 10) == .noCapacity)
        #expect(harness.frames().filter { $0.type == 0 }.map(\.payload.count).reduce(0, +) == 65_535)
        #expect(harness.receive(Raw.windowUpdate(0, 65_535)) == nil)
        #expect(harness.frames().allSatisfy { $0.stream == 3 })
        // The stream's own window is now empty.
        #expect(harness.receive(Raw.windowUpdate(0, 65_535)) == nil)
        #expect(harness.frames().isEmpty)
        #expect(harness.receive(Raw.windowUpdate(3, 65_535)) == nil)
        #expect(harness.frames().map(\.payload.count) == [70_000 - 65_535])
    }

    @Test func dataFramesKeepToTheServersMaximumSize() {
        let harness = HostileServerTests.opened([(5, 20_000)], requests: 0)
        #expect(harness.submit(1, bytes: 45_000) == .submitted)
        #expect(harness.frames().map(\.payload.count).dropFirst() == [20_000, 20_000, 5000])
        #expect(harness.receive(Raw.settings([(5, 16_384)]) + Raw.windowUpdate(0, 65_535)) == nil)
        _ = harness.frames()
        #expect(harness.submit(2, bytes: 20_000) == .submitted)
        #expect(harness.frames().map(\.payload.count).dropFirst() == [16_384, 3616])
    }

    @Test func streamLimitOfZeroBlocksRequestsUntilRaised() {
        let harness = HostileServerTests.opened([(3, 5)], requests: 5)
        for limit in [2, 0, 1, 0] as [UInt32] {
            #expect(harness.receive(Raw.settings([(3, limit)])) == nil)
            #expect(harness.session.availableStreams == 0)
        }
        for stream in 0..<5 as Range<UInt32> {
            #expect(harness.receive(Raw.ok(2 * stream + 1)) == nil)
            #expect(harness.submit(9) == .noCapacity)
        }
        #expect(harness.receive(Raw.settings([(3, .max)])) == nil)
        #expect(harness.session.availableStreams == 100)
        #expect(harness.submit(9) == .submitted)
    }

    @Test func laterGoAwayOnlyLowersTheLastStream() {
        let harness = HostileServerTests.opened(requests: 4)
        #expect(harness.receive(Raw.goAway(0x7fff_ffff, 0)) == nil)
        #expect(harness.session.openStreams == 4)
        #expect(harness.receive(Raw.goAway(5, 0)) == nil)
        #expect(harness.session.openStreams == 3)
        // The last stream rises, against RFC 9113 §6.8. Streams declared unprocessed stay unprocessed.
        #expect(harness.receive(Raw.goAway(7, 0)) == nil)
        #expect(harness.receive(Raw.ok(7) + Raw.ok(1)) == nil)
        #expect(harness.receive(Raw.goAway(3, 2)) == nil)
        harness.session.abandonStreams()
        harness.drain()
        #expect(
            harness.log.filter { !$0.hasPrefix("goaway") } == [
                "settings", "4: not processed NO_ERROR", "1: 200 ", "3: not processed NO_ERROR",
                "2: unknown CONNECT_ERROR",
            ])
    }
}
