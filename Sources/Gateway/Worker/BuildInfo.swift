import CBuildInfo
import DeliveryCore
import HTTP2
import Kafka
import RetryStore
import SluiceModel
import StoreEncryption

/// Version of this executable, the formats that it reads and writes, and the libraries that it runs with.
public enum BuildInfo {
    /// Version of Sluice, as in CHANGELOG.md.
    public static let version = "0.1.0"

    /// First digits of the commit, with `+` when files differed from it; nil unless `make build` built it in a git clone.
    public static var commit: String? {
        let text = String(cString: sluice_build_commit())
        return text.isEmpty ? nil : text
    }

    /// Version of the Swift compiler, as far as the language tells it.
    public static var compiler: String {
        #if compiler(>=6.4)
        "6.4 or later"
        #elseif compiler(>=6.3)
        "6.3"
        #else
        "6.2"
        #endif
    }

    /// Formats of what outlives a process, by name. An update or a roll-back is safe between versions whose ranges overlap
    /// as Deploy/upgrades.md says.
    public static var formats: [(name: String, version: String)] {
        [
            ("store", RetryStore.formatVersion),
            ("stored push", "\(StoredPush.plainVersion)-\(StoredPush.extendedVersion)"),
            ("encrypted push", SealedValue.format),
            ("device", "\(RetryStore.deviceFormats.lowerBound)-\(RetryStore.deviceFormats.upperBound)"),
            ("mark", "\(RetryStore.markFormat)"), ("commit metadata", CommitMetadata.format),
        ]
    }

    /// Libraries by name, with the versions that are loaded.
    public static var libraries: [(name: String, version: String)] {
        [
            ("librdkafka", KafkaLibrary.version),
            ("OpenSSL", TLSContext.libraryVersion),
            ("RocksDB", RetryStore.libraryVersion),
        ]
    }

    /// Text of `sluice --version`.
    public static var text: String {
        func list(_ pairs: [(name: String, version: String)]) -> String {
            pairs.map { "\($0.name) \($0.version)" }.joined(separator: ", ")
        }
        return """
            sluice \(version)\(commit.map { " (\($0))" } ?? "")
            formats: \(list(formats))
            libraries: \(list(libraries)), Swift \(compiler)
            """
    }
}
