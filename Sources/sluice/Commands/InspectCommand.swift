import Admin
import ArgumentParser
import Foundation
import Gateway
import RetryStore
import SluiceModel
import StoreEncryption

struct InspectCommand: ParsableCommand {
    static let configuration = CommandConfiguration(
        commandName: "inspect", abstract: "Inspect the data that a worker keeps.",
        subcommands: [InspectStoreCommand.self])
}

/// `sluice inspect store DIR`: read-only, and without a worker.
struct InspectStoreCommand: ParsableCommand {
    static let configuration = CommandConfiguration(
        commandName: "store",
        abstract: "Inspect a worker's store: counts, one device's items, integrity.",
        discussion: """
            Reads the directory and changes nothing. While a worker is running, the report covers only the data that the \
            worker has flushed, and a warning says so: ask that worker at /store/summary, /store/device?token=… or \
            /trace?token=… instead. With store.changelog the same is true after a crash: the latest changes are in the \
            changelog alone. Partitions that the worker has given up are included, and listed with their age as copies of \
            the changelog. Payloads and complete device tokens are never shown.

            Encrypted pushes need the worker's key file: --key-file. Without it they are counted by the names of their \
            keys, and shown without their contents.
            """)

    @Argument(help: "The store's directory: store.directory in the worker's configuration.")
    var directory: String

    @Option(help: ArgumentHelp("Show this device's items and its presence.", valueName: "token"))
    var device: String?

    @Option(
        help: ArgumentHelp(
            "Read encrypted pushes: store.encryption.key-file in the worker's configuration.",
            valueName: "file"))
    var keyFile: String?

    @Flag(help: "Read and check the whole store. Exit status 1 if anything is damaged.")
    var verify = false

    @Flag(help: "Print one JSON document.")
    var json = false

    func validate() throws {
        if verify, device != nil {
            throw ValidationError("--verify checks the whole store; omit --device")
        }
        if let device, !DeviceToken.isValid(device) {
            throw ValidationError("--device: a device token has \(DeviceToken.grammar)")
        }
    }

    func run() throws {
        let isSound: Bool
        let keyring = try keys()
        if let process = StoreUser.process(of: directory) {
            // Standard output is for scripts.
            Terminal.error(
                "sluice: warning: process \(process) has the store open, so changes that it has not flushed are missing here; "
                    + "ask the worker at \(device == nil ? "/store/summary" : "/store/device?token=…")")
        }
        do throws(RetryStoreError) {
            let store = try StoreInspector(directory: directory, keyring: keyring)
            if let device {
                try show(device, in: store.reader)
                isSound = true
            } else if verify {
                isSound = check(store)
            } else {
                try summarize(store.reader)
                isSound = true
            }
        } catch {
            throw CommandFailure(.unavailable, "\(error)")
        }
        if !isSound { throw CommandFailure(.failure) }
    }

    private func keys() throws(CommandFailure) -> StoreKeyring? {
        guard let keyFile else { return nil }
        do throws(KeyFileError) {
            return try StoreKeyFile.read(keyFile)
        } catch {
            throw CommandFailure(.unavailable, "--key-file: \(error)")
        }
    }

    // MARK: Summary

    private func summarize(_ store: StoreReader) throws(RetryStoreError) {
        var summary = StoreSummary(now: Int64(Date().timeIntervalSince1970 * 1000))
        for partition in store.partitions {
            try store.visitItems(of: partition) { item in
                summary.add(item)
                return true
            }
            try store.visitMarks(of: partition) { _ in
                summary.marks += 1
                return true
            }
            try store.visitDevices(of: partition) { device in
                summary.add(device)
                return true
            }
        }
        let copies = try store.leftCopies()
        if json {
            Terminal.output(
                JSONText.of(
                    summary.document(
                        topic: store.sourceTopic, partitions: store.partitions, copies: copies)))
            return
        }
        Terminal.output("topic       \(store.sourceTopic)")
        Terminal.output("partitions  \(store.partitions.map { "\($0)" }.joined(separator: " "))")
        for copy in copies.compactMap(summary.describe) { Terminal.output("copy        \(copy)") }
        Terminal.output(
            "items       \(summary.items), \(summary.bytes) \(summary.bytes == 1 ? "byte" : "bytes")")
        if summary.marks > 0 {
            Terminal.output("marks       \(summary.marks), of records whose items have moved to other tokens")
        }
        for (title, counts) in summary.tables where !counts.isEmpty {
            Terminal.output(title)
            for (name, count) in counts { Terminal.output("  \(name.padded(to: 28)) \(count)") }
        }
        for (reason, number) in summary.locked.sorted(by: { $0.key < $1.key }) {
            let remedy = keyFile == nil ? "name the key file with --key-file" : reason
            Terminal.output("locked      \(number): \(remedy)")
        }
        if summary.unreadable > 0 {
            Terminal.output("unreadable  \(summary.unreadable): find them with --verify")
        }
    }

    // MARK: One device

    private func show(_ token: String, in store: StoreReader) throws(RetryStoreError) {
        var device = StoredDevice()
        try device.read(token, from: store)
        if json {
            Terminal.output(JSONText.of(device.document))
            return
        }
        if device.isEmpty { Terminal.output("nothing is stored for this device") }
        for state in device.states {
            let learned = state["learned"].map { ", last report \($0)" } ?? ""
            Terminal.output("\(state["presence"]!)\(learned), partition \(state["partition"]!)")
        }
        for item in device.items {
            Terminal.output(
                item.sorted { $0.key < $1.key }.map { "\($0.key)=\($0.value)" }.joined(separator: " "))
        }
    }

    // MARK: Check

    /// Returns a number without separators, because scripts read it, and its noun.
    private func count(_ number: Int, _ noun: String, _ plural: String? = nil) -> String {
        "\(number) \(number == 1 ? noun : plural ?? noun + "s")"
    }

    private func check(_ store: StoreInspector) -> Bool {
        let report = store.verify()
        if json {
            Terminal.output(
                JSONText.of([
                    "items": report.items, "marks": report.marks, "due-entries": report.dueEntries,
                    "devices": report.deviceStates, "push-bytes": report.pushBytes,
                    "problems": report.problems.map(\.description),
                    "problem-count": report.problemCount, "locked": report.locked,
                ]))
        } else {
            for problem in report.problems { Terminal.output("\(problem)") }
            if report.problemCount > report.problems.count {
                Terminal.output("and \(report.problemCount - report.problems.count) more")
            }
            if report.locked > 0 {
                Terminal.output(
                    "\(count(report.locked, "encrypted value")) not checked: name the key file with --key-file"
                )
            }
            Terminal.output(
                "\(count(report.items, "item")), \(count(report.dueEntries, "due entry", "due entries")), "
                    + "\(count(report.deviceStates, "device")), \(count(report.marks, "mark")): "
                    + (report.isSound ? "sound" : count(report.problemCount, "problem")))
        }
        return report.isSound
    }
}

extension String {
    /// Returns the text with spaces up to this width.
    func padded(to width: Int) -> String {
        count < width ? self + String(repeating: " ", count: width - count) : self
    }
}
