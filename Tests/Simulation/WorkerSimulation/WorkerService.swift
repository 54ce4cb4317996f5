import EventLoop
import Kafka
import SluiceModel

/// The services that produce jobs, and the devices that report.
final class WorkerService {
    private let scenario: WorkerScenario
    private let scheduler: Scheduler
    /// Produces a record and returns its offset.
    private let produce: (EncodedJob, Int32) -> Int64
    /// Returns the number of the jobs topic's partitions.
    private let partitions: () -> Int32
    /// Receives each record.
    private let produced: (WorkerJob) -> Void
    /// Number of records so far.
    private var count = 0
    private var tokens: [Token] = []
    private var devices: [Device] = []
    /// Pushes that devices have shown, whose receipts are to come.
    private var receipts: [(push: Int, token: Int)] = []
    /// The last pushes, with what a cancel or a repetition needs.
    private var recent: [WorkerJob] = []
    /// Whether the devices are online and report everything.
    private var isHealthy = false

    private struct Token {
        var device: Int
        /// Milliseconds since the epoch since which APNs refuses the token; 0 while it is valid.
        var invalidSince: Int64 = 0
        var registeredAt: Int64
    }

    private struct Device {
        /// Number of its token of now.
        var token: Int
        var isOnline = true
        /// Pushes that APNs keeps for the device while it is offline.
        var kept: [Int] = []
    }

    /// Topics without those of Live Activities.
    static let topics = ["com.example.news", "com.example.mail", "com.example.chat"]
    private static let unknownTopic = "org.example.unknown"
    private static let stateSuffix = ".push-type.liveactivity"

    init(
        _ scenario: WorkerScenario, _ scheduler: Scheduler, partitions: @escaping () -> Int32,
        produce: @escaping (EncodedJob, Int32) -> Int64, produced: @escaping (WorkerJob) -> Void
    ) {
        self.scenario = scenario
        self.scheduler = scheduler
        self.partitions = partitions
        self.produce = produce
        self.produced = produced
        for number in 0..<scenario.devices {
            devices.append(Device(token: number))
            tokens.append(Token(device: number, registeredAt: now - 1000))
        }
    }

    /// Milliseconds since the epoch since which APNs refuses a token; nil while the token is valid.
    func invalidSince(_ token: Int) -> Int64? {
        let since = tokens[token].invalidSince
        return since > 0 ? since : nil
    }

    // MARK: Records

    /// Produces a record.
    func produceOne() {
        if chance(scenario.invalidPerMille) { return produceInvalid() }
        if chance(scenario.eventsPerMille),
            let event = scenario.events.randomElement(using: &scheduler.random)
        {
            switch event {
            case .cancel: cancel()
            case .presence: changePresence()
            case .receipt: sendReceipt()
            case .tokenChange: changeToken()
            case .unregistration: changeRegistration()
            case .erasure: report(.erase, of: devices[anyDevice()].token)
            }
            return
        }
        let device = anyDevice()
        if device < scenario.channels { return produceBroadcast(device) }
        // Services learn of new tokens late.
        producePush(chance(30) ? draw(scenario.channels...tokens.count - 1) : devices[device].token)
    }

    private func append(_ job: WorkerJob, _ record: EncodedJob) {
        var job = job
        job.created = now
        job.producedAt = scheduler.now
        job.offset = produce(encode(record, job), job.partition)
        count += 1
        if job.kind == .push {
            recent.append(job)
            if recent.count > 60 { recent.removeFirst() }
        }
        produced(job)
    }

    /// Writes some records in packed mode, and some with a large header that is no field.
    private func encode(_ record: EncodedJob, _ job: WorkerJob) -> EncodedJob {
        var record = record
        if scenario.maxInFlightBytes != nil, chance(500) {
            record.headers.append(("note", [UInt8](repeating: 120, count: draw(500...20_000))))
        }
        guard job.kind != .invalid, !record.headers.isEmpty, record.headers[0].name != "content-type",
            chance(200)
        else { return record }
        return (try? JobEncoder.packed(record)) ?? record
    }

    private func job(_ kind: WorkerJob.Kind, _ token: Int) -> WorkerJob {
        WorkerJob(kind: kind, token: token, partition: Int32(token) % partitions())
    }

    private func produceInvalid() {
        let job = job(.invalid, devices[anyDevice()].token)
        var encoded = JobEncoder.binary(
            PushDescription(
                deviceToken: WorkerJob.token(job.token), topic: "", payload: WorkerJob.payload(count)))
        if chance(300) { enlarge(&encoded) }
        append(job, encoded)
    }

    /// Makes a part of a record so large that its dead letter may not fit.
    private func enlarge(_ record: inout EncodedJob) {
        let bytes = [UInt8](repeating: 120, count: draw(500...6000))
        switch draw(0...2) {
        case 0: record.value += bytes
        case 1: record.key = bytes
        default: record.headers.append(("x-large", bytes))
        }
    }

