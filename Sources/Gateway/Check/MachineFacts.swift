/// Facts about this machine: descriptors, clocks and the store's directory.
struct MachineFacts: Sendable, Equatable {
    /// Facts about the store's directory.
    struct Directory: Sendable, Equatable {
        var path: String
        /// Existing directory that was tried: the path, or the nearest one above it.
        var tried: String
        /// System's reason for which no file can be written; nil when a file was written.
        var error: String?
        /// Bytes that this user may still write; nil when the system doesn't tell.
        var freeBytes: Int64?
        /// Longest time of a few syncs of a small file; nil when none was tried.
        var sync: Duration?
    }

    /// Nil without a store.
    var directory: Directory?
    /// Soft limit of open files.
    var openFiles: Int
    /// Most connections to APNs of all pools and shards.
    var connections: Int
    /// Seconds by which another clock is ahead of this machine's, by the other clock's name.
    var clocks: [String: Int64] = [:]
}

/// Judges the facts about this machine.
enum MachineVerdict {
    /// Descriptors besides those of APNs' connections: Kafka's, the store's and the endpoint's.
    static let otherFiles = 256
    private static let leastFree: Int64 = 1 << 30
    private static let leastUsable: Int64 = 64 << 20

    static func results(_ facts: MachineFacts) -> [CheckResult] {
        var results = facts.directory.map(self.results) ?? []
        results.append(openFiles(facts))
        results += clocks(facts)
        return results
    }

    private static func results(_ directory: MachineFacts.Directory) -> [CheckResult] {
        let part = "store"
        if let error = directory.error {
            return [
                CheckResult(
                    .bad, part, "\(directory.tried): \(error)",
                    remedy: "give the worker's user a directory that it can write (store.directory)")
            ]
        }
        let place =
            directory.tried == directory.path
            ? directory.path : "\(directory.path) doesn't exist yet; \(directory.tried)"
        var results = [CheckResult(.good, part, "\(place) can be written")]
        if let free = directory.freeBytes {
            let finding = "\(size(free)) free"
            if free < leastUsable {
                results.append(
                    CheckResult(.bad, part, finding, remedy: "free some space, or name another disk"))
            } else if free < leastFree {
                results.append(
                    CheckResult(
                        .warning, part, finding,
                        remedy: "ten million held pushes take 9.4 GB: give the store more space"))
            } else {
                results.append(CheckResult(.good, part, finding))
            }
        } else {
            results.append(CheckResult(.unchecked, part, "the file system doesn't report its free space"))
        }
        if let sync = directory.sync {
            let milliseconds = Int(sync / .milliseconds(1))
            let finding = "a sync takes up to \(max(1, milliseconds)) ms"
            results.append(
                milliseconds > 100
                    ? CheckResult(
                        .warning, part, finding,
                        remedy: "offsets are committed behind syncs: use a faster disk")
                    : CheckResult(.good, part, finding))
        }
        return results
    }

    private static func openFiles(_ facts: MachineFacts) -> CheckResult {
        let part = "file limit"
        // A store takes up to a third of the limit for itself.
        let usable = facts.directory == nil ? facts.openFiles : facts.openFiles / 3 * 2
        let needed = facts.connections + otherFiles
        let finding =
            "\(facts.openFiles) open files; \(facts.connections) connections to APNs at most"
        guard usable < needed else { return CheckResult(.good, part, finding) }
        let wanted = facts.directory == nil ? needed : needed / 2 * 3 + 3
        return CheckResult(
            .bad, part, finding, remedy: "raise the limit to \(wanted) (LimitNOFILE=, ulimit -n)")
    }

    private static func clocks(_ facts: MachineFacts) -> [CheckResult] {
        let kafka = CheckResult(
            .unchecked, "clock",
            "Kafka's clock isn't checked, because only records that are written reveal it")
        guard !facts.clocks.isEmpty else {
            return [kafka, CheckResult(.unchecked, "clock", "APNs' answers have no date")]
        }
        return [kafka]
            + facts.clocks.sorted { $0.key < $1.key }.map { name, ahead in
                let distance = abs(ahead)
                let finding =
                    distance <= 2
                    ? "as \(name)'s"
                    : "\(distance) s \(ahead > 0 ? "behind" : "ahead of") \(name)'s"
                if distance <= 5 { return CheckResult(.good, "clock", finding) }
                let remedy =
                    "synchronise this machine's clock, because expirations and provider tokens depend on it"
                // APNs refuses tokens of another hour.
                return CheckResult(distance < 1_800 ? .warning : .bad, "clock", finding, remedy: remedy)
            }
    }

    private static func size(_ bytes: Int64) -> String {
        switch bytes {
        case (1 << 30)...: "\(bytes >> 30) GB"
        default: "\(bytes >> 20) MB"
        }
    }
}
