import Glibc
import Synchronization
import Testing

@testable import EventLoop

@Suite struct EventLoopTests {
    @Test func workFromOtherThreadsRunsInOrder() throws {
        let loop = try EventLoop(name: "test")
        loop.start()
        defer {
            loop.stop()
            loop.join()
        }
        let seen = Mutex<[Int]>([])
        for number in 0..<1000 { loop.execute { seen.withLock { $0.append(number) } } }
        #expect(loop.runBlocking { seen.withLock { $0 } } == Array(0..<1000))
        #expect(loop.runBlocking { loop.isCurrent })
        #expect(!loop.isCurrent)
    }

    @Test func asyncRunReturnsAndStoppedLoopRefusesWork() async throws {
        let loop = try EventLoop(name: "test")
        loop.start()
        #expect(await loop.run { 42 } == 42)
        loop.stop()
        loop.join()
        #expect(!loop.execute {})
    }

    @Test func workAcceptedBeforeStopRuns() throws {
        let loop = try EventLoop(name: "test")
        let count = Atomic<Int>(0)
        for _ in 0..<100 { loop.execute { count.add(1, ordering: .relaxed) } }
        loop.start()
        loop.stop()
        loop.join()
        #expect(count.load(ordering: .relaxed) == 100)
    }

    /// The system gives the identity of a thread that has ended to later threads.
    @Test func threadsAfterTheLoopsEndAreNotTakenForTheLoops() throws {
        let loop = try EventLoop(name: "test")
        loop.start()
        loop.stop()
        loop.join()
        for index in 0..<16 {
            let later = try EventLoop(name: "later-\(index)")
            later.start()
            #expect(later.runBlocking { !loop.isCurrent && later.isCurrent })
            later.stop()
            later.join()
        }
    }

    final class Recorder: ReadinessHandler, TimerHandler, TurnEndHandler, @unchecked Sendable {
        // Sendable because only the loop's thread uses the recorder until `done` is set.
        var events: [String] = []
        let done = BlockingFlag()
        var action: (Recorder, Readiness) -> Void = { _, _ in }
        func ready(_ readiness: Readiness) { action(self, readiness) }
        func timerFired(_ timer: TimerID) {
            events.append("timer \(timer.slot)")
            if events.count == 3 { done.set() }
        }
        func turnEnded() { events.append("end") }
    }

    @Test func timersFireInOrderOfDeadline() throws {
        let loop = try EventLoop(name: "test")
        let recorder = Recorder()
        loop.start()
        loop.execute {
            _ = loop.schedule(after: .milliseconds(30), handler: recorder)
            _ = loop.schedule(after: .milliseconds(10), handler: recorder)
            let cancelled = loop.schedule(after: .milliseconds(15), handler: recorder)
            _ = loop.schedule(after: .milliseconds(20), handler: recorder)
            loop.cancel(cancelled)
        }
        recorder.done.wait()
        loop.stop()
        loop.join()
        #expect(recorder.events == ["timer 1", "timer 3", "timer 0"])
    }

