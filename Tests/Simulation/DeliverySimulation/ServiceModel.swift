import DeliveryCore
import SluiceModel

/// A device token as APNs and the service know it.
struct DeviceToken {
    var device: Int
    var key: DeviceKey
    /// Moment since which APNs rejects the token, in milliseconds since the epoch; 0 while the token is valid.
    var invalidSince: Int64 = 0
    var registeredAt: Int64
    /// The record that reports the device's next token, -1 for none.
    var change = -1
}

struct Device {
    var token: Int
    var isOnline = true
    /// Whether the device never reports a receipt.
    var isMute = false
    /// Pushes that APNs keeps for the device while it is offline: the last push of each topic, -1 for none.
    var kept: [Int]
}

/// The service that produces the jobs, and the devices that report.
extension World {
    func makeDevices() {
        for number in 0..<scenario.devices {
            var device = Device(token: number, kept: [Int](repeating: -1, count: scenario.topics))
            device.isMute = draw.chance(scenario.mutePerMille)
            devices.append(device)
            newToken(device: number)
        }
        lastCreated = trueMilliseconds
    }

    /// Returns whether the token stands for a channel, whose pushes are broadcasts.
    func isChannel(_ token: Int) -> Bool { tokens[token].device < scenario.channels }

    private func newToken(device: Int) {
        let key = DeviceKey(high: draw.generator.next(), low: draw.generator.next())
        tokenByKey[key.low] = tokens.count
        tokens.append(DeviceToken(device: device, key: key, registeredAt: trueMilliseconds))
    }

    func partition(of token: Int) -> Int { Int(tokens[token].key.high % UInt64(scenario.partitions)) }
    func shard(of token: Int) -> Int { Int((tokens[token].key.high >> 32) % UInt64(scenario.shards)) }

    private func append(_ kind: RecordKind, token: Int, subject: Int = -1, target: CancelTarget? = nil) -> Int
    {
        let gap = scenario.hasGaps && draw.chance(100) ? draw.among(1...40) : 0
        if gap > 0 { counts[.gap] += 1 }
        // Some services report by seconds, so that reports of the same moment follow each other.
        let isPresence = [.online, .offline, .receipt].contains(kind)
        let occurred = isPresence && token % 2 == 0 ? trueMilliseconds / 1000 * 1000 : trueMilliseconds
        var record = Record(
            kind: kind, partition: partition(of: token), offset: 0, token: token, subject: subject,
            occurred: occurred)
        if let target { record.target = target }
        return log.append(record, gap: gap)
    }

    /// Returns a drawn device, often one of the few that get many pushes.
    private func anyDevice() -> Int {
        draw.chance(scenario.hotPerMille) ? draw.below(min(3, devices.count)) : draw.below(devices.count)
    }

    // MARK: Pushes

    func producePush() {
        let device = anyDevice()
        // Services learn of new tokens late.
        var token = devices[device].token
        if draw.chance(30) { token = draw.below(tokens.count) }
        let number = jobs.count
        let topic = draw.below(scenario.topics)
        var collapse = draw.chance(scenario.plainPerMille) ? 0 : draw.among(1...scenario.collapses)
        var apns = number
        if number > 0, draw.chance(scenario.sameIDPerMille) {
            let other = jobs[max(0, number - 1 - draw.below(8))]
            apns = other.apns
            token = other.token
        }
        if isChannel(token) { collapse = 0 }
        // The moment of creation decides which of two pushes is newer.
        lastCreated = max(lastCreated + 1, trueMilliseconds)
        let record = append(.push, token: token, subject: number)
        var facts = PushFacts(
            device: tokens[token].key, collapseKey: UInt64(collapse), notificationKey: UInt64(apns + 1),
            topic: UInt16(topic), pool: UInt16(topic % scenario.pools), partition: 0,
            offset: log.records[record].offset, createdMilliseconds: lastCreated)
        drawTerms(&facts, token)
        jobs.append(
            Job(
                record: record, token: token, topic: topic, collapse: collapse, apns: apns, facts: facts,
                bytes: draw.among(20...4096)))
        begun.append(Seen())
        shown.append(Seen())
        happened(.push)
        note("push # for token #, collapse #", number, token, collapse)
    }

