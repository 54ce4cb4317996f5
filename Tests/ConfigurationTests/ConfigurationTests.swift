import Foundation
import TestSupport
import Testing

@testable import Configuration

@Suite("Configuration")
struct ConfigurationTests {
    @Test("a minimal configuration has the documented defaults")
    func minimalConfigurationHasDocumentedDefaults() throws {
        let configuration = try Configuration.parse(validConfiguration, name: "f", directory: "/etc/sluice")
        let key = Configuration.Credential(
            name: "team",
            kind: .token(keyFile: "/etc/sluice/team.p8", keyID: "ABC123DEFG", teamID: "DEF123GHIJ"))
        #expect(
            configuration
                == Configuration(
                    kafka: .init(bootstrapServers: "localhost:9092"), apns: .init(environment: .development),
                    credentials: [key],
                    apps: [.init(name: "news", topics: ["com.example.news"], credentials: ["team"])]))
        #expect(configuration.apns.host == "api.sandbox.push.apple.com")
        #expect(configuration.credentials(of: configuration.apps[0]).first == key)
    }

    @Test("every setting is read from YAML and from equal JSON")
    func everySettingIsReadFromYAMLAndJSON() throws {
        let yaml = """
            kafka:
              bootstrap-servers: [a:1, "[::1]:2", SASL_SSL://c:3]
              group-id: g
              topics: {jobs: j, outcomes: o, dead-letters: d, changelog: c}
              create-topics: {partitions: 4, replication-factor: 1}
              properties: {security.protocol: SASL_SSL, debug: broker}
              consumer-properties: {fetch.min.bytes: 10}
              producer-properties: {linger.ms: "5"}
            apns: {environment: custom, host: "::1", port: 2197, ca-file: /ca.pem, connections: 3,
              max-connections: 5, growth-interval: 3s, idle-timeout: 4m, max-connection-age: 6h,
              connect-timeout: 5s, request-timeout: 1m30s, ping-interval: 250ms, tls-minimum: 1.3,
              proxy: {host: proxy.local, port: 3128, user: me, password-file: pw}}
            apps:
              - {name: a, topics: [a.b, a.c], credential:
                  {type: certificate, certificate-file: a.pem, key-file: ../a.key, connections: 7,
                   max-connections: 9}, weight: 3, rate-per-second: 2.5, burst: 4, max-in-flight: 5,
                 coalesce-window: 2s, missing-collapse-id: apns-id}
            jobs: {pass-headers: [traceparent, "my-*"], clock-tolerance: 1m}
            delivery:
              max-in-flight: 7
              max-in-flight-bytes: 1GiB
              partition-share: 0.25
              read-ahead: on
              shards: 2
              retry: {initial: 10ms, maximum: 2h, multiplier: 1.5, max-attempts: 3}
              max-pending-per-device: 8
              max-in-flight-per-device: 3
              known-devices: 1000
              return-rate: 50
              max-expiration: 7d
              drain-deadline: 0
              commit-interval: 100ms
              max-uncommitted: 64
              commit-patience: 3s
            store:
              directory: store
              after: 1m
              cache: 32MiB
              write-buffer: 16MiB
              changelog: off
              transactions: off
              transaction-interval: 1s
            log: {level: debug, format: json}
            metrics: {stats-interval: 0}
            admin: {listen: "[::1]:0", allowed-hosts: [a.example, "*.b.example", "[::1]"]}
            process: {dumpable: on}
            """
        let json = """
            {"kafka": {"bootstrap-servers": "a:1, [::1]:2, SASL_SSL://c:3", "group-id": "g",
            \t"topics": {"jobs": "j", "outcomes": "o", "dead-letters": "d", "changelog": "c"},
            \t"create-topics": {"partitions": 4, "replication-factor": 1},
            \t"properties": {"security.protocol": "SASL_SSL", "debug": "broker"},
            \t"consumer-properties": {"fetch.min.bytes": 10}, "producer-properties": {"linger.ms": 5}},
             "apns": {"environment": "custom", "host": "::1", "port": 2197, "ca-file": "\\/ca.pem",
              "connections": 3, "max-connections": 5, "growth-interval": "3s", "idle-timeout": "4m",
              "max-connection-age": "6h", "connect-timeout": "5s", "request-timeout": "1m30s",
              "ping-interval": "250ms", "tls-minimum": "1.3",
              "proxy": {"host": "proxy.local", "port": 3128, "user": "me", "password-file": "pw"}},
             "apps": [{"name": "a", "topics": ["a.b", "a.c"], "credential": {"type": "certificate",
              "certificate-file": "a.pem", "key-file": "../a.key", "connections": 7,
              "max-connections": 9}, "weight": 3, "rate-per-second": 2.5, "burst": 4, "max-in-flight": 5,
              "coalesce-window": "2s", "missing-collapse-id": "apns-id"}],
             "delivery": {"max-in-flight": 7, "max-in-flight-bytes": "1GiB", "shards": 2,
              "partition-share": 0.25, "read-ahead": "on", "retry":
              {"initial": "10ms", "maximum": "2h", "multiplier": 1.5, "max-attempts": 3},
              "max-pending-per-device": 8, "max-in-flight-per-device": 3, "known-devices": 1000,
              "return-rate": 50, "max-expiration": "7d", "drain-deadline": "0", "commit-interval": "100ms",
              "max-uncommitted": 64, "commit-patience": "3s"},
             "jobs": {"pass-headers": ["traceparent", "my-*"], "clock-tolerance": "1m"},
             "store": {"directory": "/etc/sluice/store", "after": "60s", "cache": "32MiB", "write-buffer": "16MiB",
              "changelog": "off", "transactions": "off", "transaction-interval": "1s"},
             "log": {"level": "debug", "format": "json"}, "metrics": {"stats-interval": 0},
             "admin": {"listen": "[::1]:0", "allowed-hosts": "a.example, *.b.example, [::1]"},
             "process": {"dumpable": "on"}}
            """
        let expected = Configuration(
            kafka: .init(
                bootstrapServers: "a:1,[::1]:2,SASL_SSL://c:3", groupID: "g",
                topics: .init(jobs: "j", outcomes: "o", deadLetters: "d", changelog: "c"),
                createTopics: .init(partitions: 4, replicationFactor: 1),
                properties: [
                    .init(name: "security.protocol", value: "SASL_SSL"),
                    .init(name: "debug", value: "broker"),
                ],
                consumerProperties: [.init(name: "fetch.min.bytes", value: "10")],
                producerProperties: [.init(name: "linger.ms", value: "5")]),
            apns: .init(
                environment: .custom, host: "::1", port: 2197, caFile: "/ca.pem", connections: 3,
                maxConnections: 5, growthInterval: .seconds(3), idleTimeout: .seconds(240),
                maxConnectionAge: .seconds(6 * 3600), connectTimeout: .seconds(5),
                requestTimeout: .seconds(90), pingInterval: .milliseconds(250), tlsMinimum: .tls13,
                proxy: .init(host: "proxy.local", port: 3128, user: "me", passwordFile: "/etc/sluice/pw")),
            credentials: [
                .init(
                    name: "app a",
                    kind: .certificate(certificateFile: "/etc/sluice/a.pem", keyFile: "/etc/a.key"),
                    connections: 7, maxConnections: 9)
            ],
            apps: [
                .init(
                    name: "a", topics: ["a.b", "a.c"], credentials: ["app a"], weight: 3, ratePerSecond: 2.5,
                    burst: 4, maxInFlight: 5, coalesceWindow: .seconds(2), missingCollapseIdentifier: .apnsID)
            ],
            jobs: .init(passHeaders: ["traceparent", "my-*"], clockTolerance: .seconds(60)),
            delivery: .init(
                maxInFlight: 7, maxInFlightBytes: 1 << 30, partitionShare: 0.25, readAhead: .on, shards: 2,
                retry: .init(
                    initial: .milliseconds(10), maximum: .seconds(7_200), multiplier: 1.5, maxAttempts: 3),
                maxPendingPerDevice: 8, maxInFlightPerDevice: 3, knownDevices: 1000, returnRate: 50,
                maxExpiration: .seconds(7 * 86_400), drainDeadline: .zero, commitInterval: .milliseconds(100),
                maxUncommitted: 64, commitPatience: .seconds(3)),
            store: .init(
                directory: "/etc/sluice/store", after: .seconds(60), cacheBytes: 32 << 20,
                writeBufferBytes: 16 << 20, changelog: .off, transactions: .off,
                transactionInterval: .seconds(1)),
            log: .init(level: .debug, format: .json), metrics: .init(statsInterval: .zero),
            admin: .init(
                listen: ListenAddress(host: "::1", port: 0),
                allowedHosts: ["a.example", "*.b.example", "[::1]"]),
            process: .init(dumpable: .on))
        #expect(try Configuration.parse(yaml, name: "f", directory: "/etc/sluice") == expected)
        #expect(try Configuration.parse(json, name: "f", directory: "/etc/sluice") == expected)
    }

    @Test(
        "durations parse and format",
        arguments: [
            ("0", 0), ("250ms", 250), ("30s", 30_000), ("5m", 300_000), ("1h30m", 5_400_000),
            ("30d", 2_592_000_000),
        ])
    func durationsParseAndFormat(text: String, milliseconds: Int) {
        #expect(DurationText.parse(text) == .milliseconds(milliseconds))
        #expect(DurationText.format(.milliseconds(milliseconds)) == text)
    }

    @Test(
        "invalid durations are refused",
        arguments: [
            "", "5", "s", "5 s", "-5s", "1.5s", "5S", "30s1m", "1s1s", "5sec", "99999999999999999999s",
            "9223372036854775807d",
        ])
    func invalidDurationsAreRefused(text: String) {
        #expect(DurationText.parse(text) == nil)
    }

    @Test("sizes parse and format")
    func sizesParseAndFormat() {
        #expect(SizeText.parse("65536") == 65_536)
        #expect(SizeText.parse("64KiB") == 65_536)
        #expect(SizeText.parse("1GiB") == 1 << 30)
        for text in ["", "KiB", "1KB", "1 KiB", "-1", "1.5MiB", "9223372036854775807GiB"] {
            #expect(SizeText.parse(text) == nil, "\(text)")
        }
        #expect(SizeText.format(64 << 20) == "64MiB")
        #expect(SizeText.format(1_000) == "1000")
    }

    @Test("the edit distance counts single edits")
    func editDistanceCountsEdits() {
        #expect(Suggestion.editDistance("", "abc") == 3)
        #expect(Suggestion.editDistance("kafka", "kafak") == 1)
        #expect(Suggestion.editDistance("kitten", "sitting") == 3)
        #expect(Suggestion.nearest(to: "xyz", among: ["kafka"]) == nil)
    }
}

