import Configuration

/// Rules of the workers' own settings, which replace those of the stage.
extension StagePlan {
    /// Settings with which a configuration names a server of the provider API.
    private static let serverKeys = ["environment", "host", "port", "authority", "ca-file", "proxy"]

    /// Whether the workers of this run push to this machine only.
    private var pushesStayHere: Bool {
        switch apns {
        case .simulator: true
        case .server(let server): Server.isThisMachine(server.host)
        case .elsewhere: false
        }
    }

    /// Throws for settings with which workers would push to another server than the plan's, beyond the rate cap, or read
    /// other jobs than those of the run. They would bypass the allow-list and the confirmation.
    func checkSettings() throws(CommandFailure) {
        guard workers.count > 0 else { return }
        let isLocal = pushesStayHere
        let path = "workers.settings"
        for (key, value) in Self.entries(workers.settings) {
            switch key {
            case "kafka":
                for (key, value) in Self.entries(value) {
                    switch key {
                    case "bootstrap-servers", "group-id":
                        throw Self.refusal(
                            "\(path).kafka.\(key)", "the run sets it; write target.\(Self.target[key] ?? key)"
                        )
                    case "topics":
                        for (topic, _) in Self.entries(value) where Self.runTopics.contains(topic) {
                            throw Self.refusal(
                                "\(path).kafka.topics.\(topic)",
                                "the run sets it; write target.topics.\(topic)")
                        }
                    default: break
                    }
                }
            case "outcomes":
                for (key, value) in Self.entries(value) where key == "device-token" {
                    guard case .scalar("clear", _) = value.content else {
                        throw Self.refusal(
                            "\(path).outcomes.device-token",
                            "the audit recognizes events of devices by their tokens; leave the setting out")
                    }
                }
            case "apns": try Self.checkServer(value, "\(path).apns", isLocal: isLocal, isCredential: false)
            case "credentials":
                for (name, value) in Self.entries(value) {
                    try Self.checkServer(
                        value, "\(path).credentials.\(name)", isLocal: isLocal, isCredential: true)
                }
            case "apps":
                guard isLocal else {
                    throw Self.refusal(
                        "\(path).apps",
                        "replaces the apps with their limits of the rate; write apps[].settings")
                }
                if case .list(let apps) = value.content {
                    for (index, app) in apps.enumerated() {
                        try Self.checkApp(app, "\(path).apps[\(index)]", isLocal: isLocal)
                    }
                }
            default: break
            }
        }
        for (index, app) in apps.enumerated() {
            guard let settings = app.settings else { continue }
            try Self.checkApp(settings, "apps[\(index)].settings", isLocal: isLocal)
        }
    }

    private static let target = ["bootstrap-servers": "bootstrap-servers", "group-id": "group"]
    private static let runTopics: Set<String> = ["jobs", "outcomes", "dead-letters", "changelog"]

    private static func checkApp(
        _ settings: ConfigurationValue, _ path: String, isLocal: Bool
    ) throws(CommandFailure) {
        for (key, value) in entries(settings) {
            if !isLocal, ["rate-per-second", "burst"].contains(key) {
                throw refusal(
                    "\(path).\(key)", "the rate cap sets the limit of an app; lower the rates of the loads")
            }
            guard key == "credential" else { continue }
            guard isLocal else {
                throw refusal("\(path).credential", "pushes reach devices of people only with target.apns")
            }
            try checkServer(value, "\(path).credential", isLocal: isLocal, isCredential: true)
        }
    }

    /// Throws for a server that is not on this machine; with a server elsewhere, for any other server.
    private static func checkServer(
        _ section: ConfigurationValue, _ path: String, isLocal: Bool, isCredential: Bool
    ) throws(CommandFailure) {
        let entries = entries(section)
        for (key, value) in entries where serverKeys.contains(key) && value.content != .empty {
            guard isLocal else {
                throw refusal(
                    "\(path).\(key)",
                    "replaces the confirmed server; its allow-list and rate cap belong to target.apns")
            }
            if key == "host" { try checkHost(value, "\(path).host") }
            if key == "proxy" {
                let host = Self.entries(value).last { $0.key == "host" }?.value ?? value
                try checkHost(host, "\(path).proxy.host")
            }
            // The server of an environment is Apple's, unless the credential names another one.
            if key == "environment", isCredential,
                !entries.contains(where: { $0.key == "host" && $0.value.content != .empty })
            {
                throw refusal(
                    "\(path).environment",
                    "pushes would reach Apple's server; add `host: localhost`, or use target.kind staging")
            }
        }
    }

    private static func checkHost(_ value: ConfigurationValue, _ path: String) throws(CommandFailure) {
        guard case .scalar(let host, _) = value.content, Server.isThisMachine(host) else {
            let text = if case .scalar(let host, _) = value.content { "`\(host)`" } else { value.kind }
            throw refusal(
                path,
                "\(text) is not this machine, which the run's target is; use target.kind simulator or staging for another server"
            )
        }
    }

    private static func entries(_ value: ConfigurationValue?) -> [(key: String, value: ConfigurationValue)] {
        guard case .map(let entries)? = value?.content else { return [] }
        return entries.map { ($0.key, $0.value) }
    }

    private static func refusal(_ path: String, _ text: String) -> CommandFailure {
        CommandFailure(.configuration, "\(path): \(text)")
    }
}
