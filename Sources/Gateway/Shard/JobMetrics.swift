import Metrics
import SluiceModel

/// Counts and latencies of a shard's jobs by app. All memory is allocated at the making. Shard's thread.
final class JobMetrics {
    private let names: [String]
    /// By an app's number. Not an array, which would check its ownership at each count.
    private let rows: UnsafeMutableBufferPointer<Row>

    /// Figures of an app; the last row is that of jobs without an app.
    private struct Row {
        var jobs = [Int](repeating: 0, count: JobKind.allCases.count)
        var outcomes = [Int](repeating: 0, count: OutcomeKind.allCases.count)
        var reasons = [Int](repeating: 0, count: Reason.allCases.count)
        var causes = [Int](repeating: 0, count: OutcomeCause.allCases.count)
        let latency = ExponentialHistogram()
        let pickup = ExponentialHistogram()
    }

    /// - Parameter names: names by an app's number.
    init(apps names: [String]) {
        self.names = names
        rows = .allocate(capacity: names.count + 1)
        for row in rows.indices { rows.initializeElement(at: row, to: Row()) }
    }

    deinit {
        rows.deinitialize()
        rows.deallocate()
    }

    private var noApp: Int { names.count }

    /// Row of an app; nil: the row of jobs without an app. Checked, because a buffer isn't.
    @inline(__always)
    private func row(_ app: UInt16?) -> Int {
        let row = app.map { Int($0) } ?? noApp
        precondition(row < rows.count, "app \(row) is unknown")
        return row
    }

    /// Counts a valid job. `app` is nil for a job that no app has.
    func count(_ kind: JobKind, app: UInt16?) {
        rows[row(app)].jobs[Int(kind.rawValue)] += 1
    }

    /// Counts an outcome. `app` is nil for the outcome of a job that no app has.
    func count(_ outcome: borrowing Outcome, app: UInt16?) {
        let row = row(app)
        rows[row].outcomes[Int(outcome.kind.rawValue)] += 1
        switch outcome.kind {
        case .rejected, .undeliverable: break
        case .accepted, .confirmed, .expired, .superseded, .cancelled, .tooLate, .notFound, .applied: return
        }
        if let cause = outcome.cause {
            rows[row].causes[Int(cause.rawValue)] += 1
        } else {
            rows[row].reasons[Int(outcome.reason.rawValue)] += 1
        }
    }

    /// Measures a push of an app that has ended.
    func measure(_ outcome: borrowing Outcome, of job: borrowing Job, at now: Int64) {
        let row = row(job.app)
        // A push that waits for its device takes as long as the device does.
        guard job.push.delivery == .accept else { return }
        if let sent = outcome.firstSentMilliseconds {
            let due = max(job.polledMilliseconds, job.push.deliverAtMilliseconds ?? 0)
            rows[row].pickup.record(milliseconds: sent - due)
        }
        switch outcome.kind {
        case .accepted, .rejected, .undeliverable: break
        case .confirmed, .expired, .superseded, .cancelled, .tooLate, .notFound, .applied: return
        }
        let due = max(job.push.createdMilliseconds, job.push.deliverAtMilliseconds ?? 0)
        let latency = rows[row].latency
        latency.record(milliseconds: now - due)
        guard !job.push.passedHeaders.isEmpty, now - latency.lastExemplar >= 1000,
            let trace = TraceIdentifier.number(of: job.push.passedHeaders)
        else { return }
        latency.note(Exemplar(trace: trace, seconds: Double(max(0, now - due)) / 1e3, milliseconds: now))
    }

    /// Figures by the app's name; the empty name stands for jobs without an app.
    func snapshot() -> [String: AppFigures] {
        var apps: [String: AppFigures] = [:]
        for (index, row) in rows.enumerated() {
            var figures = AppFigures()
            // Copies of the elements, because a shared array would be copied by the next count.
            figures.jobs = row.jobs.map { $0 }
            figures.outcomes = row.outcomes.map { $0 }
            figures.reasons = row.reasons.map { $0 }
            figures.causes = row.causes.map { $0 }
            figures.latency = row.latency.snapshot()
            figures.pickup = row.pickup.snapshot()
            apps[index == noApp ? "" : names[index]] = figures
        }
        return apps
    }
}

/// Counts and latencies of an app's jobs since the worker's start.
public struct AppFigures: Sendable, Equatable {
    /// Valid jobs by ``JobKind/rawValue``.
    public var jobs = [Int](repeating: 0, count: JobKind.allCases.count)
    /// Outcomes by ``OutcomeKind/rawValue``.
    public var outcomes = [Int](repeating: 0, count: OutcomeKind.allCases.count)
    /// Rejected and undeliverable pushes by APNs' reason, ``Reason/rawValue``.
    public var reasons = [Int](repeating: 0, count: Reason.allCases.count)
    /// Rejected and undeliverable pushes that Sluice decided, by ``OutcomeCause/rawValue``.
    public var causes = [Int](repeating: 0, count: OutcomeCause.allCases.count)
    /// Times from the moment at which a push was due to its outcome.
    public var latency = HistogramSnapshot()
    /// Times from the poll of a push to its first sending.
    public var pickup = HistogramSnapshot()
    /// Pushes that wait for a stream.
    public var waiting = 0
    /// Pushes in flight to APNs.
    public var inFlight = 0
    /// True while pushes of the app beyond its share are parked in the store, or take the room of others.
    public var isOverShare = false

    public init() {}

    public static func + (left: AppFigures, right: AppFigures) -> AppFigures {
        var sum = left
        for index in sum.jobs.indices { sum.jobs[index] += right.jobs[index] }
        for index in sum.outcomes.indices { sum.outcomes[index] += right.outcomes[index] }
        for index in sum.reasons.indices { sum.reasons[index] += right.reasons[index] }
        for index in sum.causes.indices { sum.causes[index] += right.causes[index] }
        sum.latency = left.latency + right.latency
        sum.pickup = left.pickup + right.pickup
        sum.waiting += right.waiting
        sum.inFlight += right.inFlight
        sum.isOverShare = left.isOverShare || right.isOverShare
        return sum
    }
}
