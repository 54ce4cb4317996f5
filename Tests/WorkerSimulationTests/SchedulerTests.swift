import SimulatedEventLoop
import Testing

/// Loops, threads and processes over virtual time.
@Suite struct SchedulerTests {
    // Sendable: a simulation runs on one thread at a time.
    private final class Log: TimerHandler, TurnEndHandler, @unchecked Sendable {
        var lines: [String] = []

        func timerFired(_ timer: TimerID) { lines.append("timer at \(Scheduler.current.now / 1_000_000) ms") }
        func turnEnded() { lines.append("end of the turn") }
    }

    private static let second: UInt64 = 1_000_000_000

    private func simulate(seed: UInt64 = 1, _ body: (Scheduler) throws -> Void) rethrows {
        let scheduler = Scheduler(seed: seed)
        try scheduler.run {
            defer { scheduler.end() }
            try body(scheduler)
        }
    }

    @Test func aTurnRunsReadinessInboxTimersAndItsEnd() throws {
        try simulate { scheduler in
            let log = Log()
            let loop = try EventLoop(name: "loop")
            let wakeup = try loop.makeWakeup { log.lines.append("wakeup") }
            loop.schedule(at: MonotonicTime(nanoseconds: scheduler.now), handler: log)
            loop.atTurnEnd(log)
            loop.execute { log.lines.append("inbox") }
            wakeup.signal()
            wakeup.signal()
            #expect(log.lines.isEmpty)
            loop.start()
            scheduler.run(until: 2 * Self.second)
            #expect(log.lines == ["wakeup", "inbox", "timer at 1000 ms", "end of the turn"])
        }
    }

    @Test func timeIsVirtual() throws {
        try simulate { scheduler in
            let log = Log()
            let loop = try EventLoop(name: "loop")
            loop.start()
            loop.schedule(after: .seconds(3600), handler: log)
            let cancelled = loop.schedule(after: .seconds(1), handler: log)
            loop.cancel(cancelled)
            scheduler.run(until: 3601 * Self.second)
            #expect(log.lines.isEmpty)
            scheduler.run(until: 3602 * Self.second)
            #expect(log.lines == ["timer at 3601000 ms"])
        }
    }

    @Test func othersRunWhileALoopIsBlocked() throws {
        try simulate { scheduler in
            let (one, other) = (try EventLoop(name: "one"), try EventLoop(name: "other"))
            let log = Log()
            let flag = BlockingFlag()
            for loop in [one, other] { loop.start() }
            one.execute {
                log.lines.append("waits")
                flag.wait()
                log.lines.append("goes on")
            }
            one.execute { log.lines.append("later") }
            // A blocked turn ends before `run` returns, so that the rest is planned now.
            scheduler.schedule(at: 2 * Self.second) {
                #expect(log.lines == ["waits"])
                #expect(scheduler.process == nil)
                other.execute {
                    log.lines.append("sets")
                    flag.set()
                }
            }
            scheduler.run(until: 3 * Self.second)
            #expect(log.lines == ["waits", "sets", "goes on", "later"])
            #expect(other.runBlocking { 42 } == 42)
            for loop in [one, other] { loop.stop() }
            one.join()
            #expect(!one.execute {})
            #expect(one.runBlockingIfRunning { 1 } == nil)
        }
    }

    /// The loop that blocks last waits for the loop that has blocked first.
    @Test func loopsBlockAtTheSameTime() throws {
        try simulate { scheduler in
            let (first, last) = (try EventLoop(name: "first"), try EventLoop(name: "last"))
            let log = Log()
            let (isFirstDone, isLastBlocked) = (BlockingFlag(), BlockingFlag())
            for loop in [first, last] { loop.start() }
            first.execute {
                isLastBlocked.wait()
                scheduler.sleep(Self.second)
                log.lines.append("first at \(scheduler.now / Self.second) s: \(first.isCurrent)")
                isFirstDone.set()
            }
            scheduler.schedule(after: Self.second) {
                last.execute {
                    isLastBlocked.set()
                    isFirstDone.wait()
                    log.lines.append("last at \(scheduler.now / Self.second) s: \(last.isCurrent)")
                }
            }
            #expect(!scheduler.block(until: 10 * Self.second))
            #expect(scheduler.now == 10 * Self.second)
            #expect(log.lines == ["first at 3 s: true", "last at 3 s: true"])
        }
    }

