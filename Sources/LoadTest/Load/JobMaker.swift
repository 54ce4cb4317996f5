import Foundation
import SluiceModel

/// Device tokens of a load.
public enum TokenNames: Sendable {
    /// Tokens made from a seed. The simulator answers those that begin with ``stalePrefix`` with 410.
    case made(seed: UInt64)
    /// Tokens of the simulator's devices, by device and bundle identifier.
    case modelled(@Sendable (UInt32, String) -> String)
    /// Tokens of an allow-list.
    case listed([String])

    /// Beginning of the tokens that their devices no longer have.
    public static let stalePrefix = "dead"

    /// Returns a device's token, in hexadecimal digits.
    /// - Parameter isStale: the token before it, which the sender still knows.
    func token(_ device: UInt32, bundle: String, app: Int, generation: UInt32, isStale: Bool) -> String {
        switch self {
        case .modelled(let name): return name(device, bundle)
        case .listed(let tokens): return tokens[Int(device) % tokens.count]
        case .made(let seed):
            var random = SeededGenerator(
                seed: seed ^ (UInt64(device) << 32 | UInt64(generation) << 8 | UInt64(app)))
            let words = (random.next(), random.next(), random.next(), random.next())
            var text = String(unsafeUninitializedCapacity: 64) { buffer in
                Self.write(words.0, to: buffer, 0)
                Self.write(words.1, to: buffer, 16)
                Self.write(words.2, to: buffer, 32)
                Self.write(words.3, to: buffer, 48)
                return 64
            }
            let begins = text.hasPrefix(Self.stalePrefix)
            if isStale != begins { text = (isStale ? Self.stalePrefix : "0000") + text.dropFirst(4) }
            return text
        }
    }

    private static func write(_ word: UInt64, to buffer: UnsafeMutableBufferPointer<UInt8>, _ start: Int) {
        for digit in 0..<16 {
            let value = UInt8(truncatingIfNeeded: word >> UInt64(60 - 4 * digit)) & 15
            buffer[start + digit] = value < 10 ? 48 + value : 87 + value
        }
    }
}

/// Makes the jobs of a load. Equal seeds make equal jobs, whatever their times and however many producers make them.
public struct JobMaker: Sendable {
    public struct Made {
        public var job: EncodedJob
        /// Time from which the job's latency counts, in seconds since the beginning of the run: the intended time, the
        /// time of `deliver-at`, or the return of an offline device.
        public var due: Double
    }

    private let load: LoadScenario.Load
    private let apps: [LoadScenario.App]
    /// Rising sums of the shares of the apps and of the priorities.
    private let appShares: [Double]
    private let priorityShares: [Double]
    private let population: DevicePopulation
    private let names: TokenNames
    private let returnBegin: Double
    private let seed: UInt64
    private let hasChurn: Bool
    /// Generations of tokens that the sender has learnt from answers, by device.
    private var known: [UInt32: UInt32] = [:]

    /// - Parameter load: index of the load in the scenario.
    public init(_ scenario: LoadScenario, load index: Int, population: DevicePopulation, names: TokenNames) {
        load = scenario.loads[index]
        apps = scenario.apps
        appShares = Self.sums(scenario.appShares(of: load))
        priorityShares = Self.sums(load.priorities.map(\.share))
        self.population = population
        self.names = names
        returnBegin = scenario.returnBegin
        seed = scenario.seed &* 0x2545_F491_4F6C_DD1D &+ UInt64(index + 1) &* 0x9E37_79B9_7F4A_7C15
        hasChurn = scenario.devices.churnPerMinute > 0
    }

    private static func sums(_ shares: [Double]) -> [Double] {
        var sum = 0.0
        return shares.map {
            sum += $0
            return sum
        }
    }

    private static func choose(_ sums: [Double], _ random: inout SeededGenerator) -> Int {
        guard sums.count > 1, let all = sums.last else { return 0 }
        let place = Arrivals.unit(&random) * all
        return sums.firstIndex { place < $0 } ?? sums.count - 1
    }

