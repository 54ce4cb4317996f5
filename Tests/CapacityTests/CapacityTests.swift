import Capacity
import Testing

/// The plan's arithmetic, against figures computed by hand.
struct CapacityPlanTests {
    private func load(_ change: (inout CapacityLoad) -> Void = { _ in }) -> CapacityLoad {
        var load = CapacityLoad()
        change(&load)
        return load
    }

    @Test(
        "20,000 pushes a second at 150 ms on one shard: four connections carry them at 80 % of their streams")
    func connections() {
        let plan = CapacityPlan(
            load {
                $0.rate = 20_000
                $0.peakFactor = 1
                $0.roundTrip = 0.15
                $0.cores = 2
            })
        // 20,000 × 0.15 s = 3,000 streams; 3,000 ÷ 800 = 3.75.
        #expect(plan.workersNeeded == 1)
        #expect(plan.workers == 2)
        #expect(plan.shards == 1)
        #expect(plan.connectionsPerPool == 4)
        #expect(plan.connectionsPerWorker == 4)
    }

    @Test("Pools of several shards and credentials: each keeps its least number")
    func leastConnections() {
        let plan = CapacityPlan(
            load {
                $0.rate = 100
                $0.credentials = 5
            })
        #expect(plan.connectionsPerPool == 2)
        #expect(plan.connectionsPerWorker == 2 * 3 * 5)
    }

    @Test(
        "One zone of three is lost: the workers that remain carry the peak, and not one fewer would",
        arguments: [2, 3, 5])
    func zones(zones: Int) {
        let plan = CapacityPlan(
            load {
                $0.rate = 500_000
                $0.zones = zones
            })
        let perZone = (plan.workers + zones - 1) / zones
        #expect(plan.workersLeft == plan.workers - perZone)
        #expect(plan.workersLeft >= plan.workersNeeded)
        let fewer = plan.workers - 1
        #expect(fewer - (fewer + zones - 1) / zones < plan.workersNeeded)
    }

    @Test("Held pushes: their number, disk and restoring follow from share and time")
    func held() {
        var costs = CapacityCosts()
        costs.restoreRate = 100_000
        costs.changelogFactor = 1
        costs.diskFactor = 1
        costs.storedOverhead = 350
        let plan = CapacityPlan(
            load {
                $0.rate = 1_000
                $0.heldShare = 0.1
                $0.holdTime = 100_000
                $0.partitions = 100
            }, costs: costs)
        #expect(plan.heldItems == 10_000_000)
        // All on the worker that remains, 600 bytes each, twice.
        #expect(plan.diskPerWorker == 12e9)
        #expect(plan.restoreOfPartition == 1)
    }

    @Test("Most memory: the parts of a worker at its limits, never less than the planned load's")
    func mostMemory() {
        let plan = CapacityPlan(load { $0.partitions = 48 })
        let store = plan.load.hasStore ? 330e6 : 0
        let parts = 60e6 + Double(plan.connectionsPerWorker) * 2e6 + Double(plan.maxInFlight) * 2_000
        let mebibytes = 2 * plan.maxInFlightBytes / 1_048_576 + 48 + 128
        #expect(plan.mostMemoryPerWorker == parts + mebibytes * 1_048_576 + 48 * 16_384 + store)
        #expect(plan.mostMemoryPerWorker > plan.memoryPerWorker)
    }

    @Test("Fewer partitions than workers: a warning names both")
    func fewPartitions() {
        let plan = CapacityPlan(
            load {
                $0.rate = 500_000
                $0.partitions = 3
            })
        #expect(plan.warnings.contains { $0.contains("3 partitions can't feed \(plan.workers) workers") })
    }

