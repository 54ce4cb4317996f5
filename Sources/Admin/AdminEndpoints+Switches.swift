import DeliveryCore
import Gateway
import RetryStore

/// Switches and commands: `/switches`, and the paths that POST changes.
extension AdminEndpoints {
    func switches() -> AdminResponse {
        guard let source = worker?.source else { return Self.starting }
        guard let control = source.switches else { return .error(404, "this worker has no switches") }
        var document = SwitchDocument.of(control.status())
        if let process { document["log-level"] = process.logLevel() }
        return .json(200, document)
    }

    /// Pauses or resumes a scope. Answers when the change is kept, or after five seconds.
    func change(_ request: AdminRequest, isPaused: Bool) async -> AdminResponse {
        guard let source = worker?.source else { return Self.starting }
        guard let control = source.switches else { return .error(404, "this worker has no switches") }
        let known = PauseScope.Kind.allCases.map(\.rawValue) + ["by", "note"]
        if let refusal = Self.refusal(request, known: known) { return refusal }
        let named = PauseScope.Kind.allCases.filter { request.query[$0.rawValue] != nil }
        guard let kind = named.first, named.count == 1 else {
            return .error(400, "name one of `all=1`, `app=NAME`, `topic=NAME` and `credential=NAME`")
        }
        if kind == .all, request.query[kind.rawValue] != "1" {
            return .error(400, "`all` is 1, or left out")
        }
        let name = kind == .all ? nil : request.query[kind.rawValue]
        guard let scope = PauseScope(kind, name: name) else {
            return .error(
                400, "the name of the \(kind.rawValue) is empty, too long, or has a control character")
        }
        // A pause can always be resumed, even if the configuration no longer has its scope.
        let isPausedNow = control.status().pauses.contains { $0.scope == scope }
        if !isPausedNow, let problem = control.problem(scope) { return .error(404, problem) }
        let reply = Reply<SwitchChange>()
        control.change(scope, isPaused, request.query["by"] ?? "", request.query["note"] ?? "") {
            reply.give($0)
        }
        guard let change = await reply.wait(for: .seconds(10)) else {
            return .error(503, "the switches' thread does not answer")
        }
        if let refusal = change.refusal { return .error(409, refusal) }
        var document = SwitchDocument.of(change.status)
        document["scope"] = SwitchDocument.of(scope)
        document["state"] = isPaused ? "paused" : "resumed"
        document["kept"] = change.isKept
        return .json(change.isKept ? 200 : 202, document)
    }

    /// Begins an orderly stop of the process.
    func drain(_ request: AdminRequest) -> AdminResponse {
        guard let process else { return .error(404, "this process takes no commands") }
        if let refusal = Self.refusal(request, known: []) { return refusal }
        process.drain()
        return .json(
            202, ["state": "draining", "text": "the worker stops as at SIGTERM, and the process ends"])
    }

    func setLogLevel(_ request: AdminRequest) -> AdminResponse {
        guard let process else { return .error(404, "this process takes no commands") }
        if let refusal = Self.refusal(request, known: ["level"]) { return refusal }
        guard let level = request.query["level"], process.setLogLevel(level) else {
            return .error(
                400, "`level` is one of \(process.logLevels.joined(separator: ", "))")
        }
        return .json(200, ["log-level": level])
    }

    /// Returns the refusal of a command with another parameter than these; nil when it has none. A misspelt parameter
    /// must not become a command with another effect.
    private static func refusal(_ request: AdminRequest, known: [String]) -> AdminResponse? {
        request.query.keys.filter { !known.contains($0) }.min().map {
            .error(400, "there is no parameter `\($0)`")
        }
    }
}

extension AdminEndpoints {
    /// Purges partitions with erased data, or all. With `wait` the answer follows the end, or half a minute, whichever is
    /// earlier.
    func purge(_ request: AdminRequest) async -> AdminResponse {
        guard let source = worker?.source else { return Self.starting }
        guard let store = source.store else { return Self.noStore }
        if let refusal = Self.refusal(request, known: ["all", "wait"]) { return refusal }
        for name in ["all", "wait"] {
            if let value = request.query[name], value != "1" {
                return .error(400, "`\(name)` is 1, or left out")
            }
        }
        let reply = Reply<RetryStoreError?>()
        let partitions = store.purge(request.query["all"] == "1" ? .all : .pending) { reply.give($0) }
        var document: [String: Any] = ["partitions": partitions.map { Int($0) }]
        if request.query["wait"] == "1", let failure = await reply.wait(for: Self.purgePatience) {
            if let failure { return Self.failure(failure) }
            document["state"] = "purged"
            return .json(200, document)
        }
        document["state"] = partitions.isEmpty ? "purged" : "purging"
        return .json(partitions.isEmpty ? 200 : 202, document)
    }

    /// Longest wait of a command's answer for the end of a purge.
    private static let purgePatience: Duration = .seconds(30)
}

/// JSON of the switches.
enum SwitchDocument {
    static func of(_ status: SwitchStatus) -> [String: Any] {
        [
            "known": status.areKnown, "topic-away": status.isTopicAway, "home": status.home,
            "unkept": status.unkept,
            "paused": status.pauses.map { pause in
                var document = of(pause.scope)
                document["since"] = StoreSummary.time(pause.changedMilliseconds)
                if !pause.by.isEmpty { document["by"] = pause.by }
                if !pause.note.isEmpty { document["note"] = pause.note }
                return document
            },
        ]
    }

    static func of(_ scope: PauseScope) -> [String: Any] {
        var document: [String: Any] = ["scope": scope.kind.rawValue]
        if let name = scope.name { document["name"] = name }
        return document
    }
}
