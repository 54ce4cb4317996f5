import SluiceModel
import Testing

@testable import DeliveryCore

struct SwitchMachineTests {
    private func record(
        _ scope: PauseScope, _ isPaused: Bool = true, id: UInt64, note: String = ""
    ) -> SwitchRecord {
        SwitchRecord(
            scope, isPaused: isPaused, changedMilliseconds: 1_795_633_200_000, by: "alice", note: note, id: id
        )
    }

    private func read(
        _ machine: inout SwitchMachine, _ record: SwitchRecord, offset: Int64 = 0
    ) -> [SwitchMachine.Action] {
        read(&machine, key: nil, value: record.text, offset: offset)
    }

    private func read(
        _ machine: inout SwitchMachine, key: String?, value: String?, offset: Int64 = 0
    ) -> [SwitchMachine.Action] {
        let (key, value) = (key.map { Array($0.utf8) }, value.map { Array($0.utf8) })
        return actions(&machine) { machine in
            (key ?? []).withUnsafeBytes { keyBytes in
                (value ?? []).withUnsafeBytes {
                    machine.read(
                        key: key == nil ? nil : keyBytes, value: value == nil ? nil : $0, offset: offset)
                }
            }
        }
    }

    /// A machine that has read an empty control topic to its end.
    private func readMachine() -> SwitchMachine {
        var machine = SwitchMachine(.topic)
        actions(&machine) { $0.readToEnd() }
        return machine
    }

    /// Gives the machine a fact, and returns its actions.
    @discardableResult
    private func actions(
        _ machine: inout SwitchMachine, after fact: (inout SwitchMachine) -> Void
    ) -> [SwitchMachine.Action] {
        fact(&machine)
        var actions: [SwitchMachine.Action] = []
        while let action = machine.nextAction() { actions.append(action) }
        return actions
    }

    private func parse(_ text: String) -> SwitchRecord? {
        var text = text
        return text.withUTF8 { SwitchRecord(UnsafeRawBufferPointer($0)) }
    }

    // MARK: Records

    @Test(arguments: [
        PauseScope.all, .app("news"), .app("näws / 2: x"), .topic("com.example.news.voip"), .credential("t"),
    ])
    func recordsReadWhatTheyWrite(scope: PauseScope) throws {
        for isPaused in [true, false] {
            let record = record(scope, isPaused, id: 0x2a, note: "price: wrong\nagain")
            #expect(record.note == "price: wrong again")
            #expect(record.id == "000000000000002a")
            #expect(parse(record.text) == record)
            var key = record.key
            #expect(key.withUTF8 { SwitchRecord.scope(ofKey: UnsafeRawBufferPointer($0)) } == scope)
        }
    }

    @Test func textsAreCutAtCharacters() {
        let long = record(.all, id: 1, note: String(repeating: "ä", count: 200))
        #expect(long.note == String(repeating: "ä", count: 127))
    }

    @Test func linesOfNewerVersionsAreSkipped() {
        let record = record(.app("news"), id: 1)
        #expect(parse(record.text + "until: 5\n") == record)
    }

