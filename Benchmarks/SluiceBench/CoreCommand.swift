import ArgumentParser
import CAllocationCounter
import DeliveryCore
import Gateway
import SluiceModel
import StreamScheduling

/// Measures the delivery machine and its tables without a shard.
struct CoreCommand: ParsableCommand {
    static let configuration = CommandConfiguration(
        commandName: "core",
        abstract: "The delivery machine with the stream scheduler, without Kafka and APNs.",
        subcommands: [
            Push.self, Allocations.self, Supersede.self, Memory.self, Offsets.self, HotIdentity.self,
        ])

    struct Push: ParsableCommand {
        static let configuration = CommandConfiguration(
            abstract:
                "CPU time of a push, from its decoded job to its released slot; prints one line of JSON.",
            discussion: "Rounds with different numbers of waiting pushes take turns.")

        @Option(help: "Pushes that wait at once, a number or several.") var waiting = [
            1_000, 100_000, 1_000_000,
        ]
        @Option(help: "Rounds.") var rounds = 15
        @Option(help: "Pushes of a round.") var pushes = 96_000

        func validate() throws {
            guard waiting.allSatisfy({ (1...10_000_000).contains($0) }), !waiting.isEmpty, rounds > 0 else {
                throw ValidationError("--waiting must be 1 to 10000000, --rounds at least 1")
            }
            guard pushes > 0, pushes.isMultiple(of: CoreLoad.batch) else {
                throw ValidationError("--pushes must be a multiple of \(CoreLoad.batch)")
            }
        }

        func run() {
            var jobs = CoreJobs(count: pushes)
            let loads = UnsafeMutableBufferPointer<CoreLoad>.allocate(capacity: waiting.count)
            for index in waiting.indices {
                (loads.baseAddress! + index).initialize(to: CoreLoad(waiting: waiting[index]))
                loads[index].shuffleSlots()
                loads[index].fill(&jobs)
            }
            var costs = waiting.map { _ in [Double]() }
            // The first round warms up.
            for round in 0...rounds {
                for index in waiting.indices {
                    jobs.renew()
                    let before = loads[index].finished
                    let from = threadNanoseconds()
                    loads[index].run(jobs)
                    let each = Double(threadNanoseconds() - from) / Double(pushes)
                    precondition(loads[index].finished - before == pushes && loads[index].told != 0)
                    if round > 0 { costs[index].append(each) }
                }
            }
            var line = JSONLine()
            for index in waiting.indices { line.add("push_ns_\(waiting[index])", costs[index]) }
            line.print()
            loads.baseAddress!.deinitialize(count: waiting.count)
            loads.deallocate()
        }
    }

    struct Allocations: ParsableCommand {
        static let configuration = CommandConfiguration(
            abstract: "Heap allocations of a push in steady state; prints one line of JSON.")

        @Option(help: "Pushes that wait at once.") var waiting = 100_000
        @Option(help: "Pushes to measure.") var pushes = 192_000

        func run() throws {
            sluice_allocations_prepare()
            try AllocationsCommand.checkCounter()
            var jobs = CoreJobs(count: pushes)
            var load = CoreLoad(waiting: waiting)
            load.fill(&jobs)
            jobs.renew()
            load.run(jobs)
            jobs.renew()
            sluice_allocations_begin(64)
            load.run(jobs)
            let counts = sluice_allocations_end()
            var line = JSONLine()
            line.add("pushes", pushes)
            line.add("allocations", Int(counts.mallocs))
            line.add("allocations_per_push", Double(counts.mallocs) / Double(pushes))
            line.add("callers", counts.mallocs > 0 ? AllocationsCommand.callers() : "")
            line.print()
        }
    }

    struct Supersede: ParsableCommand {
        static let configuration = CommandConfiguration(
            abstract: "CPU time to replace a push that waits by a newer one; prints one line of JSON.")

        @Option(help: "Pushes that wait at once.") var waiting = 100_000
        @Option(help: "Rounds.") var rounds = 15

