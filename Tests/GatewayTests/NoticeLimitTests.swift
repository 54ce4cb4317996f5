import SluiceModel
import Testing

@testable import Gateway

@Suite struct NoticeLimitTests {
    private let second: UInt64 = 1_000_000_000

    private func limit() -> NoticeLimit<String> { NoticeLimit(interval: NoticeLog.interval) }

    @Test func sameNoticeHasOneLineInTenSeconds() {
        var limit = limit()
        #expect(limit.note(.goAway, of: 0, "1", at: 5 * second) == .log(leftOut: 0))
        for number in 2...38 {
            #expect(limit.note(.goAway, of: 0, "\(number)", at: 6 * second) == .keep(until: 15 * second))
        }
        #expect(limit.nextDue == 15 * second)
        let early = limit.takeDue(at: 15 * second - 1)
        #expect(early.isEmpty)
        let late = limit.takeDue(at: 15 * second)
        #expect(late.map(\.line) == ["38"])
        #expect(late.map(\.leftOut) == [36])
        #expect(late.map(\.age) == [9 * second])
        #expect(limit.nextDue == nil)
        // The ten seconds begin anew with the kept line.
        #expect(limit.note(.goAway, of: 0, "39", at: 24 * second) == .keep(until: 25 * second))
    }

    @Test func noticeAfterAQuietTimeIsLoggedAtOnce() {
        var limit = limit()
        #expect(limit.note(.goAway, of: 0, "1", at: 0) == .log(leftOut: 0))
        #expect(limit.note(.goAway, of: 0, "2", at: 10 * second) == .log(leftOut: 0))
        #expect(limit.nextDue == nil)
    }

    /// A loop that is held up may handle a notice before the timer of the kept one.
    @Test func noticeThatIsLoggedReplacesALateOne() {
        var limit = limit()
        #expect(limit.note(.goAway, of: 0, "1", at: 0) == .log(leftOut: 0))
        #expect(limit.note(.goAway, of: 0, "2", at: 1) == .keep(until: 10 * second))
        #expect(limit.note(.goAway, of: 0, "3", at: 12 * second) == .log(leftOut: 1))
        let late = limit.takeDue(at: 12 * second)
        #expect(late.isEmpty)
    }

    @Test func otherSubjectsAndNoticesAreLoggedAtOnce() {
        var limit = limit()
        for notice in [Notice.goAway, .connectionLost, .topicRefused] {
            for subject in 0..<3 {
                #expect(limit.note(notice, of: subject, "", at: 0) == .log(leftOut: 0))
                #expect(limit.note(notice, of: subject, "", at: 1) == .keep(until: 10 * second))
            }
        }
    }

    @Test func keptLinesComeInTheOrderOfTheirNotices() {
        var limit = limit()
        let notices: [Notice] = [.connectionLost, .goAway, .connectionOpened]
        for notice in notices { _ = limit.note(notice, of: 0, "", at: 0) }
        for notice in notices.reversed() { _ = limit.note(notice, of: 0, "\(notice)", at: 1) }
        let late = limit.takeDue(at: 20 * second)
        #expect(late.map(\.line) == ["connectionOpened", "goAway", "connectionLost"])
    }

    /// A late line of the closed circuit would be wrong, because the circuit has opened again.
    @Test func stateThatIsOverHasNoLateLine() {
        var limit = limit()
        #expect(limit.note(.circuitClosed, of: 0, "closed", at: 0) == .log(leftOut: 0))
        #expect(limit.note(.circuitOpen, of: 0, "open", at: 1 * second) == .log(leftOut: 0))
        #expect(limit.note(.circuitClosed, of: 0, "closed", at: 2 * second) == .keep(until: 10 * second))
        #expect(limit.note(.circuitOpen, of: 0, "open", at: 3 * second) == .keep(until: 11 * second))
        let early = limit.takeDue(at: 10 * second)
        #expect(early.isEmpty)
        let late = limit.takeDue(at: 11 * second)
        #expect(late.map(\.line) == ["open"])
        #expect(late.map(\.leftOut) == [1])
    }

