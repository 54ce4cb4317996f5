import Foundation
import HTTP2

/// Directory of a local stage: a signing key, the worker's configuration, logs. A temporary directory is removed at the
/// end, unless it is to be kept.
final class LocalFiles {
    static let keyID = "LOCALKEY01"
    static let teamID = "LOCALTEAM1"
    /// Name of the signing key's file.
    static let keyFile = "AuthKey.p8"

    let directory: String
    /// Whether the directory stays at the end.
    var isKept: Bool
    /// Path of the processes' executable; nil: that of this process.
    let executable: String?
    /// Lock of a directory that was named; nil for a temporary directory.
    private let lock: DirectoryLock?

    /// Throws when another process has the directory.
    /// - Parameters:
    ///   - directory: a directory that is made if it is absent, and kept; nil: a temporary one.
    ///   - executable: path of the processes' executable; nil: that of this process.
    init(directory: String? = nil, executable: String? = nil) throws(CommandFailure) {
        self.executable = executable
        if let directory {
            do {
                try FileManager.default.createDirectory(
                    atPath: directory, withIntermediateDirectories: true,
                    attributes: [.posixPermissions: 0o700])
            } catch {
                throw CommandFailure(
                    .unavailable, "can't make the directory \(directory): \(error.localizedDescription)")
            }
            self.directory = URL(filePath: directory).standardizedFileURL.path(percentEncoded: false)
            lock = try DirectoryLock(self.directory)
            isKept = true
        } else {
            var template = Array(
                "\(URL.temporaryDirectory.path(percentEncoded: false))sluice-XXXXXX".utf8CString)
            guard let created = mkdtemp(&template) else {
                throw CommandFailure(
                    .internalError, "can't make a temporary directory: \(String(cString: strerror(errno)))")
            }
            self.directory = String(cString: created)
            lock = nil
            isKept = false
        }
        guard !FileManager.default.fileExists(atPath: path(Self.keyFile)) else { return }
        do {
            // An EC P-256 key in PKCS #8, the form in which Apple issues keys.
            let key = try CertificateAuthority(commonName: "sluice").privateKeyPEM
            try write(key, to: Self.keyFile)
        } catch {
            throw CommandFailure(.internalError, "can't write the signing key: \(error)")
        }
    }

    deinit {
        if !isKept { try? FileManager.default.removeItem(atPath: directory) }
    }

    func path(_ name: String) -> String { "\(directory)/\(name)" }

    /// Writes a file that only this user reads.
    func write(_ text: String, to name: String) throws(CommandFailure) {
        let path = path(name)
        do {
            try text.write(toFile: path, atomically: true, encoding: .utf8)
        } catch {
            throw CommandFailure(.unavailable, "can't write \(path): \(error.localizedDescription)")
        }
        chmod(path, 0o600)
    }
}

/// Lock of a directory against another process that would write the same files. The end of the process releases the lock.
private final class DirectoryLock {
    private let descriptor: Int32

    init(_ directory: String) throws(CommandFailure) {
        let path = "\(directory)/lock"
        descriptor = open(path, O_RDWR | O_CREAT | O_CLOEXEC, 0o600)
        guard descriptor >= 0 else {
            throw CommandFailure(.unavailable, "can't open \(path): \(String(cString: strerror(errno)))")
        }
        guard flock(descriptor, LOCK_EX | LOCK_NB) == 0 else {
            let error = errno
            close(descriptor)
            let reason =
                error == EWOULDBLOCK
                ? "another process runs in \(directory)"
                : "can't lock \(path): \(String(cString: strerror(error)))"
            throw CommandFailure(.unavailable, "\(reason); choose another --directory")
        }
    }

    deinit { close(descriptor) }
}
