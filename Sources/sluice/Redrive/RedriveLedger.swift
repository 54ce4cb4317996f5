import Admin
import Foundation
import SluiceModel

/// Properties that tell apart the jobs of one place, because a topic may be created anew. Nil: unknown.
struct RedriveIdentity: Hashable, Sendable {
    var apnsID: APNSID?
    /// Creation of the job, in milliseconds since the epoch.
    var createdMilliseconds: Int64?
    /// Timestamp of the record, in milliseconds since the epoch.
    var timestampMilliseconds: Int64?

    /// Returns whether both may be of one job.
    func fits(_ other: RedriveIdentity) -> Bool {
        func fits<Value: Equatable>(_ left: Value?, _ right: Value?) -> Bool {
            left == nil || right == nil || left == right
        }
        return fits(apnsID, other.apnsID) && fits(createdMilliseconds, other.createdMilliseconds)
            && fits(timestampMilliseconds, other.timestampMilliseconds)
    }
}

/// A record of the ledger topic, which says that a job was produced. The key is the place of the dead letter or outcome.
struct RedriveEntry: Equatable, Sendable {
    /// Place of the job's record; nil: the entry can't be read.
    var source: RecordAddress?
    /// Properties of the job at its source.
    var identity = RedriveIdentity()
    /// Topic that the job was produced to.
    var destination = ""
    /// Time of the entry, in milliseconds since the epoch.
    var atMilliseconds: Int64 = 0
    /// Identifier of the run.
    var run = ""

    /// The entry as a JSON document.
    var json: [UInt8] {
        var members: [String: Any] = [
            "state": "done", "to": destination, "at": atMilliseconds, "run": run,
        ]
        members["source"] = source?.description
        members["apns-id"] = identity.apnsID?.description
        members["created-at"] = identity.createdMilliseconds
        members["source-timestamp"] = identity.timestampMilliseconds
        return Array(JSONText.of(members).utf8)
    }
}

extension RedriveEntry {
    /// Reads the members that decide, and tolerates others. An entry of an unknown state has no source.
    init(json: UnsafeRawBufferPointer) {
        let members = (try? JSONSerialization.jsonObject(with: Data(json))) as? [String: Any] ?? [:]
        guard members["state"] as? String == "done" else { return }
        source = (members["source"] as? String).flatMap { RecordAddress(text: $0) }
        identity.apnsID = (members["apns-id"] as? String).flatMap { APNSID(text: $0) }
        identity.createdMilliseconds = (members["created-at"] as? Int).map { Int64($0) }
        identity.timestampMilliseconds = (members["source-timestamp"] as? Int).map { Int64($0) }
    }
}

/// Redriven jobs, as the ledger topic and the present run know them. A job is known by the place of its dead letter or
/// outcome, and by its own record's place and identity: two dead letters or outcomes of one record are one job. Pure.
struct RedriveLedger: Sendable {
    /// Whether jobs that earlier runs redrove are sent once more.
    let sendsAgain: Bool
    /// Entries by places of dead letters or outcomes.
    private var entries: [RecordAddress: RedriveEntry] = [:]
    /// Identities of redriven jobs, by the places of their records.
    private var done: [RecordAddress: [RedriveIdentity]] = [:]
    /// Identities of jobs that this run sends.
    private var taken: [RecordAddress: [RedriveIdentity]] = [:]
    /// Records of the ledger topic that have no key of a ledger.
    private(set) var unreadable = 0

    init(sendsAgain: Bool = false) { self.sendsAgain = sendsAgain }

    /// Number of places that the ledger knows.
    var count: Int { entries.count }

    /// Takes a record of the ledger topic, in the topic's order.
    /// - Parameter value: nil for a tombstone, which forgets the place. A value that can't be read keeps the job of the
    ///   place from being sent.
    mutating func apply(key: UnsafeRawBufferPointer?, value: UnsafeRawBufferPointer?) {
        guard let place = key.flatMap({ RecordAddress(text: String(decoding: $0, as: UTF8.self)) }) else {
            unreadable += 1
            return
        }
        if let before = entries.removeValue(forKey: place), let source = before.source,
            let index = done[source]?.firstIndex(of: before.identity)
        {
            done[source]?.remove(at: index)
        }
        guard let entry = value.map({ RedriveEntry(json: $0) }) else { return }
        entries[place] = entry
        if let source = entry.source { done[source, default: []].append(entry.identity) }
    }

    /// Returns why the job of a dead letter or outcome isn't sent; nil: the ledger has nothing against it.
    func verdict(_ facts: RedriveFacts) -> RedriveEnd? {
        if sendsAgain { return nil }
        if let entry = entries[facts.place] {
            guard let source = entry.source else { return .inDoubt }
            // Another job has the place when the topic of dead letters or outcomes was created anew.
            if source == facts.source, entry.identity.fits(facts.identity) { return .before }
        }
        return done[facts.source]?.contains { $0.fits(facts.identity) } == true ? .sameJob : nil
    }

    /// Notes that this run sends a job. Returns false when it has sent the job already.
    mutating func take(_ facts: RedriveFacts) -> Bool {
        guard taken[facts.source]?.contains(where: { $0.fits(facts.identity) }) != true else { return false }
        taken[facts.source, default: []].append(facts.identity)
        return true
    }
}
