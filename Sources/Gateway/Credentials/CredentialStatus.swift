import Configuration
import Synchronization

/// State of a credential for operators.
public struct CredentialReport: Sendable, Equatable {
    /// Name of the credential.
    public var name: String
    public var environment: Configuration.APNS.Environment
    /// Last second of the certificate's validity, in seconds since 1970; nil without a certificate.
    public var expires: Int64?
    /// Time at which the key's file was last modified, in seconds since 1970; nil when the system doesn't know it.
    public var keyModified: Int64?
    /// Number of renewals taken over since the start.
    public var renewals = 0
    /// Number of renewals that failed because of a faulty file.
    public var renewalFailures = 0
    /// Present fault of the files, which keeps the credential before in use; nil when the files are good.
    public var fault: String?
    /// Number of times that APNs refused the credential and another took over.
    public var refusals = 0
    /// Number of rests after TooManyProviderTokenUpdates.
    public var rests = 0
}

/// A credential with the figures of its pools at one moment.
public struct CredentialFigures: Sendable, Equatable {
    public var report: CredentialReport
    /// Connections, streams, queues and answers of the pools.
    public var pools = PoolFigures()

    /// Adds the figures of another pool of the same credential.
    mutating func add(_ other: CredentialFigures) {
        pools = pools + other.pools
    }
}

/// A credential's counts and facts, which all shards share. Any thread.
final class CredentialStatus: Sendable {
    private let state: Mutex<CredentialReport>

    init(name: String = "", environment: Configuration.APNS.Environment = .custom) {
        state = Mutex(CredentialReport(name: name, environment: environment))
    }

    var report: CredentialReport { state.withLock { $0 } }

    /// Counts a refusal after which another key or certificate took over.
    func countRefusal() { state.withLock { $0.refusals += 1 } }

    /// Counts a rest after TooManyProviderTokenUpdates.
    func countRest() { state.withLock { $0.rests += 1 } }

    /// Records the dates of the files in use.
    func note(expires: Int64?, keyModified: Int64?) {
        state.withLock {
            $0.expires = expires
            $0.keyModified = keyModified
        }
    }

    /// Records that a renewal was taken over.
    func renewed() {
        state.withLock {
            $0.renewals += 1
            $0.fault = nil
        }
    }

    /// Records that the files are those in use again, or are faulty. Returns whether the fault is new.
    func note(fault: String?) -> Bool {
        state.withLock { report in
            guard report.fault != fault else { return false }
            report.fault = fault
            if fault != nil { report.renewalFailures += 1 }
            return fault != nil
        }
    }
}