    private func producePush(_ token: Int) {
        var job = job(.push, token)
        job.topic = chance(5) ? Self.unknownTopic : Self.topics[topic(of: token)]
        job.identifier = chance(200) ? -1 - count : count
        if chance(600) { job.collapse = "c\(draw(1...scenario.collapses))" }
        if wants(.states) {
            job.topic += Self.stateSuffix
            job.isState = job.collapse == nil
            job.isFinal = job.isState && chance(300)
        }
        if wants(.sameIdentifiers), let other = recent.last, other.identifier >= 0, !job.isState {
            job = self.job(.push, other.token)
            (job.topic, job.identifier) = (other.topic, other.identifier)
            job.isState = job.topic.hasSuffix(Self.stateSuffix)
        }
        drawTerms(&job)
        if wants(.registrations) || chance(200) { job.registeredAt = tokens[job.token].registeredAt }
        if wants(.holds) { job.delivery = .holdWhileOffline }
        if wants(.confirmations) {
            job.delivery = .confirm
            // Longer than the shortest wait for a device that is presumed to be offline, or much shorter.
            job.receiptTimeout = UInt64(chance(200) ? draw(90...200) : draw(1...15))
        }
        let isActivity = job.topic.hasSuffix(Self.stateSuffix)
        if isActivity { job.priority = max(job.priority, 5) }
        var push = PushDescription(
            deviceToken: WorkerJob.token(job.token), topic: job.topic,
            pushType: isActivity ? "liveactivity" : "alert",
            payload: WorkerJob.payload(count, event: isActivity ? (job.isFinal ? "end" : "update") : nil))
        push.collapseIdentifier = job.collapse
        if job.identifier >= 0 { push.apnsID = "\(WorkerJob.identifier(job.identifier))" }
        (push.expiration, push.ttl) = lifetime(job)
        push.deliverAtMilliseconds = job.due > 0 ? job.due : nil
        push.priority = job.priority
        push.registeredAtMilliseconds = job.registeredAt
        if job.avoidsDuplicates { push.duplicates = "avoid" }
        if job.delivery != .accept { push.delivery = "\(job.delivery.name)" }
        if job.delivery == .confirm { push.receiptTimeoutSeconds = Int64(job.receiptTimeout) }
        append(job, chance(150) ? JobEncoder.structured(push) : JobEncoder.binary(push))
    }

    /// Returns the number of the topic of a token's next push. Where an app is in trouble, each device has one app.
    private func topic(of token: Int) -> Int {
        guard scenario.trouble != nil else { return draw(0...scenario.topics - 1) }
        return token % 4 == 0 ? 1 + token / 4 % (scenario.topics - 1) : 0
    }

    private func produceBroadcast(_ channel: Int) {
        var job = job(.broadcast, channel)
        job.topic = Self.topics[0]
        job.identifier = count
        drawTerms(&job)
        if job.expires == .max, !job.isOnce { job.expires = (now / 1000 + Int64(draw(30...300))) * 1000 }
        var broadcast = BroadcastDescription(
            channelIdentifier: WorkerJob.channel(channel), topic: job.topic,
            payload: WorkerJob.payload(count, event: "update"))
        broadcast.apnsID = "\(WorkerJob.identifier(job.identifier))"
        (broadcast.expiration, broadcast.ttl) = lifetime(job)
        broadcast.deliverAtMilliseconds = job.due > 0 ? job.due : nil
        broadcast.priority = job.priority
        if job.avoidsDuplicates { broadcast.duplicates = "avoid" }
        append(job, chance(150) ? JobEncoder.structured(broadcast) : JobEncoder.binary(broadcast))
    }

    private func drawTerms(_ job: inout WorkerJob) {
        if wants(.once) {
            job.isOnce = true
        } else if chance(500) {
            job.expires = (now / 1000 + Int64(draw(2...Int(scenario.life)))) * 1000
        }
        if chance(scenario.laterPerMille) { job.due = now + Int64(draw(1...scenario.longestDelay)) }
        job.priority = wants(.priorities) ? [1, 5][draw(0...1)] : chance(300) ? 5 : 10
        job.avoidsDuplicates = wants(.avoidance)
    }

    /// Returns the fields `apns-expiration` and `ttl`, of which a record has at most one.
    private func lifetime(_ job: WorkerJob) -> (expiration: Int64?, ttl: Int64?) {
        if job.isOnce { return chance(500) ? (0, nil) : (nil, 0) }
        return (job.expires == .max ? nil : job.expires / 1000, nil)
    }

