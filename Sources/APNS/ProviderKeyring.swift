import Synchronization

/// The signing keys of a credential in order of preference, with their provider tokens. Shared by all event loops.
///
/// Reading the key in use costs two atomic loads. A change of key takes the lock, as does each use while APNs refuses
/// all keys. A key keeps its provider token, so that probes with it make no other.
public final class ProviderKeyring: Sendable {
    /// Token sources of the keys; at least one.
    public let sources: [ProviderTokenSource]

    private let preference: Mutex<KeyPreference>
    // Written under the lock, read without the lock.
    private let index = Atomic<Int>(0)
    private let nextReview = Atomic<UInt64>(.max)
    private let exhausted = Atomic<Bool>(false)

    /// - Parameter sources: at least one, in order of preference.
    public init(_ sources: [ProviderTokenSource]) {
        precondition(!sources.isEmpty, "a keyring needs a key")
        self.sources = sources
        preference = Mutex(KeyPreference(count: sources.count))
    }

    /// Index of the key in use; while all are refused, that of the last probe. Any thread.
    public var current: Int { index.load(ordering: .relaxed) }

    /// Whether APNs has refused all keys, and accepted none since. Any thread.
    public var isExhausted: Bool { exhausted.load(ordering: .relaxed) }

    /// Returns whether APNs refused a key when it was last used. Takes the lock; any thread.
    public func isRefused(_ key: Int) -> Bool { preference.withLock { $0.isRefused(key) } }

    /// Returns the key to sign with. Any thread.
    /// - Parameter now: nanoseconds of the monotonic clock.
    public func use(at now: UInt64) -> KeyPreference.Use {
        if now < nextReview.load(ordering: .relaxed) { return .serve(index.load(ordering: .relaxed)) }
        return preference.withLock { preference in
            let use = preference.use(at: now)
            publish(preference)
            return use
        }
    }

    /// Records that APNs refused a key. Any thread.
    /// - Parameter now: nanoseconds of the monotonic clock.
    public func refused(_ key: Int, at now: UInt64) -> KeyPreference.Refusal {
        preference.withLock { preference in
            let refusal = preference.refused(key, at: now)
            publish(preference)
            return refusal
        }
    }

    /// Records that APNs accepted a key. Returns the number of probes that were sent when this ends the refusal of all
    /// keys; nil otherwise. Takes the lock; any thread.
    public func accepted(_ key: Int) -> UInt64? {
        preference.withLock { preference in
            let probes = preference.accepted(key)
            publish(preference)
            return probes
        }
    }

    private func publish(_ preference: borrowing KeyPreference) {
        index.store(preference.current, ordering: .relaxed)
        nextReview.store(preference.nextReview, ordering: .relaxed)
        exhausted.store(preference.isExhausted, ordering: .relaxed)
    }
}
