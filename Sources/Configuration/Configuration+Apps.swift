// Section `apps`.

extension Configuration {
    /// Returns the names under `credentials`, including those with wrong settings. An app that uses such a credential
    /// is not at fault.
    static func declaredCredentials(_ document: ConfigurationValue) -> [String] {
        guard case .map(let entries) = document.content,
            case .map(let credentials)? = entries.first(where: { $0.key == "credentials" })?.value.content
        else { return [] }
        return credentials.map(\.key)
    }

    static func readApp(
        _ section: SectionReader, declared: [String], credentials: inout [Credential],
        apns: APNS, files: FileNames
    ) -> App? {
        let name = section.text(
            "name", required: true, help: "short name for logs and metrics",
            check: { text in
                let allowed = text.utf8.allSatisfy { isLetterOrDigit($0) || "-_.".utf8.contains($0) }
                return allowed ? nil : "`\(text)` has characters other than letters, digits, - _ and ."
            })
        let topics = section.texts(
            "topics", kind: "list of text", required: true,
            help: "bundle identifiers; topics with APNs' suffixes (.voip, …) are included",
            check: checkBundleIdentifier)
        let names = readCredentials(of: section, name: name, declared: declared, &credentials, apns, files)
        let rate = section.number(
            "rate-per-second", 0.001...1_000_000, default: nil,
            help: "pushes per second of each worker; default: no limit")
        let burst = section.integer(
            "burst", 1...1_000_000,
            help:
                "pushes sent at once after a pause, at least one for each shard; default: a tenth of rate-per-second"
        )
        if burst != nil, rate == nil { section.problem("burst", "has an effect only with `rate-per-second`") }
        return App(
            name: name ?? "", topics: topics, credentials: names,
            weight: section.integer(
                "weight", 1...1_000, default: 1,
                help: "relative share of the pushes while other apps of the same credential wait")!,
            ratePerSecond: rate, burst: burst,
            maxInFlight: section.integer(
                "max-in-flight", 1...1_000_000,
                help:
                    "highest number of pushes in flight to APNs for each worker, at least delivery.shards; default: no limit"
            ),
            coalesceWindow: section.duration(
                "coalesce-window", .zero...Duration.seconds(3600), default: .zero,
                help: "delay of each push with a collapse identifier, so that a newer push can replace it"),
            missingCollapseIdentifier: section.choice(
                "missing-collapse-id", default: .none,
                help:
                    "`apns-id`: a push without collapse identifier uses its apns-id instead, so that a repeat replaces it on the device"
            ),
            supersede: section.texts(
                "supersede", kind: "list of liveactivity, widgets, controls", required: false,
                help:
                    "push types of which a newer push replaces a waiting one of the same token without collapse identifier; the end of a Live Activity is never replaced by an update",
                check: {
                    App.StateType(rawValue: $0) == nil
                        ? "`\($0)` is not a push type with a whole state: liveactivity, widgets, controls"
                        : nil
                }
            ).compactMap(App.StateType.init))
    }

    /// Reads the names of an app's credentials. Settings written inside of the app become a credential of their own.
    private static func readCredentials(
        of section: SectionReader, name: String?, declared: [String], _ credentials: inout [Credential],
        _ apns: APNS, _ files: FileNames
    ) -> [String] {
        if section.isMap("credential") {
            let ownName = "app \(name ?? section.path)"
            let own = section.section("credential") {
                readCredential($0, name: ownName, apns: apns, files: files)
            }
            if let own { credentials.append(own) }
            return [ownName]
        }
        let help =
            "name of an entry of `credentials`, or its settings; a list of names: one for each environment"
        func check(_ text: String) -> String? {
            if declared.contains(text) { return nil }
            return "there is no `\(text)` in `credentials`\(Suggestion.hint(for: text, among: declared))"
        }
        if section.isList("credential") || section.isCommaSeparated("credential") {
            return section.texts(
                "credential", kind: "name, list or map", required: true, commaSeparated: true, help: help,
                check: check)
        }
        return section.text(
            "credential", kind: "name, list or map", required: true, help: help, check: check
        ).map { [$0] } ?? []
    }

