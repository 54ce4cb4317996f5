/// A mistake in a configuration.
public struct ConfigurationProblem: Error, Sendable, Equatable, CustomStringConvertible {
    /// Place of the wrong text.
    public enum Location: Sendable, Equatable, CustomStringConvertible {
        /// Line and column count from 1; line 0 means the file as a whole.
        case file(name: String, line: Int, column: Int)
        /// Environment variable that overrides a setting.
        case environment(variable: String)

        public var description: String {
            switch self {
            case .file(let name, let line, let column):
                line == 0 ? name : "\(name):\(line):\(column)"
            case .environment(let variable): "environment variable \(variable)"
            }
        }
    }

    /// Path of the setting, such as `apns.port` or `apps[0].topics`; empty for the document as a whole.
    public var key: String
    public var location: Location
    /// The mistake, and the allowed values.
    public var message: String

    public init(key: String, location: Location, message: String) {
        self.key = key
        self.location = location
        self.message = message
    }

    public var description: String {
        key.isEmpty ? "\(location): \(message)" : "\(location): \(key): \(message)"
    }
}

/// Mistakes of a configuration, in the order of the document: all of them, or the first thousand.
public struct ConfigurationError: Error, Sendable, Equatable, CustomStringConvertible {
    /// Number of mistakes from which on there may be more.
    public static let mostProblems = ConfigurationCollector.mostProblems

    public var problems: [ConfigurationProblem]

    public init(problems: [ConfigurationProblem]) {
        self.problems = problems
    }

    public var description: String {
        problems.map(\.description).joined(separator: "\n")
    }
}

/// Builds "Did you mean …?" for names.
enum Suggestion {
    /// Longest name in bytes for which a candidate is searched.
    private static let longestName = 200
    /// Most candidates that a name is compared with. A document could have more credentials.
    private static let mostCandidates = 100

    /// Returns the candidate nearest to `name`, when it is near enough to be meant.
    static func nearest(to name: String, among candidates: [String]) -> String? {
        // A longer name is no misspelt setting, and its comparison would take long.
        guard name.utf8.count <= longestName else { return nil }
        let allowed = max(1, name.count / 3)
        var best: (candidate: String, distance: Int)?
        for candidate in candidates.prefix(mostCandidates)
        where abs(candidate.utf8.count - name.utf8.count) <= longestName {
            let distance = editDistance(name, candidate)
            if distance <= allowed, distance < best?.distance ?? Int.max {
                best = (candidate, distance)
            }
        }
        return best?.candidate
    }

    /// Returns ` (did you mean x?)`, or an empty text.
    static func hint(for name: String, among candidates: [String]) -> String {
        nearest(to: name, among: candidates).map { " (did you mean `\($0)`?)" } ?? ""
    }

    /// Returns the number of insertions, deletions, substitutions and transpositions of neighbours that turn one text
    /// into the other.
    static func editDistance(_ first: String, _ second: String) -> Int {
        let a = Array(first.utf8)
        let b = Array(second.utf8)
        if a.isEmpty || b.isEmpty { return max(a.count, b.count) }
        var beforePrevious = [Int](repeating: 0, count: b.count + 1)
        var previous = Array(0...b.count)
        for i in 1...a.count {
            var current = [i] + [Int](repeating: 0, count: b.count)
            for j in 1...b.count {
                let substitution = previous[j - 1] + (a[i - 1] == b[j - 1] ? 0 : 1)
                current[j] = min(previous[j] + 1, current[j - 1] + 1, substitution)
                if i > 1, j > 1, a[i - 1] == b[j - 2], a[i - 2] == b[j - 1] {
                    current[j] = min(current[j], beforePrevious[j - 2] + 1)
                }
            }
            beforePrevious = previous
            previous = current
        }
        return previous[b.count]
    }
}