@Suite("Configuration: example and reference")
struct ConfigurationExampleTests {
    @Test("the example parses and its values are the defaults")
    func exampleParsesToTheDefaults() throws {
        let text = try Repository.read("Deploy/sluice.example.yaml")
        let example = try Configuration.parse(text, name: "sluice.example.yaml")
        #expect(example.delivery == Configuration.Delivery())
        #expect(example.log == Configuration.Log())
        #expect(example.metrics == Configuration.Metrics())
        #expect(example.admin == Configuration.Admin())
        #expect(example.process == Configuration.Process())
        #expect(example.apns == Configuration.APNS())
        #expect(example.kafka.topics == Configuration.Kafka.Topics())
        #expect(example.kafka.createTopics == Configuration.Kafka.CreateTopics())
        #expect(example.kafka.groupID == "sluice")
        #expect(example.apps.count == 3)
    }

    @Test("the example mentions every setting")
    func exampleMentionsEverySetting() throws {
        let text = try Repository.read("Deploy/sluice.example.yaml")
        let settings = Configuration.reference()
        #expect(settings.count > 30)
        for setting in settings {
            let last = setting.key.split(separator: ".").last.map(String.init) ?? setting.key
            #expect(text.contains("\(last):"), "\(setting.key) is not in the example")
        }
    }

