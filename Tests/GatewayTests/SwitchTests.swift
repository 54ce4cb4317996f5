import APNSSimulator
import Configuration
import DeliveryCore
import Foundation
import Kafka
import KafkaTestSupport
import SluiceModel
import Synchronization
import TestSupport
import Testing

@testable import Admin
@testable import Gateway

/// Pauses of a running worker.
struct SwitchTests {
    private func change(
        _ worker: Worker, _ scope: PauseScope, _ isPaused: Bool
    ) throws -> SwitchChange {
        let result = Mutex<SwitchChange?>(nil)
        let box = Box(result: result)
        worker.switches.change(scope, isPaused: isPaused, by: "test", note: "why") { box.set($0) }
        try eventually("the change is answered") { box.value != nil }
        return try #require(box.value)
    }

    private final class Box: Sendable {
        private let result: Mutex<SwitchChange?>
        init(result: consuming Mutex<SwitchChange?>) { self.result = result }
        var value: SwitchChange? { result.withLock { $0 } }
        func set(_ change: SwitchChange) { result.withLock { $0 = change } }
    }

    private func store(_ bed: WorkerBed, _ name: String = "store", changelog: Bool) -> Configuration.Store {
        .init(
            directory: bed.directory.file(name), after: .seconds(1), changelog: changelog ? .on : .off,
            transactions: .off)
    }

    /// With everything paused, jobs wait in Kafka; a part waits in the store, and the rest goes on.
    @Test func pausedPartsWaitInTheStore() throws {
        try withBed { bed in
            let worker = try bed.worker {
                $0.store = store(bed, changelog: false)
                $0.apps.append(.init(name: "shop", topics: ["com.example.shop"], credentials: ["team"]))
            }
            let change = try change(worker, .app("news"), true)
            #expect(change.isKept && change.refusal == nil)
            #expect(change.status.home == "file \(bed.directory.file("store"))/switches")
            try bed.produce(30, seed: 1) { push, _ in push.topic = "com.example.news" }
            try bed.produce(30, seed: 2) { push, _ in push.topic = "com.example.shop" }
            #expect(Set(try bed.waitForOutcomes(30).map(\.topic)) == ["com.example.shop"])
            try worker.waitUntilEvicted(devices: 30)
            let snapshot = worker.snapshot()
            #expect(snapshot.totals.pausedTopics == 1 && snapshot.totals.stoppedTopics == 0)
            #expect(snapshot.totals.store.puts == 30)
            #expect(try self.change(worker, .app("news"), false).isKept)
            let news = try bed.waitForOutcomes(60).filter { $0.topic == "com.example.news" }
            #expect(news.count == 30)
        }
    }

    @Test(arguments: [PauseScope.topic("com.example.news"), .credential("team"), .all])
    func everyScopePausesAndResumes(scope: PauseScope) throws {
        try withBed { bed in
            let worker = try bed.worker { $0.store = store(bed, changelog: false) }
            try bed.produce(5, seed: 1)
            try bed.waitForOutcomes(5)
            _ = try change(worker, scope, true)
            try bed.produce(20, seed: 2)
            if scope == .all {
                try eventually("the partitions are paused") {
                    let reports = worker.partitionReports()
                    return !reports.isEmpty && reports.allSatisfy { $0.pauseReasons == .allPaused }
                }
                #expect(worker.snapshot().counters.records == 5)
            } else {
                try worker.waitUntilEvicted(devices: 20)
            }
            #expect(worker.snapshot().totals.sent == 5)
            _ = try change(worker, scope, false)
            try bed.waitForOutcomes(25)
            #expect(worker.snapshot().totals.sent == 25)
        }
    }