    private func drawTerms(_ facts: inout PushFacts, _ token: Int) {
        let now = trueMilliseconds
        let lives = draw.below(100)
        if draw.chance(scenario.oncePerMille) {
            facts.isOnce = true
        } else if lives < 35 {
            facts.expirationMilliseconds = now + Int64(draw.below(20_000)) - 200
        } else if lives < 60 {
            facts.expirationMilliseconds = now + Int64(draw.among(20_000...600_000))
        }
        if draw.chance(scenario.schedulePerMille) {
            facts.deliverAtMilliseconds = now + Int64(draw.spread(1...120_000))
        }
        if draw.chance(scenario.coalescePerMille) {
            facts.coalesceWindowMilliseconds = UInt32(draw.among(1...8000))
        }
        let mode = draw.below(1000)
        if mode < scenario.holdPerMille {
            facts.delivery = .holdWhileOffline
        } else if mode < scenario.holdPerMille + scenario.confirmPerMille {
            facts.delivery = .confirm
            facts.receiptTimeoutSeconds = UInt32(draw.among(1...20))
        }
        facts.duplicates = draw.chance(scenario.avoidPerMille) ? .avoid : .allow
        facts.priority = [Priority.immediate, .powerAware, .lowPower][draw.below(3)]
        if draw.chance(600) { facts.registeredAtMilliseconds = tokens[token].registeredAt }
        if isChannel(token) {
            facts.isOrdered = true
            facts.delivery = .accept
            // Long enough for later broadcasts to overtake it.
            if facts.deliverAtMilliseconds > 0 {
                facts.deliverAtMilliseconds = now + Int64(draw.among(1...20_000))
            }
            counts[.broadcast] += 1
        } else if facts.collapseKey != 0, scenario.finalPerMille > 0, draw.chance(scenario.finalPerMille) {
            facts.isFinal = true
            counts[.finalPush] += 1
        }
    }

    func produceCancel() {
        guard !jobs.isEmpty else { return }
        let job = jobs[max(0, jobs.count - 1 - draw.spread(0...60))]
        let target: CancelTarget =
            job.collapse != 0 && draw.chance(700)
            ? .collapseKey(UInt64(job.collapse), topic: draw.chance(500) ? UInt16(job.topic) : nil)
            : .notificationKey(UInt64(job.apns + 1))
        _ = append(.cancel, token: job.token, target: target)
        happened(.cancel)
        note("cancel like push # of token #", job.apns, job.token)
    }

    // MARK: Devices

    func changePresence() {
        let number = anyDevice()
        guard number >= scenario.channels else { return }
        let isOnline = !devices[number].isOnline
        devices[number].isOnline = isOnline
        let token = devices[number].token
        if draw.chance(850) {
            if isOnline {
                reportOnline(token)
            } else {
                _ = append(.offline, token: token)
                happened(.offline)
                note("token # is offline", token)
            }
        }
        if isOnline { showKept(number) }
    }

    func reportOnline(_ token: Int) {
        _ = append(.online, token: token)
        happened(.online)
        note("token # is online", token)
        if isHealthy { showKept(tokens[token].device) }
    }

    private func showKept(_ number: Int) {
        for topic in 0..<scenario.topics where devices[number].kept[topic] >= 0 {
            show(devices[number].kept[topic], device: number)
            devices[number].kept[topic] = -1
        }
    }

    /// Delivers a push that APNs has accepted. Its device shows it now, or after its return if nothing newer follows.
    func deliver(_ job: Int, token: Int) {
        let device = tokens[token].device
        if devices[device].isOnline {
            show(job, device: device)
        } else {
            devices[device].kept[jobs[job].topic] = job
        }
    }

    private func show(_ job: Int, device: Int) {
        guard jobs[job].facts.delivery == .confirm, !devices[device].isMute, isHealthy || draw.chance(800)
        else {
            return
        }
        receipts.append((token: devices[device].token, job: job))
    }

    func sendReceipt() {
        guard !receipts.isEmpty else { return }
        let index = draw.below(receipts.count)
        let receipt = receipts[index]
        receipts.swapAt(index, receipts.count - 1)
        receipts.removeLast()
        _ = append(.receipt, token: receipt.token, subject: receipt.job)
        happened(.receipt)
        note("receipt of push # from token #", receipt.job, receipt.token)
    }

    /// A device gets a new token, gives up its app, or registers again.
    func changeToken() {
        let device = anyDevice()
        guard device >= scenario.channels else { return }
        let old = devices[device].token
        let isValid = tokens[old].invalidSince == 0
        let drawn = draw.below(100)
        if drawn < 50, tokens.count < scenario.tokens {
            newToken(device: device)
            let new = tokens.count - 1
            devices[device].token = new
            if isValid { tokens[old].invalidSince = trueMilliseconds }
            note("token # becomes #", old, new)
            guard draw.chance(800) else { return }
            tokens[old].change = append(.tokenChanged, token: old, subject: new)
            happened(.tokenChanged)
        } else if drawn < 75, isValid {
            tokens[old].invalidSince = trueMilliseconds
            note("token # is unregistered", old)
            guard draw.chance(600) else { return }
            _ = append(.unregistered, token: old)
            happened(.unregistered)
        } else if !isValid {
            tokens[old].invalidSince = 0
            tokens[old].registeredAt = trueMilliseconds + 1
            note("token # is registered again", old)
        }
    }
}