    @Test(
        "A given number of workers that is too low: a warning has the rate of a worker and the number that is needed"
    )
    func fewWorkers() {
        let plan = CapacityPlan(
            load {
                $0.rate = 500_000
                $0.workers = 4
            })
        // 1,000,000 ÷ 3 remaining workers.
        #expect(plan.workers == 4)
        #expect(
            plan.warnings.contains {
                $0.contains("a worker has 333,333 pushes/s")
                    && $0.contains("needs \(plan.workersNeeded) workers")
            })
        #expect(plan.recoveryAfterFailure == .infinity)
    }

    @Test("A single worker: the plan warns, and its restart ends")
    func singleWorker() {
        let plan = CapacityPlan(
            load {
                $0.rate = 1_000
                $0.workers = 1
            })
        #expect(plan.warnings.contains { $0.contains("the only worker") })
        var simulation = FleetSimulation(plan)
        let result = simulation.run(.rollingRestart)
        #expect(result.isRecovered)
        #expect(abs(result.worstLag - plan.lagAtRestart) < 1)
        #expect(plan.recoveryAfterFailure == .infinity)
    }

    @Test("A long round trip and few connections: connections are the bottleneck")
    func connectionsLimit() {
        let plan = CapacityPlan(
            load {
                $0.rate = 50_000
                $0.roundTrip = 2
                $0.mostConnections = 4
            })
        #expect(plan.bottleneck == .connections)
        // Three shards × 4 connections × 800 streams ÷ 2 s = 4,800 a second and worker; 100,000 ÷ 4,800 = 20.8.
        #expect(plan.workersNeeded == 21)
        #expect(plan.warnings.contains { $0.contains("apns.max-connections") })
    }

    @Test("More load never needs fewer workers, connections, partitions, memory or disk")
    func monotonic() {
        var before: CapacityPlan?
        for step in 0..<40 {
            let plan = CapacityPlan(
                load {
                    $0.rate = 500 * Double(step + 1) * Double(step + 1)
                    $0.heldShare = 0.05
                    $0.zones = 3
                })
            if let before {
                #expect(plan.workers >= before.workers)
                #expect(plan.partitions >= before.partitions)
                #expect(plan.heldItems > before.heldItems)
                #expect(plan.connectionsUsual >= before.connectionsUsual)
            }
            before = plan
        }
    }

    @Test(
        "A value outside of its range: the fault names the option",
        arguments: [
            "rate", "peak", "round-trip", "payload", "held-share", "streams", "cores", "zones", "partitions",
            "workers",
        ])
    func faults(option: String) throws {
        let load = load {
            switch option {
            case "rate": $0.rate = .nan
            case "peak": $0.peakFactor = 0.5
            case "round-trip": $0.roundTrip = -1
            case "payload": $0.payloadBytes = 1e9
            case "held-share": $0.heldShare = 1.1
            case "streams": $0.streams = 0
            case "cores": $0.cores = 0
            case "zones": $0.zones = 0
            case "workers": $0.workers = 0
            default: $0.partitions = 0
            }
        }
        #expect(load.fault?.name == option)
        #expect(CapacityLoad().fault == nil)
    }

    @Test("The greatest values that are permitted: the plan computes without a trap")
    func extremes() {
        let plan = CapacityPlan(
            load {
                $0.rate = 1e9
                $0.peakFactor = 1_000
                $0.roundTrip = 600
                $0.heldShare = 1
                $0.holdTime = 30 * 86_400
                $0.streams = 1
                $0.mostConnections = 2
                $0.cores = 1
            })
        #expect(plan.workers > 1_000_000)
        #expect(!plan.lines.isEmpty)
    }

    @Test(
        "Numbers for readers",
        arguments: [
            (9_400_000_000, "bytes", "9.4 GB"), (0.0000064, "s", "6.4 µs"), (0.15, "s", "150 ms"),
            (90, "s", "90 s"),
            (5_400, "s", "90 min"), (1_000_000, "", "1,000,000"), (-1_234, "", "-1,234"),
            (Double.infinity, "s", "never"),
        ])
    func text(value: Double, unit: String, text: String) {
        #expect(CapacityFormat.text(value, unit) == text)
    }
}