    @Test func readinessAndTurnEndReachTheirHandlers() throws {
        let loop = try EventLoop(name: "test")
        var pair: [Int32] = [0, 0]
        #expect(
            socketpair(AF_UNIX, Int32(SOCK_STREAM.rawValue) | Int32(SOCK_CLOEXEC.rawValue), 0, &pair) == 0)
        let (near, far) = (pair[0], pair[1])
        let recorder = Recorder()
        let registration = try loop.register(near, interest: .read, handler: recorder)
        recorder.action = { recorder, readiness in
            var byte: UInt8 = 0
            if read(near, &byte, 1) == 1 {
                recorder.events.append("byte \(byte)")
                loop.atTurnEnd(recorder)
            } else if readiness.contains(.hangup) {
                recorder.events.append("hangup")
                loop.deregister(registration)
                recorder.done.set()
            }
        }
        loop.start()
        var byte: UInt8 = 7
        #expect(write(far, &byte, 1) == 1)
        close(far)
        recorder.done.wait()
        loop.stop()
        loop.join()
        close(near)
        #expect(recorder.events.prefix(2) == ["byte 7", "end"])
        #expect(recorder.events.contains("hangup"))
    }

    @Test func repeatedSignalsWakeTheLoopOnce() throws {
        let loop = try EventLoop(name: "test")
        let calls = Atomic<Int>(0)
        let wakeup = try loop.makeWakeup { calls.add(1, ordering: .relaxed) }
        for _ in 0..<100 { wakeup.signal() }
        loop.start()
        _ = loop.runBlocking { true }
        while calls.load(ordering: .relaxed) == 0 { sched_yield() }
        #expect(calls.load(ordering: .relaxed) == 1)
        wakeup.signal()
        while calls.load(ordering: .relaxed) < 2 { sched_yield() }
        loop.stop()
        loop.join()
    }

    @Test func ringKeepsOrderBetweenThreads() throws {
        let ring = SingleProducerRing<Int>(capacity: 64)
        let loop = try EventLoop(name: "producer")
        loop.start()
        let total = 100_000
        loop.execute {
            for number in 0..<total { while !ring.push(number) { sched_yield() } }
        }
        var expected = 0
        while expected < total {
            guard let value = ring.pop() else {
                sched_yield()
                continue
            }
            #expect(value == expected)
            guard value == expected else { break }
            expected += 1
        }
        loop.stop()
        loop.join()
        #expect(ring.pop() == nil)
    }

    @Test(arguments: [1 as UInt64, 2, 3]) func timerHeapMatchesAModel(seed: UInt64) {
        final class Handler: TimerHandler { func timerFired(_ timer: TimerID) {} }
        var state = seed
        func random(_ bound: UInt64) -> UInt64 {
            state = state &* 6_364_136_223_846_793_005 &+ 1_442_695_040_888_963_407
            return (state >> 33) % bound
        }
        var heap = TimerHeap()
        var model: [TimerID: UInt64] = [:]
        let handler = Handler()
        for _ in 0..<5000 {
            switch random(3) {
            case 0, 1:
                let deadline = random(1000)
                model[heap.insert(deadline: deadline, handler: handler)] = deadline
            default:
                if random(2) == 0, let victim = model.keys.min(by: { $0.slot < $1.slot }) {
                    heap.cancel(victim)
                    model[victim] = nil
                } else if let due = heap.popDue(now: random(1000)) {
                    #expect(model.removeValue(forKey: due.id) != nil, "seed \(seed)")
                }
            }
            #expect(heap.count == model.count, "seed \(seed)")
            #expect(heap.nextDeadline() == model.values.min(), "seed \(seed)")
        }
    }

    @Test func byteQueueKeepsBytesThroughGrowthAndCompaction() {
        var queue = ByteQueue(capacity: 64)
        var next: UInt8 = 0
        var expected: UInt8 = 0
        for round in 1..<200 {
            for _ in 0..<round {
                withUnsafeBytes(of: next) { queue.append($0) }
                next &+= 1
            }
            for _ in 0..<max(round - 3, 0) {
                #expect(queue.readable[0] == expected)
                expected &+= 1
                queue.consume(1)
            }
        }
        while !queue.isEmpty {
            #expect(queue.readable[0] == expected)
            expected &+= 1
            queue.consume(1)
        }
        #expect(next == expected)
    }

    @Test func dumpableFlagCanBeClearedAndSet() {
        let before = ProcessMemory.isDumpable
        defer { ProcessMemory.setDumpable(before) }
        #expect(ProcessMemory.setDumpable(false))
        #expect(!ProcessMemory.isDumpable)
        #expect(ProcessMemory.setDumpable(true))
        #expect(ProcessMemory.isDumpable)
    }
}
