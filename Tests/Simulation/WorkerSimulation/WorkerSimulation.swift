import DeliveryCore
import Glibc
import HTTP2

/// Seeded worlds of the whole workers that ship. The same seed always gives the same run.
public enum WorkerSimulation {
    /// Runs one seed to its end or to the first broken promise.
    public static func run(
        seed: UInt64, events: Int, mode: StoreMode, withoutFaults: Bool = false, files: SimulationFiles,
        printsTrace: Bool = false, counts: inout WorkerCounts
    ) throws -> WorkerViolation? {
        try WorkerWorld.run(
            seed: seed, events: events, mode: mode, withoutFaults: withoutFaults, files: files,
            printsTrace: printsTrace, counts: &counts)
    }
}

/// A broken promise.
public struct WorkerViolation: Error, Sendable, CustomStringConvertible {
    public enum Promise: String, Sendable {
        case nothingLost = "nothing is lost"
        case oneOutcome = "exactly one outcome"
        case rightOutcome = "the outcome is what happened"
        case newestWins = "the newest wins"
        case sound = "the core's tables are sound"
        case neverLate = "never after the expiration"
        case oneOwner = "only the owner of a partition sends its pushes"
        case noDuplicate = "no duplicate without a cause"
        case waits = "waits for what it must wait for"
        case prompt = "a push that need not wait is sent soon"
        case bounded = "bounded"
        case progress = "no item waits for ever"
        case inTurn = "broadcasts of a channel are sent in turn"
    }

    public var seed: UInt64
    public var mode: StoreMode
    public var promise: Promise
    public var what: String
    /// The last steps before the violation.
    public var trace: [String]

    public var description: String { "seed \(seed), \(mode): \"\(promise.rawValue)\" is broken: \(what)" }
}

/// What happened in some worlds.
public struct WorkerCounts: Sendable {
    /// Turns of loops, and events of the world around them.
    public var turns = 0
    public var events = 0
    public var jobs = 0
    public var pushes = 0
    public var repeatedPushes = 0
    public var outcomes = 0
    public var repeatedOutcomes = 0
    public var starts = 0
    public var faults = 0
    /// Pushes of calm worlds whose first request was checked for its promptness.
    public var promptChecks = 0
    /// Pushes beside an app in trouble whose first request was checked for its promptness.
    public var shareChecks = 0
    /// Times that pushes of an app beyond its share were parked.
    public var parkings = 0
    /// Outcomes by kind and cause.
    public var kinds: [String: Int] = [:]

    public init() {}

    mutating func add(_ other: WorkerCounts) {
        turns += other.turns
        events += other.events
        jobs += other.jobs
        pushes += other.pushes
        repeatedPushes += other.repeatedPushes
        outcomes += other.outcomes
        repeatedOutcomes += other.repeatedOutcomes
        starts += other.starts
        faults += other.faults
        promptChecks += other.promptChecks
        shareChecks += other.shareChecks
        parkings += other.parkings
        kinds.merge(other.kinds, uniquingKeysWith: +)
    }
}

/// Files that workers of all worlds read: a signing key, and the certificates of APNs.
public final class SimulationFiles: Sendable {
    let directory: String
    let authority: String
    /// Signing keys, any of which APNs accepts.
    private let keys: [String]
    /// The server's certificate and key.
    // nonisolated(unsafe): never changed; OpenSSL's contexts are made for several threads.
    nonisolated(unsafe) let server: TLSContext

    /// Makes the files in an existing directory.
    public init(directory: String) throws {
        self.directory = directory
        let authority = try CertificateAuthority(commonName: "simulated APNs")
        keys = try (0..<2).map { _ in try CertificateAuthority(commonName: "key").privateKeyPEM }
        self.authority = "\(directory)/authority.pem"
        try Self.write(authority.certificatePEM, to: self.authority)
        let issued = try authority.issueServer(names: [SimulatedAPNS.host])
        server = try TLSContext.server(
            ServerTLSOptions(
                identity: TLSIdentity(
                    certificateChain: .text(issued.chainPEM), privateKey: .text(issued.privateKeyPEM))))
    }

    /// Returns the directory of a host's store, without files of earlier worlds. The store itself is on a simulated disk;
    /// only the switches are in real files.
    func directory(of host: Int) throws -> String {
        let path = "\(directory)/\(host)"
        mkdir(path, 0o700)
        for file in ["switches", "switches.known"] { unlink("\(path)/\(file)") }
        return path
    }

    /// Writes one of the signing keys to the host's key file, or a part of it.
    func writeKey(_ number: Int, of host: Int, isTorn: Bool = false) throws {
        let key = keys[number % keys.count]
        try Self.write(isTorn ? String(key.prefix(key.count / 2)) : key, to: self.key(of: host))
    }

    func key(of host: Int) -> String { "\(directory)/\(host)/key.p8" }

    private static func write(_ text: String, to path: String) throws {
        let descriptor = open(path, O_WRONLY | O_CREAT | O_TRUNC, 0o600)
        guard descriptor >= 0 else { throw WriteFailure(path: path, code: errno) }
        defer { close(descriptor) }
        let bytes = Array(text.utf8)
        guard Glibc.write(descriptor, bytes, bytes.count) == bytes.count else {
            throw WriteFailure(path: path, code: errno)
        }
    }

    private struct WriteFailure: Error {
        var path: String
        var code: Int32
    }
}
