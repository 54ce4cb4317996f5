import EventLoop

/// TCP did not come about: every address that was tried, and why each did not answer.
public struct DialError: Error, Sendable, Equatable, CustomStringConvertible {
    public enum Cause: Sendable, Equatable {
        /// The system's refusal.
        case system(SystemError)
        /// Nothing had come back when the time was up.
        case noAnswer
        /// Its turn did not come within the time.
        case notTried
    }

    public struct Attempt: Sendable, Equatable {
        public var address: SocketAddress
        public var cause: Cause

        public init(address: SocketAddress, cause: Cause) {
            self.address = address
            self.cause = cause
        }
    }

    /// In the order in which they were tried.
    public var attempts: [Attempt]

    /// Host and port of the proxy, when the addresses are those of one.
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
