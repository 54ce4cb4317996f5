import Admin
import Foundation
import SluiceModel

/// State of a dead letter or outcome in the ledger.
enum RedriveState: String, Sendable {
    /// The job was produced.
    case done
    /// The job is about to be produced. A run that ended before `done` leaves the job in doubt.
    case intent
    /// The job is known not to be produced.
    case failed

    /// Order of entries from different partitions of a ledger: the greater one counts.
    var rank: Int {
        switch self {
        case .done: 2
        case .intent: 1
        case .failed: 0
        }
    }

    /// Returns the state of a place whose job could not be produced. An earlier run may have produced the job, so its
    /// state stays.
    static func afterFailure(before: RedriveState?) -> RedriveState { before ?? .failed }
}

/// Properties that tell apart the jobs of one place, because a topic may be created anew. Nil: unknown.
struct RedriveIdentity: Equatable, Sendable {
    var apnsID: APNSID?
    /// Creation of the job, in milliseconds since the epoch.
    var createdMilliseconds: Int64?
    /// Timestamp of the record, in milliseconds since the epoch.
    var timestampMilliseconds: Int64?
}

/// A record of the ledger topic: the key is the place of a dead letter or outcome.
struct RedriveEntry: Equatable, Sendable {
    var state: RedriveState
    /// Place of the job's record.
    var source: RecordAddress
    /// Properties of the job at its source.
    var identity = RedriveIdentity()
    /// Topic that the job was produced to.
    var destination: String
    /// Time of the entry, in milliseconds since the epoch.
    var atMilliseconds: Int64
    /// Identifier of the run.
    var run: String

    /// The entry as a JSON document.
    var json: [UInt8] {
        var members: [String: Any] = [
            "state": state.rawValue, "source": source.description, "to": destination,
            "at": atMilliseconds, "run": run,
        ]
        members["apns-id"] = identity.apnsID?.description
        members["created-at"] = identity.createdMilliseconds
        members["source-timestamp"] = identity.timestampMilliseconds
        return Array(JSONText.of(members).utf8)
    }
}

/// Redriven places, as the ledger topic and the present run know them. A job is identified by the place of its dead letter
/// or outcome, and by its own record's place and identity. Two dead letters or outcomes of one record are one job.
struct RedriveLedger: Sendable {
    /// Decision about a dead letter or outcome.
    enum Verdict: Equatable, Sendable {
        case send
        /// This dead letter or outcome was redriven.
        case redriven
        /// Another dead letter or outcome of the same record was redriven, or is being redriven by this run.
        case sameJob
        /// An earlier run ended between its intent and the acknowledgement.
        case inDoubt
    }

    /// Exceptions that the operator asked for.
    struct Exceptions: OptionSet, Sendable {
        let rawValue: Int
        /// Jobs that earlier runs redrove are sent again.
        static let again = Exceptions(rawValue: 1)
        /// Jobs in doubt are sent.
        static let inDoubt = Exceptions(rawValue: 2)
    }

    /// An identity in few bytes, because a ledger may have millions of entries.
    private struct Mark: Equatable {
        /// Bits of the identifier; 0: unknown.
        var identifier: UInt64
        /// Times in milliseconds since the epoch; -1: unknown.
        var created: Int64
        var timestamp: Int64

        init(_ identity: RedriveIdentity) {
            identifier = identity.apnsID.map { $0.low ^ ($0.high &* 0x9E37_79B9_7F4A_7C15) } ?? 0
            created = identity.createdMilliseconds ?? -1
            timestamp = identity.timestampMilliseconds ?? -1
        }

        /// Returns whether both may be of one job.
        func fits(_ other: Mark) -> Bool {
            (identifier == other.identifier || identifier == 0 || other.identifier == 0)
                && (created == other.created || created == -1 || other.created == -1)
                && (timestamp == other.timestamp || timestamp == -1 || other.timestamp == -1)
        }
    }

    /// A job at a place.
    private struct Job {
        var mark: Mark
        /// Numbers of entries.
        var done: Int32 = 0
        var intent: Int32 = 0
        /// Whether this run has taken the job.
        var isTaken = false