    @Test func aLimitedWaitEndsInTime() throws {
        simulate { scheduler in
            let began = scheduler.now
            #expect(!BlockingFlag().wait(milliseconds: 250))
            #expect(scheduler.now == began + 250_000_000)
        }
    }

    @Test func threadsBlockAtTheSameTime() throws {
        simulate { scheduler in
            let log = Log()
            let process = SimulatedProcess("worker")
            let (first, second) = (BlockingFlag(), BlockingFlag())
            scheduler.startThread(of: process) {
                #expect(scheduler.process === process)
                first.wait()
                log.lines.append("first")
            }
            scheduler.startThread(of: process) {
                second.wait()
                log.lines.append("second")
                scheduler.sleep(Self.second)
                log.lines.append("second at \(scheduler.now / Self.second)")
            }
            scheduler.run(until: 2 * Self.second)
            second.set()
            scheduler.schedule(after: 1) {}
            scheduler.run(until: 5 * Self.second)
            #expect(log.lines == ["second", "second at 3"])
            first.set()
            scheduler.schedule(after: 1) {}
            scheduler.run(until: 6 * Self.second)
            #expect(log.lines.last == "first")
            #expect(scheduler.process == nil)
        }
    }

    @Test func aKilledProcessDoesNothingMore() throws {
        try simulate { scheduler in
            let log = Log()
            let process = SimulatedProcess("worker")
            let loop = try process.run { try EventLoop(name: "loop") }
            loop.start()
            loop.schedule(after: .seconds(1), handler: log)
            let other = try process.run { try EventLoop(name: "blocked") }
            other.start()
            other.execute {
                let isDone = scheduler.block { false }
                log.lines.append("woken, done: \(isDone)")
            }
            var isThreadOver = false
            scheduler.startThread(of: process) {
                BlockingFlag().wait()
                isThreadOver = true
            }
            scheduler.schedule(after: Self.second / 2) { process.kill() }
            scheduler.run(until: 10 * Self.second)
            #expect(log.lines == ["woken, done: false"])
            #expect(isThreadOver)
            #expect(!loop.execute {})
        }
    }

    @Test func aSuspendedProcessGoesOnLate() throws {
        try simulate { scheduler in
            let log = Log()
            let process = SimulatedProcess("worker")
            let loop = try process.run { try EventLoop(name: "loop") }
            loop.start()
            loop.schedule(after: .seconds(1), handler: log)
            process.suspend(until: 30 * Self.second)
            loop.execute { log.lines.append("inbox at \(scheduler.now / Self.second) s") }
            scheduler.run(until: 29 * Self.second)
            #expect(log.lines.isEmpty)
            scheduler.run(until: 31 * Self.second)
            #expect(log.lines == ["inbox at 30 s", "timer at 30000 ms"])
        }
    }

    @Test func wallClocksDeviate() throws {
        simulate { scheduler in
            let process = SimulatedProcess("worker")
            let before = wallClockMilliseconds()
            process.wallDeviation = -5000
            #expect(process.run { wallClockMilliseconds() } == before - 5000)
            scheduler.run(until: scheduler.now + Self.second)
            #expect(wallClockMilliseconds() == before + 1000)
        }
    }

    /// Many loops that wake each other: the same seed gives the same order, and another seed another one.
    @Test func theSeedDecidesTheOrder() throws {
        func trace(_ seed: UInt64) throws -> [String] {
            let log = Log()
            try simulate(seed: seed) { scheduler in
                let loops = try (0..<5).map { try EventLoop(name: "\($0)") }
                for loop in loops { loop.start() }
                for round in 0..<20 {
                    for (number, loop) in loops.enumerated() {
                        loop.execute {
                            log.lines.append("\(number)")
                            scheduler.sleep(UInt64(round) * 1000)
                        }
                    }
                }
                scheduler.run(until: 2 * Self.second)
            }
            return log.lines
        }
        let first = try trace(7)
        #expect(first.count == 100)
        #expect(try trace(7) == first)
        #expect(try trace(8) != first)
    }
}