    /// Checks the rules that concern several apps.
    func checkApps(_ root: SectionReader) {
        if apps.count > 65_535 {
            root.problem("apps", "has \(apps.count) apps, but at most 65,535 are possible")
        }
        var names: Set<String> = []
        var ownerOfTopic: [String: Int] = [:]
        var userOfCertificate: [String: Int] = [:]
        for (index, app) in apps.enumerated() where !app.name.isEmpty {
            let path = "apps[\(index)]"
            if !names.insert(app.name).inserted {
                root.problem("apps", "two apps are named `\(app.name)`", with: ["\(path).name"])
            }
            if let most = app.maxInFlight, most < delivery.shards {
                root.problem(
                    "apps",
                    "max-in-flight of `\(app.name)`, \(most), must not be less than delivery.shards, "
                        + "\(delivery.shards): each shard may have one push in flight",
                    with: ["\(path).max-in-flight", "delivery.shards"])
            }
            for topic in app.topics {
                if let owner = ownerOfTopic.updateValue(index, forKey: topic) {
                    root.problem(
                        "apps",
                        "topic `\(topic)` is listed twice: in `\(apps[owner].name)` and in `\(app.name)`",
                        with: ["\(path).topics", "apps[\(owner)].topics"])
                }
            }
            var ofEnvironment: [APNS.Environment: String] = [:]
            for credential in credentials(of: app) {
                let environment = endpoint(of: credential).environment
                if let other = ofEnvironment.updateValue(credential.name, forKey: environment) {
                    root.problem(
                        "apps",
                        "`\(app.name)` has two credentials of environment `\(environment.rawValue)`, `\(other)` and "
                            + "`\(credential.name)`; an app may have one for each environment",
                        with: ["\(path).credential"])
                }
                if case .certificate = credential.kind,
                    let other = userOfCertificate.updateValue(index, forKey: credential.name)
                {
                    root.problem(
                        "apps",
                        "`\(apps[other].name)` and `\(app.name)` share the certificate `\(credential.name)`, but a certificate belongs to one app; "
                            + "use a token credential, which can be shared",
                        with: ["\(path).credential", "apps[\(other)].credential"])
                }
            }
        }
    }

    // MARK: Checks of single values: nil, or what is wrong

    /// Returns the reason for which Kafka refuses a topic's name, or nil.
    public static func checkTopicName(_ text: String) -> String? {
        let allowed = text.utf8.allSatisfy { isLetterOrDigit($0) || "-_.".utf8.contains($0) }
        guard allowed, text.utf8.count <= 249, text != ".", text != ".." else {
            return "`\(text)` can't name a Kafka topic (letters, digits, . _ and -, at most 249)"
        }
        return nil
    }

    static func checkIdentifier(_ text: String) -> String? {
        let capitals = text.utf8.allSatisfy { isLetterOrDigit($0) && !(0x61...0x7a).contains($0) }
        guard capitals, text.utf8.count == 10 else {
            return "`\(text)` is not 10 capital letters and digits, as Apple's developer site shows it"
        }
        return nil
    }

    static func checkBundleIdentifier(_ text: String) -> String? {
        guard text.utf8.allSatisfy({ isLetterOrDigit($0) || "-._".utf8.contains($0) }) else {
            return "`\(text)` is not a bundle identifier (letters, digits, . - and _)"
        }
        return nil
    }

    /// Refuses properties that the worker depends on, because they can't be passed through.
    static func checkProperty(_ name: String) -> String? {
        switch name {
        case "bootstrap.servers", "metadata.broker.list": "is set by kafka.bootstrap-servers"
        case "group.id": "is set by kafka.group-id"
        case "enable.auto.commit", "enable.auto.offset.store", "auto.commit.enable",
            "auto.commit.interval.ms":
            "can't be set: offsets are committed behind terminal outcomes (see delivery.commit-interval)"
        case "partition.assignment.strategy": "can't be set: workers use cooperative-sticky"
        case "transactional.id":
            "can't be set: it follows from kafka.group-id and the store (see store.transactions)"
        default: name.isEmpty ? "must not be empty" : nil
        }
    }

    private static func isLetterOrDigit(_ byte: UInt8) -> Bool {
        switch byte {
        case 0x30...0x39, 0x41...0x5a, 0x61...0x7a: true
        default: false
        }
    }
}