    /// Makes a job.
    /// - Parameters:
    ///   - number: number of the job within its load.
    ///   - intended: intended time in seconds since the beginning of the run.
    ///   - epoch: beginning of the run in milliseconds since 1970.
    public mutating func make(
        _ number: Int, intended: Double, id: APNSID, epoch: Int64
    ) throws(JobError) -> Made {
        var random = SeededGenerator(seed: seed ^ UInt64(number) &* 0xD6E8_FEB8_6659_FD93)
        let app = Self.choose(appShares, &random)
        let device = population.draw(&random)
        let intendedMilliseconds = epoch + Int64(intended * 1_000)
        var isStale = false
        var generation: UInt32 = 0
        if hasChurn {
            generation = population.generation(of: device, at: intended)
            // The sender learns a new token from the answer to the first push at the former token.
            let first = population.generation(of: device, at: 0)
            isStale = known[device, default: first] < generation
            if isStale { known[device] = generation }
        }
        var push = PushDescription(
            deviceToken: names.token(
                device, bundle: apps[app].bundle, app: app, generation: generation, isStale: isStale),
            topic: apps[app].bundle + load.pushType.topicSuffix, pushType: load.pushType.rawValue,
            payload: payload(number, &random))
        push.apnsID = id.description
        push.createdAtMilliseconds = intendedMilliseconds
        let priority = load.priorities[Self.choose(priorityShares, &random)].priority
        if priority != 10 || load.pushType != .alert { push.priority = priority }
        if load.collapseShare > 0, Arrivals.unit(&random) < load.collapseShare {
            push.collapseIdentifier = "c\(random.next() % UInt64(load.collapseIdentifiers))"
        }
        push.ttl = load.ttl.map { Int64($0.rounded(.up)) }
        var due = intended
        if let after = load.deliverAfter {
            due += after.lowerBound + Arrivals.unit(&random) * (after.upperBound - after.lowerBound)
            push.deliverAtMilliseconds = epoch + Int64(due * 1_000)
        }
        if load.delivery != .accept { push.delivery = load.delivery.rawValue }
        if load.delivery == .holdWhileOffline, population.isOffline(device) {
            due = max(due, population.returnTime(device, begin: returnBegin))
        }
        if load.avoidsDuplicates { push.duplicates = "avoid" }
        return Made(job: try load.mode.encode(JobEncoder.binary(push), JobEncoder.structured(push)), due: due)
    }

    private func payload(_ number: Int, _ random: inout SeededGenerator) -> [UInt8] {
        let size = Int.random(in: load.payloadBytes, using: &random)
        if load.malformedShare > 0, Arrivals.unit(&random) < load.malformedShare {
            return Array("{\"aps\":".utf8)
        }
        let begin =
            load.pushType == .background
            ? #"{"aps":{"content-available":1},"n":\#(number),"text":""#
            : #"{"aps":{"alert":{"title":"\#(load.name)"},"sound":"default"},"n":\#(number),"text":""#
        var payload = Array(begin.utf8)
        payload.append(contentsOf: repeatElement(UInt8(ascii: "x"), count: max(0, size - payload.count - 2)))
        payload.append(contentsOf: #""}"#.utf8)
        return payload
    }
}

/// Device events of the offline devices: `offline` before the first phase, and `online` when they are back.
public struct PresenceEvents: Sendable {
    /// Device and app of each event, and the time of the return in seconds since the beginning of the run; ascending.
    public let returns: [(device: UInt32, app: Int, at: Double)]
    private let apps: [LoadScenario.App]
    /// Encoding of the events, by app.
    private let modes: [Int: JobMode]
    private let names: TokenNames

    /// Events for each app with a load whose pushes wait for offline devices. They have the mode of the first such load.
    public init(_ scenario: LoadScenario, population: DevicePopulation, names: TokenNames) {
        apps = scenario.apps
        self.names = names
        var modes: [Int: JobMode] = [:]
        for load in scenario.loads where load.delivery == .holdWhileOffline {
            for (index, share) in scenario.appShares(of: load).enumerated() where share > 0 {
                if modes[index] == nil { modes[index] = load.mode }
            }
        }
        self.modes = modes
        let used = modes.keys.sorted()
        let begin = scenario.returnBegin
        returns = population.offline.flatMap { device in
            used.map { (device, $0, population.returnTime(device, begin: begin)) }
        }.sorted { $0.2 < $1.2 }
    }

    /// Makes the event of a return, or of the device's absence before.
    /// - Parameter milliseconds: time of the event in milliseconds since 1970.
    public func job(_ index: Int, isOnline: Bool, milliseconds: Int64) throws(JobError) -> EncodedJob {
        let event = returns[index]
        var control = ControlDescription(
            .device,
            deviceToken: names.token(
                event.device, bundle: apps[event.app].bundle, app: event.app, generation: 0, isStale: false))
        control.event = isOnline ? "online" : "offline"
        control.occurredAtMilliseconds = milliseconds
        let mode = modes[event.app] ?? .binary
        return try mode.encode(JobEncoder.binary(control), JobEncoder.structured(control))
    }
}
