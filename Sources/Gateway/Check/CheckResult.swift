/// Result of one check of the parts that a worker connects to.
public struct CheckResult: Sendable, Equatable {
    /// Judgement of a part.
    public enum Verdict: String, Sendable, CaseIterable {
        /// The part works.
        case good
        /// The part works, but weakens a guarantee or is near a limit.
        case warning
        /// The worker can't work with this part.
        case bad
        /// There was no harmless way to check, or a part before it failed.
        case unchecked

        /// Sign in the first column of the table.
        public var sign: String {
            switch self {
            case .good: "✓"
            case .warning: "!"
            case .bad: "✗"
            case .unchecked: "–"
            }
        }
    }

    public var verdict: Verdict
    /// Part that was checked, such as `kafka` or `topic sluice.jobs`.
    public var part: String
    /// Fact that was found, as a clause; never a secret.
    public var finding: String
    /// Remedy for a person; nil when there is nothing to do.
    public var remedy: String?

    public init(_ verdict: Verdict, _ part: String, _ finding: String, remedy: String? = nil) {
        self.verdict = verdict
        self.part = part
        self.finding = finding
        self.remedy = remedy
    }

    /// Returns whether a worker can work with parts of these results.
    public static func isUsable(_ results: [CheckResult]) -> Bool {
        !results.contains { $0.verdict == .bad }
    }
}
