import EventLoop

/// Failure to open TCP: every address that was tried, and why each did not answer.
public struct DialError: Error, Sendable, Equatable, CustomStringConvertible {
    /// Cause of a failed attempt.
    public enum Cause: Sendable, Equatable {
        /// The system's refusal.
        case system(SystemError)
        /// No reply had arrived when the time was up.
        case noAnswer
        /// The attempt did not begin within the time.
        case notTried
    }

    /// An attempt to open TCP to one address.
    public struct Attempt: Sendable, Equatable {
        public var address: SocketAddress
        public var cause: Cause

        public init(address: SocketAddress, cause: Cause) {
            self.address = address
            self.cause = cause
        }
    }

    /// Attempts in the order in which they were tried.
    public var attempts: [Attempt]

    /// Host and port of the proxy when the addresses are the proxy's; nil otherwise.
    public var proxy: String?

    public init(attempts: [Attempt], proxy: String? = nil) {
        self.attempts = attempts
        self.proxy = proxy
    }

    public var description: String {
        let parts = attempts.map { attempt in
            switch attempt.cause {
            case .system(let error): "connect to \(attempt.address): \(error)"
            case .noAnswer: "connect to \(attempt.address): no answer within the connect timeout"
            case .notTried: "connect to \(attempt.address): not tried within the connect timeout"
            }
        }
        return (proxy.map { "proxy \($0): " } ?? "") + parts.joined(separator: "; ")
    }
}
