import ArgumentParser
import Gateway

/// `sluice config acls`
struct ConfigACLs: ParsableCommand {
    static let configuration = CommandConfiguration(
        commandName: "acls",
        abstract: "Print the rights in Kafka that a worker with this configuration needs.",
        discussion: """
            The output follows from topics, group, store and kafka.create-topics. Nothing is connected or changed: let \
            Kafka's administrator run or apply the output.

              sluice config acls sluice.yaml --principal User:sluice
              sluice config acls sluice.yaml --format strimzi --cluster my-cluster | kubectl apply -f -
            """)

    enum Format: String, ExpressibleByArgument, CaseIterable {
        case kafkaACLs = "kafka-acls"
        case strimzi
    }

    @Argument(help: "A YAML or JSON file. Without a file, all settings come from the environment.")
    var file: String?

    @Option(help: "Commands of kafka-acls, or a KafkaUser of Strimzi.")
    var format = Format.kafkaACLs

    @Option(help: "The worker's principal in Kafka.")
    var principal = "User:sluice"

    @Option(
        help: ArgumentHelp(
            "With --format kafka-acls: file of the administrator's properties.", valueName: "path"))
    var commandConfig: String?

    @Option(help: ArgumentHelp("With --format strimzi: name of the Kafka resource.", valueName: "name"))
    var cluster = "my-cluster"

    func validate() throws {
        guard principal.hasPrefix("User:"), principal.utf8.count > 5,
            principal.unicodeScalars.allSatisfy({ $0.value >= 0x20 && $0.value != 0x7f })
        else { throw ValidationError("--principal: a principal has the form User:NAME") }
        guard format == .strimzi else { return }
        for (option, name) in [("--principal", userName), ("--cluster", cluster)] {
            let isName =
                (1...253).contains(name.utf8.count)
                && name.utf8.allSatisfy { byte in
                    (0x61...0x7a).contains(byte) || (0x30...0x39).contains(byte) || "-.".utf8.contains(byte)
                }
            guard isName, let first = name.first, let last = name.last, first.isLetter || first.isNumber,
                last.isLetter || last.isNumber
            else {
                throw ValidationError(
                    "\(option): `\(name)` can't name a resource of Kubernetes (small letters, digits, - and .)"
                )
            }
        }
    }

    private var userName: String { String(principal.dropFirst(5)) }

    func run() throws {
        let configuration = try loadConfiguration(file, .settings).configuration
        let list = WorkerACL.needed(by: configuration)
        let text =
            switch format {
            case .kafkaACLs:
                WorkerACL.commands(
                    list, principal: principal, bootstrapServers: configuration.kafka.bootstrapServers,
                    commandConfig: commandConfig)
            case .strimzi:
                WorkerACL.kafkaUser(
                    list, name: userName, cluster: cluster,
                    authentication: WorkerACL.authentication(of: configuration.kafka))
            }
        Terminal.output(lines: text)
    }
}
