import ArgumentParser
import Capacity
import Configuration
import Foundation

/// `sluice plan`
struct PlanCommand: ParsableCommand {
    static let configuration = CommandConfiguration(
        commandName: "plan",
        abstract: "Compute what a load needs: workers, connections, partitions, memory, disk.",
        discussion: """
            Each figure is printed with its formula and inputs. Deploy/capacity.md has the measured costs behind the \
            formulas, and their sources. --simulate runs the plan through a rolling restart, a lost zone and a mass \
            return, and prints the results beside the formulas.

              sluice plan --rate 20000 --round-trip 120ms --zones 3
              sluice plan --rate 20000 --held-share 0.1 --hold 1d --json
            """)

    @Option(help: ArgumentHelp("Pushes a second on average.", valueName: "n"))
    var rate: Double

    @Option(help: ArgumentHelp("Highest rate of a minute ÷ the average.", valueName: "factor"))
    var peak = CapacityLoad().peakFactor

    @Option(help: ArgumentHelp("Time from a push to APNs' answer, such as 100ms.", valueName: "duration"))
    var roundTrip = PlanDuration(CapacityLoad().roundTrip)

    @Option(help: ArgumentHelp("Bytes of a payload.", valueName: "bytes"))
    var payload = CapacityLoad().payloadBytes

    @Option(
        help: ArgumentHelp("Share of the pushes that wait in the store, 0 to 1.", valueName: "share"))
    var heldShare = CapacityLoad().heldShare

    @Option(
        help: ArgumentHelp("Average time of such a push in the store, such as 1d.", valueName: "duration"))
    var hold = PlanDuration(CapacityLoad().holdTime)

    @Option(help: ArgumentHelp("Partitions of the jobs topic. Default: a recommendation.", valueName: "n"))
    var partitions: Int?

    @Option(help: ArgumentHelp("Workers, those that may fail included. Default: computed.", valueName: "n"))
    var workers: Int?

    @Option(help: ArgumentHelp("Zones of which one may be lost; 1: one worker may fail.", valueName: "n"))
    var zones = CapacityLoad().zones

    @Option(help: ArgumentHelp("Processor cores of a worker.", valueName: "n"))
    var cores = CapacityLoad().cores

    @Option(help: ArgumentHelp("Share of the cores' time to use at the peak.", valueName: "share"))
    var coreUse = CapacityLoad().coreUse

    @Option(help: ArgumentHelp("Credentials among which the pushes divide evenly.", valueName: "n"))
    var credentials = CapacityLoad().credentials

    @Option(help: ArgumentHelp("Streams that APNs permits on a connection.", valueName: "n"))
    var streams = CapacityLoad().streams

    @Option(help: ArgumentHelp("Share of the streams to use at the peak.", valueName: "share"))
    var streamUse = CapacityLoad().streamUse

    @Option(help: ArgumentHelp("apns.connections.", valueName: "n"))
    var connections = CapacityLoad().leastConnections

    @Option(help: ArgumentHelp("apns.max-connections.", valueName: "n"))
    var maxConnections = CapacityLoad().mostConnections

    @Option(help: ArgumentHelp("apns.growth-interval.", valueName: "duration"))
    var growthInterval = PlanDuration(CapacityLoad().growthInterval)

    @Option(help: ArgumentHelp("Replicas of Kafka's topics.", valueName: "n"))
    var replicationFactor = CapacityLoad().replicationFactor

    @Option(help: ArgumentHelp("delivery.return-rate.", valueName: "n"))
    var returnRate = CapacityLoad().returnRate

    @Option(
        help: ArgumentHelp(
            "Held pushes whose devices come back within a minute. Default: a tenth of all.", valueName: "n"))
    var returning: Double?

    @Flag(inversion: .prefixedNo, help: "Workers with a store.")
    var store = true

    @Flag(inversion: .prefixedNo, help: "Stores with a changelog.")
    var changelog = true

    @Flag(help: "Run the plan through a rolling restart, a lost zone and a mass return.")
    var simulate = false

    @Flag(help: "Print one JSON document.")
    var json = false

    @Flag(help: "Print resources of a container and settings of the worker, as YAML for an overlay.")
    var kubernetes = false

    private var load: CapacityLoad {
        var load = CapacityLoad()
        load.rate = rate
        load.peakFactor = peak
        load.roundTrip = roundTrip.seconds
        load.payloadBytes = payload
        load.heldShare = heldShare
        load.holdTime = hold.seconds
        load.partitions = partitions
        load.workers = workers
        load.zones = zones
        load.cores = cores
        load.coreUse = coreUse
        load.credentials = credentials
        load.streams = streams
        load.streamUse = streamUse
        load.leastConnections = connections
        load.mostConnections = maxConnections
        load.growthInterval = growthInterval.seconds
        load.replicationFactor = replicationFactor
        load.returnRate = returnRate
        load.returning = returning
        load.hasStore = store
        load.hasChangelog = store && changelog
        return load
    }

    func validate() throws {
        if let fault = load.fault {
            throw ValidationError("--\(fault.name): the value must be \(fault.range)")
        }
        if simulate, CapacityPlan(load).workers > 2_000 {
            throw ValidationError(
                "--simulate: the plan has more than 2,000 workers. Plan a part of the load.")
        }
        if simulate, (partitions ?? 0) > 20_000 {
            throw ValidationError("--simulate: at most 20,000 partitions can be simulated")
        }
        if json, kubernetes { throw ValidationError("--json and --kubernetes exclude each other") }
    }

