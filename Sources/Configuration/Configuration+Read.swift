// The settings: names, types, defaults, limits and help texts. The defaults are those of the structs.

extension Configuration {
    /// Reads a whole document. The result is meaningful only when no problem was recorded.
    static func read(
        _ document: ConfigurationValue, files: FileNames,
        collector: ConfigurationCollector
    ) -> Configuration {
        let root = SectionReader(document, path: "", pattern: "", collector: collector)
        let kafka = root.section("kafka") { readKafka($0) }
        let apns = root.section("apns") { readAPNS($0, files: files) }
        var credentials = root.namedSections("credentials") { name, section in
            readCredential(section, name: name, apns: apns, files: files)
        }
        let declared = declaredCredentials(document)
        let apps = root.sections("apps", help: "the apps to push for, at least one") { section in
            readApp(
                section, declared: declared, credentials: &credentials, apns: apns, files: files)
        }
        let jobs = root.section("jobs") { readJobs($0) }
        let outcomes = root.section("outcomes") { readOutcomes($0, files: files) }
        let hasStore = root.contains("store")
        let delivery = root.section("delivery") { readDelivery($0, hasStore: hasStore) }
        let store = readStore(root, files: files)
        let log = root.section("log") { readLog($0) }
        let metrics = root.section("metrics") { readMetrics($0) }
        let admin = root.section("admin") { readAdmin($0, files: files) }
        let switches = root.section("switches") { readSwitches($0) }
        let process = root.section("process") { readProcess($0) }
        root.finish()
        let configuration = Configuration(
            kafka: kafka, apns: apns, credentials: credentials, apps: apps, jobs: jobs,
            outcomes: outcomes, delivery: delivery,
            store: store,
            log: log, metrics: metrics, admin: admin, switches: switches, process: process)
        configuration.checkApps(root)
        return configuration
    }

    private static func readKafka(_ section: SectionReader) -> Kafka {
        let bootstrapServers = section.texts(
            "bootstrap-servers", kind: "comma-separated host:port", required: true, commaSeparated: true,
            help: "brokers to connect to first; they name the others", check: checkServer)
        let groupID = section.text(
            "group-id", default: "sluice",
            help: "consumer group, the same for all workers that share the jobs topic")
        let instanceID = section.text(
            "instance-id",
            help:
                "name of this worker in the group, unique and stable across restarts; default: the variable `POD_NAME`, if it is set",
            check: { $0.isEmpty || $0.utf8.count > 249 ? "has 1 to 249 bytes" : nil })
        let defaults = Kafka.Topics()
        let topics = section.section("topics") { section in
            Kafka.Topics(
                jobs: section.text(
                    "jobs", default: defaults.jobs, help: "topic of the jobs", check: checkTopicName)!,
                outcomes: section.text(
                    "outcomes", default: defaults.outcomes, help: "topic of the outcomes",
                    check: checkTopicName)!,
                deadLetters: section.text(
                    "dead-letters", default: defaults.deadLetters,
                    help: "topic of the records that are not valid jobs", check: checkTopicName)!,
                changelog: section.text(
                    "changelog", default: defaults.changelog,
                    help: "compacted topic of the stores' changes; only with store.changelog",
                    check: checkTopicName)!,
                switches: section.text(
                    "switches", default: defaults.switches,
                    help:
                        "compacted topic of operators' pauses, with one partition; only with store.changelog. Where it is missing, a pause reaches one worker",
                    check: checkTopicName)!)
        }
        let names = [topics.jobs, topics.outcomes, topics.deadLetters, topics.changelog, topics.switches]
        if Set(names).count < names.count {
            section.problem(
                "topics",
                "jobs, outcomes, dead letters, changelog and switches must be five different topics",
                with: ["jobs", "outcomes", "dead-letters", "changelog", "switches"].map {
                    "kafka.topics.\($0)"
                })
        }
        let creates = section.contains("create-topics")
        let createTopics = section.section("create-topics") { section in
            let defaults = Kafka.CreateTopics()
            return Kafka.CreateTopics(
                partitions: section.integer(
                    "partitions", 1...10_000, default: defaults.partitions,
                    help:
                        "partitions of a topic that the worker creates; without this section the worker creates no topics"
                )!,
                replicationFactor: section.integer(
                    "replication-factor", 1...15, default: defaults.replicationFactor,
                    help: "replicas of a topic that the worker creates")!)
        }
        let kafka = Kafka(
            bootstrapServers: bootstrapServers.joined(separator: ","), groupID: groupID ?? "",
            instanceID: instanceID, topics: topics, createTopics: creates ? createTopics : nil,
            properties: section.properties(
                "properties",
                help:
                    "librdkafka properties, such as security.protocol; `NAME-file` reads the value of NAME from a file",
                check: checkProperty),
            consumerProperties: section.properties(
                "consumer-properties", help: "librdkafka properties for the consumer alone",
                check: checkProperty),
            producerProperties: section.properties(
                "producer-properties", help: "librdkafka properties for the producer alone",
                check: checkProperty))
        checkProtocols(of: bootstrapServers, kafka, section)
        return kafka
    }

