import Configuration

/// Checks the parts that a worker connects to: Kafka, APNs, the store's directory and clocks. Nothing of a worker
/// starts: no group is joined, no record is written, and no push can reach a device.
public struct ConnectCheck: Sendable {
    private let configuration: Configuration
    /// Longest wait for each answer.
    private let timeout: Duration

    /// - Parameter timeout: longest wait for each answer, one second to one minute.
    public init(_ configuration: Configuration, timeout: Duration = .seconds(10)) {
        self.configuration = configuration
        self.timeout = min(max(timeout, .seconds(1)), .seconds(60))
    }

    /// Checks each part in turn. Blocks.
    /// - Parameter report: called with each result, as soon as it is known.
    /// - Returns: all results, in order.
    public func run(_ report: (CheckResult) -> Void = { _ in }) -> [CheckResult] {
        var results: [CheckResult] = []
        func add(_ result: CheckResult) {
            results.append(result)
            report(result)
        }
        let kafka = KafkaConnectCheck(
            configuration: configuration, timeout: Int32(clamping: Int64(timeout / .milliseconds(1))))
        for result in KafkaVerdict.results(kafka.facts()) { add(result) }
        var clocks: [String: Int64] = [:]
        APNSConnectCheck(configuration: configuration, timeout: timeout).run { server, own in
            clocks["APNs"] = server - own
        } _: {
            add($0)
        }
        let machine = MachineCheck(configuration: configuration).facts(clocks: clocks)
        for result in MachineVerdict.results(machine) { add(result) }
        return results
    }
}