    @Test(arguments: [
        "", "pause", "switch: pause\n", "switch: stop\nscope: all\nchanged-at: 1\nid: a\n",
        "switch: pause\nscope: app\nchanged-at: 1\nid: a\n",
        "switch: pause\nscope: all\nname: x\nchanged-at: 1\nid: a\n",
        "switch: pause\nscope: all\nchanged-at: 99999999999999999999\nid: a\n",
        "switch: pause\nscope: all\nchanged-at: 1\nid: \n",
        "switch: pause\nswitch: resume\nscope: all\nchanged-at: 1\nid: a\n",
        "switch: pause\nscope: app\nname: a\u{1}b\nchanged-at: 1\nid: a\n",
        String(repeating: "x: y\n", count: 2000),
    ])
    func otherTextsAreNoRecords(text: String) { #expect(parse(text) == nil) }

    /// Any bytes are read without a trap.
    @Test func randomBytesAreRead() {
        var random = SeededGenerator(seed: 5)
        let good = Array(record(.app("news"), id: 7, note: "x").text.utf8)
        for _ in 0..<20_000 {
            var bytes = good
            for _ in 0..<Int.random(in: 1...4, using: &random) {
                switch Int.random(in: 0..<3, using: &random) {
                case 0:
                    bytes[Int.random(in: 0..<bytes.count, using: &random)] = .random(
                        in: 0...255, using: &random)
                case 1: bytes.remove(at: Int.random(in: 0..<bytes.count, using: &random))
                default: bytes.insert(10, at: Int.random(in: 0..<bytes.count, using: &random))
                }
            }
            var machine = SwitchMachine(.topic)
            bytes.withUnsafeBytes {
                if let record = SwitchRecord($0) {
                    #expect(parse(record.text) == record)
                }
                machine.read(key: $0, value: nil, offset: 0)
                machine.read(key: nil, value: $0, offset: 0)
            }
        }
    }

    // MARK: The machine

    @Test func topicIsReadBeforeAnythingIsSent() {
        var machine = SwitchMachine(.topic)
        #expect(machine.switches.pausesAll && !machine.switches.areKnown)
        #expect(read(&machine, record(.app("news"), id: 1)) == [])
        #expect(read(&machine, record(.app("shop"), id: 2)) == [])
        #expect(read(&machine, record(.app("shop"), false, id: 3)) == [])
        let first = record(.app("news"), id: 1)
        #expect(actions(&machine) { $0.readToEnd() } == [.report, .log(first, isOwn: false)])
        #expect(actions(&machine) { $0.readToEnd() } == [])
        #expect(!machine.switches.pausesAll)
        #expect(machine.switches.pauses(app: "news", topic: "t", credential: "c"))
        #expect(!machine.switches.pauses(app: "shop", topic: "t", credential: "c"))
        #expect(machine.pauses == [first])
    }

    @Test func changeIsInForceBeforeItIsKept() {
        var machine = readMachine()
        let pause = record(.all, id: 1)
        #expect(
            actions(&machine) { $0.change(pause) } == [.log(pause, isOwn: true), .report, .produce(pause)])
        #expect(machine.switches.pausesAll && machine.isUnkept(.all) && machine.unkept == [pause])
        machine.keepFailed(pause, at: 5)
        #expect(actions(&machine) { $0.advance(to: 5) } == [])
        #expect(actions(&machine) { $0.advance(to: 5 + SwitchMachine.retryInterval) } == [.produce(pause)])
        #expect(actions(&machine) { $0.advance(to: .max - SwitchMachine.retryInterval) } == [])
        machine.kept(pause)
        #expect(!machine.isUnkept(.all) && machine.unkept == [])
        #expect(read(&machine, pause) == [])
        #expect(machine.switches.pausesAll)
    }

    /// A change that another change replaces before it is kept isn't kept before that one.
    @Test func replacedChangeIsKeptWithItsSuccessor() {
        var machine = readMachine()
        let (first, second) = (record(.all, false, id: 1), record(.all, false, id: 2))
        actions(&machine) { $0.change(first) }
        actions(&machine) { $0.change(second) }
        machine.kept(first, offset: 3)
        #expect(machine.isUnkept(.all))
        machine.kept(second, offset: 4)
        #expect(!machine.isUnkept(.all))
    }

    /// Records that precede the worker's own change in the topic don't undo it.
    @Test func olderRecordsHaveNoEffectBehindOwnChange() {
        var machine = readMachine()
        let (pause, older, newer) = (
            record(.all, id: 1), record(.all, false, id: 2), record(.all, false, id: 3)
        )
        actions(&machine) { $0.change(pause) }
        #expect(read(&machine, older) == [])
        #expect(read(&machine, key: pause.key, value: nil) == [])
        machine.kept(pause)
        #expect(read(&machine, older) == [])
        #expect(machine.switches.pausesAll)
        #expect(read(&machine, pause) == [])
        #expect(read(&machine, newer) == [.log(newer, isOwn: false), .report])
        #expect(!machine.switches.pausesAll)
    }

    /// Workers that change a scope at the same time agree in the end, in any order of their acknowledgements.
    @Test func workersAgree() {
        var random = SeededGenerator(seed: 11)
        for _ in 0..<500 {
            var workers = (0..<3).map { _ in SwitchMachine(.topic) }
            for index in workers.indices { _ = workers[index].readToEnd() }
            var log: [SwitchRecord] = []
            var read = [0, 0, 0]
            var unsent: [[SwitchRecord]] = [[], [], []]
            var id: UInt64 = 0
            for step in 0..<60 {
                let index = Int.random(in: 0..<3, using: &random)
                switch Int.random(in: 0..<3, using: &random) {
                case 0 where step < 40:
                    id += 1
                    let record = record([.all, .app("a")][Int(id % 2)], .random(using: &random), id: id)
                    _ = workers[index].change(record)
                    unsent[index].append(record)
                case 1 where !unsent[index].isEmpty:
                    let record = unsent[index].removeFirst()
                    log.append(record)
                    workers[index].kept(record)
                default:
                    if read[index] < log.count {
                        _ = self.read(&workers[index], log[read[index]])
                        read[index] += 1
                    }
                }
            }
            for index in workers.indices {
                for record in unsent[index] {
                    log.append(record)
                    workers[index].kept(record)
                }
            }
            for index in workers.indices {
                for record in log[read[index]...] { _ = self.read(&workers[index], record) }
            }
            #expect(workers[0].switches == workers[1].switches && workers[1].switches == workers[2].switches)
            #expect(workers.allSatisfy { $0.unkept.isEmpty })
        }
    }

