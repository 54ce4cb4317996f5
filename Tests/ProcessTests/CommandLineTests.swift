import Foundation
import HTTP2
import Kafka
import KafkaTestSupport
import TestSupport
import Testing

/// Runs `sluice` to its end.
func sluice(
    _ arguments: String..., input: String = "", environment: [String: String] = [:]
) throws -> (exit: ChildProcess.Exit, standardOutput: String, standardError: String) {
    try ChildProcess.run(Executables.sluice, arguments, input: input, environment: environment)
}

let deviceToken = String(repeating: "0a", count: 32)

@Suite("Command line")
struct CommandLineTests {
    @Test func exitStatusesMatchTheHelp() throws {
        let help = try sluice("--help")
        #expect(help.exit == .status(0))
        for status in ["0", "1", "64", "65", "69", "70", "75", "78"] {
            #expect(help.standardOutput.contains("\n  \(status) "), "\(status) is not documented")
        }
        #expect(try sluice("--version").standardOutput.hasPrefix("sluice 0.1.0"))
        #expect(try sluice("nonsense").exit == .status(64))
        #expect(try sluice("produce").exit == .status(64))
        #expect(try sluice("kafka", "--topic", "a:0").exit == .status(64))
        #expect(try sluice("kafka", "--topic", "a:1", "--topic", "a:2").exit == .status(64))
    }

    @Test func everyCommandHasHelpWithAnOverview() throws {
        let root = try sluice("--help").standardOutput
        let names = root.split(separator: "\n").drop { $0 != "SUBCOMMANDS:" }.dropFirst()
            .filter { $0.hasPrefix("  ") && !$0.hasPrefix("   ") && !$0.contains("See 'sluice") }
            .compactMap { $0.split(separator: " ").first.map(String.init) }
        #expect(names.contains("config") && names.contains("kafka"))
        for name in names {
            let result = try sluice("help", name)
            #expect(result.exit == .status(0))
            #expect(result.standardOutput.hasPrefix("OVERVIEW: "), "\(name)")
        }
    }

    @Test func configCheckReportsEveryMistakeAndExitsWith78() throws {
        let directory = try TemporaryDirectory("config")
        let wrong = try directory.write("kafka: {bootstrap-servers: a:1}\nlogs: {}\n", to: "wrong.yaml")
        let refused = try sluice("config", "check", wrong)
        #expect(refused.exit == .status(78))
        #expect(refused.standardOutput == "")
        #expect(
            refused.standardError.contains(
                "\(wrong):2:1: logs: there is no such setting (did you mean `log`?)"))
        #expect(refused.standardError.contains("apps: is required"))
        #expect(refused.standardError.contains("2 mistakes"))

