extension Configuration {
    /// Section `store`.
    public struct Store: Sendable, Equatable {
        /// Directory of this worker alone; created when it is missing.
        public var directory: String
        /// Waiting time above which a push is written to the store.
        public var after: Duration
        /// Bytes of memory for data read from disk.
        public var cacheBytes: Int
        /// Bytes of memory for data not written to disk yet.
        public var writeBufferBytes: Int
        /// Whether every change is also written to a compacted topic. A worker that takes a partition over restores it
        /// from there.
        public var changelog: Switch
        /// Whether changes, outcomes, dead letters and offsets are committed together. Requires a changelog.
        public var transactions: Switch
        /// Time between transactions' commits. Readers of committed records see outcomes that much later.
        public var transactionInterval: Duration
        /// Encryption of stored pushes, in the store and in the changelog; nil: they are kept in clear.
        public var encryption: Encryption?
        /// Longest time between an erasure and the begin of the purge that removes its bytes from the disk.
        public var purgeAfter: Duration
        /// Most pushes of an app, with one credential, that the store has beyond the app's share of the worker, or because the
        /// worker reads ahead.
        public var parkedLimit: Int

        /// A setting that is `on` or `off`.
        public enum Switch: String, CaseIterable, Sendable {
            case on, off
        }

        /// Section `store.encryption`.
        public struct Encryption: Sendable, Equatable {
            /// File with the keys: the first encrypts, all decrypt.
            public var keyFile: String
            /// Whether new values are encrypted. Off, the keys only decrypt older values.
            public var encrypt: Switch

            public init(keyFile: String, encrypt: Switch = .on) {
                self.keyFile = keyFile
                self.encrypt = encrypt
            }
        }

        /// Whether changes are written to the changelog.
        public var hasChangelog: Bool { changelog == .on }
        /// Whether changes, outcomes and offsets are committed in transactions. False without a changelog.
        public var hasTransactions: Bool { hasChangelog && transactions == .on }

        public init(
            directory: String, after: Duration = .seconds(30), cacheBytes: Int = 64 << 20,
            writeBufferBytes: Int = 128 << 20, changelog: Switch = .on, transactions: Switch = .on,
            transactionInterval: Duration = .milliseconds(200), encryption: Encryption? = nil,
            purgeAfter: Duration = .seconds(86_400), parkedLimit: Int = 1_000_000
        ) {
            self.directory = directory
            self.after = after
            self.cacheBytes = cacheBytes
            self.writeBufferBytes = writeBufferBytes
            self.changelog = changelog
            self.transactions = transactions
            self.transactionInterval = transactionInterval
            self.encryption = encryption
            self.purgeAfter = purgeAfter
            self.parkedLimit = parkedLimit
        }
    }
}
