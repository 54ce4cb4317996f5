import SluiceModel
import StreamScheduling

/// Holds every produced job against what came back for it.
///
/// Jobs are known by their place in Kafka: delivery reports tell a job's partition and offset, outcomes and dead
/// letters name the one they belong to. An outcome may be read before the report of its job.
struct DemoAudit {
    /// By partition and offset.
    private struct Place {
        var expectation: DemoLoad.Expectation?
        var outcomes: UInt8 = 0
        var deadLetters: UInt8 = 0

        /// What this place counts as; nil where there is nothing.
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
    /// By headline: "accepted", "rejected: 410 Unregistered".
    private(set) var outcomesByHeadline: [String: Int] = [:]
    private(set) var deadLettersByRule: [String: Int] = [:]
    private(set) var attempts = 0
    private(set) var accepted = 0
    private(set) var superseded = 0
    private(set) var retried = 0
    /// Time from a job's creation to its outcome.
    let latencies = LatencyHistogram()
    /// Documents that could not be read, or name a place that doesn't exist.
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

    /// What the comparison found.
    struct Verdict {
        /// Jobs with exactly what they should have.
        var right = 0
        var missing = 0
        var doubled = 0
        /// An outcome where a dead letter should be, or the other way round.
        var wrongKind = 0
        /// Outcomes or dead letters of jobs that nobody produced.
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