        var isUnused: Bool { done == 0 && intent == 0 && !isTaken }
    }

    /// Jobs at a place: nearly always one.
    private struct Jobs {
        var first: Job
        var more: [Job] = []

        mutating func change(_ mark: Mark, _ body: (inout Job) -> Void) {
            if first.mark == mark { return body(&first) }
            if let index = more.firstIndex(where: { $0.mark == mark }) { return body(&more[index]) }
            var job = Job(mark: mark)
            body(&job)
            more.append(job)
        }

        /// Returns the sum of the jobs that may be the one of a mark.
        func sum(_ mark: Mark) -> Job {
            var sum = Job(mark: mark)
            func add(_ job: Job) {
                guard job.mark.fits(mark) else { return }
                sum.done += job.done
                sum.intent += job.intent
                sum.isTaken = sum.isTaken || job.isTaken
            }
            add(first)
            more.forEach(add)
            return sum
        }

        var isUnused: Bool { first.isUnused && more.allSatisfy(\.isUnused) }
    }

    /// Entry of a place; the source is nil where it can't be read.
    private struct Entry {
        var state: RedriveState
        var source: RecordAddress?
        var mark: Mark
        /// Partition of the ledger that has the entry.
        var partition: Int32

        /// Returns whether the entry may be of this job. Another job has the place when the topic of dead letters or
        /// outcomes was created anew.
        func fits(_ source: RecordAddress, _ mark: Mark) -> Bool {
            guard let own = self.source else { return true }
            return own == source && self.mark.fits(mark)
        }
    }

    /// Latest entries of a place in each partition of the ledger: nearly always one.
    private struct Entries {
        var first: Entry
        var more: [Entry] = []

        /// Returns the entry that a partition had.
        mutating func replace(with entry: Entry) -> Entry? {
            if first.partition == entry.partition {
                defer { first = entry }
                return first
            }
            guard let index = more.firstIndex(where: { $0.partition == entry.partition }) else {
                more.append(entry)
                return nil
            }
            defer { more[index] = entry }
            return more[index]
        }

        /// Returns the removed entry of a partition, and the entries that are left.
        func without(_ partition: Int32) -> (removed: Entry?, left: Entries?) {
            if first.partition == partition {
                return (first, more.first.map { Entries(first: $0, more: Array(more.dropFirst())) })
            }
            guard let index = more.firstIndex(where: { $0.partition == partition }) else {
                return (nil, self)
            }
            var left = self
            return (left.more.remove(at: index), left)
        }

        /// Returns the strongest state of the entries that may be of a job; nil: none.
        func state(_ source: RecordAddress, _ mark: Mark) -> RedriveState? {
            var strongest = first.fits(source, mark) ? first.state : nil
            for entry in more where entry.fits(source, mark) {
                if strongest.map({ entry.state.rank > $0.rank }) ?? true { strongest = entry.state }
            }
            return strongest
        }
    }

    private let exceptions: Exceptions
    /// Entries by places of dead letters or outcomes.
    private var entries: [RecordAddress: Entries] = [:]
    /// Jobs by the places of their records: those of entries whose state isn't `failed`, and those that this run has taken.
    private var jobs: [RecordAddress: Jobs] = [:]
    /// Copies of topic names, which all places share.
    private var names: [String: String] = [:]
    /// Records of the ledger topic that have no key of a ledger.
    private(set) var unreadable = 0

    init(_ exceptions: Exceptions = []) { self.exceptions = exceptions }

    /// Number of places that the ledger knows.
    var count: Int { entries.count }

