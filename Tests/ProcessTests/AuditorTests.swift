import SluiceModel
import Testing

/// An invented history of one device, with one collapse identifier unless the test sets another.
private struct Story {
    static let token = String(repeating: "ab", count: 32)
    static let other = String(repeating: "cd", count: 32)
    var history = AuditedHistory()
    private var next: Int64 = 0

    init() { history.lives = [WorkerLife(start: 0)] }

    @discardableResult
    mutating func job(
        _ kind: AuditedJob.Kind, at time: Int64, token: String = Story.token
    ) -> JobPlace {
        let place = JobPlace(0, next)
        next += 1
        history.jobs[place] = AuditedJob(place: place, deviceToken: token, kind: kind, produced: time)
        return place
    }

    @discardableResult
    mutating func push(
        at time: Int64, _ change: (inout AuditedPush) -> Void = { _ in }, token: String = Story.token
    ) -> JobPlace {
        var push = AuditedPush(apnsID: "id-\(next)", topic: "com.example.news", collapseID: "x")
        change(&push)
        return job(.push(push), at: time, token: token)
    }

    @discardableResult
    mutating func event(_ event: AuditedJob.DeviceEvent, at time: Int64) -> JobPlace {
        let place = job(.event(event), at: time)
        outcome(place, .applied, at: time + 10)
        return place
    }

    mutating func arrives(_ place: JobPlace, at time: Int64, status: Int = 200, token: String = Story.token) {
        history.arrivals.append(
            AuditedArrival(time: time, apnsID: "id-\(place.offset)", deviceToken: token, status: status))
    }

    mutating func outcome(
        _ place: JobPlace, _ kind: OutcomeKind, at time: Int64, by successor: JobPlace? = nil
    ) {
        let isPush = history.jobs[place]?.push != nil
        history.outcomes.append(
            AuditedOutcome(
                place, kind, deviceToken: history.jobs[place]?.deviceToken ?? Story.token,
                apnsID: isPush ? "id-\(place.offset)" : "derived",
                supersededBy: successor.map { "id-\($0.offset)" }, finished: time, read: time + 5))
    }

    /// Adds an accepted push and its outcome.
    mutating func delivered(_ place: JobPlace, at time: Int64, token: String = Story.token) {
        arrives(place, at: time, token: token)
        outcome(place, .accepted, at: time + 10)
    }

    mutating func killed(at time: Int64, settled: Set<JobPlace> = []) {
        history.lives[history.lives.count - 1].end = .killed
        history.lives[history.lives.count - 1].settled = settled
        history.lives.append(WorkerLife(start: time))
    }

    mutating func stopped(at time: Int64, settled: Set<JobPlace> = []) {
        history.lives[history.lives.count - 1].end = .stopped
        history.lives[history.lives.count - 1].settled = settled
        history.lives.append(WorkerLife(start: time))
    }

    var broken: [AuditViolation.Promise] { Auditor(history).violations.map(\.promise) }
}

/// The auditor reports planted violations, and nothing in a correct history.
@Suite("Auditor of whole processes")
struct AuditorTests {
    @Test func orderlyHistoryHasNoViolations() {
        var story = Story()
        let first = story.push(at: 0)
        story.arrives(first, at: 10, status: 503)
        story.delivered(first, at: 200)
        let offline = story.event(.offline, at: 1_000)
        let held = story.push(at: 2_000) { $0.delivery = .holdWhileOffline }
        let newer = story.push(at: 3_000) { $0.delivery = .holdWhileOffline }
        story.outcome(held, .superseded, at: 3_010, by: newer)
        story.event(.online, at: 5_000)
        story.delivered(newer, at: 5_100)
        let scheduled = story.push(at: 6_000) { ($0.deliverAt, $0.collapseID) = (9_000, nil) }
        story.delivered(scheduled, at: 9_000)
        let cancelled = story.push(at: 10_000) { ($0.deliverAt, $0.collapseID) = (90_000, "y") }
        let cancel = story.job(.cancel(.collapse(topic: "com.example.news", "y")), at: 11_000)
        story.outcome(cancel, .cancelled, at: 11_010)
        story.outcome(cancelled, .cancelled, at: 11_010)
        let expires = story.push(at: 12_000) { ($0.expiration, $0.collapseID) = (13_000, nil) }
        story.outcome(expires, .expired, at: 13_010)
        #expect(story.broken == [])
        // An orderly restart ends no epoch, and the next worker knows all.
        story.stopped(at: 20_000, settled: [first, offline])
        story.outcome(first, .accepted, at: 20_010)
        #expect(story.broken.sorted { $0.rawValue < $1.rawValue } == [.doubled, .returned])
    }

