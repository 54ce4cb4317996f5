import APNS
import Configuration
import HTTP2
import SluiceModel

/// Sends a request for each topic of each credential that can't reach a device. Blocks.
struct APNSConnectCheck {
    let configuration: Configuration
    let timeout: Duration

    /// Device token that no device has.
    static let impossibleToken = String(repeating: "0", count: 64)
    /// Topics that are checked of each credential.
    static let mostTopics = 20

    /// - Parameters:
    ///   - clocks: called with the server's date and this machine's time, in seconds of Unix time.
    ///   - report: called with each result.
    func run(
        clocks: (_ server: Int64, _ own: Int64) -> Void, _ report: (CheckResult) -> Void
    ) {
        let plan: (pools: [CredentialPoolPlan], routes: [String: AppRoute])
        do {
            plan = try CredentialPoolPlanner(configuration).plan()
        } catch {
            return report(
                CheckResult(
                    .bad, "apns", error.description, remedy: "correct the setting that the text names"))
        }
        for (index, pool) in plan.pools.enumerated() {
            let topics = plan.routes.filter { $0.value.pools.contains(UInt16(index)) }.keys.sorted()
            check(pool, topics, clocks: clocks, report)
        }
    }

    /// A topic, and a push type that it allows.
    private typealias Target = (topic: String, type: PushType)

    private func check(
        _ pool: CredentialPoolPlan, _ topics: [String],
        clocks: (_ server: Int64, _ own: Int64) -> Void, _ report: (CheckResult) -> Void
    ) {
        let part = "apns \(pool.name)"
        var targets = topics.map { Target($0, .background) }
        if let chain = pool.identity.tls.identity?.certificateChain,
            let file = try? CertificateFile(reading: chain)
        {
            report(APNSVerdict.certificate(file, part: part, now: ClockReading.now().wallSeconds))
            targets = topics.map { topic in
                CertificateVerdict.topic(for: topic, of: file).map { ($0.name, $0.type) } ?? (
                    topic, .background
                )
            }
        }
        var client = RequestClient(
            host: pool.pool.host, port: pool.pool.port, authority: pool.authority, tls: pool.identity.tls,
            proxy: pool.identity.proxy)
        client.serverName = pool.pool.serverName
        client.timeout = timeout
        guard let keys = pool.identity.keys?.sources else {
            check(client, targets, part: part, usesToken: false, isFirst: true, clocks: clocks, report)
            return
        }
        var wasAnswered = true
        for (number, key) in keys.enumerated() {
            let part = keys.count == 1 ? part : "\(part), key \(key.credential.keyID)"
            // Other keys would fail for the same cause.
            guard wasAnswered else {
                report(CheckResult(.unchecked, part, "not checked, because the server can't be reached"))
                continue
            }
            do {
                client.authorization = try key.current(at: .now()).authorization
            } catch {
                report(CheckResult(.bad, part, error.description, remedy: "name a key that can sign"))
                continue
            }
            wasAnswered = check(
                client, targets, part: part, usesToken: true, isFirst: number == 0, clocks: clocks, report)
        }
    }

    /// Sends a request for each topic, on a connection of its own.
    ///
    /// - Parameter isFirst: whether the stages of the connection are reported.
    /// - Returns: false when a connection couldn't be opened, or the server was silent.
    @discardableResult
    private func check(
        _ client: RequestClient, _ targets: [Target], part: String, usesToken: Bool, isFirst: Bool,
        clocks: (_ server: Int64, _ own: Int64) -> Void, _ report: (CheckResult) -> Void
    ) -> Bool {
        for (number, target) in targets.prefix(Self.mostTopics).enumerated() {
            let outcome = send(client, target)
            if number == 0 {
                let results = APNSVerdict.connection(outcome, part: part)
                for result in results where isFirst || result.verdict != .good { report(result) }
            }
            if case .success(let result) = outcome,
                let date = result.answer.date.flatMap(HTTPDate.seconds)
            {
                clocks(date, ClockReading.now().wallSeconds)
            }
            let result = APNSVerdict.credential(
                outcome, part: part, topic: target.topic, usesToken: usesToken)
            if let result { report(result) }
            guard case .failure(let failure) = outcome else { continue }
            // A failure of the first connection is reported with its stages.
            if result == nil, number > 0 {
                report(APNSVerdict.laterConnection(failure, part: part, topic: target.topic))
            }
            // Each further topic would take the whole time again.
            if result == nil || failure.isTimeout {
                reportUnchecked(targets.count - number - 1, part, report)
                return false
            }
        }
        reportUnchecked(targets.count - Self.mostTopics, part, report)
        return true
    }

    private func reportUnchecked(_ count: Int, _ part: String, _ report: (CheckResult) -> Void) {
        guard count > 0 else { return }
        report(
            CheckResult(
                .unchecked, part, "\(count) further \(count == 1 ? "topic" : "topics") of the credential"))
    }

    private func send(
        _ client: RequestClient, _ target: Target
    ) -> Result<RequestClient.Result, RequestClient.Failure> {
        let request = RequestClient.Request(
            .post, "/3/device/\(Self.impossibleToken)",
            headers: [
                .init("apns-topic", target.topic),
                .init("apns-push-type", target.type.headerValue.description),
                .init("apns-priority", "5"), .init("apns-expiration", "0"),
            ], body: Array(#"{"aps":{"content-available":1}}"#.utf8))
        do throws(RequestClient.Failure) {
            return .success(try client.send(request))
        } catch {
            return .failure(error)
        }
    }
}
