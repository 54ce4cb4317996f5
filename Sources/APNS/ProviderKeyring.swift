import Synchronization

/// The signing keys of a credential in order of preference, with their provider tokens. Shared by all event loops.
///
/// Reading the key in use costs two atomic loads. A change of key takes the lock.
public final class ProviderKeyring: Sendable {
    /// Token sources of the keys; at least one.
    public let sources: [ProviderTokenSource]

    private let preference: Mutex<KeyPreference>
    // Written under the lock, read without the lock.
    private let index = Atomic<Int>(0)
    private let nextReview = Atomic<Int64>(.max)

    /// - Parameter sources: at least one, in order of preference.
    public init(_ sources: [ProviderTokenSource]) {
        precondition(!sources.isEmpty, "a keyring needs a key")
        self.sources = sources
        preference = Mutex(KeyPreference(count: sources.count))
    }

    /// Returns the index of the key to use now. Any thread.
    public func current(at now: ClockReading) -> Int {
        if now.monotonicSeconds >= nextReview.load(ordering: .relaxed) {
            preference.withLock { preference in
                _ = preference.review(at: now.monotonicSeconds)
                publish(preference)
            }
        }
        return index.load(ordering: .relaxed)
    }

    /// Records that APNs refused a key. Any thread.
    public func refused(_ key: Int, at now: ClockReading) -> KeyPreference.Refusal {
        preference.withLock { preference in
            let refusal = preference.refused(key, at: now.monotonicSeconds)
            publish(preference)
            return refusal
        }
    }

    private func publish(_ preference: borrowing KeyPreference) {
        index.store(preference.current, ordering: .relaxed)
        nextReview.store(preference.nextReview, ordering: .relaxed)
    }
}