        try directory.write(CertificateAuthority(commonName: "test").privateKeyPEM, to: "team.p8")
        let right = try directory.write(
            """
            kafka: {bootstrap-servers: "a:1"}
            apps:
              - name: news
                topics: [com.example.news]
                credential: {type: token, key-file: team.p8, key-id: ABC123DEFG, team-id: DEF123GHIJ}
            """, to: "right.yaml")
        let accepted = try sluice("config", "check", right)
        #expect(accepted.exit == .status(0))
        #expect(accepted.standardOutput.hasPrefix("\(right): ok\n"))
        #expect(accepted.standardOutput.contains("\n  commands  none: set admin.socket"), "\(accepted)")
        try directory.write("0123456789abcdef\n", to: "token")
        chmod(directory.file("team.p8"), 0o600)
        chmod(directory.file("token"), 0o644)
        let commands = ["SLUICE_ADMIN__TOKEN_FILE": directory.file("token")]
        let exposed = try sluice("config", "check", right, environment: commands)
        #expect(exposed.exit == .status(0))
        #expect(
            exposed.standardOutput.contains("\n! admin.token-file: users other than the owner"), "\(exposed)")
        let odd = try directory.write(
            """
            kafka: {bootstrap-servers: "a:1"}
            credentials: {old: {type: token, key-file: team.p8, key-id: ABC123DEFG, team-id: DEF123GHIJ}}
            apps:
              - name: news
                topics: [com.example.my_news, com..example, com.example.news]
                credential: {type: token, key-file: team.p8, key-id: ABC123DEFG, team-id: DEF123GHIJ}
            """, to: "odd.yaml")
        let warned = try sluice("config", "check", odd)
        #expect(warned.exit == .status(0))
        #expect(
            warned.standardOutput.split(separator: "\n").filter { $0.hasPrefix("!") }.map {
                $0.prefix { $0 != ";" }
            }
            .joined(separator: "\n") == """
                ! \(odd):2:20: credentials.old: is used by no app
                ! \(odd):5:13: apps[0].topics: `com.example.my_news` has an underscore, which Apple documents for no bundle identifier
                ! \(odd):5:13: apps[0].topics: no job can have the topic `com..example`: write a bundle identifier, parts joined by single periods, of at most 255 bytes
                """)
        let apps = """
            kafka: {bootstrap-servers: "a:1"}
            credentials: {team: {type: token, key-file: team.p8, key-id: ABC123DEFG, team-id: DEF123GHIJ}}
            apps:
              - {name: news, topics: [com.example.news], credential: team}
              - {name: mail, topics: [com.example.mail], credential: team}

            """
        let shared = try sluice("config", "check", directory.write(apps, to: "shared.yaml"))
        #expect(
            shared.standardOutput.contains("apps: several apps or environments share the worker"), "\(shared)"
        )
        let stored = try sluice(
            "config", "check", directory.write(apps + "store: {directory: store}\n", to: "stored.yaml"))
        #expect(stored.exit == .status(0) && !stored.standardOutput.contains("! "), "\(stored)")
        try directory.write("short\n", to: "token")
        let short = try sluice("config", "check", right, environment: commands)
        #expect(short.exit == .status(78))
        #expect(
            short.standardError.contains(
                "admin.token-file: \(directory.file("token")) has fewer than 16 bytes"))
        let overridden = try sluice("config", "check", right, environment: ["SLUICE_LOG__LEVEL": "shout"])
        #expect(overridden.exit == .status(78))
        #expect(
            overridden.standardError.contains("environment variable SLUICE_LOG__LEVEL: log.level: `shout`"))
    }

    @Test func hashIsPrintedForDeviceTokensOnly() throws {
        let directory = try TemporaryDirectory("hash")
        try directory.write(String(repeating: "0f", count: 32), to: "hash.key")
        // Whoever uses the tool has neither the worker's key nor the variables of its service.
        let path = try directory.write(
            """
            kafka: {bootstrap-servers: "a:1"}
            outcomes: {device-token: hash, hash-key-file: hash.key}
            apps:
              - name: news
                topics: [com.example.news]
                credential: {type: token, key-file: $CREDENTIALS_DIRECTORY/keys_team.p8, key-id: ABC123DEFG, team-id: DEF123GHIJ}
            """, to: "hash.yaml")
        let hashed = try sluice(
            "config", "token-hash", path, input: "\(deviceToken)\n\n\(deviceToken.uppercased())\r\n")
        #expect(hashed.exit == .status(0))
        let lines = hashed.standardOutput.split(separator: "\n")
        #expect(lines.count == 2 && lines.first?.count == 32 && lines.first == lines.last)
        for wrong in ["xyz", "abc", String(deviceToken.dropLast())] {
            let refused = try sluice("config", "token-hash", path, input: "\(deviceToken)\n\(wrong)\n")
            #expect(refused.exit == .status(65))
            #expect(refused.standardError.contains("line 2 of standard input is no device token"))
            #expect(!refused.standardError.contains(wrong))
        }
        #expect(try sluice("config", "token-hash", path, input: "\n").exit == .status(65))
        #expect(try sluice("config", "acls", path).exit == .status(0))
        let unreachable = try sluice(
            "redrive", "-c", path, "-b", "127.0.0.1:\(try freePort())", "--dead-letters", "--dry-run")
        #expect(unreachable.exit == .status(69), "\(unreachable.standardError)")
        let check = try sluice("config", "check", path)
        #expect(
            check.exit == .status(78)
                && check.standardError.contains("needs the variable CREDENTIALS_DIRECTORY"))
    }

    @Test func documentedSettingsAreTheReference() throws {
        let table = try sluice("config", "reference", "--markdown")
        #expect(table.exit == .status(0))
        #expect(table.standardOutput.split(separator: "\n").count > 30)
        #expect(try Repository.read("Deploy/configuration.md").contains(table.standardOutput))
        let list = try sluice("config", "reference")
        #expect(list.standardOutput.contains("SLUICE_KAFKA__BOOTSTRAP_SERVERS"))
    }

    @Test func produceRefusesInvalidJobsBeforeConnecting() throws {
        let result = try sluice(
            "produce", "--device-token", deviceToken, "--topic", "com.example.news", "--payload", "[1]")
        #expect(result.exit == .status(65))
        #expect(result.standardError.contains("payload: must be a JSON object [json-object]"))
        let both = try sluice("produce", "--kind", "cancel", "--device-token", deviceToken)
        #expect(both.exit == .status(65))
        #expect(both.standardError.contains("a cancel must name the pushes to withdraw"))
        for (options, message) in [
            (["--kind", "device"], "--event is missing"),
            (["--event", "online"], "--event is only for --kind device"),
            (["--kind", "cancel", "--ttl", "1"], "--ttl is only for --kind push"),
            (
                ["--kind", "device", "--event", "online", "--topic", "a"],
                "--topic is not for --kind device"
            ),
            (
                ["--kind", "device", "--event", "offline", "--all-partitions"],
                "--all-partitions is only for --kind device --event erase"
            ),
        ] {
            let wrong = try ChildProcess.run(
                Executables.sluice, ["produce", "--device-token", deviceToken] + options)
            #expect(wrong.exit == .status(64))
            #expect(wrong.standardError.contains(message))
        }
    }

    @Test func unreachableClusterExitsWith69AndIsNamed() throws {
        let result = try sluice(
            "produce", "-b", "127.0.0.1:1", "--device-token", deviceToken, "--topic", "com.example.news",
            "--alert", "Hi", "-X", "socket.connection.setup.timeout.ms=1000")
        #expect(result.exit == .status(69))
        #expect(result.standardError.contains("127.0.0.1:1"))
        let property = try sluice("outcomes", "-X", "no.such.property=1")
        #expect(property.exit == .status(78))
        #expect(property.standardError.contains("no.such.property"))
    }
}

