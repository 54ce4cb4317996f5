import EventLoop
import HTTP2
import Synchronization

/// Faults of a simulator at a moment, for the API and the page.
public struct FaultReport: Sendable, Equatable, Encodable {
    public var timeline: FaultTimeline
    /// Time since the start of the timeline, in milliseconds; it goes on after the last entry.
    public var elapsedMilliseconds: UInt64
    /// Entries in force, by their index.
    public var active: [Int]

    private enum CodingKeys: String, CodingKey {
        case timeline, active
        case elapsedMilliseconds = "elapsed-ms"
    }
}

/// Owner of the timeline, which all shards play.
final class FaultRegistry: Sendable {
    /// A timeline that is played.
    struct Run {
        var timeline = FaultTimeline()
        /// Start, in nanoseconds of the monotonic clock.
        var startedAt: UInt64 = 0
        /// TLS of a server whose certificate is expired; nil until a timeline needs it.
        var expiredTLS: TLSContext?
    }

    private let run = Mutex(Run())
    private let makeExpiredTLS: @Sendable () throws -> TLSContext

    /// - Parameter makeExpiredTLS: creates the TLS of a server whose certificate is expired.
    init(makeExpiredTLS: @escaping @Sendable () throws -> TLSContext) {
        self.makeExpiredTLS = makeExpiredTLS
    }

    var current: Run { run.withLock { $0 } }

    /// Replaces the timeline by another, which starts at `now`.
    /// - Throws: `SimulatorError` for a timeline that can't be played; the timeline so far then continues.
    func replace(with timeline: FaultTimeline, now: UInt64) throws {
        try timeline.check()
        let expired = timeline.needsExpiredCertificate ? try current.expiredTLS ?? makeExpiredTLS() : nil
        run.withLock { run in
            run.timeline = timeline
            run.startedAt = now
            run.expiredTLS = expired ?? run.expiredTLS
        }
    }

    func report(now: UInt64) -> FaultReport {
        let run = current
        let elapsed = now > run.startedAt ? now - run.startedAt : 0
        var clock = FaultClock(run.timeline)
        return FaultReport(
            timeline: run.timeline, elapsedMilliseconds: elapsed / 1_000_000,
            active: clock.advance(to: elapsed).entries)
    }
}
