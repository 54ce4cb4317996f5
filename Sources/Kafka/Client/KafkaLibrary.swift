import CRdkafka

/// The librdkafka that this process is linked with.
public enum KafkaLibrary {
    /// Version of the library, for example `2.0.2`.
    public static var version: String { String(cString: rd_kafka_version_str()) }

    /// Features of the library's build, for example `ssl`, `sasl_scram`, `zstd`. Creating a client with a property of a
    /// missing feature fails.
    public static var features: [String] {
        guard let configuration = rd_kafka_conf_new() else { return [] }
        defer { rd_kafka_conf_destroy(configuration) }
        var size = 0
        guard rd_kafka_conf_get(configuration, "builtin.features", nil, &size) == RD_KAFKA_CONF_OK, size > 0
        else { return [] }
        return withUnsafeTemporaryAllocation(of: CChar.self, capacity: size) { buffer in
            guard
                rd_kafka_conf_get(configuration, "builtin.features", buffer.baseAddress, &size)
                    == RD_KAFKA_CONF_OK, let start = buffer.baseAddress
            else { return [] }
            return String(cString: start).split(separator: ",").map(String.init)
        }
    }

    /// Whether a consumer whose queue was full looks at the queue a second later only, however fast it is drained. Release
    /// 2.2.0 has the property `fetch.queue.backoff.ms`.
    public static var stopsFetching: Bool { isOlder(thanMajor: 2, minor: 2) }

    /// Whether the linked library is older than the given release.
    static func isOlder(thanMajor major: Int32, minor: Int32) -> Bool {
        rd_kafka_version() < (major << 24) | (minor << 16)
    }
}
