import CRdkafka

/// Latest errors of a client's connections. librdkafka reports them apart from the call that fails by them.
final class ConnectionReports {
    /// Latest reasons, without repetition, the latest last.
    private(set) var reasons: [String] = []
    private static let most = 4

    /// Lets a client report to this object, which must outlive the client.
    func install(in configuration: OpaquePointer) {
        rd_kafka_conf_set_opaque(configuration, Unmanaged.passUnretained(self).toOpaque())
        rd_kafka_conf_set_error_cb(configuration) { _, code, reason, opaque in
            guard let reason, let opaque,
                code != RD_KAFKA_RESP_ERR__ALL_BROKERS_DOWN.rawValue
            else { return }
            Unmanaged<ConnectionReports>.fromOpaque(opaque).takeUnretainedValue()
                .add(String(cString: reason))
        }
    }

    private func add(_ reason: String) {
        reasons.removeAll { $0 == reason }
        reasons.append(reason)
        if reasons.count > Self.most { reasons.removeFirst() }
    }

    /// Takes over what the client has reported. librdkafka calls back on this thread only.
    func collect(from client: OpaquePointer) {
        while rd_kafka_poll(client, 0) > 0 {}
    }

    /// Returns a code's text, followed by the connections' latest reason and its remedy.
    func explain(_ code: rd_kafka_resp_err_t) -> String {
        let text = String(cString: rd_kafka_err2str(code))
        let known = reasons.last { ConnectionFault(reason: $0) != nil }
        guard let reason = known ?? reasons.last else { return text }
        let advice = ConnectionFault(reason: reason).map { "; \($0.advice)" } ?? ""
        return "\(text): \(reason)\(advice)"
    }
}
