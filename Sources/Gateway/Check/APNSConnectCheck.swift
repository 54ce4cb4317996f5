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

    private func check(
        _ pool: CredentialPoolPlan, _ topics: [String],
        clocks: (_ server: Int64, _ own: Int64) -> Void, _ report: (CheckResult) -> Void
    ) {
        let part = "apns \(pool.name)"
        if let chain = pool.identity.tls.identity?.certificateChain,
            let file = try? CertificateFile(reading: chain)
        {
            report(APNSVerdict.certificate(file, part: part, now: ClockReading.now().wallSeconds))
        }
        var client = RequestClient(
            host: pool.pool.host, port: pool.pool.port, authority: pool.authority, tls: pool.identity.tls,
            proxy: pool.identity.proxy)
        client.serverName = pool.pool.serverName
        client.timeout = timeout
        guard let keys = pool.identity.keys?.sources else {
            check(client, topics, part: part, usesToken: false, isFirst: true, clocks: clocks, report)
            return
        }
        for (number, key) in keys.enumerated() {
            let part = keys.count == 1 ? part : "\(part), key \(key.credential.keyID)"
            do {
                client.authorization = try key.current(at: .now()).authorization
            } catch {
                report(CheckResult(.bad, part, error.description, remedy: "name a key that can sign"))
                continue
            }
            let wasOpened = check(
                client, topics, part: part, usesToken: true, isFirst: number == 0, clocks: clocks, report)
            // Other keys would fail for the same cause.
            if !wasOpened { return }
        }
    }

    /// Sends a request for each topic, on a connection of its own.
    ///
    /// - Parameter isFirst: whether the stages of the connection are reported.
    /// - Returns: false when no connection could be opened.
    @discardableResult
    private func check(
        _ client: RequestClient, _ topics: [String], part: String, usesToken: Bool, isFirst: Bool,
        clocks: (_ server: Int64, _ own: Int64) -> Void, _ report: (CheckResult) -> Void
    ) -> Bool {
        for (number, topic) in topics.prefix(Self.mostTopics).enumerated() {
            let outcome = send(client, topic)
            if number == 0 {
                let results = APNSVerdict.connection(outcome, part: part)
                for result in results where isFirst || result.verdict != .good { report(result) }
            }
            if case .success(let result) = outcome,
                let date = result.answer.date.flatMap(HTTPDate.seconds)
            {
                clocks(date, ClockReading.now().wallSeconds)
            }
            guard
                let result = APNSVerdict.credential(
                    outcome, part: part, topic: topic, usesToken: usesToken)
            else { return false }
            report(result)
        }
        if topics.count > Self.mostTopics {
            report(
                CheckResult(
                    .unchecked, part, "\(topics.count - Self.mostTopics) further topics of the credential"))
        }
        return true
    }

    private func send(
        _ client: RequestClient, _ topic: String
    ) -> Result<RequestClient.Result, RequestClient.Failure> {
        let request = RequestClient.Request(
            .post, "/3/device/\(Self.impossibleToken)",
            headers: [
                .init("apns-topic", topic), .init("apns-push-type", "background"),
                .init("apns-priority", "5"), .init("apns-expiration", "0"),
            ], body: Array(#"{"aps":{"content-available":1}}"#.utf8))
        do throws(RequestClient.Failure) {
            return .success(try client.send(request))
        } catch {
            return .failure(error)
        }
    }
}