    @Test func takeoverStartsAnEpochOfOnlyItsPartition() {
        var story = Story()
        let offline = story.event(.offline, at: 0)
        let push = story.push(at: 1_000)
        story.delivered(push, at: 1_100)
        story.delivered(push, at: 5_100)
        let held = story.push(at: 5_500) { ($0.delivery, $0.collapseID) = (.holdWhileOffline, nil) }
        story.delivered(held, at: 6_000)
        var elsewhere = story
        elsewhere.history.takeovers[1] = [Takeover(time: 5_000, committed: 0)]
        #expect(Set(elsewhere.broken) == [.doubled, .repeated, .afterEnd, .sentOffline])
        // The takeover explains the repetitions. The next worker still knows the event that was committed before.
        var known = story
        known.history.takeovers[0] = [Takeover(time: 5_000, committed: offline.offset + 1)]
        #expect(known.broken == [.sentOffline])
        story.history.takeovers[0] = [Takeover(time: 5_000, committed: offline.offset)]
        #expect(story.broken == [])
    }

    @Test func jobWithoutOutcomeIsLost() {
        var story = Story()
        let push = story.push(at: 0)
        story.arrives(push, at: 10)
        #expect(story.broken == [.lost])
        story = Story()
        story.job(.event(.online), at: 0)
        story.job(.cancel(.notification("id-7")), at: 0)
        #expect(story.broken == [.lost, .lost])
    }

    @Test func secondOutcomeWithoutKillIsAViolation() {
        var story = Story()
        let push = story.push(at: 0)
        story.delivered(push, at: 10)
        story.outcome(push, .accepted, at: 3_000)
        #expect(story.broken == [.doubled])
        story = Story()
        let control = story.event(.offline, at: 0)
        story.outcome(control, .applied, at: 500)
        #expect(story.broken == [.doubled])
        story = Story()
        let again = story.push(at: 0)
        story.delivered(again, at: 10)
        story.killed(at: 1_000)
        story.delivered(again, at: 1_100)
        #expect(story.broken == [])
        // A kill explains a single repetition.
        story.outcome(again, .accepted, at: 1_300)
        #expect(story.broken == [.doubled])
    }

    @Test func settledJobReturningAfterKillIsAViolation() {
        var story = Story()
        let push = story.push(at: 0)
        story.delivered(push, at: 10)
        story.killed(at: 5_000, settled: [push])
        #expect(story.broken == [])
        story.arrives(push, at: 5_100)
        #expect(story.broken == [.returned])
        story.outcome(push, .accepted, at: 5_110)
        #expect(story.broken == [.returned, .returned])
    }

    @Test func olderPushAfterNewerOneIsAViolation() {
        var story = Story()
        let older = story.push(at: 0)
        let newer = story.push(at: 10)
        story.delivered(newer, at: 20)
        story.arrives(older, at: 30)
        story.outcome(older, .superseded, at: 40, by: newer)
        #expect(story.broken == [.newestWins, .newestLast])
        // The older push must not follow even when APNs refuses it.
        story = Story()
        let refused = story.push(at: 0)
        let accepted = story.push(at: 10)
        story.delivered(accepted, at: 20)
        story.arrives(refused, at: 30, status: 503)
        story.outcome(refused, .superseded, at: 40, by: accepted)
        #expect(story.broken == [.newestWins])
        // Other identities have no order.
        story = Story()
        let one = story.push(at: 0)
        let two = story.push(at: 10) { $0.collapseID = "other" }
        story.delivered(two, at: 20)
        story.delivered(one, at: 30)
        #expect(story.broken == [])
    }

