import APNS
import HTTP2
import SluiceModel

/// Judges a request to APNs that can't reach a device. Its reason proves the credential, or names the fault.
enum APNSVerdict {
    /// Returns a result for each stage of the request, up to the failed stage.
    ///
    /// - Parameters:
    ///   - outcome: the answer, or the failure.
    ///   - part: part of the results, such as `apns team`.
    ///   - usesToken: whether the credential is a signing key; false for a certificate.
    static func connection(
        _ outcome: Result<RequestClient.Result, RequestClient.Failure>, part: String
    ) -> [CheckResult] {
        let progress: RequestClient.Progress
        var failed: RequestClient.Failure?
        switch outcome {
        case .success(let result): progress = result.progress
        case .failure(let failure):
            progress = failure.progress
            failed = failure
        }
        var results: [CheckResult] = []
        for stage in RequestClient.Stage.allCases where stage != .answer && stage != .preparation {
            if let failed, failed.stage <= stage { break }
            guard let finding = finding(stage, progress) else { continue }
            results.append(CheckResult(.good, part, finding))
        }
        if let failed, failed.stage != .answer {
            results.append(CheckResult(.bad, part, failed.message, remedy: remedy(for: failed)))
        }
        return results
    }

    /// Returns the result of a connection that couldn't be opened for a further topic.
    static func laterConnection(
        _ failure: RequestClient.Failure, part: String, topic: String
    ) -> CheckResult {
        CheckResult(.bad, part, "\(topic): \(failure.message)", remedy: remedy(for: failure))
    }

    /// Returns what a stage that has passed found; nil when the stage has nothing to report.
    private static func finding(
        _ stage: RequestClient.Stage, _ progress: RequestClient.Progress
    ) -> String? {
        switch stage {
        case .preparation, .answer, .proxy: nil
        case .resolve:
            "DNS: " + progress.addresses.prefix(3).map(\.description).joined(separator: ", ")
                + (progress.addresses.count > 3 ? ", …" : "")
        case .connect: progress.address.map { "TCP: connected to \($0)" }
        case .tls: progress.tls.map { "TLS: \($0), the certificate leads to a trusted authority" }
        case .http2: progress.applicationProtocol.map { "ALPN: \($0)" }
        }
    }

    private static func remedy(for failure: RequestClient.Failure) -> String {
        switch failure.stage {
        case .preparation: "correct the setting that the text names"
        case .resolve: "check apns.host and this machine's resolver"
        case .connect:
            "check address and port, and that firewalls let them pass; APNs listens on 443 and 2197"
        case .proxy: "check the section apns.proxy, and that the proxy allows CONNECT to the port"
        case .tls:
            switch failure.tlsKind {
            case .unknownAuthority:
                "name the server's authority in apns.ca-file; a proxy that inspects TLS must leave APNs out"
            case .certificateExpired, .certificateNotYetValid: "check this machine's clock"
            case .hostnameMismatch: "name the server in apns.host as its certificate does in subjectAltName"
            case .certificateRefused: "name a valid certificate and its key"
            case .protocolRefused: "check that the server speaks HTTP/2 (ALPN h2)"
            case .notTLS: "check apns.port, and that no proxy answers in place of the server"
            default: "check apns.tls-minimum, and that no proxy changes the connection"
            }
        case .http2, .answer: "check that the server speaks HTTP/2, and that no proxy changes the connection"
        }
    }

    /// Judges the validity of a client certificate.
    /// - Parameter now: seconds of Unix time.
    static func certificate(_ file: CertificateFile, part: String, now: Int64) -> CheckResult {
        let days = (file.notAfter - now) / 86_400
        let finding = "the certificate is valid until \(CertificateVerdict.date(file.notAfter))"
        if now > file.notAfter || now < file.notBefore {
            return CheckResult(
                .bad, part, "\(finding), from \(CertificateVerdict.date(file.notBefore)) on",
                remedy: "request a new certificate, or correct this machine's clock")
        }
        guard days < warningDays else { return CheckResult(.good, part, finding) }
        return CheckResult(
            .warning, part, "\(finding): \(days) \(days == 1 ? "day" : "days") are left",
            remedy: "request a new certificate from Apple's developer site")
    }