    /// Takes a record of the ledger topic, in the order of its partition. The latest entry of a partition counts. A ledger
    /// that got more partitions has entries of one place in several. The strongest of them counts, because clocks of
    /// several machines have no order.
    ///
    /// - Parameter value: nil for a tombstone, which forgets the place's entry of this partition; entries of other
    ///   partitions stay. An unreadable value counts as an intent, so that the job isn't sent twice.
    mutating func apply(
        key: UnsafeRawBufferPointer?, value: UnsafeRawBufferPointer?, partition: Int32 = 0
    ) {
        guard let key,
            let place = RecordAddress(text: String(decoding: key, as: UTF8.self)).map({ shared($0) })
        else {
            unreadable += 1
            return
        }
        guard let document = value.map({ LedgerDocument($0) }) else {
            guard let (removed, left) = entries[place]?.without(partition) else { return }
            entries[place] = left
            if let removed { count(removed, by: -1) }
            return
        }
        let entry = Entry(
            state: document.state ?? .intent, source: document.source.map { shared($0) },
            mark: Mark(document.identity), partition: partition)
        if entries[place] == nil {
            entries[place] = Entries(first: entry)
        } else if let before = entries[place]?.replace(with: entry) {
            count(before, by: -1)
        }
        count(entry, by: 1)
    }

    private mutating func count(_ entry: Entry, by change: Int32) {
        guard let source = entry.source, entry.state != .failed else { return }
        self.change(source, entry.mark) {
            if entry.state == .done { $0.done += change } else { $0.intent += change }
        }
    }

    private mutating func change(_ source: RecordAddress, _ mark: Mark, _ body: (inout Job) -> Void) {
        jobs[source, default: Jobs(first: Job(mark: mark))].change(mark, body)
        if jobs[source]?.isUnused == true { jobs[source] = nil }
    }

    /// State of a dead letter or outcome of this job; nil: none.
    func state(
        of place: RecordAddress, source: RecordAddress, identity: RedriveIdentity = RedriveIdentity()
    ) -> RedriveState? { state(place, source, Mark(identity)) }

    private func state(_ place: RecordAddress, _ source: RecordAddress, _ mark: Mark) -> RedriveState? {
        entries[place]?.state(source, mark)
    }

    /// Decides about a dead letter or outcome. A job that is to be sent counts as taken by this run from now on.
    mutating func decide(
        place: RecordAddress, source: RecordAddress, identity: RedriveIdentity = RedriveIdentity()
    ) -> Verdict {
        let mark = Mark(identity)
        let verdict = verdict(place, source, mark)
        if verdict == .send { change(shared(source), mark) { $0.isTaken = true } }
        return verdict
    }

    /// Notes that this run doesn't send a job after all. Another job of the same place may be sent.
    mutating func release(source: RecordAddress, identity: RedriveIdentity = RedriveIdentity()) {
        guard jobs[source] != nil else { return }
        change(source, Mark(identity)) { $0.isTaken = false }
    }

    private func verdict(_ place: RecordAddress, _ source: RecordAddress, _ mark: Mark) -> Verdict {
        let others = jobs[source]?.sum(mark)
        if others?.isTaken == true { return .sameJob }
        switch state(place, source, mark) {
        case .done: return exceptions.contains(.again) ? .send : .redriven
        case .intent: return exceptions.contains(.inDoubt) ? .send : .inDoubt
        case .failed, nil: break
        }
        // Entries of other dead letters or outcomes of the job.
        guard let others, !others.isUnused else { return .send }
        if others.done > 0 { return exceptions.contains(.again) ? .send : .sameJob }
        return exceptions.contains(.inDoubt) ? .send : .inDoubt
    }

    private mutating func shared(_ place: RecordAddress) -> RecordAddress {
        var place = place
        if let name = names[place.topic] {
            place.topic = name
        } else {
            names[place.topic] = place.topic
        }
        return place
    }
}

/// Members of an entry that decide. Tolerates further members.
private struct LedgerDocument {
    var state: RedriveState?
    var source: RecordAddress?
    var identity = RedriveIdentity()

    init(_ json: UnsafeRawBufferPointer) {
        let members = (try? JSONSerialization.jsonObject(with: Data(json))) as? [String: Any]
        state = (members?["state"] as? String).flatMap { RedriveState(rawValue: $0) }
        source = (members?["source"] as? String).flatMap { RecordAddress(text: $0) }
        identity.apnsID = (members?["apns-id"] as? String).flatMap { APNSID(text: $0) }
        identity.createdMilliseconds = (members?["created-at"] as? Int).map { Int64($0) }
        identity.timestampMilliseconds = (members?["source-timestamp"] as? Int).map { Int64($0) }
    }
}
