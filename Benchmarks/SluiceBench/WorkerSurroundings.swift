import ArgumentParser
import Configuration
import Gateway
import Glibc

/// Surroundings of a worker: Kafka, with topics of the default names, and the APNs simulator.
struct WorkerSurroundings: ParsableArguments {
    @Option(
        help: "Kafka's bootstrap servers, with the topics sluice.jobs, sluice.outcomes, sluice.dead-letters.")
    var bootstrapServers: String
    @Option(help: "Port of the APNs simulator.") var port: UInt16
    @Option(help: "PEM file of the simulator's authority.") var caFile: String
    @Option(help: "A .p8 key.") var keyFile: String

    /// The configuration for pushes of com.example.app0 to app3.
    func configuration(connections: Int) -> Configuration {
        Configuration(
            kafka: .init(bootstrapServers: bootstrapServers, groupID: "benchmark"),
            apns: .init(
                environment: .custom, host: "localhost", port: Int(port), caFile: caFile,
                connections: connections),
            credentials: [
                .init(name: "team", kind: .token(keyFile: keyFile, keyID: "ABC123DEFG", teamID: "DEF123GHIJ"))
            ],
            apps: (0..<4).map {
                .init(name: "app\($0)", topics: ["com.example.app\($0)"], credentials: ["team"])
            })
    }
}

extension Worker {
    /// Waits until `partitions` partitions are assigned and the store is quiet. Its scans and looks have then
    /// ended, and none of its items is in memory or being loaded. A start loads items of an earlier log: about
    /// 8,000 per second, of 65,536 devices and more. All items of a filled store are of an earlier log, because
    /// the benchmark's own log is empty. Each second these items leave memory together, so that memory is empty
    /// for a moment.
    func waitUntilSettled(partitions: Int) {
        while snapshot().assignedPartitions < partitions { usleep(1000) }
        // The shards learn of their partitions a moment later.
        sleep(1)
        guard store != nil else { return }
        var loads = -1
        var quietLooks = 0
        while quietLooks < Self.quietLooks {
            let snapshot = snapshot()
            let isQuiet =
                snapshot.totals.store.scansUnderWay == 0 && snapshot.intake?.looksForSuspended == false
                && snapshot.totals.residentItems == 0 && snapshot.totals.store.loads == loads
            quietLooks = isQuiet ? quietLooks + 1 : 0
            loads = snapshot.totals.store.loads
            usleep(100_000)
        }
    }

    /// Number of quiet checks in two seconds; loaded items leave memory within one second.
    private static let quietLooks = 20
}
