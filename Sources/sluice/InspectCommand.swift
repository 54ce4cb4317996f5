import ArgumentParser
import Foundation
import RetryStore
import SluiceModel

struct InspectCommand: ParsableCommand {
    static let configuration = CommandConfiguration(
        commandName: "inspect", abstract: "Look into what a worker keeps.",
        subcommands: [InspectStoreCommand.self])
}

/// `sluice inspect store DIR`: read-only, and without a worker.
struct InspectStoreCommand: ParsableCommand {
    static let configuration = CommandConfiguration(
        commandName: "store",
        abstract: "Say what a worker's store has: counts, one device's items, whether all of it is sound.",
        discussion: """
            Reads the directory and changes nothing. Beside a worker that is running it sees what that has written out so \
            far. Device tokens are shown by their first characters, payloads not at all.
            """)

    @Argument(help: "store.directory of the worker's configuration.")
    var directory: String

    @Option(help: ArgumentHelp("Show the items of this device, and what is known of it.", valueName: "token"))
    var device: String?

    @Flag(help: "Read and check all of it. Exit status 1 when something is damaged.")
    var verify = false

    @Flag(help: "One JSON document.")
    var json = false

    func validate() throws {
        if verify, device != nil {
            throw ValidationError("--verify is for all of the store, not for one device")
        }
        if let device, !device.utf8.allSatisfy({ isxdigit(Int32($0)) != 0 }) || device.isEmpty {
            throw ValidationError("--device: a device token has hexadecimal digits only")
        }
    }

    func run() throws {
        let isSound: Bool
        do throws(RetryStoreError) {
            let store = try StoreInspector(directory: directory)
            if let device {
                try show(device, in: store)
                isSound = true
            } else if verify {
                isSound = check(store)
            } else {
                try summarize(store)
                isSound = true
            }
        } catch {
            throw CommandFailure(.unavailable, "\(error)")
        }
        if !isSound { throw CommandFailure(.failure) }
    }

    // MARK: Summary

    private func summarize(_ store: StoreInspector) throws(RetryStoreError) {
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
            try store.visitDevices(of: partition) { _, state in
                summary.devices[state.presence, default: 0] += 1
                return true
            }
        }
        if json {
            Terminal.output(
                Self.json(summary.document(topic: store.sourceTopic, partitions: store.partitions)))
            return
        }
        Terminal.output("topic       \(store.sourceTopic)")
        Terminal.output("partitions  \(store.partitions.map { "\($0)" }.joined(separator: " "))")
        Terminal.output("items       \(summary.items), \(summary.bytes) bytes")
        if summary.marks > 0 {
            Terminal.output("marks       \(summary.marks), of records whose items have moved to other tokens")
        }
        for (title, counts) in summary.tables where !counts.isEmpty {
            Terminal.output(title)
            for (name, count) in counts { Terminal.output("  \(name.padded(to: 28)) \(count)") }
        }
        if summary.unreadable > 0 { Terminal.output("unreadable  \(summary.unreadable): try --verify") }
    }

    private static func json(_ document: [String: Any]) -> String {
        let data = try? JSONSerialization.data(
            withJSONObject: document, options: [.sortedKeys, .withoutEscapingSlashes])
        return data.map { String(decoding: $0, as: UTF8.self) } ?? "{}"
    }

    // MARK: One device

    private func show(_ device: String, in store: StoreInspector) throws(RetryStoreError) {
        var items: [[String: Any]] = []
        var states: [[String: Any]] = []
        let token = Array(device.utf8)
        for partition in store.partitions {
            let failure: RetryStoreError? = token.withUnsafeBytes { token in
                do throws(RetryStoreError) {
                    try store.visitItems(of: partition, token: token) { item in
                        items.append(StoredItemView.document(item, partition))
                        return true
                    }
                    if let state = try store.device(of: partition, token: token) {
                        states.append([
                            "partition": partition, "presence": StoreSummary.presence(state.presence),
                            "learned": StoreSummary.time(state.learnedMilliseconds),
                        ])
                    }
                    return nil
                } catch {
                    return error
                }
            }
            if let failure { throw failure }
        }
        if json {
            Terminal.output(Self.json(["items": items, "device": states]))
            return
        }
        if items.isEmpty, states.isEmpty { Terminal.output("nothing is stored of this device") }
        for state in states {
            Terminal.output(
                "\(state["presence"]!) since \(state["learned"]!), partition \(state["partition"]!)")
        }
        for item in items {
            Terminal.output(
                item.sorted { $0.key < $1.key }.map { "\($0.key)=\($0.value)" }.joined(separator: " "))
        }
    }

    // MARK: Check

    private func check(_ store: StoreInspector) -> Bool {
        let report = store.verify()
        if json {
            Terminal.output(
                Self.json([
                    "items": report.items, "marks": report.marks, "due-entries": report.dueEntries,
                    "devices": report.deviceStates, "push-bytes": report.pushBytes,
                    "problems": report.problems.map(\.description),
                    "problem-count": report.problemCount,
                ]))
        } else {
            for problem in report.problems { Terminal.output("\(problem)") }
            if report.problemCount > report.problems.count {
                Terminal.output("and \(report.problemCount - report.problems.count) more")
            }
            Terminal.output(
                "\(report.items) items, \(report.dueEntries) due entries, \(report.deviceStates) devices, "
                    + "\(report.marks) marks: "
                    + (report.isSound ? "sound" : "\(report.problemCount) problems"))
        }
        return report.isSound
    }
}