    private static func readAPNS(_ section: SectionReader, files: FileNames) -> APNS {
        let defaults = APNS()
        let environment = section.choice(
            "environment", default: defaults.environment,
            help:
                "`development` is Apple's sandbox; `custom`: the server of `apns.host`, such as the simulator"
        )
        let host = section.text(
            "host", default: nil, required: environment == .custom,
            help: "name or address of the server; default: Apple's server of the environment",
            check: checkHost)
        if let host, let wrong = checkEnvironment(of: host, environment) {
            section.problem("host", wrong, with: ["apns.environment"])
        }
        let port = section.integer(
            "port", 1...65_535, default: defaults.port,
            help: "APNs listens on 443 and, for firewalls, 2197")!
        let authority = section.text(
            "authority",
            help:
                "name of the server in requests and in its certificate, for a relay; default: host and port",
            check: checkAuthority)
        let caFile = section.text(
            "ca-file", kind: "file", help: "PEM file of the authorities to trust; default: the system's",
            check: files.check
        ).map(files.resolve)
        let connections = section.integer(
            "connections", 1...1_000, default: defaults.connections,
            help: "connections that each credential's pool keeps open")!
        let maxConnections = section.integer(
            "max-connections", 1...1_000, default: max(defaults.maxConnections, connections),
            help: "highest number of connections of a pool under load")!
        if maxConnections < connections {
            section.problem(
                "max-connections", "must not be less than apns.connections, \(connections)",
                with: ["apns.connections"])
        }
        return APNS(
            environment: environment, host: host, port: port, authority: authority, caFile: caFile,
            connections: connections, maxConnections: maxConnections,
            growthInterval: section.duration(
                "growth-interval", .zero...minutes(10), default: defaults.growthInterval,
                help:
                    "shortest time between two new connections of a growing pool; APNs treats many at once as an attack"
            ),
            idleTimeout: section.duration(
                "idle-timeout", .seconds(1)...minutes(24 * 60), default: defaults.idleTimeout,
                help: "time without need after which connections beyond `connections` close"),
            maxConnectionAge: section.duration(
                "max-connection-age", .zero...minutes(30 * 24 * 60), default: defaults.maxConnectionAge,
                help: "age at which a connection is replaced; 0: never"),
            connectTimeout: section.duration(
                "connect-timeout", .milliseconds(10)...minutes(5), default: defaults.connectTimeout,
                help: "longest time for TCP, TLS and the server's first frame together"),
            requestTimeout: section.duration(
                "request-timeout", .milliseconds(10)...minutes(10), default: defaults.requestTimeout,
                help: "longest time from sending a push to its answer"),
            progressTimeout: section.duration(
                "progress-timeout", .milliseconds(100)...minutes(10), default: defaults.progressTimeout,
                help: "time after which a connection that accepts no push while pushes wait is replaced"),
            pingInterval: section.duration(
                "ping-interval", .milliseconds(10)...minutes(24 * 60), default: defaults.pingInterval,
                help: "time after which an idle connection is checked with a PING"),
            tlsMinimum: section.choice(
                "tls-minimum", default: defaults.tlsMinimum, help: "oldest TLS version to accept"),
            proxy: readProxy(section, files: files))
    }

    static func readProxy(_ section: SectionReader, files: FileNames) -> APNS.Proxy? {
        let isThere = section.contains("proxy")
        let proxy = section.section("proxy") { readProxySettings($0, isThere: isThere, files: files) }
        return isThere ? proxy : nil
    }

