import ArgumentParser

/// Measures Sluice's own parts. The comparisons with other clients are made by the scripts beside it.
@main
struct BenchCommand: ParsableCommand {
    static let configuration = CommandConfiguration(
        commandName: "sluice-bench", abstract: "Measurements of Sluice's parts.",
        subcommands: [
            ConnectionCommand.self, OpenLoopCommand.self, GrowthCommand.self, FairnessCommand.self,
            PriorityCommand.self, AllocationsCommand.self, HeadersCommand.self, Gateway.self,
        ])

    struct Gateway: ParsableCommand {
        static let configuration = CommandConfiguration(
            abstract: "Take a backlog of jobs from Kafka to outcomes with a worker; prints one line of JSON.")

        @Option(
            help:
                "Kafka's bootstrap servers, with the topics sluice.jobs, sluice.outcomes, sluice.dead-letters."
        )
        var bootstrapServers: String
        @Option(help: "Port of the APNs simulator.") var port: UInt16
        @Option(help: "PEM file of the simulator's authority.") var caFile: String
        @Option(help: "A .p8 key.") var keyFile: String
        @Option(help: "Jobs.") var jobs = 100_000
        @Option(help: "Payload bytes.") var payload = 250
        @Option(help: "Connections to APNs.") var connections = 2

        func run() throws {
            var load = GatewayLoad(
                bootstrapServers: bootstrapServers, port: port, caFile: caFile, keyFile: keyFile)
            load.jobs = jobs
            load.payloadBytes = payload
            load.connections = connections
            let result = try load.run()
            print(
                """
                {"jobs":\(result.jobs),"accepted":\(result.accepted),"seconds":\(result.seconds),\
                "cpu_seconds":\(result.cpuSeconds),"jobs_per_second":\(Int(Double(result.jobs) / result.seconds)),\
                "cpu_us_per_job":\(result.cpuSeconds * 1e6 / Double(result.jobs)),\
                "max_resident_mb":\(result.residentMegabytes)}
                """)
        }
    }
}
