import SluiceModel
import StreamScheduling

/// Compares every produced job with the outcomes and dead letters that followed.
///
/// A job is identified by its place in Kafka. Delivery reports have a job's partition and offset; outcomes and dead
/// letters name the job they belong to. An outcome may be read before the report of its job.
struct DemoAudit {
    /// Job at a partition and offset.
    private struct Place {
        var expectation: DemoLoad.Expectation?
        var outcomes: UInt8 = 0
        var deadLetters: UInt8 = 0

        /// Counter of this place in the verdict; nil when there is nothing at the place.
        var counter: WritableKeyPath<Verdict, Int>? {
            switch (expectation, Int(outcomes) + Int(deadLetters)) {
            case (nil, 0): nil
            case (nil, _): \.unknown
            case (_, 0): \.missing
            case (.outcome, 1) where outcomes == 1: \.right
            case (.deadLetter, 1) where deadLetters == 1: \.right
            case (_, 1): \.wrongKind
            default: \.doubled
            }
        }
    }

    private var places: [[Place]]
    private(set) var outcomes = 0
    private(set) var deadLetters = 0
    /// Outcomes by headline: "accepted", "rejected: 410 Unregistered".
    private(set) var outcomesByHeadline: [String: Int] = [:]
    private(set) var deadLettersByRule: [String: Int] = [:]
    private(set) var attempts = 0
    private(set) var accepted = 0
    private(set) var superseded = 0
    private(set) var retried = 0
    /// Time from a job's creation to its outcome.
    let latencies = LatencyHistogram()
    /// Documents that can't be read, or name a place that doesn't exist.
    private(set) var unreadable = 0

    init(partitions: Int) {
        places = Array(repeating: [], count: partitions)
    }

    var finished: Int { outcomes + deadLetters }

    private mutating func change(_ partition: Int32, _ offset: Int64, _ body: (inout Place) -> Void) -> Bool {
        guard places.indices.contains(Int(partition)), (0..<100_000_000).contains(offset) else {
            return false
        }
        let partition = Int(partition)
        let offset = Int(offset)
        while places[partition].count <= offset { places[partition].append(Place()) }
        body(&places[partition][offset])
        return true
    }

    mutating func produced(partition: Int32, offset: Int64, _ expectation: DemoLoad.Expectation) {
        _ = change(partition, offset) { $0.expectation = expectation }
    }

    mutating func add(_ outcome: OutcomeSummary?) {
        guard let outcome, change(outcome.partition, outcome.offset, { $0.outcomes &+= 1 }) else {
            unreadable += 1
            return
        }
        outcomes += 1
        outcomesByHeadline[outcome.headline, default: 0] += 1
        attempts += outcome.attempts
        if outcome.attempts > 1 { retried += 1 }
        if outcome.kind == .accepted { accepted += 1 }
        if outcome.kind == .superseded { superseded += 1 }
        // The histogram's range ends at an hour.
        let waited = min(max(outcome.finishedMilliseconds &- outcome.createdMilliseconds, 0), 3_600_000)
        latencies.record(nanoseconds: UInt64(waited) * 1_000_000)
    }

    mutating func addDeadLetter(partition: Int32?, offset: Int64?, rule: String) {
        guard let partition, let offset, change(partition, offset, { $0.deadLetters &+= 1 }) else {
            unreadable += 1
            return
        }
        deadLetters += 1
        deadLettersByRule[rule, default: 0] += 1
    }

    /// Result of the comparison.
    struct Verdict {
        /// Jobs with exactly the expected outcome or dead letter.
        var right = 0
        var missing = 0
        var doubled = 0
        /// Jobs with an outcome instead of a dead letter, or the reverse.
        var wrongKind = 0
        /// Outcomes or dead letters of jobs that were never produced.
        var unknown = 0
    }

    func verdict() -> Verdict {
        var verdict = Verdict()
        for place in places.joined() {
            guard let count = place.counter else { continue }
            verdict[keyPath: count] += 1
        }
        return verdict
    }
}