    private static func readProxySettings(
        _ section: SectionReader, isThere: Bool, files: FileNames
    ) -> APNS.Proxy {
        let host = section.text(
            "host", required: isThere, help: "HTTP proxy to reach APNs through; default: none",
            check: checkHost)
        let port = section.integer("port", 1...65_535, default: 3128, help: "port of the proxy")!
        let user = section.text("user", help: "user for basic authentication at the proxy")
        let passwordFile = section.text(
            "password-file", kind: "file", help: "file with the user's password in its first line",
            check: files.check)
        if (user == nil) != (passwordFile == nil) {
            section.problem(
                user == nil ? "user" : "password-file",
                "`user` and `password-file` belong together; set both or neither",
                with: ["apns.proxy.user", "apns.proxy.password-file"])
        }
        return APNS.Proxy(
            host: host ?? "", port: port, user: user, passwordFile: passwordFile.map(files.resolve))
    }

    private static func readStore(_ root: SectionReader, files: FileNames) -> Store? {
        let isThere = root.contains("store")
        let defaults = Store(directory: "")
        let store = root.section("store") { section in
            Store(
                directory: section.text(
                    "directory", kind: "directory", required: isThere,
                    help:
                        "directory of the store, used by this worker alone; without this section pushes that wait for long stay in memory",
                    check: files.checkDirectory
                ).map(files.resolve) ?? "",
                after: section.duration(
                    "after", .seconds(1)...minutes(60), default: defaults.after,
                    help: "wait beyond which a push is kept in the store instead of memory"),
                cacheBytes: section.size(
                    "cache", 1 << 20...1 << 40, default: defaults.cacheBytes,
                    help: "memory for blocks read from the store"),
                writeBufferBytes: section.size(
                    "write-buffer", 8 << 20...1 << 40, default: defaults.writeBufferBytes,
                    help: "memory for changes that the store has not flushed yet"),
                changelog: section.choice(
                    "changelog", default: defaults.changelog,
                    help:
                        "`on`: copy changes to a compacted topic, from which other workers restore them; `off`: keep them in this store alone"
                ),
                transactions: section.choice(
                    "transactions", default: defaults.transactions,
                    help:
                        "`on`: commit changes, outcomes and offsets together, so that readers of committed records see each outcome once; only with `changelog`"
                ),
                transactionInterval: section.duration(
                    "transaction-interval", .milliseconds(10)...minutes(1),
                    default: defaults.transactionInterval, help: "time between two commits of transactions"),
                encryption: readEncryption(section, files: files),
                purgeAfter: section.duration(
                    "purge-after", .seconds(1)...minutes(30 * 24 * 60), default: defaults.purgeAfter,
                    help:
                        "time after an `erase` within which rewriting the store's files begins, which removes the bytes"
                ),
                parkedLimit: section.integer(
                    "parked-limit", 0...1_000_000_000, default: defaults.parkedLimit,
                    help:
                        "most pushes of an app that wait in the store because they exceed the app's share, or to read ahead; beyond it they hold up others"
                )!)
        }
        return isThere ? store : nil
    }

    private static func readEncryption(_ store: SectionReader, files: FileNames) -> Store.Encryption? {
        let isThere = store.contains("encryption")
        let encryption = store.section("encryption") { section in
            Store.Encryption(
                keyFile: section.text(
                    "key-file", kind: "file", required: isThere,
                    help:
                        "file with the keys that encrypt stored pushes, in the store and in the changelog: a name and 32 bytes in Base64 on each line; the first key encrypts, all decrypt",
                    check: files.check
                ).map(files.resolve) ?? "",
                encrypt: section.choice(
                    "encrypt", default: Store.Encryption(keyFile: "").encrypt,
                    help: "`off`: write in clear, and use the keys to decrypt older values only"))
        }
        return isThere ? encryption : nil
    }