/// The formulas' claims, against the simulation of single partitions, pools and restores.
struct FleetSimulationTests {
    static let loads: [CapacityLoad] = {
        var small = CapacityLoad()
        small.rate = 10_000
        var large = CapacityLoad()
        large.rate = 100_000
        var held = CapacityLoad()
        held.rate = 10_000
        held.heldShare = 0.1
        held.zones = 3
        var internet = CapacityLoad()
        internet.rate = 1_000_000
        internet.peakFactor = 1
        internet.roundTrip = 0.15
        internet.heldShare = 0.02
        internet.holdTime = 14_400
        internet.zones = 3
        internet.returnRate = 20_000
        return [small, large, held, internet]
    }()

    @Test("A rolling restart: lag and duration stay within the formula, and near it", arguments: loads)
    func rollingRestart(load: CapacityLoad) {
        let plan = CapacityPlan(load)
        var simulation = FleetSimulation(plan)
        let result = simulation.run(.rollingRestart)
        #expect(result.isRecovered)
        #expect(result.worstLag <= plan.lagAtRestart + 1)
        #expect(result.worstLag >= plan.lagAtRestart * 0.4)
        #expect(result.duration <= plan.rollingRestart + Double(plan.workers))
        #expect(result.duration >= plan.rollingRestart * 0.4)
        #expect(result.recovery <= plan.rollingRestart + plan.recoveryAfterRestart + Double(plan.workers))
    }

    @Test("A zone is lost: the others catch up within the formula's time, and near it", arguments: loads)
    func zoneLost(load: CapacityLoad) {
        let plan = CapacityPlan(load)
        var simulation = FleetSimulation(plan)
        let result = simulation.run(.zoneLost)
        #expect(result.isRecovered)
        #expect(result.worstLag <= plan.lagAfterFailure + 1)
        #expect(result.worstLag >= plan.lagAfterFailure * 0.7)
        #expect(result.recovery <= plan.recoveryAfterFailure * 1.1 + 2)
        #expect(result.recovery >= plan.recoveryAfterFailure * 0.4)
    }

    @Test(
        "Devices return at once: their pushes take the formula's time, and other jobs don't wait",
        arguments: loads)
    func massReturn(load: CapacityLoad) {
        let plan = CapacityPlan(load)
        var simulation = FleetSimulation(plan)
        let result = simulation.run(.massReturn)
        #expect(result.isRecovered)
        #expect(result.worstLag < 0.5)
        #expect(abs(result.duration - max(60, plan.massReturn)) <= max(2, plan.massReturn * 0.005))
    }

    @Test("Workers without room for a lost zone: the simulation never recovers, and the formula warns")
    func overloaded() {
        var load = CapacityLoad()
        // A worker's six connections carry 12,000 a second with each stream busy, which no connection reaches.
        load.rate = 108_000
        load.zones = 2
        load.roundTrip = 0.5
        load.mostConnections = 2
        load.leastConnections = 2
        load.streamUse = 1
        load.coreUse = 1
        load.peakFactor = 1
        let plan = CapacityPlan(load)
        #expect(plan.recoveryAfterFailure == .infinity)
        #expect(plan.warnings.contains { $0.contains("can carry 11,580") })
        var simulation = FleetSimulation(plan)
        #expect(!simulation.run(.zoneLost).isRecovered)
    }

    @Test("The same plan and event twice: the results are equal, and no job is lost or made")
    func deterministic() {
        let plan = CapacityPlan(Self.loads[1])
        var first = FleetSimulation(plan)
        var second = FleetSimulation(plan)
        let result = first.run(.zoneLost)
        #expect(result == second.run(.zoneLost))
        #expect(result.sent <= result.arrived)
        // At most half a second of the load waits at the end.
        #expect(result.arrived - result.sent <= plan.peakRate * 0.5)
    }
}
