import SluiceModel

extension Auditor {
    /// Returns the events of a job's identity and its device in the order of time, a line each.
    /// - Parameter tellsAll: includes the other identities of the device.
    func story(of place: JobPlace, tellsAll: Bool = false) -> [String] {
        guard let job = history.jobs[place] else { return [] }
        var lines: [(time: Int64, text: String)] = []
        var told: Set<JobPlace> = []
        var identifiers: [String: JobPlace] = [:]
        let identity = job.push.map { AuditedIdentity(job, $0) }
        for other in history.jobs.values where other.deviceToken == job.deviceToken {
            if let push = other.push {
                guard tellsAll || other.place == place || AuditedIdentity(other, push) == identity else {
                    continue
                }
                identifiers[push.apnsID] = other.place
            }
            told.insert(other.place)
            lines.append((other.produced, "produced \(other.place) \(other.summary)"))
        }
        for outcome in history.outcomes where told.contains(outcome.place) {
            let successor = outcome.supersededBy.map { " by \($0)" } ?? ""
            lines.append((outcome.finished, "outcome of \(outcome.place): \(outcome.kind.name)\(successor)"))
        }
        for arrival in history.arrivals {
            guard let pushed = identifiers[arrival.apnsID] else { continue }
            let device = arrival.deviceToken == job.deviceToken ? "" : " at \(arrival.deviceToken.prefix(8))…"
            lines.append((arrival.time, "APNs got \(pushed): \(arrival.status)\(device)"))
        }
        for (number, life) in history.lives.enumerated() {
            let last = number > 0 ? history.lives[number - 1].end : nil
            lines.append((life.start, "worker \(number) starts\(last == .killed ? ", after a kill" : "")"))
        }
        for takeover in history.takeovers[place.partition] ?? [] {
            lines.append((takeover.time, "another worker begins, from \(takeover.committed) on"))
        }
        for death in history.simulatorDeaths { lines.append((death, "the simulator is killed")) }
        let start = lines.map(\.time).min() ?? 0
        // The order is stable, because instants are often equal.
        let order = lines.indices.sorted { (lines[$0].time, $0) < (lines[$1].time, $1) }
        return order.map { "+\(lines[$0].time - start) ms  \(lines[$0].text)" }
    }
}

extension AuditedJob {
    fileprivate var summary: String {
        switch kind {
        case .event(let event): "\(event)"
        case .cancel(let target): "cancel \(target)"
        case .push(let push):
            [
                "push \(push.apnsID)", push.collapseID.map { "collapse-id \($0)" },
                push.delivery == .accept ? nil : "\(push.delivery.name)",
                push.expiration.map { "expires +\($0 - produced) ms" },
                push.deliverAt.map { "deliver-at +\($0 - produced) ms" },
            ].compactMap { $0 }.joined(separator: ", ")
        }
    }
}
