/// Failure to open a listener.
public struct ServerError: Error, Sendable, Equatable, CustomStringConvertible {
    /// Requested address and port.
    public let endpoint: String
    /// Reason of the failure, for people.
    public let reason: String
    /// Remedy, for people.
    public let hint: String

    package init(endpoint: String, reason: String, hint: String) {
        self.endpoint = endpoint
        self.reason = reason
        self.hint = hint
    }

    public var description: String { "listening on \(endpoint): \(reason); \(hint)" }
}