    /// A pause at ten thousand jobs a second takes effect within a second, and loses nothing.
    @Test(arguments: [PauseScope.all, .app("news")]) func pauseUnderLoadLosesNothing(scope: PauseScope) throws
    {
        try withBed { bed in
            let worker = try bed.worker { $0.store = store(bed, changelog: false) }
            try eventually("the worker has partitions") { worker.snapshot().assignedPartitions == 3 }
            let jobs = 20_000
            try bed.produce(jobs, seed: 3)
            try eventually("the load is under way") { worker.snapshot().totals.sent > 2_000 }
            let start = ContinuousClock.now
            _ = try change(worker, scope, true)
            try eventually("nothing is in flight") { worker.snapshot().totals.inFlight == 0 }
            let sent = worker.snapshot().totals.sent
            let took = ContinuousClock.now - start
            #expect(sent < jobs)
            // The pushes of this moment are the last for a while: the state is asked for often enough to see another.
            for _ in 0..<20 { #expect(worker.snapshot().totals.sent == sent) }
            // Usually a third of a second, of which the answer of a loaded machine is the most.
            #expect(took < .seconds(10), "\(took)")
            _ = try change(worker, scope, false)
            let outcomes = try bed.waitForOutcomes(jobs)
            #expect(outcomes.allSatisfy { $0.kind == .accepted })
            #expect(Set(outcomes.map(\.apnsID)).count == jobs)
            #expect(bed.simulator.summary.accepted == UInt64(jobs))
        }
    }

    /// A worker that starts after a pause sends nothing of what is paused, whichever worker was asked.
    @Test(arguments: [true, false]) func pauseOutlivesTheWorker(hasChangelog: Bool) throws {
        try withBed { bed in
            let first = try bed.worker { $0.store = store(bed, changelog: hasChangelog) }
            #expect(try change(first, .all, true).isKept)
            bed.stop(first)
            try bed.produce(10, seed: 4)
            // With a changelog, another worker with another disk.
            let name = hasChangelog ? "other" : "store"
            let second = try bed.worker { $0.store = store(bed, name, changelog: hasChangelog) }
            try eventually("the worker has paused partitions") {
                let reports = second.partitionReports()
                return reports.count == 3 && reports.allSatisfy { $0.pauseReasons.contains(.allPaused) }
            }
            try eventually("the pause is known") { second.switches.status.pauses.map(\.scope) == [.all] }
            #expect(second.switches.status.pauses.first?.note == "why")
            #expect(second.snapshot().totals.sent == 0 && second.snapshot().counters.records == 0)
            _ = try change(second, .all, false)
            try bed.waitForOutcomes(10)
        }
    }

    /// A pause reaches the other worker through the topic, and a partition that moves stays paused.
    @Test func pauseReachesAllWorkers() throws {
        try withBed { bed in
            let first = try bed.worker { $0.store = store(bed, "first", changelog: true) }
            let second = try bed.worker { $0.store = store(bed, "second", changelog: true) }
            try eventually("both know the switches") {
                first.switches.status.areKnown && second.switches.status.areKnown
            }
            let change = try change(first, .app("news"), true)
            #expect(change.isKept && change.status.home == "topic \(bed.kafka.topic("switches"))")
            try eventually("the other worker has the pause") { second.switches.status.pauses.count == 1 }
            try bed.produce(40, seed: 5)
            try eventually("all jobs are stored") {
                first.snapshot().totals.store.puts + second.snapshot().totals.store.puts >= 40
            }
            bed.stop(first)
            try eventually("the other worker has everything") {
                second.snapshot().assignedPartitions == 3
                    && second.partitionReports().allSatisfy {
                        $0.outstanding == 0 && $0.end > 0 || $0.end == 0
                    }
            }
            #expect(second.snapshot().totals.sent == 0)
            _ = try self.change(second, .app("news"), false)
            #expect(Set(try bed.waitForOutcomes(40).map(\.kind)) == [.accepted])
        }
    }

    /// A change that Kafka doesn't take is in force at once, and is kept later.
    @Test func changeIsInForceWhileKafkaIsAway() throws {
        try withBed(embedsKafka: true) { bed in
            let worker = try bed.worker { $0.store = store(bed, changelog: true) }
            try eventually("the switches are known") { worker.switches.status.areKnown }
            bed.kafka.embedded?.setDown(true)
            let result = try change(worker, .all, true)
            #expect(!result.isKept && result.status.unkept == 1)
            #expect(worker.switches.status.pauses.map(\.scope) == [.all])
            bed.kafka.embedded?.setDown(false)
            try eventually("the change is kept", timeout: .seconds(60)) { worker.switches.status.unkept == 0 }
        }
    }

    private func topic(_ bed: WorkerBed, isAway: Bool = false) -> SwitchBoard.Topic {
        var reader = KafkaSetup(bed.configuration().kafka).changelogReader
        reader["enable.partition.eof"] = "true"
        return SwitchBoard.Topic(
            name: bed.kafka.topic("switches"), reader: reader, producer: bed.kafka.clientProperties,
            own: SwitchFile(path: bed.directory.file("switches")),
            known: SwitchFile(path: bed.directory.file("switches.known")), isAway: isAway)
    }

    /// A board that can't read its topic has the pauses that were known last, and takes the topic's when it is read.
    @Test func lastKnownPausesStayInForce() throws {
        try withBed(embedsKafka: true) { bed in
            func record(_ app: String, isPaused: Bool = true, id: UInt64) -> SwitchRecord {
                SwitchRecord(
                    .app(app), isPaused: isPaused, changedMilliseconds: 1_795_633_200_000, by: "", note: "",
                    id: id)
            }
            func produce(_ records: SwitchRecord...) throws {
                try bed.kafka.produce(
                    to: "switches", records.map { NewRecord(key: $0.key, value: $0.text, partition: 0) })
            }
            func board(isAway: Bool) throws -> SwitchBoard {
                try SwitchBoard(.topic(topic(bed, isAway: isAway)), carried: [], logger: .init(label: "test"))
            }
            try produce(record("news", id: 1), record("shop", id: 2))
            let first = try board(isAway: false)
            first.start { _ in }
            try eventually("the switches are known") { first.status.areKnown }
            first.close()

            // Another worker resumes an app and pauses a third one. Kafka is away at this worker's start.
            try produce(record("shop", isPaused: false, id: 3), record("mail", id: 4))
            bed.kafka.embedded?.setDown(true)
            let second = try board(isAway: true)
            #expect(second.status.areKnown && second.status.isTopicAway)
            #expect(second.status.pauses.map(\.scope) == [.app("news"), .app("shop")])
            let reported = Mutex<[Switches]>([])
            let box = ReportBox(reported: reported)
            second.start { box.add($0) }
            let kept = Mutex<SwitchChange?>(nil)
            let answer = Box(result: kept)
            second.change(.app("own"), isPaused: true, by: "", note: "") { answer.set($0) }
            try eventually("the file keeps a change") { answer.value?.isKept == true }
            let file = SwitchFile(path: bed.directory.file("switches"))
            #expect(try file.read().map(\.scope) == [.app("own")])

            bed.kafka.embedded?.setDown(false)
            let wanted: [PauseScope] = [.app("mail"), .app("news"), .app("own")]
            try eventually("the topic's pauses are in force", timeout: .seconds(60)) {
                !second.status.isTopicAway && second.status.unkept == 0
                    && second.status.pauses.map(\.scope) == wanted
            }
            try eventually("the file is gone") { !file.exists }
            second.close()
            #expect(Set(try topic(bed).known.read().filter(\.isPaused).map(\.scope)) == Set(wanted))
            // No report was without a known pause.
            #expect(box.all.allSatisfy { $0.pauses(app: "news", topic: "", credential: "") })
        }
    }

    private final class ReportBox: Sendable {
        private let reported: Mutex<[Switches]>
        init(reported: consuming Mutex<[Switches]>) { self.reported = reported }
        var all: [Switches] { reported.withLock { $0 } }
        func add(_ switches: Switches) { reported.withLock { $0.append(switches) } }
    }

    /// The end of the topic is reported once, and may come with the records before it.
    @Test func topicIsKnownHoweverLateItIsRead() throws {
        try withBed { bed in
            let record = SwitchRecord(
                .app("news"), isPaused: true, changedMilliseconds: 1_795_633_200_000, by: "", note: "", id: 1)
            try bed.kafka.produce(
                to: "switches", [NewRecord(key: record.key, value: record.text, partition: 0)])
            let board = try SwitchBoard(.topic(topic(bed)), carried: [], logger: .init(label: "test"))
            try eventually("record and end wait together") { board.unread >= 2 }
            board.start { _ in }
            try eventually("the switches are known") { board.status.areKnown }
            #expect(board.status.pauses == [record])
            board.close()
        }
    }

    /// Pauses that a file has kept go on when the worker gets a control topic.
    @Test func pausesOfTheFileMoveToTheTopic() throws {
        try withBed { bed in
            let first = try bed.worker { $0.store = store(bed, changelog: false) }
            _ = try change(first, .app("news"), true)
            bed.stop(first)
            let second = try bed.worker { $0.store = store(bed, changelog: true) }
            try eventually("the topic has the pause") {
                second.switches.status.areKnown && second.switches.status.unkept == 0
            }
            #expect(second.switches.status.pauses.map(\.scope) == [.app("news")])
            let path = "\(bed.directory.file("store"))/switches"
            try eventually("the file is gone") { !FileManager.default.fileExists(atPath: path) }
            let third = try bed.worker { $0.store = store(bed, "third", changelog: true) }
            try eventually("another worker has the pause") { third.switches.status.pauses.count == 1 }
        }
    }

    @Test func damagedFileIsNamedAtTheStart() throws {
        try withBed { bed in
            let first = try bed.worker { $0.store = store(bed, changelog: false) }
            _ = try change(first, .all, true)
            bed.stop(first)
            let path = "\(bed.directory.file("store"))/switches"
            let text = try String(contentsOfFile: path, encoding: .utf8)
            #expect(text.contains("scope: all\n"))
            #expect(
                try FileManager.default.attributesOfItem(atPath: path)[.posixPermissions] as? Int == 0o600)
            try "switch: maybe\n".write(toFile: path, atomically: false, encoding: .utf8)
            let error = try #require(throws: WorkerError.self) {
                try Worker(
                    configuration: bed.configuration { $0.store = store(bed, changelog: false) },
                    logger: .init(label: "test"))
            }
            #expect(error.description.contains("\(path) is damaged: record 1 is not readable"))
            try FileManager.default.removeItem(atPath: path)
        }
    }

    @Test func unknownNamesAreRefusedAndKnownOnesListed() throws {
        try withBed { bed in
            let worker = try bed.worker()
            #expect(worker.problem(of: .app("nwes")) == "there is no app `nwes`; there are: news")
            #expect(worker.problem(of: .credential("x"))?.contains("there are: team") == true)
            #expect(worker.problem(of: .topic("com.example.news.voip")) == nil)
            #expect(worker.problem(of: .topic("com.example.new")) != nil)
            #expect(worker.problem(of: .app("news")) == nil && worker.problem(of: .all) == nil)
            #expect(try change(worker, .app("news"), true).status.home == "memory")
        }
    }
}
