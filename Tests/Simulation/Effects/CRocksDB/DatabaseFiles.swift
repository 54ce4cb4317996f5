/// Files of a database: all that outlives its process.
package final class DatabaseFiles {
    /// True when the disk is gone; an open database then fails.
    var isLost = false
    /// Whether the file CURRENT exists.
    var hasDatabase = false
    var families: [FamilyFiles] = []
    /// Logs, the one in use last.
    package var logs: [LogFile] = []
    /// The database that has the directory open for writing; nil: none has.
    weak var user: Database?
    private var nextNumber: UInt64 = 4
    private var nextFamily = 0

    /// Returns a name that no file has had before.
    func newName(_ kind: String) -> String {
        defer { nextNumber += 1 }
        let digits = String(nextNumber)
        return String(repeating: "0", count: max(0, 6 - digits.count)) + digits + "." + kind
    }

    func addFamily(_ name: String) -> FamilyFiles {
        let family = FamilyFiles(name, id: nextFamily)
        nextFamily += 1
        families.append(family)
        return family
    }

    func addLog() { logs.append(LogFile(newName("log"))) }

    /// Deletes logs whose entries are all in tables. The log in use stays.
    func deleteOldLogs() {
        guard logs.count > 1 else { return }
        let current = logs.removeLast()
        logs.removeAll(where: \.isFlushed)
        logs.append(current)
    }

    /// Syncs the logs, and their names in the directory.
    func syncLogs() {
        for log in logs {
            log.synced = log.records.count
            log.isNamed = true
        }
    }

    /// Names of all files.
    package var names: [String] {
        guard hasDatabase else { return user == nil ? [] : ["LOCK"] }
        return ["CURRENT", "LOCK", "MANIFEST-000001"] + logs.map(\.name) + families.flatMap(\.names)
    }

    package func log(_ name: String) -> LogFile? { logs.first { $0.name == name } }
}

/// Tables and blob files of a column family. A flush syncs them before it ends.
final class FamilyFiles {
    let name: String
    let id: Int
    var entries = SortedEntries()
    /// Number of the last write that the tables have.
    var flushed: UInt64 = 0
    var names: [String] = []
    var isDropped = false

    init(_ name: String, id: Int) {
        self.name = name
        self.id = id
    }
}

/// A write-ahead log. A record is a batch, and is read whole or not at all.
package final class LogFile {
    struct Record {
        var number: UInt64
        var changes: [Change]
    }

    package let name: String
    var records: [Record] = []
    package private(set) var size: Int64 = 0
    /// Records that a power cut leaves.
    var synced = 0
    /// Records that the system has dropped after a failed sync, from this one on; nil: it has dropped none.
    var dropped: Int?
    /// Whether the file's name is on the disk.
    package var isNamed = false
    /// Column families with changes in the log, each with the number of its last write.
    private var last: [(family: FamilyFiles, number: UInt64)] = []

    init(_ name: String) { self.name = name }

    var isFlushed: Bool { last.allSatisfy { $0.family.isDropped || $0.family.flushed >= $0.number } }

    func append(_ record: Record) {
        records.append(record)
        size += 12
        for change in record.changes {
            size += Int64(change.entry.count + 8)
            if let index = last.firstIndex(where: { $0.family === change.family }) {
                last[index].number = record.number
            } else {
                last.append((change.family, record.number))
            }
        }
    }

    /// Loses what isn't on the disk. A record that is left in part is the end of the log, as at a recovery that
    /// tolerates a torn tail.
    /// - Returns: number of the records that are lost.
    func cut(_ draw: (UInt64) -> UInt64) -> Int {
        let unsynced = UInt64(records.count - synced)
        let left = min(synced + Int(draw(unsynced + 1)), dropped ?? .max)
        defer { records.removeLast(records.count - left) }
        return records.count - left
    }

    package func dropUnsynced() {
        if synced < records.count { dropped = min(dropped ?? .max, synced) }
    }

    /// Number of records so far, for ``wasSynced(_:)``.
    package var end: Int { records.count }

    package func wasSynced(_ end: Int) { synced = max(synced, min(end, records.count)) }
}
