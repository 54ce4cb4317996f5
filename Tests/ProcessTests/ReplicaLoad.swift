import SluiceModel
import TestSupport

/// A load for several workers: devices that go offline and return, and absent devices with held pushes.
struct ReplicaLoad {
    var random: SeededGenerator
    let live: [String]
    let absent: [String]
    private var offline: Set<String> = []
    private var lastTick = ContinuousClock.now
    /// Pushes without limits in time that wait for the absent devices.
    private(set) var held: [AuditedPush] = []

    static let topic = "com.example.news"

    init(seed: UInt64, live: Int, absent: Int) {
        var random = SeededGenerator(seed: seed)
        self.live = (0..<live).map { _ in random.hexadecimal(bytes: 32) }
        self.absent = (0..<absent).map { _ in random.hexadecimal(bytes: 32) }
        self.random = random
    }

    private mutating func push(_ collapseID: String? = nil) -> AuditedPush {
        AuditedPush(apnsID: random.identifier(), topic: Self.topic, collapseID: collapseID)
    }

    // MARK: Absent devices

    /// Takes the absent devices offline and sends a push to each. A part of the pushes is due or expires at the
    /// instants.
    mutating func hold(deliverAt: Int64? = nil, expiration: Int64? = nil) -> [JobDraft] {
        var drafts = absent.map { JobDraft($0, .offline) }
        for (number, token) in absent.enumerated() {
            var push = push("kept")
            push.delivery = .holdWhileOffline
            if number % 5 == 1 { push.expiration = expiration }
            drafts.append(JobDraft(token, .push(push)))
            if push.expiration == nil { held.append(push) }
            guard let deliverAt, number % 5 == 2 else { continue }
            var later = self.push("later")
            later.deliverAt = deliverAt
            drafts.append(JobDraft(token, .push(later)))
        }
        return drafts
    }

    /// Brings all devices online.
    mutating func bringBack() -> [JobDraft] {
        let drafts = (absent + live.filter { offline.contains($0) }).map { JobDraft($0, .online) }
        offline = []
        return drafts
    }

    // MARK: Live devices

    /// Produces some jobs at most every 20 ms, which makes some hundred a second.
    mutating func tick(_ group: ReplicaGroup, jobs: Int = 5) throws {
        guard ContinuousClock.now - lastTick > .milliseconds(20) else { return }
        lastTick = .now
        let now = group.now
        let drafts = (0..<jobs).map { _ in draft(at: now) }
        try group.produce(drafts)
    }

    private mutating func draft(at now: Int64) -> JobDraft {
        let token = live.randomElement(using: &random)!
        if random.chance(8) {
            if offline.remove(token) != nil { return JobDraft(token, .online) }
            offline.insert(token)
            return JobDraft(token, .offline)
        }
        var push = push(random.chance(85) ? "score-\(Int.random(in: 0..<3, using: &random))" : nil)
        if random.chance(30) { push.delivery = .holdWhileOffline }
        if random.chance(10) { push.deliverAt = now + .random(in: 200...4_000, using: &random) }
        if random.chance(10) {
            push.expiration = now / 1_000 * 1_000 + .random(in: 5...9, using: &random) * 1_000
        }
        return JobDraft(token, .push(push))
    }
}
