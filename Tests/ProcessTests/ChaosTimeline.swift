import SluiceModel

/// A seeded timeline of faults of APNs for a chaos run, as `sluice simulator --faults` plays it, with the instants at
/// which answers may be lost.
///
/// Faults whose effect on single pushes nobody outside can tell are left out: unanswered requests, and connections that
/// are read late (`black-hole`, `slow-reads`). So are refusals for good, because the auditor asks for their cause.
struct ChaosTimeline {
    /// The document.
    let document: String
    /// Milliseconds after which the timeline begins again.
    let period: Int64
    /// Milliseconds within the period at which connections end with requests that APNs may have accepted.
    private let losses: [Int64]

    /// - Parameters:
    ///   - seed: the same seed gives the same timeline.
    ///   - entries: number of faults beside those in force all the time.
    ///   - spacing: milliseconds between the beginnings of two faults.
    init(seed: UInt64, entries: Int = 20, spacing: ClosedRange<Int64> = 3_000...8_000) {
        var random = SeededGenerator(seed: seed)
        var lines = [
            "  - latency: {percentiles: {50: 5ms, 95: 25ms, 99: 100ms}}",
            "  - answers: {InternalServerError: 0.005, ServiceUnavailable: 0.003}",
        ]
        var losses: [Int64] = []
        var at: Int64 = 0
        for _ in 0..<entries {
            at += Int64.random(in: spacing, using: &random)
            let length = Int64.random(in: spacing.lowerBound / 3...spacing.lowerBound, using: &random)
            let share = [0.2, 0.5, 1].randomElement(using: &random)!
            let lasting = "at: \(at)ms, for: \(length)ms"
            switch Int.random(in: 0..<9, using: &random) {
            case 0: lines.append("  - {at: \(at)ms, goaway: {reason: Shutdown, share: \(share)}}")
            case 1:
                lines.append(
                    "  - {at: \(at)ms, goaway: {reason: Shutdown, unprocessed: 5, end: twice, share: \(share)}}"
                )
            case 2:
                lines.append("  - {at: \(at)ms, goaway: {reason: IdleTimeout, end: close, share: \(share)}}")
                losses.append(at)
            case 3:
                lines.append("  - {at: \(at)ms, disconnect: {share: \(share)}}")
                losses.append(at)
            case 4: lines.append("  - {\(lasting), stream-limit: {low: 2, high: 1000, period: 500ms}}")
            case 5:
                lines.append("  - {\(lasting), latency: {lognormal: {median: 100ms, sigma: 0.8, most: 2s}}}")
            case 6: lines.append("  - {\(lasting), answers: {ServiceUnavailable: 0.3, TooManyRequests: 0.1}}")
            case 7: lines.append("  - {\(lasting), throttle: {per-device: 3, per-second: 200}}")
            default: lines.append("  - {\(lasting), certificate: {expired: server}}")
            }
        }
        period = at + spacing.upperBound
        self.losses = losses
        document = "seed: \(seed)\nrepeat: \(period)ms\nfaults:\n\(lines.joined(separator: "\n"))\n"
    }

    /// Returns the instants between two others at which answers may be lost, in milliseconds since the epoch.
    /// - Parameter start: instants between which the simulator started.
    func lossInstants(start: ClosedRange<Int64>, until end: Int64) -> [Int64] {
        var instants: [Int64] = []
        for round in 0...max(0, (end - start.lowerBound) / period) {
            for loss in losses {
                // Slack, because the simulator's clock of faults begins after its start, on a busy machine by seconds.
                let first = start.lowerBound + round * period + loss
                let last = start.upperBound + round * period + loss + 4_000
                instants += stride(from: first, through: last, by: 250)
            }
        }
        return instants.filter { $0 <= end }
    }
}