@Suite("Command line: Kafka tools")
struct KafkaToolTests {
    /// Runs `sluice kafka` during `body`, which gets its address. After `body` SIGTERM must end it with exit status 0.
    private func withKafka(port: UInt16 = 0, _ body: (String) throws -> Void) throws {
        let directory = try TemporaryDirectory("kafka")
        let kafka = try ChildProcess(
            Executables.sluice, ["kafka", "--port", "\(port)", "--ready-file", directory.file("ready")])
        try kafka.waits(for: "kafka is ready") { directory.read("ready") != nil }
        try body(try #require(directory.read("ready")).trimmingCharacters(in: .whitespacesAndNewlines))
        #expect(try kafka.stop() == .status(0))
    }

    @Test func kafkaServesItsTopicsUntilStopped() throws {
        let directory = try TemporaryDirectory("kafka")
        let ready = directory.file("ready")
        let kafka = try ChildProcess(
            Executables.sluice,
            ["kafka", "--port", "0", "--topic", "a:3", "--brokers", "2", "--ready-file", ready])
        try kafka.waits(for: "kafka is ready") { directory.read("ready") != nil }
        // A single address, whose brokers are listed below, so that clients of all kinds find them.
        let servers = try #require(directory.read("ready")).split(separator: "\n")[0]
        #expect(servers.split(separator: ",").count == 1)
        let admin = try KafkaAdmin(properties: KafkaProperties(bootstrapServers: String(servers)))
        #expect(try admin.partitionCount(of: "a") == 3)
        #expect(try admin.metadata().brokers.count == 2)
        #expect(try kafka.stop() == .status(0))
        #expect(directory.read("ready") == nil)
        #expect(kafka.standardOutput.contains("a  3 partitions"))
    }

    @Test func kafkaStopsWithItsInputOnlyWhenAsked() throws {
        let directory = try TemporaryDirectory("kafka")
        let bound = try ChildProcess(
            Executables.sluice,
            ["kafka", "--port", "0", "--stop-with-input", "--ready-file", directory.file("a")])
        let free = try ChildProcess(
            Executables.sluice, ["kafka", "--port", "0", "--ready-file", directory.file("b")])
        try bound.waits(for: "the first kafka is ready") { directory.read("a") != nil }
        try free.waits(for: "the second kafka is ready") { directory.read("b") != nil }
        bound.closeInput()
        free.closeInput()
        #expect(try bound.wait() == .status(0))
        #expect(free.isRunning)
        free.signal(SIGINT)
        #expect(try free.wait() == .status(0))
    }

    @Test func takenPortExitsWith69AndIsNamed() throws {
        let port = try freePort()
        try withKafka(port: port) { address in
            #expect(address == "127.0.0.1:\(port)")
            let second = try sluice("kafka", "--port", "\(port)")
            #expect(second.exit == .status(69))
            #expect(second.standardError.contains(address))
        }
    }

    @Test func kafkaWithoutTopicsServesTheToolsDefaults() throws {
        try withKafka { servers in
            let job = ["-b", servers, "--device-token", deviceToken, "--topic", "a.b", "--payload", "{}"]
            let produced = try ChildProcess.run(Executables.sluice, ["produce"] + job)
            #expect(produced.standardOutput.hasPrefix("produced to sluice.jobs, partition "))
            for topic in ["sluice.outcomes", "sluice.dead-letters"] {
                let produced = try ChildProcess.run(
                    Executables.sluice, ["produce", "--jobs-topic", topic] + job)
                #expect(produced.exit == .status(0), "\(produced.standardError)")
            }
            let outcomes = try sluice(
                "outcomes", "-b", servers, "--from-beginning", "--until-end", "--json")
            #expect(outcomes.standardOutput == "{}\n")
            let letters = try sluice(
                "outcomes", "-b", servers, "--dead-letters", "--from-beginning", "--until-end", "--json")
            #expect(letters.standardOutput.contains(#""key":"\#(deviceToken)""#))
        }
    }

    @Test func produceSendsBothEncodingsAndNamesInvalidLines() throws {
        let kafka = try TestKafka([("jobs", 2)])
        let servers = kafka.bootstrapServers
        let topic = kafka.topic("jobs")
        for mode in ["binary", "structured"] {
            let result = try sluice(
                "produce", "-b", servers, "--jobs-topic", topic, "--mode", mode, "--device-token",
                deviceToken, "--topic", "com.example.news", "--alert", "Say \"hi\"", "--priority", "5",
                "--collapse-id", "c", "--ttl", "60")
            #expect(result.exit == .status(0), "\(result.standardError)")
            #expect(result.standardOutput.hasPrefix("produced to \(topic), partition "))
        }
        for options in [
            ["--kind", "cancel", "--topic", "com.example.news", "--collapse-id", "c"],
            ["--kind", "device", "--event", "offline", "--occurred-at", "1700000000000"],
            [
                "--topic", "com.example.news", "--payload", "{}", "--deliver-at", "1700000000000",
                "--delivery",
                "confirm", "--receipt-timeout", "30", "--duplicates", "avoid",
                "--environment", "sandbox",
            ],
        ] {
            let target = ["-b", servers, "--jobs-topic", topic, "--device-token", deviceToken]
            let result = try ChildProcess.run(
                Executables.sluice, ["produce", "--mode", "structured"] + target + options)
            #expect(result.exit == .status(0), "\(result.standardError)")
        }
        let erasure = try sluice(
            "produce", "-b", servers, "--jobs-topic", topic, "--mode", "structured", "--device-token",
            deviceToken, "--kind", "device", "--event", "erase", "--all-partitions")
        #expect(erasure.exit == .status(0), "\(erasure.standardError)")
        #expect(erasure.standardOutput == "produced to \(topic), 2 of 2 partitions\n")
        let reader = try TopicReader(kafka, "jobs", partitions: 2)
        try eventually("each partition has the event") {
            reader.poll()
            let events = reader.records.filter {
                $0.value?.firstRange(of: Array(#""event":"erase""#.utf8)) != nil
            }
            return events.map(\.partition).sorted() == [0, 1]
        }
        let job = """
            {"kind":"push","device-token":"\(deviceToken)","topic":"a.b","push-type":"alert","payload":{}}
            """
        let lines = [job, "", "nonsense", job, #"{"kind":"push","device-token":"xyz"}"#, job]
        let result = try sluice(
            "produce", "-b", servers, "--jobs-topic", topic, "--file", "-",
            input: lines.joined(separator: "\n"))
        #expect(result.exit == .status(65))
        #expect(result.standardError.contains("-:3: is not a JSON object"))
        #expect(result.standardError.contains("-:5: "))
        #expect(result.standardError.contains("2 lines are not valid jobs"))
        #expect(result.standardOutput.hasPrefix("3 jobs to \(topic) (2 partitions)"))

        let records = try sluice(
            "outcomes", "-b", servers, "--from", topic, "--from-beginning", "--until-end", "--json")
        #expect(records.exit == .status(0))
        let values = records.standardOutput.split(separator: "\n").sorted()
        #expect(values.count == 10)
        let device = #""device-token":"\#(deviceToken)""#
        #expect(
            values.contains(
                #"{"kind":"cancel",\#(device),"topic":"com.example.news","collapse-id":"c"}"#[...]))
        #expect(
            values.contains(
                #"{"kind":"device",\#(device),"event":"offline","occurred-at":1700000000000}"#[...]))
        #expect(
            values.contains {
                $0.contains(#""deliver-at":1700000000000,"delivery":"confirm","receipt-timeout":30"#)
                    && $0.contains(#""duplicates":"avoid","environment":"sandbox""#)
            })
        #expect(values.contains(#"{"aps":{"alert":"Say \"hi\""}}"#))
        #expect(values.contains { $0.contains(#""priority":5,"ttl":60,"collapse-id":"c""#) })
    }

    @Test func fileIsProducedInTheGivenMode() throws {
        let kafka = try TestKafka([("jobs", 1)])
        let target = ["-b", kafka.bootstrapServers, "--jobs-topic", kafka.topic("jobs"), "--file", "-"]
        let job = """
            {"kind":"push","device-token":"\(deviceToken)","topic":"a.b","push-type":"alert","collapse-id":"\\u0061",\
            "ttl":6e1,"payload":{"aps": {}}}
            """
        let invalid = """
            {"device-token":"\(deviceToken)","topic":"a.b","push-type":"alert","payload":{},"ttl":1.5}
            """
        let lines = "kind:push\napns-topic:a.b\napns-push-type:alert\nttl:60\napns-collapse-id:a\n"
        let headers = ["kind", "apns-topic", "apns-push-type", "ttl", "apns-collapse-id"]
        let reader = try TopicReader(kafka, "jobs", partitions: 1)
        for (number, mode) in [nil, "structured", "packed", "binary"].enumerated() {
            var options = mode.map { ["--mode", $0] } ?? []
            // An unchecked line that has no form in another mode is left out as well.
            if number > 1 { options.append("--no-check") }
            let result = try ChildProcess.run(
                Executables.sluice, ["produce"] + target + options, input: "\(job)\n\(invalid)\n")
            #expect(result.exit == .status(65), "\(result.standardError)")
            #expect(
                result.standardError.contains("-:2: ttl: is not a whole number"), "\(result.standardError)")
            #expect(result.standardOutput.hasPrefix("1 job to "), "\(result.standardOutput)")
            try eventually("the record is there") {
                reader.poll()
                return reader.records.count == number + 1
            }
            let record = reader.records[number]
            #expect(record.keyText == deviceToken)
            switch mode {
            case "packed":
                #expect(record.valueText == "\(lines)\n{\"aps\": {}}" && record.headers.isEmpty)
            case "binary":
                #expect(record.valueText == #"{"aps": {}}"# && record.headers.map(\.name) == headers)
            default:
                #expect(record.valueText == job && record.headers.map(\.name) == ["content-type"])
            }
        }
    }

    @Test func produceExitsWith1WhenARecordIsUnacknowledged() throws {
        let kafka = try TestKafka([("jobs", 1)], isOwn: true)
        let job = """
            {"kind":"push","device-token":"\(deviceToken)","topic":"a.b","push-type":"alert","payload":{}}

            """
        let produce = try ChildProcess(
            Executables.sluice,
            [
                "produce", "-b", kafka.bootstrapServers, "--jobs-topic", kafka.topic("jobs"), "--file", "-",
                "-X", "message.timeout.ms=3000",
            ])
        produce.write(job)
        do {
            let reader = try TopicReader(kafka, "jobs", partitions: 1)
            try produce.waits(for: "the first record is there") {
                reader.poll()
                return reader.records.count == 1
            }
        }
        // The second record gets no answer, and fails after message.timeout.ms.
        kafka.suspend()
        produce.write(job)
        produce.closeInput()
        #expect(try produce.wait() == .status(1))
        #expect(produce.standardError.contains("1 of 2 records were not acknowledged"))
    }

    @Test func outcomesPrintsOutcomesAndDeadLetters() throws {
        let kafka = try TestKafka([("outcomes", 2), ("dead-letters", 1)])
        let outcome = """
            {"outcome":"rejected","device-token":"\(deviceToken)","topic":"com.example.news","push-type":"alert",\
            "apns-id":"123e4567-e89b-12d3-a456-426614174000","status":410,"reason":"Unregistered",\
            "reason-class":"token","delete-token":true,"attempts":1,\
            "source":{"topic":"sluice.jobs","partition":3,"offset":17},\
            "created-at":1795231185422,"polled-at":1795231185423,"finished-at":1795231185450}
            """
        try kafka.produce(
            to: "outcomes", [Int32(0), 1].map { NewRecord(value: outcome, partition: $0) })
        let letter = NewRecord(headers: [
            ("sluice-error-field", "apns-priority"), ("sluice-error-rule", "choice"),
            ("sluice-error-message", "must be 10, 5 or 1"), ("sluice-source-topic", "sluice.jobs"),
            ("sluice-source-partition", "1"), ("sluice-source-offset", "42"),
        ])
        try kafka.produce(to: "dead-letters", [letter])

        let servers = kafka.bootstrapServers
        let topic = kafka.topic("outcomes")
        let all = try sluice(
            "outcomes", "-b", servers, "--from", topic, "--from-beginning", "--until-end")
        let lines = all.standardOutput.split(separator: "\n")
        #expect(lines.count == 2)
        for line in lines {
            #expect(line.contains("rejected: 410 Unregistered (delete the token)"))
            #expect(line.contains("0a0a0a0a…") && !line.contains("0a0a0a0a0a"))
            #expect(line.contains("28 ms") && line.contains("sluice.jobs[3]@17"))
        }
        let one = try sluice(
            "outcomes", "-b", servers, "--from", topic, "--from-beginning", "--count", "1", "--json")
        #expect(one.standardOutput == outcome + "\n")
        let letters = try sluice(
            "outcomes", "-b", servers, "--dead-letters", "--from", kafka.topic("dead-letters"),
            "--from-beginning", "--until-end")
        #expect(
            letters.standardOutput.contains("sluice.jobs[1]@42  apns-priority: must be 10, 5 or 1 [choice]"))
    }

    @Test func outcomesFollowsItsTopicUntilSIGINT() throws {
        let kafka = try TestKafka([("outcomes", 1)])
        let tail = try ChildProcess(
            Executables.sluice,
            [
                "outcomes", "-b", kafka.bootstrapServers, "--from", kafka.topic("outcomes"), "--json",
                "--from-beginning",
            ])
        try kafka.produce(to: "outcomes", [NewRecord(value: "{}")])
        try tail.waitForOutput("{}\n")
        tail.signal(SIGINT)
        #expect(try tail.wait() == .status(0))
    }
}