    func run() throws {
        let plan = CapacityPlan(load)
        var results: [FleetSimulation.Result] = []
        for event in FleetSimulation.Event.allCases where simulate {
            var simulation = FleetSimulation(plan)
            results.append(simulation.run(event))
        }
        if json {
            try PlanReport(plan, results).write()
        } else if kubernetes {
            Terminal.output(lines: PlanReport.kubernetes(plan))
        } else {
            PlanReport.lines(plan, results).forEach { Terminal.output($0) }
        }
    }
}

/// A duration of the command line, such as `150ms` or `1d`.
struct PlanDuration: ExpressibleByArgument {
    var seconds: Double

    init(_ seconds: Double) { self.seconds = seconds }

    init?(argument: String) {
        guard let duration = DurationText.parse(argument) else { return nil }
        seconds = Double(duration.components.seconds) + Double(duration.components.attoseconds) / 1e18
    }

    var defaultValueDescription: String { CapacityFormat.text(seconds, "s").replacing(" ", with: "") }
}

/// Texts and JSON of a plan.
struct PlanReport: Encodable {
    struct Figure: Encodable {
        var key: String
        var name: String
        /// Nil when the time is infinite.
        var value: Double?
        var unit: String
        var formula: String
    }

    struct Simulated: Encodable {
        var event: String
        var worstLagSeconds: Double
        var recoverySeconds: Double?
        var durationSeconds: Double
        var mostConnections: Int
    }

    var figures: [Figure]
    var bottleneck: String
    var warnings: [String]
    var simulation: [Simulated]

    init(_ plan: CapacityPlan, _ results: [FleetSimulation.Result]) {
        figures = plan.lines.map {
            Figure(
                key: $0.key, name: $0.name, value: $0.value.isFinite ? $0.value : nil, unit: $0.unit,
                formula: $0.formula)
        }
        bottleneck = plan.bottleneck.rawValue
        warnings = plan.warnings
        simulation = results.map {
            Simulated(
                event: $0.event.rawValue, worstLagSeconds: $0.worstLag,
                recoverySeconds: $0.isRecovered ? $0.recovery : nil, durationSeconds: $0.duration,
                mostConnections: $0.mostConnections)
        }
    }

    func write() throws {
        let encoder = JSONEncoder()
        encoder.outputFormatting = [.prettyPrinted, .sortedKeys, .withoutEscapingSlashes]
        Terminal.output(lines: String(decoding: try encoder.encode(self), as: UTF8.self) + "\n")
    }

    /// Returns the table for a reader.
    static func lines(_ plan: CapacityPlan, _ results: [FleetSimulation.Result]) -> [String] {
        var table = TextTable()
        table.rightAligned = [1]
        for line in plan.lines {
            table.add(line.name, CapacityFormat.text(line.value, line.unit), line.formula)
        }
        var lines = table.lines()
        lines.append("")
        lines.append("bottleneck of a worker: \(plan.bottleneck.rawValue)")
        lines.append("provider tokens: all workers present the same token, so their number costs no update")
        lines += plan.warnings.map { "warning: \($0)" }
        guard !results.isEmpty else { return lines }
        var simulated = TextTable()
        simulated.rightAligned = [1, 2, 3, 4]
        simulated.add("simulated at the peak", "worst lag", "formula", "over after", "formula")
        for result in results {
            let formula: (lag: Double, end: Double) =
                switch result.event {
                case .rollingRestart:
                    (plan.lagAtRestart, plan.rollingRestart + plan.recoveryAfterRestart)
                case .zoneLost: (plan.lagAfterFailure, plan.recoveryAfterFailure)
                case .massReturn: (0, max(60, plan.massReturn))
                }
            let end = result.event == .massReturn ? result.duration : result.recovery
            simulated.add(
                result.event.rawValue, CapacityFormat.text(result.worstLag, "s"),
                CapacityFormat.text(formula.lag, "s"),
                result.isRecovered ? CapacityFormat.text(end, "s") : "never",
                CapacityFormat.text(formula.end, "s"))
        }
        return lines + [""] + simulated.lines()
    }

    /// Returns resources and settings as YAML.
    static func kubernetes(_ plan: CapacityPlan) -> String {
        let most = max(plan.memoryPerWorker * 1.5, plan.mostMemoryPerWorker)
        let memory = Int((most / 1_048_576 / 64).rounded(.up)) * 64
        let requested = Int((plan.memoryPerWorker / 1_048_576 / 64).rounded(.up)) * 64
        let cpu = max(
            1,
            Int(
                ((plan.coresUsual
                    + (plan.peakRate / Double(plan.workersLeft) - plan.load.rate / Double(plan.workers))
                        * plan.cpuPerJob)
                    * 1_000 / 50).rounded(.up)) * 50
        )
        let disk = max(2, Int((plan.diskPerWorker / 1_073_741_824).rounded(.up)))
        return """
            # replicas and partitions
            replicas: \(plan.workers)
            partitions: \(plan.partitions)
            # container: the memory limit is 1.5 × the plan's, at least the most memory; a limit of the processor would delay answers
            resources:
              requests: {cpu: \(cpu)m, memory: \(requested)Mi}
              limits: {memory: \(memory)Mi}
            # volume of the store
            storage: \(plan.load.hasStore ? "\(disk)Gi" : "none")
            # settings of the worker
            apns: {connections: \(plan.load.leastConnections), max-connections: \
            \(max(plan.load.mostConnections, plan.connectionsPerPool))}
            delivery:
              shards: \(plan.shards)
              max-in-flight: \(plan.maxInFlight)
              max-in-flight-bytes: \(Int(plan.maxInFlightBytes / 1_048_576))MiB

            """
    }
}