    @Test func changeOfStateIsLoggedAtOnceWithTheNumberLeftOut() {
        var limit = limit()
        #expect(limit.note(.circuitOpen, of: 0, "open", at: 0) == .log(leftOut: 0))
        #expect(limit.note(.circuitHalfOpen, of: 0, "half", at: 1) == .log(leftOut: 0))
        #expect(limit.note(.circuitOpen, of: 0, "open", at: 2) == .keep(until: 10 * second))
        #expect(limit.note(.circuitHalfOpen, of: 0, "half", at: 3) == .keep(until: 10 * second + 1))
        #expect(limit.note(.circuitClosed, of: 0, "closed", at: 4) == .log(leftOut: 2))
        #expect(limit.nextDue == nil)
    }

    @Test func allKeptLinesComeAtTheEnd() {
        var limit = limit()
        for subject in 0..<2 {
            for time in 0..<4 as Range<UInt64> {
                _ = limit.note(.poolStopped, of: subject, "\(subject)", at: time)
            }
        }
        let late = limit.takeAll(at: 5)
        #expect(late.map(\.line) == ["0", "1"])
        #expect(late.map(\.leftOut) == [2, 2])
        let rest = limit.takeAll(at: 6)
        #expect(rest.isEmpty)
    }

    /// Random changes of one state. The log shows no state that was over for more than ten seconds, has a notice once in
    /// ten seconds at most, and accounts for each change.
    @Test(arguments: 1...100 as ClosedRange<UInt64>)
    func lastLineOfAStateIsNeverWrongForLong(seed: UInt64) {
        let interval = NoticeLog.interval
        var random = SeededGenerator(seed: seed)
        var limit = NoticeLimit<Int>(interval: interval)
        let kinds: [Notice] = [.circuitOpen, .circuitHalfOpen, .circuitClosed]
        var changes: [(notice: Notice, at: UInt64)] = []
        var lastLine = -1
        var lineTimes: [Notice: UInt64] = [:]
        var accounted = 0
        func log(_ change: Int, leftOut: Int, at time: UInt64) {
            let notice = changes[change].notice
            #expect(change > lastLine, "seed \(seed): change \(change) after \(lastLine)")
            if let before = lineTimes[notice] { #expect(time >= before + interval, "seed \(seed)") }
            lineTimes[notice] = time
            lastLine = change
            accounted += 1 + leftOut
        }
        var now: UInt64 = 0
        for _ in 0..<400 {
            let pause: UInt64 = Bool.random(using: &random) ? second / 2 : 8 * second
            now += UInt64.random(in: 0...pause, using: &random)
            while let due = limit.nextDue, due <= now {
                for late in limit.takeDue(at: due) { log(late.line, leftOut: late.leftOut, at: due) }
            }
            if lastLine >= 0, lastLine + 1 < changes.count {
                #expect(now < changes[lastLine + 1].at + interval, "seed \(seed): a wrong state at \(now)")
            }
            let notice = kinds.randomElement(using: &random)!
            changes.append((notice, now))
            let isAllowed = lineTimes[notice].map { now >= $0 + interval } ?? true
            switch limit.note(notice, of: 7, changes.count - 1, at: now) {
            case .log(let leftOut):
                #expect(isAllowed, "seed \(seed)")
                log(changes.count - 1, leftOut: leftOut, at: now)
            case .keep: #expect(!isAllowed, "seed \(seed)")
            }
        }
        for late in limit.takeAll(at: now + interval) {
            log(late.line, leftOut: late.leftOut, at: now + interval)
        }
        #expect(lastLine == changes.count - 1, "seed \(seed)")
        #expect(accounted == changes.count, "seed \(seed)")
    }
}
