import SluiceModel
import StreamScheduling
import Testing

@testable import DeliveryCore

/// Backlogs of one topic, of which a share has wrong tokens. A minority never stops the topic, whenever APNs
/// answers.
struct TokenShareTests {
    /// Times after which APNs answers, by the kind of token.
    enum Times: CaseIterable {
        case wrongFirst, goodFirst, equal, random

        /// Returns the milliseconds until the answer.
        func draw(isWrong: Bool, _ generator: inout SeededGenerator) -> Int {
            switch self {
            case .wrongFirst: Int.random(in: isWrong ? 5...20 : 100...400, using: &generator)
            case .goodFirst: Int.random(in: isWrong ? 100...400 : 5...20, using: &generator)
            case .equal: 50
            case .random: Int.random(in: 1...400, using: &generator)
            }
        }
    }

    @Test(arguments: Times.allCases, [1, 10, 33, 45])
    func minorityNeverStopsTheTopic(_ times: Times, _ percent: Int) {
        let result = TokenBacklog.run(5_000, times, percent: percent)
        #expect(result.stop == nil)
        #expect(result.begun == 5_000)
        #expect(abs(result.wrong - 50 * percent) < 200, "the share is as asked for")
    }

    @Test(arguments: Times.allCases)
    func twoFifthsNeverStopTheTopic(_ times: Times) {
        let result = TokenBacklog.run(20_000, times, percent: 40)
        #expect(result.stop == nil)
        #expect(result.begun == 20_000)
    }

    /// Lost answers count neither way, and the rounds of their pushes end with them.
    @Test(arguments: Times.allCases)
    func lostAnswersDoNotMakeAMajority(_ times: Times) {
        let result = TokenBacklog.run(5_000, times, percent: 33, lostPercent: 15)
        #expect(result.stop == nil)
        #expect(result.begun == 5_000)
    }

    @Test(arguments: Times.allCases, [1, 5, 100])
    func wrongTokensAloneStopTheTopicSoon(_ times: Times, _ mostInFlight: Int) throws {
        let result = TokenBacklog.run(5_000, times, percent: 100, mostInFlight: mostInFlight)
        #expect(try #require(result.stop) <= 300)
        #expect(result.wrong >= 20)
    }

    @Test func lonelyWrongTokensStopTheTopicAtTheTwentieth() {
        let result = TokenBacklog.run(25, .equal, percent: 100, mostInFlight: 1)
        #expect(result.stop == 20)
    }

    /// Pushes in flight before the first answer delay the stop by about their number.
    @Test(arguments: Times.allCases, [0, 15])
    func manyPushesInFlightDelayTheStop(_ times: Times, _ lostPercent: Int) throws {
        let result = TokenBacklog.run(20_000, times, percent: 100, lostPercent: lostPercent)
        #expect(try #require(result.stop) <= 2_500)
    }

    @Test(arguments: Times.allCases, [75, 90])
    func majorityStopsTheTopic(_ times: Times, _ percent: Int) {
        #expect(TokenBacklog.run(20_000, times, percent: percent).stop != nil)
    }
}

/// A machine with many pushes of one topic, each to its own device, and an APNs that answers by a schedule.
private struct TokenBacklog: ~Copyable {
    struct Result {
        /// Pushes begun until all have ended, or the topic stopped.
        var begun = 0
        /// Answers that took a token for wrong.
        var wrong = 0
        /// Pushes begun before the topic stopped; nil when it didn't stop.
        var stop: Int?
    }

    private enum End { case good, wrong, lost }

    private var machine = DeliveryMachine(limits: DeliveryLimits(capacity: 2_048, knownDevices: 8), seed: 1)
    private var now = DeliveryTime(wallMilliseconds: 1_700_000_000_000, monotonicNanoseconds: 1_000_000_000)
    private var generator: SeededGenerator
    private let times: TokenShareTests.Times
    private let percent: Int
    private let lostPercent: Int
    /// Slots that wait for a stream, from the index on.
    private var queue: [UInt32] = []
    private var queueIndex = 0
    /// Ends of the pushes in flight, by the millisecond modulo the number of places.
    private var due: [[(slot: UInt32, end: End)]]
    private var inFlight = 0
    private var admitted = 0
    private var result = Result()

    private static let requestTimeout = 2_000

    private init(_ times: TokenShareTests.Times, percent: Int, lostPercent: Int) {
        self.times = times
        self.percent = percent
        self.lostPercent = lostPercent
        generator = SeededGenerator(seed: UInt64(percent))
        due = Array(repeating: [], count: Self.requestTimeout + 1)
    }

    /// Sends pushes until all have ended, or the topic stops.
    static func run(
        _ pushes: Int, _ times: TokenShareTests.Times, percent: Int, lostPercent: Int = 0,
        mostInFlight: Int = 1_000
    ) -> Result {
        var backlog = TokenBacklog(times, percent: percent, lostPercent: lostPercent)
        backlog.run(pushes, mostInFlight)
        return backlog.result
    }

    private mutating func run(_ pushes: Int, _ mostInFlight: Int) {
        var time = 0
        while result.stop == nil, admitted < pushes || inFlight > 0 || queueIndex < queue.count {
            while admitted < pushes, machine.hasFreeSlot { admit() }
            while inFlight < mostInFlight, queueIndex < queue.count { begin(at: time) }
            time += 1
            now.wallMilliseconds += 1
            now.monotonicNanoseconds += 1_000_000
            let ends = due[time % due.count]
            due[time % due.count] = []
            for (slot, end) in ends where result.stop == nil { self.end(slot, end) }
        }
    }

    private mutating func admit() {
        let facts = PushFacts(
            device: DeviceKey(high: 1, low: UInt64(admitted)), notificationKey: UInt64(admitted + 1),
            topic: 0, partition: 0, offset: Int64(admitted), createdMilliseconds: now.wallMilliseconds,
            duplicates: .avoid)
        _ = machine.admit(facts, at: now)
        admitted += 1
        drain()
    }

    private mutating func begin(at time: Int) {
        let slot = queue[queueIndex]
        queueIndex += 1
        guard machine.beginAttempt(slot, at: now) else { return drain() }
        result.begun += 1
        inFlight += 1
        let isWrong = Int.random(in: 0..<100, using: &generator) < percent
        let isLost = Int.random(in: 0..<100, using: &generator) < lostPercent
        let wait = isLost ? Self.requestTimeout : times.draw(isWrong: isWrong, &generator)
        due[(time + wait) % due.count].append((slot, isLost ? .lost : isWrong ? .wrong : .good))
    }

    private mutating func end(_ slot: UInt32, _ end: End) {
        inFlight -= 1
        switch end {
        case .good: machine.accepted(slot, at: now)
        case .wrong:
            result.wrong += 1
            machine.answered(slot, AttemptAnswer(class: .token, reason: .badDeviceToken), at: now)
        case .lost: machine.failed(slot, processed: true, at: now)
        }
        drain()
    }

    private mutating func drain() {
        while let action = machine.nextAction() {
            switch action {
            case .enqueue(let slot, _): queue.append(slot)
            case .finish(let slot, _, _, _): machine.release(slot)
            case .alert: result.stop = result.begun
            default: break
            }
        }
    }
}