/// Counts of all that a store has.
private struct StoreSummary {
    let now: Int64
    var items = 0
    var bytes = 0
    var marks = 0
    var unreadable = 0
    var waits: [String: Int] = [:]
    var topics: [String: Int] = [:]
    var ages: [String: Int] = [:]
    var due: [String: Int] = [:]
    var devices: [UInt8: Int] = [:]

    init(now: Int64) { self.now = now }

    static let spans: [(Int64, String)] = [
        (60_000, "1 minute"), (3_600_000, "1 hour"), (86_400_000, "1 day"), (604_800_000, "7 days"),
        (.max, "longer"),
    ]

    static func span(_ milliseconds: Int64) -> String {
        let name = spans.first { milliseconds <= $0.0 }!.1
        return name == "longer" ? name : "up to \(name)"
    }

    static func presence(_ code: UInt8) -> String {
        ["online", "offline", "presumed offline"].indices.contains(Int(code))
            ? ["online", "offline", "presumed offline"][Int(code)] : "unknown"
    }

    static func time(_ milliseconds: Int64) -> String {
        Date(timeIntervalSince1970: Double(milliseconds) / 1000).formatted(.iso8601)
    }

    mutating func add(_ item: StoreInspector.Item) {
        items += 1
        bytes += item.push.count
        due[item.due <= now ? "now" : Self.span(item.due - now), default: 0] += 1
        var text = [UInt8](repeating: 0, count: DeviceToken.maximumLength)
        let isRead = text.withUnsafeMutableBytes { text in
            guard let stored = try? StoredPush(decoding: item.push, tokenText: text) else { return false }
            waits["\(stored.progress.wait)", default: 0] += 1
            topics[String(decoding: stored.push.topic, as: UTF8.self), default: 0] += 1
            ages[Self.span(max(0, now - stored.push.createdMilliseconds)), default: 0] += 1
            return true
        }
        if !isRead { unreadable += 1 }
    }

    private static func bySize(_ counts: [String: Int]) -> [(String, Int)] {
        counts.sorted { ($1.value, $0.key) < ($0.value, $1.key) }
    }

    private static func bySpan(_ counts: [String: Int]) -> [(String, Int)] {
        (["now"] + spans.map { $0.1 == "longer" ? $0.1 : "up to \($0.1)" }).compactMap { name in
            counts[name].map { (name, $0) }
        }
    }

    var tables: [(String, [(String, Int)])] {
        [
            ("waiting for", Self.bySize(waits)), ("by app's topic", Self.bySize(topics)),
            ("by age", Self.bySpan(ages)), ("due", Self.bySpan(due)),
            ("devices known", devices.sorted { $0.key < $1.key }.map { (Self.presence($0.key), $0.value) }),
        ]
    }

    func document(topic: String, partitions: [Int32]) -> [String: Any] {
        [
            "topic": topic, "partitions": partitions, "items": items, "push-bytes": bytes,
            "marks": marks, "unreadable": unreadable, "waits": waits, "app-topics": topics, "ages": ages,
            "due": due,
            "devices": Dictionary(uniqueKeysWithValues: devices.map { (Self.presence($0.key), $0.value) }),
        ]
    }
}

/// One item, for people and scripts.
private enum StoredItemView {
    static func document(_ item: StoreInspector.Item, _ partition: Int32) -> [String: Any] {
        var document: [String: Any] = [
            "partition": partition, "offset": item.key.offset, "due": StoreSummary.time(item.due),
            "bytes": item.push.count,
        ]
        var text = [UInt8](repeating: 0, count: DeviceToken.maximumLength)
        text.withUnsafeMutableBytes { text in
            guard let stored = try? StoredPush(decoding: item.push, tokenText: text) else {
                document["problem"] = "can't be read"
                return
            }
            document["apns-id"] = "\(stored.push.apnsID)"
            document["topic"] = String(decoding: stored.push.topic, as: UTF8.self)
            if let identifier = stored.push.collapseIdentifier {
                document["collapse-id"] = String(decoding: identifier, as: UTF8.self)
            }
            document["created"] = StoreSummary.time(stored.push.createdMilliseconds)
            document["waits"] = "\(stored.progress.wait)"
            document["attempts"] = stored.progress.attempts
            if let expiry = stored.progress.expiryMilliseconds {
                document["expires"] = StoreSummary.time(expiry)
            }
        }
        return document
    }
}

extension String {
    fileprivate func padded(to width: Int) -> String {
        count < width ? self + String(repeating: " ", count: width - count) : self
    }
}
