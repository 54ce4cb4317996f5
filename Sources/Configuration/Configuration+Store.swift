extension Configuration {
    /// Section `store`.
    public struct Store: Sendable, Equatable {
        /// Of this worker alone; made when it is missing.
        public var directory: String
        /// What has to wait longer goes there.
        public var after: Duration
        /// Memory for what is read from disk.
        public var cacheBytes: Int
        /// Memory for what is not written out yet.
        public var writeBufferBytes: Int
        /// Every change also goes to a compacted topic, from which whoever takes a partition over restores it.
        public var changelog: Switch
        /// Changes, outcomes, dead letters and offsets are committed together. Only with a changelog.
        public var transactions: Switch
        /// How often, with transactions: outcomes are seen that much later by who reads committed records only.
        public var transactionInterval: Duration

        public enum Switch: String, CaseIterable, Sendable {
            case on, off
        }

        /// Changes go to the changelog.
        public var hasChangelog: Bool { changelog == .on }
        public var hasTransactions: Bool { hasChangelog && transactions == .on }

        public init(
            directory: String, after: Duration = .seconds(30), cacheBytes: Int = 64 << 20,
            writeBufferBytes: Int = 128 << 20, changelog: Switch = .on, transactions: Switch = .on,
            transactionInterval: Duration = .milliseconds(200)
        ) {
            self.directory = directory
            self.after = after
            self.cacheBytes = cacheBytes
            self.writeBufferBytes = writeBufferBytes
            self.changelog = changelog
            self.transactions = transactions
            self.transactionInterval = transactionInterval
        }
    }
}
