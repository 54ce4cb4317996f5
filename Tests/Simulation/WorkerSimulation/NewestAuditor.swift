/// Checks which push of an identity a device shows in the end.
///
/// After a fault an older push may be accepted behind a newer one, because both are repeated. The device must then get the
/// newer push again.
struct NewestAuditor {
    /// Newest accepted job of each identity.
    private var newest: [WorkerJob.Identity: Int] = [:]
    /// Job that its device shows in place of the newest.
    private var outdated: [WorkerJob.Identity: Int] = [:]
    /// Offset by partition up to which the uncommitted records were read when sending began.
    private var readTo: [Int32: Int64] = [:]

    /// A worker begins to send before it has read all uncommitted records of a partition.
    mutating func catchUpCut(_ partition: Int32, readTo offset: Int64) { readTo[partition] = offset }

    /// Whether a worker may have sent pushes of a partition before it has read a record.
    func isCut(_ partition: Int32, before offset: Int64) -> Bool { offset >= readTo[partition] ?? .max }

    /// Notes that APNs accepts a push. Returns the newer push that APNs has accepted before; nil: there is none.
    /// - Parameter isCrowded: true when workers may be unable to read all uncommitted records before they send.
    mutating func accepted(
        _ number: Int, _ attempt: WorkerJob.Attempt, _ records: WorkerRecords, isCrowded: Bool
    ) -> Int? {
        let job = records[number]
        guard job.collapse != nil else { return nil }
        guard let last = newest[job.identity], last > number else {
            newest[job.identity] = number
            outdated[job.identity] = nil
            return nil
        }
        let isKnown = records[last].offset < readTo[job.partition] ?? .max
        // What a former owner has sent may arrive at any time.
        if !attempt.link.isDelayed, attempt.assignment != nil, isKnown, !isCrowded {
            outdated[job.identity] = number
        }
        return last
    }

    /// Returns the devices' pushes that are older than others that APNs has accepted, in the end.
    func shown(_ records: WorkerRecords) -> [(older: Int, newer: Int)] {
        outdated.compactMap { identity, older in
            guard let newer = newest[identity], records[older].partition == records[newer].partition,
                !records[older].isExempt, !records[newer].isExempt, !records[older].outranks(records[newer])
            else { return nil }
            return (older, newer)
        }.sorted { $0 < $1 }
    }
}
