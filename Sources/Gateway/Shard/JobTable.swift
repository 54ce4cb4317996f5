import APNS
import CPrefetch
import Kafka
import RetryStore
import SluiceModel

/// A push between Kafka and its outcome, in a shard's table, under its slot of the delivery machine. Its slices point
/// into the record, which lives in librdkafka's memory, or into memory of its own.
struct Job {
    var push: PushJob
    /// Nil once the job has memory of its own.
    var record: ConsumedRecord?
    var target: PushRequestEncoder.Target
    var polledMilliseconds: Int64
    /// Generation of the provider token that the job was last sent with.
    var tokenGeneration: UInt64 = 0
    /// Time of the last sending, in nanoseconds of the monotonic clock; 0 before the first.
    var sentAt: UInt64 = 0
    /// A new device token, which the job gets at its next attempt; nil when there is none.
    var notedToken: UnsafeMutableRawBufferPointer?
    var partition: Int32
    var offset: Int64
    /// Bytes that the job counts for among the bytes the worker holds.
    var heldBytes: Int
    var pool: UInt16
    var app: UInt16
    /// Round in which the shard took the job's record, see ``ResponseRounds``.
    var responseRound: UInt8 = 0
    /// APNs' last answer other than 200; 0 when there is none.
    var lastStatus: UInt16 = 0
    var lastReason = Reason.absent
    /// Device token of the job's changelog key, where it differs from the job's present token; nil otherwise. Memory of
    /// the job's own, because a reference would make each copy of a job count references.
    private(set) var storedToken: UnsafeMutableRawBufferPointer?

    /// Writes the job's key in the changelog.
    func writeChangelogKey(to writer: inout ByteWriter) {
        writer.removeAll()
        guard let storedToken else {
            return ChangelogKey.item(offset: offset, deviceToken: push.deviceToken).encode(into: &writer)
        }
        ChangelogKey.item(offset: offset, deviceToken: UnsafeRawBufferPointer(storedToken)).encode(
            into: &writer)
    }

    /// Frees the job's memory and its record.
    func release() {
        push.release()
        record?.destroy()
        notedToken?.deallocate()
        storedToken?.deallocate()
    }

    /// Keeps the present device token as that of the job's changelog key, unless another one is kept.
    mutating func keepStoredToken() {
        if storedToken == nil { storedToken = Self.copy(push.deviceToken) }
    }

    /// Lets the job's changelog key have the present device token.
    mutating func forgetStoredToken() {
        storedToken?.deallocate()
        storedToken = nil
    }

    private static func copy(_ bytes: UnsafeRawBufferPointer) -> UnsafeMutableRawBufferPointer {
        let copy = UnsafeMutableRawBufferPointer.allocate(byteCount: bytes.count, alignment: 1)
        copy.copyMemory(from: bytes)
        return copy
    }

    /// Copies the bytes into memory of the job's own and destroys the record. A given token replaces the job's device
    /// token. The copy is needed because a record that waits for long keeps its whole fetch in memory. Returns the
    /// bytes by which the job's share shrinks.
    mutating func moveToOwnMemory(deviceToken newToken: UnsafeRawBufferPointer? = nil) -> Int {
        let token = newToken ?? push.deviceToken
        let count =
            token.count + push.topic.count + (push.collapseIdentifier?.count ?? 0) + push.payload.count
            + push.passedHeaders.bytes.count
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
        own.passedHeaders = push.passedHeaders.moved(to: copy(push.passedHeaders.bytes))
        own.storage = memory.baseAddress
        push.release()
        record?.destroy()
        record = nil
        push = own
        let before = heldBytes
        heldBytes = Self.heldBytes(of: count)
        return before - heldBytes
    }

    /// Returns a job's bytes plus a round sum for its bookkeeping.
    static func heldBytes(of count: Int) -> Int { count + 256 }

    /// Keeps the token that the job's device has from now on.
    mutating func keepToken(_ token: UnsafeRawBufferPointer) {
        notedToken?.deallocate()
        notedToken = Self.copy(token)
    }
}

/// Preallocated jobs by slot. The delivery machine assigns the slots.
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

    /// The job of a taken slot. Valid until the job is removed.
    subscript(slot: UInt32) -> UnsafeMutablePointer<Job> { jobs + Int(slot) }

    func contains(_ slot: UInt32) -> Bool { isTaken[Int(slot)] }

    func insert(_ job: consuming Job, at slot: UInt32) {
        precondition(!isTaken[Int(slot)], "slot \(slot) has a job already")
        isTaken[Int(slot)] = true
        (jobs + Int(slot)).initialize(to: job)
    }

    /// Calls `body` for each job that has a record. `body` takes no job and removes none.
    func forEachWithRecord(_ body: (UInt32, UnsafeMutablePointer<Job>) -> Void) {
        for slot in 0..<capacity where isTaken[slot] && jobs[slot].record != nil {
            body(UInt32(slot), jobs + slot)
        }
    }

    /// Prefetches a job, whose slot is taken or not. Affects timing only.
    @inline(__always)
    func prefetch(_ slot: UInt32) {
        guard Int(slot) < capacity else { return }
        Prefetch.lines(of: UnsafeRawPointer(jobs + Int(slot)), bytes: MemoryLayout<Job>.stride)
    }

    /// Prefetches device token and payload, of which a request is made. The job itself is in the cache.
    @inline(__always)
    func prefetchRequest(_ slot: UInt32) {
        let job = jobs + Int(slot)
        Prefetch.lines(of: job.pointee.push.deviceToken)
        Prefetch.lines(of: job.pointee.push.payload)
    }

    /// Prefetches what an outcome needs: the device token and the record of a job that is in the cache. Does nothing if
    /// the slot is free.
    @inline(__always)
    func prefetchOutcome(_ slot: UInt32) {
        guard Int(slot) < capacity, isTaken[Int(slot)] else { return }
        let job = jobs + Int(slot)
        Prefetch.lines(of: job.pointee.push.deviceToken)
        if let record = job.pointee.record { sluice_prefetch(record.rawPointer) }
    }

    /// Ends the job, and frees its memory and its record. Returns its held bytes.
    func free(_ slot: UInt32) -> Int {
        precondition(isTaken[Int(slot)], "slot \(slot) has no job")
        isTaken[Int(slot)] = false
        let job = jobs + Int(slot)
        let bytes = job.pointee.heldBytes
        job.pointee.release()
        job.deinitialize(count: 1)
        return bytes
    }

    /// Removes the job. The caller must release it.
    func remove(_ slot: UInt32) -> Job {
        precondition(isTaken[Int(slot)], "slot \(slot) has no job")
        isTaken[Int(slot)] = false
        return (jobs + Int(slot)).move()
    }
}
