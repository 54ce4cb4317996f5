/// Bounds of a world that can be made smaller.
public protocol ShrinkableLimits: Sendable, Equatable {
    /// Bounds that are smaller in one respect, the greatest saving first.
    var smaller: [Self] { get }
}

/// A broken promise of a run.
public protocol BrokenPromise: Sendable {
    var seed: UInt64 { get }
    var promise: Promise { get }
    /// Number of steps before the violation.
    var events: Int { get }
    var trace: [String] { get }
}

/// Searches for a smaller run that breaks the same promise: fewer steps, a smaller world, fewer kinds of faults.
///
/// A smaller world draws other choices. A smaller world that keeps the promise with the first seed is therefore tried
/// with a few other seeds. The search ends when nothing smaller breaks the promise, or when its runs are used up. It
/// makes the same choices each time.
public struct Shrinker<Limits: ShrinkableLimits, Violation: BrokenPromise> {
    /// A run that breaks the promise.
    public struct Case: Sendable {
        public var seed: UInt64
        /// Number of steps of the faulty part.
        public var events: Int
        public var limits: Limits
        public var violation: Violation
    }

    /// Runs a seed with this number of steps in these limits.
    public typealias Run = (_ seed: UInt64, _ events: Int, _ limits: Limits) -> Violation?

    public private(set) var best: Case
    /// Number of runs so far.
    public private(set) var runs = 0
    public let mostRuns: Int
    private let otherSeeds: UInt64
    private let run: Run

    /// - Parameters:
    ///   - first: the run that was found.
    ///   - otherSeeds: number of other seeds, from 1 on, with which a smaller world is tried.
    public init(_ first: Case, mostRuns: Int = 4000, otherSeeds: UInt64 = 12, run: @escaping Run) {
        best = first
        self.mostRuns = mostRuns
        self.otherSeeds = otherSeeds
        self.run = run
    }

    /// - Returns: the smallest run that was found.
    public mutating func shrink() -> Case {
        cutSteps()
        while takeSmaller() { cutSteps() }
        lookForShorter()
        return best
    }

    private mutating func takeSmaller() -> Bool {
        for limits in best.limits.smaller where take(limits) { return true }
        return false
    }

    /// Returns whether a smaller world breaks the promise as well; that world is the best one then.
    private mutating func take(_ limits: Limits) -> Bool {
        if attempt(best.seed, best.events, limits) { return true }
        guard otherSeeds > 0 else { return false }
        for seed in 1...otherSeeds where attempt(seed, best.events, limits) { return true }
        return false
    }

    /// Cuts steps as long as the promise stays broken.
    private mutating func cutSteps() {
        // The steps after the broken promise were never made.
        if best.violation.events < best.events { _ = attempt(best.seed, best.violation.events, best.limits) }
        var part = 2
        while part <= 16, best.events > 1 {
            let fewer = best.events - max(1, best.events / part)
            if !attempt(best.seed, fewer, best.limits) { part *= 2 }
            guard runs < mostRuns else { return }
        }
    }

    /// Tries other seeds, which may break the promise in fewer steps.
    private mutating func lookForShorter() {
        for seed in 1...(otherSeeds * 8 + 1) {
            let events = best.events
            guard events > 1, runs < mostRuns else { return }
            if attempt(seed, events - max(1, events / 8), best.limits) { cutSteps() }
        }
    }

    private mutating func attempt(_ seed: UInt64, _ events: Int, _ limits: Limits) -> Bool {
        guard runs < mostRuns, events > 0 else { return false }
        runs += 1
        guard let violation = run(seed, events, limits), violation.promise == best.violation.promise else {
            return false
        }
        best = Case(seed: seed, events: events, limits: limits, violation: violation)
        return true
    }
}
