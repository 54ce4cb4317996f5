import ArgumentParser
import Gateway
import Glibc

/// What a worker needs around it: Kafka, with the topics of their default names, and the APNs simulator.
struct WorkerSurroundings: ParsableArguments {
    @Option(
        help: "Kafka's bootstrap servers, with the topics sluice.jobs, sluice.outcomes, sluice.dead-letters.")
    var bootstrapServers: String
    @Option(help: "Port of the APNs simulator.") var port: UInt16
    @Option(help: "PEM file of the simulator's authority.") var caFile: String
    @Option(help: "A .p8 key.") var keyFile: String

    /// For pushes of com.example.app0 to app3.
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
                .init(name: "app\($0)", topics: ["com.example.app\($0)"], credential: "team")
            })
    }
}

extension Worker {
    /// Waits until so many partitions are assigned, and until the store is quiet: its scans have ended, and no item of it is
    /// in memory. A start loads items of an earlier log, and all of a filled store are, because the log is empty.
    func waitUntilSettled(partitions: Int) {
        while snapshot().assignedPartitions < partitions { usleep(1000) }
        // The shards hear of their partitions a moment later.
        sleep(1)
        while snapshot().shards.store.scansUnderWay > 0 { usleep(1000) }
        while store != nil, snapshot().shards.residentItems > 0 { usleep(100_000) }
    }
}