    @Test func newestPushMustArriveLastAfterKill() {
        var story = Story()
        let older = story.push(at: 0)
        let newer = story.push(at: 10)
        story.delivered(older, at: 5)
        story.delivered(newer, at: 20)
        story.killed(at: 1_000)
        story.delivered(older, at: 1_100)
        #expect(story.broken == [.newestLast], "the newest push must be repeated too")
        var repeated = story
        repeated.delivered(newer, at: 1_200)
        #expect(repeated.broken == [])
        // No older push may arrive after that.
        repeated.arrives(older, at: 1_300)
        #expect(repeated.broken.contains(.newestWins))
        // Or the newest push ends in another way after the older one.
        story.history.jobs[newer]?.kind = .push(
            AuditedPush(apnsID: "id-1", topic: "com.example.news", collapseID: "x", expiration: 1_050))
        story.outcome(newer, .expired, at: 1_110)
        #expect(story.broken == [])
        // That end doesn't explain an older push that arrives later.
        story.killed(at: 2_000)
        story.delivered(older, at: 2_100)
        #expect(story.broken == [.newestLast])
    }

    @Test func olderPushAfterExpiredNewerOneIsAViolation() {
        var story = Story()
        let older = story.push(at: 0) { $0.delivery = .holdWhileOffline }
        let newer = story.push(at: 10) { $0.expiration = 1_000 }
        story.outcome(older, .superseded, at: 1_100, by: newer)
        story.outcome(newer, .expired, at: 1_100)
        #expect(story.broken == [])
        // An older push in flight may arrive at about the same time.
        var late = story
        late.arrives(older, at: 1_900, status: 503)
        #expect(late.broken == [])
        late.arrives(older, at: 2_200, status: 503)
        #expect(late.broken.contains(.newestWins))
        // After a kill both pushes are repeated in order, and the newer one expires again.
        story.killed(at: 3_000)
        story.delivered(older, at: 3_100)
        story.outcome(newer, .expired, at: 3_110)
        #expect(story.broken == [])
        story.arrives(older, at: 6_000, status: 503)
        #expect(story.broken.contains(.newestWins))
        // The older push has moved to another token, so the newer one has not met it.
        var moved = Story()
        let first = moved.push(at: 0)
        moved.event(.tokenChanged(Story.other), at: 10)
        let second = moved.push(at: 20) { $0.expiration = 1_000 }
        moved.outcome(second, .expired, at: 1_100)
        moved.arrives(first, at: 5_000, token: Story.other)
        #expect(!moved.broken.contains(.newestWins))
    }

    @Test func lateAndEarlyArrivalsAreViolations() {
        var story = Story()
        let push = story.push(at: 0) { $0.expiration = 2_000 }
        story.delivered(push, at: 3_500)
        #expect(story.broken == [.late])
        story = Story()
        let scheduled = story.push(at: 0) { $0.deliverAt = 2_000 }
        story.delivered(scheduled, at: 1_999)
        #expect(story.broken == [.early])
    }

    @Test func repeatedPushWithoutLostAnswerIsAViolation() {
        var story = Story()
        let push = story.push(at: 0)
        story.arrives(push, at: 10)
        story.delivered(push, at: 500)
        #expect(story.broken == [.repeated])
        story.history.simulatorDeaths = [100]
        #expect(story.broken == [])
        story = Story()
        let confirmed = story.push(at: 0) { $0.delivery = .confirm }
        story.arrives(confirmed, at: 10)
        story.arrives(confirmed, at: 60_010)
        story.event(.receipt("id-0"), at: 60_500)
        story.outcome(confirmed, .confirmed, at: 60_600)
        #expect(story.broken == [], "a missing receipt allows another push")
    }

    @Test func pushAfterItsOutcomeIsAViolation() {
        var story = Story()
        let push = story.push(at: 0) { $0.expiration = 60_000 }
        story.outcome(push, .expired, at: 10)
        story.arrives(push, at: 2_000)
        #expect(story.broken == [.afterEnd])
    }