    @Test func tombstoneResumes() {
        var machine = readMachine()
        let pause = record(.app("news"), id: 1)
        _ = read(&machine, pause)
        #expect(
            read(&machine, key: pause.key, value: nil).last == .report && machine.pauses == []
                && machine.records == [])
    }

    @Test func unreadableRecordsAreCountedAndHaveNoEffect() {
        var machine = readMachine()
        let text = "pause everything"
        #expect(read(&machine, key: nil, value: text) == [])
        #expect(read(&machine, key: text, value: nil) == [])
        #expect(read(&machine, key: nil, value: nil) == [])
        #expect(machine.unreadable == 3 && machine.switches == Switches())
    }

    @Test func numberOfPausesIsBounded() {
        var machine = readMachine()
        for number in 0..<(SwitchMachine.mostScopes + 10) {
            _ = read(&machine, record(.app("app\(number)"), id: UInt64(number)))
        }
        #expect(machine.pauses.count == SwitchMachine.mostScopes && machine.unreadable == 10)
        #expect(!machine.hasRoom(for: .app("other"), isPaused: true))
        // The remedies are always there.
        #expect(machine.hasRoom(for: .all, isPaused: true))
        #expect(machine.hasRoom(for: .app("app0"), isPaused: false))
        actions(&machine) { $0.change(record(.all, id: 5_000)) }
        #expect(machine.switches.pausesAll)
        actions(&machine) { $0.change(record(.app("app0"), false, id: 5_001)) }
        #expect(!machine.hasRoom(for: .app("other"), isPaused: true))
        actions(&machine) { $0.change(record(.all, false, id: 5_002)) }
        #expect(machine.hasRoom(for: .app("other"), isPaused: true))
    }

    /// Resumed scopes take no room, however many were paused before.
    @Test func resumedScopesAreForgotten() {
        var machine = readMachine()
        for number in 0..<5_000 {
            let scope = PauseScope.app("app\(number)")
            _ = read(&machine, record(scope, id: UInt64(2 * number)))
            _ = read(&machine, record(scope, false, id: UInt64(2 * number + 1)))
        }
        #expect(machine.records.count <= 2 * SwitchMachine.mostScopes && machine.unreadable == 0)
    }

    /// The worker's own change was compacted away before the worker read it.
    @Test func laterRecordCountsWithoutTheOwnOne() {
        var machine = readMachine()
        let (pause, older, newer) = (
            record(.all, id: 1), record(.all, false, id: 2), record(.all, false, id: 3)
        )
        actions(&machine) { $0.change(pause) }
        machine.kept(pause, offset: 7)
        #expect(read(&machine, older, offset: 6) == [])
        #expect(machine.switches.pausesAll)
        #expect(read(&machine, newer, offset: 8) == [.log(newer, isOwn: false), .report])
        #expect(!machine.switches.pausesAll)
    }

    @Test func fileIsWrittenWithEachChange() {
        var machine = SwitchMachine(.file, records: [record(.app("news"), id: 1)])
        #expect(machine.switches.areKnown && machine.pauses.count == 1)
        let resume = record(.app("news"), false, id: 2)
        #expect(
            actions(&machine) { $0.change(resume) } == [.log(resume, isOwn: true), .report, .write(resume)])
        machine.keepFailed(resume, at: 0)
        #expect(machine.isUnkept(.app("news")))
        #expect(actions(&machine) { $0.advance(to: SwitchMachine.retryInterval) } == [.write(resume)])
        machine.kept(resume)
        #expect(machine.unkept == [])
        // The same state again changes nothing, but its note is kept.
        let again = record(.app("news"), false, id: 3, note: "sure")
        #expect(actions(&machine) { $0.change(again) } == [.write(again)])
    }

    /// While the topic is away, its last known changes are in force, and the file has this worker's own changes alone.
    @Test func inheritedPausesAreInForceAndNotWritten() {
        let (news, shop) = (record(.app("news"), id: 1), record(.app("shop"), id: 2))
        var machine = SwitchMachine(.file, inherited: [news, shop])
        #expect(machine.pauses == [news, shop] && machine.records == [])
        let resume = record(.app("news"), false, id: 3)
        #expect(
            actions(&machine) { $0.change(resume) } == [.log(resume, isOwn: true), .report, .write(resume)])
        #expect(machine.pauses == [shop] && machine.records == [resume])
        #expect(SwitchMachine(.file, records: [resume], inherited: [news, shop]).pauses == [shop])
    }

    @Test func memoryHandsItsChangesOn() {
        var machine = SwitchMachine(.memory)
        actions(&machine) { $0.change(record(.all, id: 1)) }
        #expect(SwitchMachine(.memory, records: machine.unkept).switches.pausesAll)
    }
}