        func run() {
            var load = CoreLoad(waiting: waiting, inFlight: false)
            load.shuffleSlots()
            var generator = SeededGenerator(seed: 3)
            let devices = (0..<waiting).map { _ in
                DeviceKey(high: generator.next(), low: generator.next())
            }
            var identifier: UInt64 = 0
            for device in devices {
                identifier += 1
                _ = load.update(device, collapseKey: 1, notificationKey: identifier)
            }
            let order = devices.shuffled(using: &generator)
            var costs: [Double] = []
            for round in 0...rounds {
                var replaced = 0
                let from = threadNanoseconds()
                var number = 0
                while number < order.count {
                    let end = min(number + CoreLoad.batch, order.count)
                    for device in order[number..<end] { load.prefetch(device) }
                    for device in order[number..<end] {
                        identifier += 1
                        if case .replaced = load.update(device, collapseKey: 1, notificationKey: identifier) {
                            replaced += 1
                        }
                    }
                    number = end
                }
                let each = Double(threadNanoseconds() - from) / Double(waiting)
                precondition(replaced == waiting)
                if round > 0 { costs.append(each) }
            }
            precondition(load.requeued == waiting * (rounds + 1))
            var line = JSONLine()
            line.add("supersede_ns", costs)
            line.print()
        }
    }

    struct Memory: ParsableCommand {
        static let configuration = CommandConfiguration(
            abstract: "Memory of the pushes that wait, without their jobs; prints one line of JSON.")

        @Option(help: "Pushes that wait at once.") var waiting = 1_000_000

        func run() {
            var generator = SeededGenerator(seed: 3)
            let before = residentBytes()
            var load = CoreLoad(waiting: waiting, inFlight: false)
            for identifier in 1...UInt64(waiting) {
                let device = DeviceKey(high: generator.next(), low: generator.next())
                _ = load.update(device, collapseKey: 0, notificationKey: identifier)
            }
            let resident = residentBytes() - before
            precondition(load.machine.milestones[.waiting] == waiting)
            let computed =
                load.machine.tableBytes + load.machine.limits.capacity * NotificationTable.bytesPerSlot
            var line = JSONLine()
            line.add("resident_bytes_per_item", Double(resident) / Double(waiting))
            line.add("computed_bytes_per_item", Double(computed) / Double(waiting))
            line.add("job_slot_bytes", GatewayMemory.bytesPerJob)
            line.print()
        }
    }

    struct Offsets: ParsableCommand {
        static let configuration = CommandConfiguration(
            abstract: "CPU time to complete an offset, in random order; prints one line of JSON.")

        @Option(help: "Offsets outstanding when the first completes.") var outstanding = 1_000_000
        @Option(help: "Rounds.") var rounds = 15

        func run() {
            var generator = SeededGenerator(seed: 5)
            let order = (0..<Int64(outstanding)).shuffled(using: &generator)
            // Brokers take metadata of 4,096 characters by default, which is a window of 24,417 offsets.
            var tracker = OffsetTracker(
                nextOffset: 0, spanLimit: outstanding, initialCapacity: outstanding,
                metadataBytes: outstanding)
            var costs: [Double] = []
            for round in 0...rounds {
                let base = tracker.end
                for offset in base..<base + Int64(outstanding) {
                    let begun = tracker.track(offset)
                    precondition(begun == .tracked)
                }
                precondition(tracker.outstanding == outstanding)
                let from = threadNanoseconds()
                for offset in order { _ = tracker.complete(base + offset) }
                let each = Double(threadNanoseconds() - from) / Double(outstanding)
                precondition(tracker.outstanding == 0 && tracker.watermark == tracker.end)
                if round > 0 { costs.append(each) }
            }
            var line = JSONLine()
            line.add("offset_complete_ns", costs)
            line.print()
        }
    }

    struct HotIdentity: ParsableCommand {
        static let configuration = CommandConfiguration(
            abstract:
                "Updates of one collapse identifier while its first push is slow; prints one line of JSON.")

        @Option(help: "Updates, the first included.") var updates = 100_000

        func run() throws {
            var load = CoreLoad(waiting: 1024)
            let device = DeviceKey(high: 1, low: 2)
            _ = load.update(device, collapseKey: 1, notificationKey: 1)
            guard let slow = load.sendNext() else { throw LoadError(description: "the first wasn't sent") }
            // Memory that is allocated once is allocated now.
            _ = load.update(device, collapseKey: 1, notificationKey: 2)
            let resident = residentBytes()
            var most = 0
            for identifier in 3...UInt64(max(3, updates)) {
                _ = load.update(device, collapseKey: 1, notificationKey: identifier)
                most = max(most, load.machine.count)
            }
            let grown = residentBytes() - resident
            load.accept(slow)
            while let slot = load.sendNext() { load.accept(slot) }
            var line = JSONLine()
            line.add("pushes_sent", load.machine.milestones.sent)
            line.add("superseded", load.machine.milestones[.superseded])
            line.add("most_items", most)
            line.add("resident_growth_bytes", grown)
            line.print()
        }
    }
}
