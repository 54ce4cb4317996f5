import Glibc
import HTTP2
import SluiceModel

/// Decides whether a client certificate serves an app, from the certificate's facts.
enum CertificateVerdict {
    /// Returns the certificate's faults.
    ///
    /// - Parameters:
    ///   - bundleIdentifiers: bundle identifiers of the apps that use the certificate.
    ///   - now: seconds of Unix time.
    static func faults(
        of file: CertificateFile, bundleIdentifiers: [String], now: Int64
    ) -> [String] {
        var faults: [String] = []
        if now > file.notAfter {
            faults.append(
                "the certificate expired on \(date(file.notAfter)); request a new one from Apple's developer site"
            )
        } else if now < file.notBefore {
            faults.append(
                "the certificate is valid from \(date(file.notBefore)) only; check this machine's clock, \(date(now))"
            )
        }
        let topics = topics(of: file.certificate)
        // A certificate without topics is another server's own, such as a relay's.
        guard !topics.isEmpty else { return faults }
        let others = bundleIdentifiers.filter { topic(for: $0, among: topics) == nil }
        if !others.isEmpty {
            faults.append(
                "the certificate is not for \(others.joined(separator: ", ")), but for \(topics.joined(separator: ", ")); "
                    + "APNs would answer BadCertificate or TopicDisallowed: name the app's own certificate")
        }
        return faults
    }

    /// Returns a topic of the certificate that belongs to the app, with a push type of the topic.
    ///
    /// - Returns: the bundle identifier with `background` when the certificate names no topics; nil when all topics
    ///   belong to other apps.
    static func topic(
        for bundleIdentifier: String, of file: CertificateFile
    ) -> (name: String, type: PushType)? {
        let topics = topics(of: file.certificate)
        return topics.isEmpty ? (bundleIdentifier, .background) : topic(for: bundleIdentifier, among: topics)
    }

    /// A certificate may serve push types with a suffix only, such as a VoIP Services certificate.
    private static func topic(
        for bundleIdentifier: String, among topics: [String]
    ) -> (name: String, type: PushType)? {
        if topics.contains(bundleIdentifier) { return (bundleIdentifier, .background) }
        for type in PushType.allCases where type.topicSuffix.utf8CodeUnitCount > 0 {
            let name = bundleIdentifier + type.topicSuffix.description
            if topics.contains(name) { return (name, type) }
        }
        return nil
    }

    /// Topics that a push certificate serves: those of its extension, otherwise its subject's UID.
    private static func topics(of certificate: PeerCertificate) -> [String] {
        certificate.topics.isEmpty ? certificate.userID.map { [$0] } ?? [] : certificate.topics
    }

    /// Returns the date and the minute in UTC.
    static func date(_ seconds: Int64) -> String {
        var time = time_t(seconds)
        var parts = tm()
        guard gmtime_r(&time, &parts) != nil else { return "second \(seconds)" }
        func digits(_ number: Int32) -> String { number < 10 ? "0\(number)" : "\(number)" }
        return
            "\(parts.tm_year + 1900)-\(digits(parts.tm_mon + 1))-\(digits(parts.tm_mday)) \(digits(parts.tm_hour)):\(digits(parts.tm_min)) UTC"
    }
}