    @Test("the reference names each setting once, with its variable")
    func referenceNamesEachSettingOnce() throws {
        let settings = Configuration.reference()
        #expect(Set(settings.map(\.key)).count == settings.count)
        func variable(_ key: String) -> String? { settings.first { $0.key == key }?.environmentVariable }
        #expect(variable("kafka.bootstrap-servers") == "SLUICE_KAFKA__BOOTSTRAP_SERVERS")
        #expect(variable("delivery.retry.max-attempts") == "SLUICE_DELIVERY__RETRY__MAX_ATTEMPTS")
        #expect(variable("apps[].topics") == "SLUICE_APPS__<NAME>__TOPICS")
        #expect(variable("credentials.<name>.key-file") == "SLUICE_CREDENTIALS__<NAME>__KEY_FILE")
    }

    @Test("the admin endpoint listens on an address of this machine, or is off")
    func adminAddressIsLocalOrOff() throws {
        func listen(_ text: String) throws -> ListenAddress? {
            try Configuration.parse(
                validConfiguration + "\nadmin: {listen: \(text)}", name: "f", directory: "/etc/sluice"
            ).admin.listen
        }
        #expect(try listen("off") == nil)
        #expect(try listen("\"off\"") == nil)
        #expect(try listen("localhost:80") == ListenAddress(host: "127.0.0.1", port: 80))
        #expect(try listen("0.0.0.0:0") == ListenAddress(host: "0.0.0.0", port: 0))
        #expect(try listen("\"[::]:65535\"") == ListenAddress(host: "::", port: 65_535))
        for wrong in [
            "9464", ":9464", "example.com:1", "127.0.0.1", "127.0.0.1:65536", "::1:80", "127.0.0.1:+1",
        ] {
            #expect(throws: ConfigurationError.self) { try listen("\"\(wrong)\"") }
        }
    }

