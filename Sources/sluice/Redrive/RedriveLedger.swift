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
}

/// A record of the ledger topic: the key is the place of a dead letter or outcome.
struct RedriveEntry: Equatable, Sendable {
    var state: RedriveState
    /// Place of the job's record.
    var source: RecordAddress
    /// Topic that the job was produced to.
    var destination: String
    /// Time of the entry, in milliseconds since the epoch.
    var atMilliseconds: Int64
    /// Identifier of the run.
    var run: String

    /// The entry as a JSON document.
    var json: [UInt8] {
        Array(
            JSONText.of([
                "state": state.rawValue, "source": source.description, "to": destination,
                "at": atMilliseconds, "run": run,
            ]).utf8)
    }
}

/// Redriven places, as the ledger topic and the present run know them. A job is identified by the place of its dead letter
/// or outcome, and by its own record's place. Two dead letters or outcomes of one record are one job.
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

    private let exceptions: Exceptions
    /// States by places of dead letters or outcomes.
    private var entries: [RecordAddress: (state: RedriveState, source: RecordAddress?)] = [:]
    /// Numbers of entries by the places of their jobs, as far as their state isn't `failed`.
    private var jobs: [RecordAddress: (done: Int32, intent: Int32)] = [:]
    /// Places of jobs that this run has taken.
    private var taken: Set<RecordAddress> = []
    /// Copies of topic names, which all places share.
    private var names: [String: String] = [:]
    /// Records of the ledger topic that have no key of a ledger.
    private(set) var unreadable = 0

    init(_ exceptions: Exceptions = []) { self.exceptions = exceptions }

    /// Number of places that the ledger knows.
    var count: Int { entries.count }

    /// Takes a record of the ledger topic, in the order of its partition.
    /// - Parameter value: nil for a tombstone, which forgets the place. An unreadable value counts as an intent, so that the
    ///   job isn't sent twice.
    mutating func apply(key: UnsafeRawBufferPointer?, value: UnsafeRawBufferPointer?) {
        guard let key,
            let place = RecordAddress(text: String(decoding: key, as: UTF8.self)).map({ shared($0) })
        else {
            unreadable += 1
            return
        }
        guard let value else {
            if let entry = entries.removeValue(forKey: place) { count(entry, by: -1) }
            return
        }
        let document = LedgerDocument(value)
        let state = document.state ?? .intent
        record(state, place: place, source: document.source.map { shared($0) })
    }

    /// Notes a state that this run has written.
    mutating func record(_ state: RedriveState, place: RecordAddress, source: RecordAddress?) {
        if let before = entries[place] { count(before, by: -1) }
        entries[place] = (state, source)
        count((state, source), by: 1)
    }

    private mutating func count(_ entry: (state: RedriveState, source: RecordAddress?), by change: Int32) {
        guard let source = entry.source, entry.state != .failed else { return }
        var counts = jobs[source] ?? (0, 0)
        if entry.state == .done { counts.done += change } else { counts.intent += change }
        jobs[source] = counts == (0, 0) ? nil : counts
    }

    /// Decides about a dead letter or outcome. A job that is to be sent counts as taken by this run from now on.
    mutating func decide(place: RecordAddress, source: RecordAddress) -> Verdict {
        let verdict = verdict(place, source)
        if verdict == .send { taken.insert(shared(source)) }
        return verdict
    }

    private func verdict(_ place: RecordAddress, _ source: RecordAddress) -> Verdict {
        if taken.contains(source) { return .sameJob }
        switch entries[place]?.state {
        case .done: return exceptions.contains(.again) ? .send : .redriven
        case .intent: return exceptions.contains(.inDoubt) ? .send : .inDoubt
        case .failed, nil: break
        }
        // Entries of other dead letters or outcomes of the job.
        guard let others = jobs[source] else { return .send }
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

    init(_ json: UnsafeRawBufferPointer) {
        let members = (try? JSONSerialization.jsonObject(with: Data(json))) as? [String: Any]
        state = (members?["state"] as? String).flatMap { RedriveState(rawValue: $0) }
        source = (members?["source"] as? String).flatMap { RecordAddress(text: $0) }
    }
}