    private func cancel() {
        guard let push = recent.randomElement(using: &scheduler.random) else { return }
        var description = ControlDescription(.cancel, deviceToken: WorkerJob.token(push.token))
        let target: WorkerJob.Target
        if let collapse = push.collapse, chance(700) || push.identifier < 0 {
            target = .collapse(collapse, topic: push.topic)
            (description.collapseIdentifier, description.topic) = (collapse, push.topic)
        } else if push.identifier >= 0 {
            target = .identifier(push.identifier)
            description.apnsID = "\(WorkerJob.identifier(push.identifier))"
        } else {
            return
        }
        append(
            job(.cancel(target), push.token),
            chance(150) ? JobEncoder.structured(description) : JobEncoder.binary(description))
    }

    // MARK: Devices

    private func report(_ kind: WorkerJob.Kind, of token: Int) {
        guard token >= scenario.channels else { return }
        var job = job(kind, token)
        // Some services report by seconds, so that reports of the same moment follow each other.
        job.occurred = kind.reportsPresence && token % 2 == 0 ? now / 1000 * 1000 : now
        var description = ControlDescription(.device, deviceToken: WorkerJob.token(token))
        description.occurredAtMilliseconds = job.occurred
        switch kind {
        case .online: description.event = "online"
        case .offline: description.event = "offline"
        case .receipt(let push):
            description.event = "receipt"
            description.apnsID = "\(WorkerJob.identifier(push))"
        case .tokenChanged(let new):
            description.event = "token-changed"
            description.newDeviceToken = WorkerJob.token(new)
        case .unregistered: description.event = "unregistered"
        default: description.event = "erase"
        }
        append(job, chance(150) ? JobEncoder.structured(description) : JobEncoder.binary(description))
    }

    private func changePresence() {
        let number = anyDevice()
        guard number >= scenario.channels else { return }
        devices[number].isOnline.toggle()
        let isOnline = devices[number].isOnline
        if chance(850) { report(isOnline ? .online : .offline, of: devices[number].token) }
        if isOnline { showKept(number) }
    }

    /// APNs has accepted a push that asks for a receipt. Its device shows it now, or when it is back.
    func accepted(_ push: WorkerJob, token: Int) {
        let device = tokens[token].device
        guard push.delivery == .confirm, push.identifier >= 0 else { return }
        if devices[device].isOnline {
            show(push.identifier, device)
        } else {
            devices[device].kept.append(push.identifier)
        }
    }

    private func showKept(_ device: Int) {
        for push in devices[device].kept { show(push, device) }
        devices[device].kept = []
    }

    private func show(_ push: Int, _ device: Int) {
        guard isHealthy || chance(800), receipts.count < 100 else { return }
        receipts.append((push, devices[device].token))
        guard isHealthy else { return }
        scheduler.schedule(after: 1 + scheduler.below(200_000_000)) { [unowned self] in sendReceipt() }
    }

    private func sendReceipt() {
        guard !receipts.isEmpty else { return }
        let receipt = receipts.remove(at: draw(0...receipts.count - 1))
        report(.receipt(of: receipt.push), of: receipt.token)
    }

    private func changeToken() {
        let device = anyDevice()
        let old = devices[device].token
        guard device >= scenario.channels, tokens.count < scenario.devices + 24 else { return }
        devices[device].token = tokens.count
        tokens.append(Token(device: device, registeredAt: now))
        if tokens[old].invalidSince == 0 { tokens[old].invalidSince = now }
        if chance(800) { report(.tokenChanged(to: devices[device].token), of: old) }
    }

    /// A device gives up its app, or registers again.
    private func changeRegistration() {
        let device = anyDevice()
        let token = devices[device].token
        guard device >= scenario.channels else { return }
        if tokens[token].invalidSince == 0 {
            tokens[token].invalidSince = now
            if chance(600) { report(.unregistered, of: token) }
        } else {
            tokens[token].invalidSince = 0
            tokens[token].registeredAt = now + 1
        }
    }

    // MARK: The end

    /// From now on all devices are online, and send all receipts.
    func heal() {
        isHealthy = true
        for number in devices.indices {
            devices[number].isOnline = true
            showKept(number)
        }
        while !receipts.isEmpty { sendReceipt() }
    }

    /// Reports that devices are online, so that pushes to these tokens needn't wait for them.
    func reportOnline(_ tokens: [Int]) {
        for token in tokens { report(.online, of: token) }
    }

    // MARK: Inside

    private var now: Int64 { wallClockMilliseconds() }

    /// Returns a device, or a channel.
    private func anyDevice() -> Int {
        chance(scenario.hotPerMille) ? draw(0...min(3, devices.count) - 1) : draw(0...devices.count - 1)
    }

    private func wants(_ policy: WorkerPolicy) -> Bool { chance(scenario.policies[policy] ?? 0) }
    private func draw(_ range: ClosedRange<Int>) -> Int { Int.random(in: range, using: &scheduler.random) }
    private func chance(_ perMille: Int) -> Bool { perMille > 0 && draw(0...999) < perMille }
}