    /// Days before a certificate's end from which on a warning is due.
    private static let warningDays: Int64 = 30

    // MARK: Answer

    /// Returns the verdict of the answer for one topic.
    static func credential(
        _ outcome: Result<RequestClient.Result, RequestClient.Failure>, part: String, topic: String,
        usesToken: Bool
    ) -> CheckResult? {
        switch outcome {
        case .success(let result):
            return judge(
                result.answer.status, result.answer.reason, part: part, topic: topic, usesToken: usesToken)
        case .failure(let failure):
            // Faults of certificates arrive as the reason of a GOAWAY.
            if let goAway = failure.goAway, goAway.reason != .absent {
                return judge(400, goAway.reason, part: part, topic: topic, usesToken: usesToken)
            }
            guard failure.stage == .answer else { return nil }
            return CheckResult(
                .bad, part, "\(topic): \(failure.message)",
                remedy: "repeat the check; if it fails again, check that no proxy changes the connection")
        }
    }

    static func judge(
        _ status: Int, _ reason: Reason, part: String, topic: String, usesToken: Bool
    ) -> CheckResult {
        let answer = "\(topic): \(status)\(reason == .absent ? "" : " \(reason.name)")"
        func bad(_ remedy: String) -> CheckResult { CheckResult(.bad, part, answer, remedy: remedy) }
        switch reason {
        case _ where status == 200, .badDeviceToken, .deviceTokenNotForTopic, .unregistered, .expiredToken:
            return CheckResult(.good, part, "\(answer): the credential is accepted for this topic")
        case .invalidProviderToken:
            return bad(
                "key-id, team-id and key-file must belong together; compare them with Apple's developer site, where a revoked key is missing"
            )
        case .expiredProviderToken:
            return bad("the token's time is too far from APNs' time: correct this machine's clock")
        case .missingProviderToken:
            return bad(
                usesToken
                    ? "check that no proxy removes the header authorization"
                    : "APNs has not taken the certificate: check that it is a push certificate, and that no proxy ends TLS"
            )
        case .badEnvironmentKeyIdInToken:
            return bad("the key is for the other environment: change apns.environment, or name another key")
        case .unrelatedKeyIdInToken:
            return bad("use a connection of its own for this key, and check key-id and team-id")
        case .badCertificate:
            return bad("name a valid push certificate of this topic")
        case .badCertificateEnvironment:
            return bad(
                "the certificate is for the other environment: change apns.environment, or name another certificate"
            )
        case .topicDisallowed, .topicMismatch:
            return bad(
                usesToken
                    ? "the team of the key has no such app, or the key is restricted to other topics: check topics and team-id"
                    : "the certificate is for another app: name that app's certificate")
        case .badTopic, .missingTopic: return bad("correct the app's topics")
        case .forbidden: return bad("check on Apple's developer site what the credential is allowed to do")
        case .tooManyProviderTokenUpdates:
            return CheckResult(
                .warning, part, "\(answer): other processes use tokens of their own for this key",
                remedy: "stop them, or repeat the check in 20 minutes")
        case .tooManyRequests, .internalServerError, .serviceUnavailable, .shutdown:
            return CheckResult(.unchecked, part, answer, remedy: "repeat the check later")
        case .badPath, .methodNotAllowed:
            return bad("the server is not APNs: check apns.host and apns.port")
        default:
            if status >= 500 {
                return CheckResult(.unchecked, part, answer, remedy: "repeat the check later")
            }
            return bad(
                status == 404
                    ? "the server is not APNs: check apns.host and apns.port"
                    : "check apns.host, and compare the reason with Apple's documentation")
        }
    }
}
