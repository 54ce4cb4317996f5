import SluiceModel
import StreamScheduling

/// Counts outcomes of numbered jobs. A job's number is in its `apns-id`, beside the number of the run.
struct SoakAudit {
    /// Number of the run, which tells its jobs from others.
    let run: UInt64
    /// Outcomes by the number of the job, up to 255.
    private var counts: [UInt8] = []
    /// Jobs that Kafka refused, by number; none of them is expected to have an outcome.
    private var refusals: Set<Int> = []
    private(set) var outcomes = 0
    /// Outcomes of jobs that were never produced.
    private(set) var unknown = 0
    /// Records that are no outcomes.
    private(set) var unreadable = 0
    /// Outcomes by kind.
    private(set) var kinds = [Int](repeating: 0, count: 256)
    private(set) var retried = 0
    private let latencies = LatencyHistogram()

    init(run: UInt64) { self.run = run }

    /// Jobs that Kafka has, or may have.
    var expected: Int { counts.count - refusals.count }
    var refused: Int { refusals.count }
    /// Jobs with an outcome.
    private(set) var finished = 0
    /// Jobs without an outcome so far.
    var open: Int { expected - finished }

    var missing: Int { counts.indices.count { counts[$0] == 0 && !refusals.contains($0) } }
    var doubled: Int { counts.count { $0 > 1 } }

    /// Time from a job's due moment to its outcome.
    func milliseconds(_ percent: Double) -> Double {
        latencies.count == 0 ? .nan : Double(latencies.percentile(percent)) / 1e6
    }

    /// Adds a job and returns its identifier.
    mutating func add() -> APNSID {
        counts.append(0)
        return APNSID(high: run, low: UInt64(counts.count - 1))
    }

    mutating func refuse(_ number: Int) {
        if counts.indices.contains(number), counts[number] == 0 { refusals.insert(number) }
    }

    /// - Parameter holdMilliseconds: returns the time by which a job was due after its creation.
    mutating func add(_ outcome: OutcomeSummary?, holdMilliseconds: (Int) -> Int64) {
        guard let outcome else {
            unreadable += 1
            return
        }
        let number = Int(exactly: outcome.apnsID.low) ?? -1
        guard outcome.apnsID.high == run, counts.indices.contains(number) else {
            unknown += 1
            return
        }
        outcomes += 1
        if counts[number] == 0 { finished += 1 }
        if counts[number] < .max { counts[number] += 1 }
        kinds[Int(outcome.kind.rawValue)] += 1
        if outcome.attempts > 1 { retried += 1 }
        let waited = outcome.finishedMilliseconds &- outcome.createdMilliseconds &- holdMilliseconds(number)
        latencies.record(nanoseconds: UInt64(min(max(waited, 0), 3_600_000)) * 1_000_000)
    }
}