    @Test("headers to pass are names or beginnings of names")
    func passedHeadersAreValidated() throws {
        func headers(_ text: String) throws -> [String] {
            try Configuration.parse(
                validConfiguration + "\njobs: {pass-headers: [\(text)]}", name: "f", directory: "/"
            ).jobs.passHeaders
        }
        #expect(try headers("") == [])
        for right in ["traceparent", "x-*", "a", "X_b.c"] {
            #expect(try headers("\"\(right)\"") == [right])
        }
        for wrong in ["", "*", "a*b", "a b", "a**", "é", String(repeating: "a", count: 256)] {
            #expect(throws: ConfigurationError.self, "\(wrong)") { try headers("\"\(wrong)\"") }
        }
    }

    @Test("hosts are names or addresses")
    func hostsAreNamesOrAddresses() throws {
        for host in ["localhost", "my_host", "10.0.0.1", "::1", "fe80::1%eth0", "relay.example."] {
            let apns = "apns: {environment: custom, host: \"\(host)\", proxy: {host: \"\(host)\"}}"
            let text = validConfiguration.replacing("apns:\n  environment: development", with: apns)
            let configuration = try Configuration.parse(text, name: "f")
            #expect(configuration.apns.host == host)
            #expect(configuration.apns.proxy?.host == host)
        }
    }

    @Test("a byte order mark at the beginning of a file is skipped")
    func byteOrderMarkIsSkipped() throws {
        let directory = try TemporaryDirectory("mark")
        try directory.write("\u{FEFF}secret\n", to: "password")
        try directory.write("key", to: "team.p8")
        let proxy = "environment: development\n  proxy: {host: a, user: me, password-file: password}"
        let file = try directory.write(
            "\u{FEFF}" + validConfiguration.replacing("environment: development", with: proxy),
            to: "sluice.yaml")
        let configuration = try Configuration.load(path: file, environment: [:])
        #expect(configuration.kafka.bootstrapServers == "localhost:9092")
        let secret = try SecretFile.read(#require(configuration.apns.proxy?.passwordFile)).get()
        #expect(secret == "secret")
    }

    @Test("allowed hosts are names, addresses, patterns, or any")
    func allowedHostsAreValidated() throws {
        func hosts(_ text: String) throws -> [String] {
            try Configuration.parse(
                validConfiguration + "\nadmin: {allowed-hosts: [\(text)]}", name: "f",
                directory: "/etc/sluice"
            ).admin.allowedHosts
        }
        for right in ["a", "a.example", "*.a.example", "10.0.0.1", "::1", "[2001:db8::1]", "*", "a_b.c-d"] {
            #expect(try hosts("\"\(right)\"") == [right])
        }
        for wrong in ["", "a:80", "http://a", "a/", "a*.b", "**", "*.", "[::1]:80", "a b", "é"] {
            #expect(throws: ConfigurationError.self, "\(wrong)") { try hosts("\"\(wrong)\"") }
        }
    }
}
