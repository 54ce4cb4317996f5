import SimulatedEventLoop
import SimulatedKafka
import Testing

/// The simulated Kafka in worlds full of faults.
@Suite struct KafkaFaultTests {
    /// Members come, leave, are killed and suspended while leaders and coordinators are away. In the end all is well, and
    /// every record was read.
    private static func run(_ seed: UInt64) throws -> [String] {
        var trace: [String] = []
        try KafkaBed.run(seed: seed) { bed in
            func below(_ count: Int) -> Int { Int(bed.scheduler.below(UInt64(count))) }
            var members: [KafkaMember] = []
            var produced = 0
            for step in 0..<40 {
                bed.produceJobs(produced..<produced + 20)
                produced += 20
                members.removeAll { !$0.process.isAlive }
                switch below(9) {
                case 0 where members.count < 4, 1 where members.count < 4:
                    members.append(try KafkaMember(bed, "m\(step)"))
                case 2 where members.count > 1: members[below(members.count)].process.kill()
                case 3 where members.count > 1:
                    let index = below(members.count)
                    _ = members[index].close()
                    members.remove(at: index).process.kill()
                case 4 where !members.isEmpty:
                    let until = bed.scheduler.now + UInt64(below(20)) * KafkaBed.second
                    bed.kafka.suspend(members[below(members.count)].process, until: until)
                case 5: bed.kafka.setLeader(KafkaBed.jobs, Int32(below(4)), isAway: below(2) == 0)
                case 6: bed.kafka.setGroupCoordinator(isAway: below(2) == 0)
                case 7: bed.kafka.isSlow = below(2) == 0
                default: if let member = members.first, member.process.isAlive { _ = try member.commit() }
                }
                bed.run(seconds: Double(below(5_000)) / 1_000)
            }
            for partition: Int32 in 0..<4 { bed.kafka.setLeader(KafkaBed.jobs, partition, isAway: false) }
            bed.kafka.setGroupCoordinator(isAway: false)
            bed.kafka.isSlow = false
            members.removeAll { !$0.process.isAlive }
            if members.isEmpty { members.append(try KafkaMember(bed, "last")) }
            let isHealthy = bed.run(seconds: 120) {
                bed.read.count == produced && members.flatMap(\.owned).sorted() == [0, 1, 2, 3]
            }
            #expect(
                isHealthy, "\(bed.read.count) of \(produced) \(members.map(\.owned)) \(members.map(\.next))")
            for member in members { #expect(member.close()) }
            #expect((bed.kafka.liveRecords, bed.kafka.liveResponses) == (0, 0), "seed \(seed)")
            trace = bed.trace
        }
        return trace
    }

    @Test(arguments: 1...20 as ClosedRange<UInt64>)
    func allIsReadAfterTheFaults(_ seed: UInt64) throws {
        let trace = try Self.run(seed)
        if seed == 1 { #expect(try Self.run(seed) == trace) }
    }
}
