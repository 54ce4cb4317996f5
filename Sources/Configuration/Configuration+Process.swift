import Glibc

extension Configuration {
    /// Section `process`.
    public struct Process: Sendable, Equatable {
        /// Whether core dumps are written, and debuggers of the same user may attach. Memory has keys and tokens.
        public var dumpable: Store.Switch

        public init(dumpable: Store.Switch = .off) { self.dumpable = dumpable }
    }

    static func readProcess(_ section: SectionReader) -> Process {
        Process(
            dumpable: section.choice(
                "dumpable", default: Process().dumpable,
                help:
                    "`on`: allow core dumps and debuggers of the same user; `off`: forbid both, because memory holds keys"
            ))
    }

    /// Returns a text on each secret file that others than its owner have rights to, with the remedy. The files exist.
    public func exposedFiles() -> [String] {
        var files: [(setting: String, path: String)] = []
        for credential in credentials {
            for file in credential.kind.files where file.isSecret {
                files.append(("credentials.\(credential.name).\(file.setting)", file.path))
            }
            if let path = credential.endpoint?.proxy?.passwordFile, path != apns.proxy?.passwordFile {
                files.append(("credentials.\(credential.name).proxy.password-file", path))
            }
        }
        if let path = admin.tokenFile { files.append(("admin.token-file", path)) }
        if let path = outcomes.hashKeyFile { files.append(("outcomes.hash-key-file", path)) }
        if let path = store?.encryption?.keyFile { files.append(("store.encryption.key-file", path)) }
        if let path = apns.proxy?.passwordFile { files.append(("apns.proxy.password-file", path)) }
        for (section, properties) in [
            ("properties", kafka.properties), ("consumer-properties", kafka.consumerProperties),
            ("producer-properties", kafka.producerProperties),
        ] {
            for property in properties {
                if let path = property.file { files.append(("kafka.\(section).\(property.name)-file", path)) }
            }
        }
        return files.compactMap { setting, path in
            var status = stat()
            guard stat(path, &status) == 0 else { return nil }
            return Self.exposure(of: path, setting: setting, mode: status.st_mode)
        }
    }

    /// Returns nil when others have no rights.
    static func exposure(of path: String, setting: String, mode: mode_t) -> String? {
        guard mode & 0o077 != 0 else { return nil }
        let text = String(mode & 0o7777, radix: 8)
        return
            "\(setting): users other than the owner have rights to \(path) (mode 0\(text)): run `chmod 600 \(path)`, or set `defaultMode: 0400` of a Kubernetes secret"
    }
}