    @Test func outcomeWithoutCauseIsUnfounded() {
        for kind in [
            OutcomeKind.accepted, .confirmed, .superseded, .cancelled, .expired, .rejected, .undeliverable,
        ] {
            var story = Story()
            let push = story.push(at: 0)
            story.outcome(push, kind, at: 10)
            #expect(story.broken == [.unfounded], "\(kind.name)")
        }
        var story = Story()
        let push = story.push(at: 0)
        let other = story.push(at: 0) { $0.collapseID = "other" }
        story.delivered(other, at: 10)
        story.outcome(push, .superseded, at: 10, by: other)
        #expect(story.broken == [.unfounded], "superseded by another identity")
        story = Story()
        let older = story.push(at: 0)
        let newer = story.push(at: 0)
        story.delivered(older, at: 10)
        story.outcome(newer, .superseded, at: 20, by: older)
        #expect(story.broken == [.unfounded], "superseded by an older push")
        story = Story()
        let cancel = story.job(.cancel(.collapse(topic: "com.example.news", "x")), at: 0)
        let later = story.push(at: 10)
        story.outcome(cancel, .notFound, at: 5)
        story.outcome(later, .cancelled, at: 20)
        #expect(story.broken == [.unfounded], "cancelled by an earlier cancel")
        story = Story()
        let event = story.job(.event(.offline), at: 0)
        story.outcome(event, .accepted, at: 5)
        #expect(story.broken == [.unfounded])
    }

    @Test func heldPushSentToOfflineDeviceIsAViolation() {
        for (delivery, expected) in [
            (DeliveryMode.accept, []), (.holdWhileOffline, [AuditViolation.Promise.sentOffline]),
        ] {
            var story = Story()
            story.event(.offline, at: 0)
            let push = story.push(at: 100) { $0.delivery = delivery }
            story.delivered(push, at: 200)
            story.event(.online, at: 1_000)
            #expect(story.broken == expected)
        }
        // A push from before the event may be in flight, once.
        var story = Story()
        let push = story.push(at: 0) { $0.delivery = .holdWhileOffline }
        story.event(.offline, at: 10)
        story.arrives(push, at: 30, status: 503)
        story.arrives(push, at: 130)
        story.outcome(push, .accepted, at: 140)
        #expect(story.broken == [.sentOffline])
        // An orderly restart loses no event, and a kill loses no settled event.
        for isSettled in [true, false] {
            for isKilled in [true, false] {
                var story = Story()
                let offline = story.event(.offline, at: 0)
                let push = story.push(at: 100) { $0.delivery = .holdWhileOffline }
                if isKilled {
                    story.killed(at: 1_000, settled: isSettled ? [offline] : [])
                } else {
                    story.stopped(at: 1_000, settled: isSettled ? [offline] : [])
                }
                story.delivered(push, at: 1_100)
                #expect(story.broken == (isKilled && !isSettled ? [] : [.sentOffline]))
            }
        }
    }

    @Test func pushToAnotherDeviceIsAViolation() {
        var story = Story()
        let push = story.push(at: 0)
        story.delivered(push, at: 10, token: Story.other)
        #expect(story.broken == [.wrongDevice])
        story = Story()
        let moved = story.push(at: 0)
        story.event(.tokenChanged(Story.other), at: 1)
        story.delivered(moved, at: 10, token: Story.other)
        #expect(story.broken == [])
    }

    @Test func unproducedPushesAndOutcomesAreViolations() {
        var story = Story()
        let push = story.push(at: 0)
        story.delivered(push, at: 10)
        story.history.arrivals.append(
            AuditedArrival(time: 20, apnsID: "nobody's", deviceToken: Story.token, status: 200))
        story.outcome(JobPlace(7, 7), .accepted, at: 30)
        story.history.outcomes[0].apnsID = "another's"
        story.history.unreadable = 2
        #expect(story.broken == [.unreadable, .unknown, .unknown, .unknown])
    }

    @Test func violationDescribesTheHistoryOfItsIdentity() throws {
        var story = Story()
        let older = story.push(at: 0)
        let newer = story.push(at: 10)
        story.delivered(newer, at: 20)
        story.killed(at: 35)
        story.delivered(older, at: 40)
        let text = try #require(Auditor(story.history).violations.first).description
        for part in [
            "newestLast: job 0@1", "produced 0@0", "APNs got 0@1: 200", "after a kill", "outcome of 0@0",
        ] {
            #expect(text.contains(part), "\(text)")
        }
    }
}
