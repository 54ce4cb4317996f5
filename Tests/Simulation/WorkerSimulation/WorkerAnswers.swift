import EventLoop
import SluiceModel

/// Kinds of answers of a simulated APNs other than 200.
enum WorkerAnswer: CaseIterable {
    case badToken, badJob, gone, tooManyRequests, unavailable, internalError, shutdown, idleTimeout,
        unknownReason,
        refusedStream, reset, silence, goAway, expiredProviderToken, forbidden
    /// For a while APNs answers all pushes of a device, a topic, or all pushes so.
    case busyDevice, overload, refusedTopic, refusedKey, wrongTokens
    /// APNs counts too many provider tokens. The worker then rests for minutes, so that few worlds have this answer.
    case tokenUpdates
}

/// Answers of a simulated APNs.
final class WorkerAnswers {
    private let scenario: WorkerScenario
    private let scheduler: Scheduler
    private let service: WorkerService
    /// Whether all is well but tokens that are invalid.
    private var isHealthy = false
    /// Nanoseconds until which APNs answers all pushes of a token by 429.
    private var busyTokens: [Int: UInt64] = [:]
    /// Nanoseconds until which APNs refuses a topic, and the reason.
    private var badTopics: [String: (until: UInt64, reason: String)] = [:]
    /// Nanoseconds until which APNs refuses the key.
    private var keyRefusedUntil: UInt64 = 0
    /// Nanoseconds until which APNs answers most pushes by 503.
    private var overloadedUntil: UInt64 = 0

    private static let second: UInt64 = 1_000_000_000

    init(_ scenario: WorkerScenario, _ scheduler: Scheduler, _ service: WorkerService) {
        self.scenario = scenario
        self.scheduler = scheduler
        self.service = service
    }

    func heal() { isHealthy = true }

    /// Answers a push.
    /// - Parameter token: token of the request.
    func answer(_ job: WorkerJob, token: Int) -> SimulatedAPNS.Answer {
        if job.kind == .push, let since = service.invalidSince(token) {
            return isHealthy || chance(900)
                ? .status(410, "Unregistered", timestamp: since) : .status(400, "BadDeviceToken")
        }
        guard !isHealthy else { return .accepted }
        if let trouble = scenario.trouble, job.topic == WorkerService.topics[0] {
            return answer(of: trouble)
        }
        if let answer = spell(job, token) { return answer }
        guard chance(scenario.badAnswerPerMille),
            let answer = scenario.answers.randomElement(using: &scheduler.random)
        else { return .accepted }
        return begin(answer, job, token)
    }

    /// Returns the answer while APNs is in trouble; nil while it isn't.
    private func spell(_ job: WorkerJob, _ token: Int) -> SimulatedAPNS.Answer? {
        let now = scheduler.now
        if keyRefusedUntil > now { return .status(403, "InvalidProviderToken") }
        if overloadedUntil > now, chance(800) {
            return chance(600)
                ? .status(503, "ServiceUnavailable", retryAfter: draw(1...30))
                : .status(500, "InternalServerError")
        }
        if let bad = badTopics[job.topic], bad.until > now {
            return .status(400, bad.reason)
        }
        if let until = busyTokens[token], until > now {
            return .status(429, "TooManyRequests", retryAfter: retryAfter())
        }
        return nil
    }

    /// Returns the answer to each push of an app in trouble.
    private func answer(of trouble: WorkerScenario.Trouble) -> SimulatedAPNS.Answer {
        switch trouble {
        case .unavailable: .status(503, "ServiceUnavailable")
        case .retryAfter: .status(503, "ServiceUnavailable", retryAfter: 60)
        case .internalError: .status(500, "InternalServerError")
        case .refusedStreams: .reset(errorCode: 7)
        case .silence, .cap: .none
        case .busyDevices: .status(429, "TooManyRequests", retryAfter: draw(1...60))
        case .refusedTopic: .status(400, "TopicDisallowed")
        case .pace: .accepted
        }
    }

    private func begin(_ answer: WorkerAnswer, _ job: WorkerJob, _ token: Int) -> SimulatedAPNS.Answer {
        switch answer {
        case .badToken: return .status(400, chance(500) ? "BadDeviceToken" : "DeviceTokenNotForTopic")
        case .badJob:
            let (status, reason): (UInt16, String) =
                [(413, "PayloadTooLarge"), (400, "BadTopic"), (404, "BadPath")][draw(0...2)]
            return .status(status, reason)
        case .gone:
            let since = wallClockMilliseconds() - Int64(draw(0...20_000))
            return .status(
                410, chance(800) ? "Unregistered" : "ExpiredToken", timestamp: chance(800) ? since : nil)
        case .tooManyRequests: return .status(429, "TooManyRequests", retryAfter: retryAfter())
        case .unavailable: return .status(503, "ServiceUnavailable", retryAfter: retryAfter())
        case .internalError:
            return .status(500, "InternalServerError", retryAfter: chance(200) ? draw(1...5) : nil)
        case .shutdown: return .status(503, "Shutdown")
        case .idleTimeout: return .status(400, "IdleTimeout")
        case .unknownReason: return .status([408, 502, 507][draw(0...2)], "SomethingNew")
        case .refusedStream: return .reset(errorCode: 7)
        case .reset: return .reset(errorCode: [2, 8][draw(0...1)])
        case .silence: return .none
        case .goAway:
            return .goAway(reason: ["Shutdown", "IdleTimeout", ""][draw(0...2)], atOnce: chance(300))
        case .expiredProviderToken: return .status(403, "ExpiredProviderToken")
        case .forbidden: return .status(403, "Forbidden")
        case .tokenUpdates: return .status(429, "TooManyProviderTokenUpdates")
        case .busyDevice: busyTokens[token] = scheduler.now + spell(1...10)
        case .overload: overloadedUntil = scheduler.now + spell(1...8)
        case .refusedTopic: badTopics[job.topic] = (scheduler.now + spell(1...20), "TopicDisallowed")
        case .refusedKey: keyRefusedUntil = scheduler.now + spell(1...10)
        case .wrongTokens: badTopics[job.topic] = (scheduler.now + spell(5...30), "BadDeviceToken")
        }
        return spell(job, token) ?? .accepted
    }

    private func retryAfter() -> Int? { chance(700) ? draw(1...40) : nil }
    private func spell(_ seconds: ClosedRange<Int>) -> UInt64 { UInt64(draw(seconds)) * Self.second }
    private func draw(_ range: ClosedRange<Int>) -> Int { Int.random(in: range, using: &scheduler.random) }
    private func chance(_ perMille: Int) -> Bool { draw(0...999) < perMille }
}
