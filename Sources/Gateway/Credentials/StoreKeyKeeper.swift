import Configuration
import Logging
import RetryStore
import StoreEncryption
import Synchronization

/// The file of `store.encryption.key-file`.
public enum StoreKeyFile {
    /// Reads the keys. Blocks.
    /// - Parameter encrypts: false when new values are written in clear.
    /// - Throws: the file, the line and the remedy.
    public static func read(_ path: String, encrypts: Bool = true) throws(KeyFileError) -> StoreKeyring {
        var bytes: [UInt8]
        do throws(BoundedFile.Failure) {
            bytes = try BoundedFile.read(path, limit: KeyFile.largest)
        } catch {
            switch error {
            case .unreadable(let reason): throw KeyFileError(path: path, fault: .unreadable(reason))
            case .tooLarge: throw KeyFileError(path: path, fault: .tooLarge)
            }
        }
        defer { BoundedFile.erase(&bytes) }
        let result: Result<StoreKeyring, KeyFileError> = bytes.withUnsafeBytes { bytes in
            do throws(KeyFileError) {
                return .success(try KeyFile.read(bytes, path: path))
            } catch {
                return .failure(error)
            }
        }
        let keyring = try result.get()
        return encrypts ? keyring : keyring.decrypting
    }
}

/// State of the store's keys for operators.
public struct StoreKeyReport: Sendable, Equatable {
    /// Names of the keys, the one that encrypts first.
    public var names: [String] = []
    /// False when new values are written in clear.
    public var encrypts = true
    /// Names of the keys among them that the file lacks. They decrypt until the process restarts.
    public var kept: [String] = []
    /// Present fault of the file, which keeps the keys before in use; nil when the file is good.
    public var fault: String?
    /// Number of changes of the file that were taken over since the start.
    public var renewals = 0
    /// Number of changes that were not, because of a fault.
    public var renewalFailures = 0

    public init(names: [String], encrypts: Bool = true) {
        self.names = names
        self.encrypts = encrypts
    }
}

/// Keeps the keys of the store's encryption: loads their file, and loads it anew when it changes.
///
/// A faulty file is reported, and the keys before stay in use. A key that leaves the file decrypts until the process
/// restarts, because values may need it. Any thread but a loop's, because a file is read.
final class StoreKeyKeeper: Sendable {
    private struct State {
        var keyring: StoreKeyring
        var report: StoreKeyReport
        /// Takes keys over; nil while no worker uses them.
        var take: (@Sendable (StoreKeyring) throws(RetryStoreError) -> Void)?
    }

    /// Name of the key file.
    let file: String
    private let encrypts: Bool
    private let state: Mutex<State>
    private let logger: Logger

    /// Loads the file.
    /// - Throws: `WorkerError.store` with the file, the line and the remedy.
    init(_ settings: Configuration.Store.Encryption, logger: Logger) throws(WorkerError) {
        file = settings.keyFile
        encrypts = settings.encrypt == .on
        self.logger = logger
        do throws(KeyFileError) {
            let keyring = try StoreKeyFile.read(file, encrypts: encrypts)
            let report = StoreKeyReport(names: keyring.keys.map(\.name), encrypts: encrypts)
            state = Mutex(State(keyring: keyring, report: report))
        } catch {
            throw .store("store.encryption.key-file: \(error)")
        }
    }

    /// Present keys.
    var keyring: StoreKeyring { state.withLock { $0.keyring } }
    /// State for operators.
    var report: StoreKeyReport { state.withLock { $0.report } }

    /// Sets the receiver of changed keys, in the place of the one before. The receiver is called on the thread of
    /// ``renew(reportsFaults:)``.
    func connect(_ take: @escaping @Sendable (StoreKeyring) throws(RetryStoreError) -> Void) {
        state.withLock { $0.take = take }
    }

    /// Reads the file, and hands changed keys over. Logs each change and each new fault. Returns when the keys were
    /// handed over.
    /// - Parameter reportsFaults: false while the file may still be being written.
    func renew(reportsFaults: Bool = true) {
        state.withLock { state in
            let (new, kept): (StoreKeyring, [String])
            do {
                (new, kept) = try StoreKeyFile.read(file, encrypts: encrypts).following(state.keyring)
                if !new.isSame(as: state.keyring) {
                    try state.take?(new)
                    state.keyring = new
                    state.report.renewals += 1
                    logger.notice(
                        "the store's keys have changed",
                        metadata: [
                            "file": "\(file)", "encrypts": "\(encrypts ? new.primary.name : "off")",
                            "decrypt": "\(new.keys.map(\.name).joined(separator: ","))",
                        ])
                }
            } catch {
                guard reportsFaults, state.report.fault != "\(error)" else { return }
                state.report.fault = "\(error)"
                state.report.renewalFailures += 1
                logger.error(
                    "the store's keys can't be read anew; the keys before stay in use",
                    metadata: ["setting": "store.encryption.key-file", "error": "\(error)"])
                return
            }
            if !kept.isEmpty, kept != state.report.kept {
                logger.warning(
                    "the key file lacks keys that values may need; they decrypt until the process restarts",
                    metadata: ["file": "\(file)", "keys": "\(kept.joined(separator: ","))"])
            }
            state.report.names = new.keys.map(\.name)
            state.report.kept = kept
            state.report.fault = nil
        }
    }
}
