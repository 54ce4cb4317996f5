import APNS
import Kafka
import RetryStore
import SluiceModel

/// One push between Kafka and its outcome, in a shard's table, under its slot of the delivery machine. Its slices point
/// into the record, which lives in librdkafka's memory, or into memory of its own.
struct Job {
    var push: PushJob
    /// nil once the job has memory of its own.
    var record: ConsumedRecord?
    var topic: PushRequestEncoder.Topic
    var polledMilliseconds: Int64
    /// Of the provider token it was last sent with.
    var tokenGeneration: UInt64 = 0
    /// A new device token that it takes over when it is tried again.
    var notedToken: UnsafeMutableRawBufferPointer?
    var partition: Int32
    var offset: Int64
    /// What it counts for among the bytes that the worker holds.
    var heldBytes: Int
    var lane: UInt16
    var app: UInt16
    /// APNs' last answer, other than 200; 0 without one.
    var lastStatus: UInt16 = 0
    var lastReason = Reason.absent
    /// Under which device token the changelog has it, where that isn't the job's present one.
    var storedToken: [UInt8]?

    /// Its key in the changelog.
    func writeChangelogKey(to writer: inout ByteWriter) {
        writer.removeAll()
        guard let storedToken else {
            return ChangelogKey.item(offset: offset, deviceToken: push.deviceToken).encode(into: &writer)
        }
        storedToken.withUnsafeBytes {
            ChangelogKey.item(offset: offset, deviceToken: $0).encode(into: &writer)
        }
    }

    /// Frees what it holds.
    func release() {
        push.release()
        record?.destroy()
        notedToken?.deallocate()
    }

    /// Copies the bytes into memory of the job's own and lets the record go, with another device token if one is given:
    /// a record that waits for long keeps all of its fetch in memory. Returns how many bytes less it holds.
    mutating func moveToOwnMemory(deviceToken newToken: UnsafeRawBufferPointer? = nil) -> Int {
        let token = newToken ?? push.deviceToken
        let count =
            token.count + push.topic.count + (push.collapseIdentifier?.count ?? 0) + push.payload.count
        let memory = UnsafeMutableRawBufferPointer.allocate(byteCount: max(1, count), alignment: 1)
        var used = 0
        func copy(_ bytes: UnsafeRawBufferPointer) -> UnsafeRawBufferPointer {
            let target = UnsafeMutableRawBufferPointer(rebasing: memory[used..<used + bytes.count])
            target.copyMemory(from: bytes)
            used += bytes.count
            return UnsafeRawBufferPointer(target)
        }
        var own = push
        own.deviceToken = copy(token)
        own.topic = copy(push.topic)
        own.collapseIdentifier = push.collapseIdentifier.map(copy)
        own.payload = copy(push.payload)
        own.storage = memory.baseAddress
        push.release()
        record?.destroy()
        record = nil
        push = own
        let before = heldBytes
        heldBytes = Self.heldBytes(of: count)
        return before - heldBytes
    }

    /// With a round sum for what a job takes beside its bytes.
    static func heldBytes(of count: Int) -> Int { count + 256 }

    /// Remembers the token that its device has from now on.
    mutating func note(_ token: UnsafeRawBufferPointer) {
        notedToken?.deallocate()
        let copy = UnsafeMutableRawBufferPointer.allocate(byteCount: token.count, alignment: 1)
        copy.copyMemory(from: token)
        notedToken = copy
    }
}

/// Preallocated jobs by slot. Whose slot is whose is the delivery machine's business.
struct JobTable: ~Copyable {
    let capacity: Int
    private let jobs: UnsafeMutablePointer<Job>
    private let isTaken: UnsafeMutablePointer<Bool>

    init(capacity: Int) {
        self.capacity = capacity
        jobs = .allocate(capacity: capacity)
        isTaken = .allocate(capacity: capacity)
        isTaken.initialize(repeating: false, count: capacity)
    }

    deinit {
        for slot in 0..<capacity where isTaken[slot] { jobs[slot].release() }
        jobs.deallocate()
        isTaken.deallocate()
    }

    /// The job of a slot that is taken. Valid until it is taken out.
    subscript(slot: UInt32) -> UnsafeMutablePointer<Job> { jobs + Int(slot) }

    func holds(_ slot: UInt32) -> Bool { isTaken[Int(slot)] }

    func insert(_ job: consuming Job, at slot: UInt32) {
        precondition(!isTaken[Int(slot)], "slot \(slot) has a job already")
        isTaken[Int(slot)] = true
        (jobs + Int(slot)).initialize(to: job)
    }

    /// Takes the job out; it is the caller's to release.
    func remove(_ slot: UInt32) -> Job {
        precondition(isTaken[Int(slot)], "slot \(slot) has no job")
        isTaken[Int(slot)] = false
        return (jobs + Int(slot)).move()
    }
}
