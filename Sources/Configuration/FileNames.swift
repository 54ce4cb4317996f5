import Foundation

/// Meaning of the file names in a configuration.
struct FileNames {
    /// Named files that are looked at while a configuration is read.
    enum Access {
        /// No file.
        case none
        /// Files whose contents are values of the configuration, such as passwords of Kafka.
        case contents
        /// All files: each must exist and be readable, so that mistakes show before the first push.
        case all
    }

    /// Directory that relative names are relative to.
    var directory: String
    /// Files that are looked at.
    var access: Access
    /// Value of the variable `CREDENTIALS_DIRECTORY`, which systemd sets for a service's credentials; nil when unset.
    var credentialsDirectory: String?

    private static let prefixes = ["$CREDENTIALS_DIRECTORY/", "${CREDENTIALS_DIRECTORY}/"]

    func resolve(_ path: String) -> String {
        var path = path
        if let rest = Self.nameOfCredential(path) {
            guard let credentialsDirectory else { return path }
            path = "\(credentialsDirectory)/\(rest)"
        }
        if path.isEmpty || path.hasPrefix("/") { return path }
        return URL(filePath: path, relativeTo: URL(filePath: directory, directoryHint: .isDirectory))
            .standardizedFileURL.path(percentEncoded: false)
    }

    /// Returns the part behind `$CREDENTIALS_DIRECTORY/`; nil for any other name.
    private static func nameOfCredential(_ path: String) -> Substring? {
        prefixes.first { path.hasPrefix($0) }.map { path.dropFirst($0.count) }
    }

    private func missingDirectory(_ path: String) -> String? {
        guard credentialsDirectory == nil, Self.nameOfCredential(path) != nil else { return nil }
        return
            "needs the variable CREDENTIALS_DIRECTORY, which isn't set; systemd sets it for units with LoadCredential="
    }

    /// Returns the fault of a file name, or nil.
    func check(_ path: String) -> String? {
        guard access == .all else { return nil }
        if let missing = missingDirectory(path) { return missing }
        let resolved = resolve(path)
        return FileNames.unreadable(resolved).map { "\(resolved) \($0)" }
    }

    /// Returns the fault of a directory that need not exist yet, or nil.
    func checkDirectory(_ path: String) -> String? {
        guard access == .all else { return nil }
        if let missing = missingDirectory(path) { return missing }
        var part = resolve(path)
        while !part.isEmpty, part != "/" {
            var isDirectory: ObjCBool = false
            if FileManager.default.fileExists(atPath: part, isDirectory: &isDirectory) {
                return isDirectory.boolValue ? nil : "\(part) is a file, not a directory"
            }
            part = URL(filePath: part).deletingLastPathComponent().path(percentEncoded: false)
            while part.count > 1, part.hasSuffix("/") { part.removeLast() }
        }
        return nil
    }

    /// Returns the secret in a file, without a line break at its end. Returns an empty text where files aren't read.
    func secret(in path: String) -> Result<String, SecretFile.Fault> {
        guard access != .none else { return .success("") }
        if let missing = missingDirectory(path) { return .failure(SecretFile.Fault(text: missing)) }
        return SecretFile.read(resolve(path))
    }

    /// Returns the reason for which a file can't be read; nil when it can be read.
    static func unreadable(_ path: String) -> String? {
        var isDirectory: ObjCBool = false
        guard FileManager.default.fileExists(atPath: path, isDirectory: &isDirectory) else {
            return "does not exist"
        }
        if isDirectory.boolValue { return "is a directory, not a file" }
        return FileManager.default.isReadableFile(atPath: path) ? nil : "cannot be read: permission denied"
    }
}
