import Foundation
import Kafka
import KafkaTestSupport
import SluiceModel
import TestSupport
import Testing

/// A job to be produced.
struct JobDraft {
    var deviceToken: String
    var kind: AuditedJob.Kind
    /// Seconds, of a push to be confirmed.
    var receiptTimeout: Int64?
    /// Bytes of text.
    var payload = 2

    init(_ deviceToken: String, _ kind: AuditedJob.Kind, receiptTimeout: Int64? = nil) {
        self.deviceToken = deviceToken
        self.kind = kind
        self.receiptTimeout = receiptTimeout
    }

    init(_ deviceToken: String, _ event: AuditedJob.DeviceEvent) { self.init(deviceToken, .event(event)) }

    /// - Parameter created: when it was made, where that isn't what Kafka's clock says.
    func encoded(created: Int64?) -> EncodedJob {
        switch kind {
        case .push(let push):
            var job = PushDescription(
                deviceToken: deviceToken, topic: push.topic,
                payload: Array(#"{"aps":{"alert":"\#(String(repeating: "x", count: payload))"}}"#.utf8))
            job.apnsID = push.apnsID
            job.collapseIdentifier = push.collapseID
            job.delivery = "\(push.delivery.name)"
            job.expiration = push.expiration.map { $0 / 1_000 }
            job.deliverAtMilliseconds = push.deliverAt
            job.receiptTimeoutSeconds = receiptTimeout
            job.createdAtMilliseconds = created
            return JobEncoder.binary(job)
        case .cancel(let target):
            var job = ControlDescription(.cancel, deviceToken: deviceToken)
            switch target {
            case .collapse(let topic, let identifier):
                (job.topic, job.collapseIdentifier) = (topic, identifier)
            case .notification(let identifier): job.apnsID = identifier
            }
            job.createdAtMilliseconds = created
            return JobEncoder.binary(job)
        case .event(let event):
            var job = ControlDescription(.device, deviceToken: deviceToken)
            switch event {
            case .online: job.event = "online"
            case .offline: job.event = "offline"
            case .unregistered: job.event = "unregistered"
            case .receipt(let identifier): (job.event, job.apnsID) = ("receipt", identifier)
            case .tokenChanged(let new): (job.event, job.newDeviceToken) = ("token-changed", new)
            }
            job.createdAtMilliseconds = created
            job.occurredAtMilliseconds = created
            return JobEncoder.binary(job)
        }
    }
}

extension SeededRandom {
    /// An `apns-id`.
    mutating func identifier() -> String {
        let digits = Array(hexadecimal(bytes: 16))
        let parts = [digits[0..<8], digits[8..<12], digits[12..<16], digits[16..<20], digits[20..<32]]
        return parts.map { String($0) }.joined(separator: "-")
    }

    mutating func chance(_ percent: Int) -> Bool { Int.random(in: 0..<100, using: &self) < percent }
}

/// Reads the lines that are appended to a file.
struct LineTail {
    private let path: String
    private var file: FileHandle?
    private var rest = Data()
    var unreadable = 0

    init(_ path: String) { self.path = path }

    /// The whole lines that have come since.
    mutating func read() -> [Data] {
        if file == nil { file = FileHandle(forReadingAtPath: path) }
        guard let new = try? file?.readToEnd(), !new.isEmpty else { return [] }
        rest += new
        var lines = rest.split(separator: UInt8(ascii: "\n"), omittingEmptySubsequences: false)
        rest = Data(lines.removeLast())
        return lines.map { Data($0) }
    }
}

/// What a group of one worker has committed for the jobs topic.
final class CommittedGroup {
    let name: String
    private let consumer: KafkaConsumer
    private let partitions: [TopicPartition]
    private var last: [CommittedOffset] = []
    /// How often a commit of each partition has been seen to differ from the one before.
    private(set) var commits: [Int]
    private var lastLook = ContinuousClock.now

    init(_ installation: Installation, number: Int, commits: [Int]? = nil) throws {
        let kafka = installation.kafka
        name = "\(kafka.group)-\(number)"
        partitions = (0..<Int32(installation.partitions)).map { TopicPartition(kafka.topic("jobs"), $0) }
        var properties = kafka.clientProperties
        properties["group.id"] = name
        consumer = try KafkaConsumer(properties: properties, topics: []) { _ in }
        self.commits = commits ?? Array(repeating: 0, count: installation.partitions)
    }

    deinit { consumer.close() }

    /// Time has passed, in which something may have been committed.
    var hasMoved: Bool { ContinuousClock.now - lastLook > .milliseconds(30) }

    /// Records that are committed, as far as is known.
    var total: Int64 { last.reduce(0) { $0 + ($1.offset ?? 0) } }

    /// Looks what is committed now.
    func look() throws {
        lastLook = .now
        let now = try consumer.committed(partitions)
        for (index, commit) in now.enumerated() where index >= last.count || last[index] != commit {
            if commit.offset != nil { commits[index] += 1 }
        }
        last = now
    }

    /// Another group that has committed the same, and goes on counting.
    func copied(_ installation: Installation, number: Int) throws -> CommittedGroup {
        try look()
        let copy = try CommittedGroup(installation, number: number, commits: commits)
        let commits = last.compactMap { commit in
            commit.offset.map {
                OffsetCommit(
                    topic: commit.topicPartition.topic, partition: commit.topicPartition.partition,
                    offset: $0,
                    metadata: commit.metadata)
            }
        }
        try copy.consumer.commit(commits, synchronous: true)
        copy.last = try copy.consumer.committed(partitions)
        try #require(copy.last == last, "the commits are copied")
        return copy
    }
}

/// The clock that a process believes in: a library that is preloaded sets it ahead, made from `Tests/FakeClock`.
enum FakeClock {
    /// Starts `sluice`, so many seconds ahead; with the clock as it is for nil.
    ///
    /// - Parameter directory: where the library is made, if it isn't there.
    static func start(
        _ arguments: [String], offset: Int64?, _ directory: TemporaryDirectory
    ) throws -> ChildProcess {
        guard let offset else { return try ChildProcess(Executables.sluice, arguments) }
        let library = directory.file("clock.so")
        if !FileManager.default.fileExists(atPath: library) {
            let source = "\(Repository.root)/Tests/FakeClock/clock.c"
            let made = try ChildProcess.run(
                compiler ?? "cc", ["-shared", "-fPIC", "-o", library, source, "-ldl"])
            try #require(made.exit == .status(0), "\(made.standardError)")
        }
        return try ChildProcess(
            Executables.sluice, arguments,
            environment: ["LD_PRELOAD": library, "SLUICE_TEST_CLOCK_OFFSET": "\(offset)"])
    }

    /// Swift's toolchain has one for C.
    static let compiler = Executables.find("clang") ?? Executables.find("cc")
}
