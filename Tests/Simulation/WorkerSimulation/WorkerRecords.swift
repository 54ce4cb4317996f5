/// Records of the jobs topic in the order of their production, with what was seen of them.
struct WorkerRecords {
    private(set) var jobs: [WorkerJob] = []
    /// Several records have the same place where a log has lost records.
    private var places: [Place: [Int]] = [:]
    private var byToken: [Int: [Int]] = [:]
    private var byIdentifier: [Int: [Int]] = [:]
    private var byIdentity: [WorkerJob.Identity: [Int]] = [:]
    /// Next token of a device, by the token before.
    private var changes: [Int: Int] = [:]
    /// Tokens with pushes that ask for a receipt.
    private var confirming: Set<Int> = []

    private struct Place: Hashable {
        var partition: Int32
        var offset: Int64
    }

    subscript(number: Int) -> WorkerJob {
        get { jobs[number] }
        _modify { yield &jobs[number] }
    }

    mutating func append(_ job: WorkerJob) {
        let number = jobs.count
        jobs.append(job)
        places[Place(partition: job.partition, offset: job.offset), default: []].append(number)
        if job.kind != .invalid, job.kind != .broadcast { byToken[job.token, default: []].append(number) }
        if job.kind == .push {
            byIdentifier[job.identifier, default: []].append(number)
            byIdentity[job.identity, default: []].append(number)
            if job.delivery == .confirm { confirming.insert(job.token) }
        }
        if case .tokenChanged(let token) = job.kind { changes[job.token] = token }
    }

    /// Returns the records at a place, oldest first; nil: there is none.
    func numbers(_ partition: Int32, _ offset: Int64) -> [Int]? {
        places[Place(partition: partition, offset: offset)]
    }

    /// Returns the records of a device token, oldest first.
    func records(of token: Int) -> [Int] { byToken[token] ?? [] }

    /// Returns the pushes with an `apns-id`, oldest first.
    func pushes(withIdentifier identifier: Int) -> [Int] { byIdentifier[identifier] ?? [] }

    /// Returns the pushes of an identity, oldest first.
    func pushes(of identity: WorkerJob.Identity) -> [Int] { byIdentity[identity] ?? [] }

    /// Returns a token and those that followed it on its device, as services have reported.
    func tokens(from token: Int) -> [Int] {
        var tokens = [token]
        while let next = changes[tokens[tokens.count - 1]], !tokens.contains(next) { tokens.append(next) }
        return tokens
    }

    /// Whether a token change from or to the token was reported.
    func hasChange(_ token: Int) -> Bool {
        changes[token] != nil || changes.values.contains(token)
    }

    /// Whether a missing receipt can make a worker presume that the token's device is offline.
    func isPresumable(_ token: Int) -> Bool { confirming.contains(token) }

    /// Returns the newest report of a device's presence; nil: there is none.
    func presence(of token: Int) -> Int? {
        records(of: token).filter { jobs[$0].kind.reportsPresence }
            .max { (jobs[$0].occurred, jobs[$0].offset) < (jobs[$1].occurred, jobs[$1].offset) }
    }
}
