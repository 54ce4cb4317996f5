import DeliveryCore
import SluiceModel

extension StoredPush {
    /// Decodes a push into memory of its own, which the push frees.
    static func inOwnMemory(_ bytes: UnsafeRawBufferPointer) throws(StoredPushError) -> StoredPush {
        let tokenCount = try tokenTextLength(of: bytes)
        let memory = UnsafeMutableRawBufferPointer.allocate(byteCount: bytes.count + tokenCount, alignment: 1)
        memory.copyMemory(from: bytes)
        do throws(StoredPushError) {
            var stored = try StoredPush(
                decoding: UnsafeRawBufferPointer(rebasing: memory[..<bytes.count]),
                tokenText: UnsafeMutableRawBufferPointer(rebasing: memory[bytes.count...]))
            stored.push.storage = memory.baseAddress
            return stored
        } catch {
            memory.deallocate()
            throw error
        }
    }
}

extension StoredPush.Progress {
    init(_ progress: ItemProgress) {
        self.init(
            attempts: UInt32(progress.attempts), failures: UInt32(progress.failures),
            firstSentMilliseconds: progress.firstSentMilliseconds == 0 ? nil : progress.firstSentMilliseconds,
            expiryMilliseconds: progress.expiryMilliseconds == .max ? nil : progress.expiryMilliseconds,
            wait: progress.wait,
            wakeMilliseconds: progress.wakeMilliseconds == 0 ? nil : progress.wakeMilliseconds,
            storeVersion: progress.storeVersion)
    }
}

extension ItemProgress {
    /// Progress of an item that the store has, and returns when it is due.
    init(_ stored: StoredPush.Progress, due: Int64) {
        self.init()
        attempts = UInt16(clamping: stored.attempts)
        failures = UInt16(clamping: stored.failures)
        firstSentMilliseconds = stored.firstSentMilliseconds ?? 0
        expiryMilliseconds = stored.expiryMilliseconds ?? .max
        wait = stored.wait
        wakeMilliseconds = stored.wakeMilliseconds ?? 0
        dueMilliseconds = due
        storeVersion = stored.storeVersion
    }
}
