import SluiceModel
import TestSupport

/// A load with all that a store handles. Devices go offline and return; tokens change or end. Pushes are held,
/// scheduled, confirmed, superseded, cancelled, or expire.
struct StoreLoad {
    var random: SeededGenerator
    private var tokens: [String]
    /// New token by the former token.
    private var changes: [String: String] = [:]
    private var offline: Set<String> = []
    /// Receipts that devices will send, for the first `arrivalsSeen` arrivals.
    private var receipts: [JobDraft] = []
    private var arrivalsSeen = 0
    private var deliveries: [String: DeliveryMode] = [:]
    private var identifiers: [(token: String, identifier: String)] = []
    private(set) var pushes = 0

    static let topic = "com.example.news"

    init(seed: UInt64, devices: Int) {
        random = SeededGenerator(seed: seed)
        tokens = []
        for _ in 0..<devices { tokens.append(random.hexadecimal(bytes: 32)) }
    }

    /// Returns the next jobs, with receipts for pushes that have arrived.
    mutating func next(_ count: Int, _ lives: StoreLives) -> [JobDraft] {
        look(at: lives.history.arrivals)
        var drafts: [JobDraft] = []
        while !receipts.isEmpty, drafts.count < count / 2 { drafts.append(receipts.removeFirst()) }
        while drafts.count < count { drafts.append(draft(at: lives.now)) }
        return drafts
    }

    /// Adds receipts for most of the new arrivals.
    private mutating func look(at arrivals: [AuditedArrival]) {
        for arrival in arrivals[arrivalsSeen...] where deliveries[arrival.apnsID] == .confirm {
            guard arrival.status == 200, random.chance(60) else { continue }
            offline.remove(arrival.deviceToken)
            receipts.append(JobDraft(arrival.deviceToken, .receipt(arrival.apnsID)))
        }
        arrivalsSeen = arrivals.count
    }

    private mutating func draft(at now: Int64) -> JobDraft {
        let index = Int.random(in: tokens.indices, using: &random)
        let token = tokens[index]
        switch Int.random(in: 0..<1000, using: &random) {
        case ..<120:
            if offline.remove(token) != nil { return JobDraft(token, .online) }
            offline.insert(token)
            return JobDraft(token, .offline)
        case ..<170: return JobDraft(token, .cancel(.collapse(topic: Self.topic, collapseID())))
        case ..<190:
            guard let recent = identifiers.randomElement(using: &random) else { break }
            return JobDraft(recent.token, .cancel(.notification(recent.identifier)))
        case ..<200:
            tokens[index] = random.hexadecimal(bytes: 32)
            changes[token] = tokens[index]
            return JobDraft(token, .tokenChanged(tokens[index]))
        case ..<203:
            tokens[index] = random.hexadecimal(bytes: 32)
            return JobDraft(token, .unregistered)
        default: break
        }
        return push(to: token, at: now)
    }

    private mutating func collapseID() -> String { "score-\(Int.random(in: 0..<4, using: &random))" }

    private mutating func push(to token: String, at now: Int64) -> JobDraft {
        var push = AuditedPush(apnsID: random.identifier(), topic: Self.topic)
        if random.chance(80) { push.collapseID = collapseID() }
        push.delivery = [.accept, .accept, .holdWhileOffline, .holdWhileOffline, .confirm]
            .randomElement(using: &random)!
        let second = now / 1_000 * 1_000
        switch Int.random(in: 0..<100, using: &random) {
        case ..<25: push.expiration = second + .random(in: 2...8, using: &random) * 1_000
        case ..<40: push.expiration = second + 3_600_000
        default: break
        }
        if random.chance(15) {
            let wait = Int64.random(in: 200...5_000, using: &random)
            if now + wait < push.expiration ?? .max { push.deliverAt = now + wait }
        }
        pushes += 1
        deliveries[push.apnsID] = push.delivery
        identifiers.append((token, push.apnsID))
        if identifiers.count > 100 { identifiers.removeFirst() }
        return JobDraft(
            token, .push(push),
            receiptTimeout: push.delivery == .confirm ? .random(in: 1...3, using: &random) : nil)
    }

    // MARK: The end

    /// Returns jobs that bring all devices online, those with former tokens too, and their missing receipts.
    mutating func settle(_ lives: StoreLives) -> [JobDraft] {
        var drafts: [JobDraft] = []
        var told: Set<String> = []
        let arrived = Dictionary(
            lives.history.arrivals.filter { $0.status == 200 }.map { ($0.apnsID, $0.deviceToken) },
            uniquingKeysWith: { $1 })
        for job in lives.open.sorted(by: { $0.place < $1.place }) {
            guard let push = job.push else { continue }
            if push.delivery == .confirm, let token = arrived[push.apnsID] {
                drafts.append(JobDraft(token, .receipt(push.apnsID)))
            }
            // A device stays offline when its token changes.
            var token: String? = job.deviceToken
            while let next = token {
                if told.insert(next).inserted { drafts.append(JobDraft(next, .online)) }
                token = changes[next]
            }
        }
        for token in tokens where offline.contains(token) && told.insert(token).inserted {
            drafts.append(JobDraft(token, .online))
        }
        offline = []
        return drafts
    }
}