    private static func readDelivery(_ section: SectionReader, hasStore: Bool) -> Delivery {
        let defaults = Delivery()
        let delivery = Delivery(
            maxInFlight: section.integer(
                "max-in-flight", 1...10_000_000, default: defaults.maxInFlight,
                help: "highest number of unfinished jobs in a worker; at the limit the worker stops reading")!,
            maxInFlightBytes: section.size(
                "max-in-flight-bytes", 1 << 16...1 << 40, default: defaults.maxInFlightBytes,
                help: "highest number of bytes of unfinished jobs' records in a worker, headers included"),
            partitionShare: section.number(
                "partition-share", 0.05...1, default: defaults.partitionShare,
                help:
                    "share of these limits at which one partition with long-held jobs is paused while others have work"
            )!,
            readAhead: section.choice(
                "read-ahead", default: defaults.readAhead,
                help:
                    "`on`: when the worker is nearly full, pushes of priority 5 and 1 move to the store, so that those of priority 10 behind them in Kafka are found; only with `store`"
            ),
            shards: section.integer(
                "shards", 1...256, default: defaults.shards,
                help: "threads that push; each has its own connections"
            )!,
            retry: section.section("retry") { readRetry($0) },
            maxPendingPerDevice: section.integer(
                "max-pending-per-device", 1...1024, default: defaults.maxPendingPerDevice,
                help: "highest number of unfinished pushes of one device; further pushes are undeliverable")!,
            maxInFlightPerDevice: section.integer(
                "max-in-flight-per-device", 1...1024, default: defaults.maxInFlightPerDevice,
                help: "highest number of pushes of one device in flight to APNs; further pushes wait")!,
            knownDevices: section.integer(
                "known-devices", 1...100_000_000, default: defaults.knownDevices,
                help:
                    "number of devices whose presence a worker remembers; the least recently reported is forgotten first"
            )!,
            returnRate: section.integer(
                "return-rate", 1...1_000_000, default: defaults.returnRate,
                help: "held pushes per second that a worker sends to devices that are online again")!,
            maxExpiration: section.duration(
                "max-expiration", .seconds(1)...minutes(30 * 24 * 60), default: defaults.maxExpiration,
                help: "longest time until a push expires; a later expiration is shortened to it"),
            defaultTTL: section.duration(
                "default-ttl", .seconds(1)...minutes(30 * 24 * 60), default: defaults.defaultTTL,
                help:
                    "time until a push without an expiration expires; held and confirmed pushes: max-expiration"
            ),
            drainDeadline: section.duration(
                "drain-deadline", .zero...minutes(60), default: defaults.drainDeadline,
                help: "time for jobs in flight after SIGTERM; keep it below the supervisor's own deadline"),
            commitInterval: section.duration(
                "commit-interval", .milliseconds(10)...minutes(5), default: defaults.commitInterval,
                help: "time between two commits of offsets"),
            maxUncommitted: section.integer(
                "max-uncommitted", 1...10_000_000, default: defaults.maxUncommitted,
                help:
                    "highest number of pushes that are begun and not committed; a worker begins with 32, and doubles the number with each commit"
            )!,
            commitPatience: section.duration(
                "commit-patience", .seconds(1)...minutes(60), default: defaults.commitPatience,
                help:
                    "time without a commit, after one is due, from which no push is begun until a commit succeeds"
            ))
        if delivery.readAhead == .on, !hasStore {
            section.problem(
                "read-ahead",
                "needs section `store`, where the pushes of lower priority wait; add it, or write `off`")
        }
        return delivery
    }

    private static func readRetry(_ section: SectionReader) -> Delivery.Retry {
        let defaults = Delivery.Retry()
        let retry = Delivery.Retry(
            initial: section.duration(
                "initial", .milliseconds(1)...minutes(60), default: defaults.initial,
                help: "longest wait before the second attempt"),
            maximum: section.duration(
                "maximum", .milliseconds(1)...minutes(24 * 60), default: defaults.maximum,
                help: "longest wait between attempts"),
            multiplier: section.number(
                "multiplier", 1...100, default: defaults.multiplier,
                help: "factor from each wait to the next")!,
            maxAttempts: section.integer(
                "max-attempts", 1...1_000, default: defaults.maxAttempts,
                help: "attempts after which a push is undeliverable; default: attempts until the push expires"
            ),
            isolatedAttempts: section.integer(
                "isolated-attempts", 1...5, default: defaults.isolatedAttempts,
                help:
                    "connections that may end with a push alone on them before the push is undeliverable"
            )!,
            retryAfterLimit: section.duration(
                "retry-after-limit", .zero...minutes(60), default: defaults.retryAfterLimit,
                help: "longest `Retry-After` of APNs that is obeyed; a longer one is shortened to it"))
        if retry.initial > retry.maximum {
            section.problem(
                "initial", "must not be longer than delivery.retry.maximum", with: ["delivery.retry.maximum"])
        }
        return retry
    }

    private static func readLog(_ section: SectionReader) -> Log {
        let defaults = Log()
        return Log(
            level: section.choice("level", default: defaults.level, help: "lowest level to log"),
            format: section.choice(
                "format", default: defaults.format, help: "`json`: one object on each line"))
    }

    private static func readMetrics(_ section: SectionReader) -> Metrics {
        Metrics(
            statsInterval: section.duration(
                "stats-interval", .zero...minutes(60), default: Metrics().statsInterval,
                help: "time between two log lines with the worker's counters; 0: never"))
    }

    private static func minutes(_ minutes: Int) -> Duration { .seconds(minutes * 60) }
}
