// Sections `credentials` and `apps`.

extension Configuration {
    private enum CredentialType: String, CaseIterable {
        case token, certificate
    }

    static func readCredential(
        _ section: SectionReader, name: String, poolConnections: Int, files: FileNames
    ) -> Credential? {
        let type = section.choice(
            "type", of: CredentialType.self, default: nil, required: true,
            help: "a signing key (.p8) or a client certificate")
        let keyFileHelp = "file of the signing key (.p8); for a certificate: its private key (PEM)"
        let kind: Credential.Kind
        switch type {
        case .token:
            let keyFile = section.text(
                "key-file", kind: "file", required: true, help: keyFileHelp, check: files.check)
            let keyID = section.text(
                "key-id", required: true,
                help: "for a signing key: the key's identifier, 10 letters and digits",
                check: checkIdentifier)
            let teamID = section.text(
                "team-id", required: true,
                help: "for a signing key: the team's identifier, 10 letters and digits",
                check: checkIdentifier)
            kind = .token(keyFile: files.resolve(keyFile ?? ""), keyID: keyID ?? "", teamID: teamID ?? "")
        case .certificate:
            let certificateFile = section.text(
                "certificate-file", kind: "file", required: true,
                help: "for a certificate: its file (PEM), with intermediates if any",
                check: files.check)
            let keyFile = section.text(
                "key-file", kind: "file", required: true, help: keyFileHelp, check: files.check)
            kind = .certificate(
                certificateFile: files.resolve(certificateFile ?? ""), keyFile: files.resolve(keyFile ?? ""))
        case nil:
            // The type decides which keys belong here.
            section.acceptRest()
            return nil
        }
        let connections = section.integer(
            "connections", 1...1_000, help: "connections that this pool keeps open; default: apns.connections"
        )
        let maxConnections = section.integer(
            "max-connections", 1...1_000,
            help: "highest number of connections of this pool; default: apns.max-connections")
        if let maxConnections, maxConnections < connections ?? poolConnections {
            let least = connections.map { "`connections`, \($0)" } ?? "apns.connections, \(poolConnections)"
            section.problem(
                "max-connections", "must not be less than \(least)",
                with: [section.path("connections"), "apns.connections"])
        }
        return Credential(
            name: name, kind: kind, connections: connections, maxConnections: maxConnections)
    }

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
        poolConnections: Int, files: FileNames
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
        var credential: String?
        if section.isMap("credential") {
            let ownName = "app \(name ?? section.path)"
            let own = section.section("credential") {
                readCredential($0, name: ownName, poolConnections: poolConnections, files: files)
            }
            if let own { credentials.append(own) }
            credential = ownName
        } else {
            credential = section.text(
                "credential", kind: "name or map", required: true,
                help: "name of an entry of `credentials`, or its settings",
                check: { text in
                    if declared.contains(text) { return nil }
                    let hint = Suggestion.hint(for: text, among: declared)
                    return "there is no `\(text)` in `credentials`\(hint)"
                })
        }
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
            name: name ?? "", topics: topics, credential: credential ?? "",
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
            ))
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
            if case .certificate? = credential(of: app)?.kind,
                let other = userOfCertificate.updateValue(index, forKey: app.credential)
            {
                root.problem(
                    "apps",
                    "`\(apps[other].name)` and `\(app.name)` share the certificate `\(app.credential)`, but a certificate belongs to one app; "
                        + "use a token credential, which can be shared",
                    with: ["\(path).credential", "apps[\(other)].credential"])
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
        guard text.utf8.allSatisfy({ isLetterOrDigit($0) || "-.".utf8.contains($0) }) else {
            return "`\(text)` is not a bundle identifier (letters, digits, . and -)"
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
