import APNSSimulator
import Foundation
import LoadTest

extension FaultTimeline {
    /// Returns the rest of a timeline that is not repeated, for a simulator that starts later.
    func remaining(after elapsed: Duration) -> FaultTimeline {
        var rest = self
        rest.entries = entries.compactMap { entry in
            guard entry.at < elapsed else {
                var later = entry
                later.at -= elapsed
                return later
            }
            let passed = elapsed - entry.at
            // A fault that happened at a moment is over.
            if entry.isMoment { return nil }
            var now = entry
            now.at = .zero
            if let lasts = entry.lasts {
                guard lasts > passed else { return nil }
                now.lasts = lasts - passed
            }
            return now
        }
        return rest
    }

    /// Returns annotations for the faults until the end of a run, and the number of faults that have none. A timeline may
    /// be repeated often: at most ``RunResult/mostAnnotations`` faults have an annotation.
    /// - Parameter end: end of the run, in seconds since the beginning of the timeline.
    func annotations(until end: Double) -> (shown: [RunResult.Annotation], leftOut: Int) {
        let most = RunResult.mostAnnotations
        var result: [RunResult.Annotation] = []
        let period = repeats.map { $0 / .seconds(1) }
        var begin = 0.0
        repeat {
            let limit = min(end, period.map { begin + $0 } ?? end)
            for entry in entries {
                let at = begin + entry.at / .seconds(1)
                guard at < limit, result.count < most else { continue }
                let until = entry.lasts.map { min(limit, at + $0 / .seconds(1)) } ?? limit
                result.append(
                    RunResult.Annotation(
                        at: at, until: entry.isMoment ? nil : until, kind: .fault, text: entry.text))
            }
            begin += period ?? end
        } while begin < end && result.count < most && !entries.isEmpty
        let leftOut = result.count < most ? 0 : max(0, faults(until: end) - result.count)
        return (result.sorted { $0.at < $1.at }, leftOut)
    }

    /// Number of faults until the end of a run, repeated ones included.
    private func faults(until end: Double) -> Int {
        func count(before limit: Double) -> Int { entries.count { $0.at / .seconds(1) < limit } }
        guard let period = repeats.map({ $0 / .seconds(1) }), period > 0 else { return count(before: end) }
        let rounds = (end / period).rounded(.down)
        return Int(rounds) * count(before: period) + count(before: end - rounds * period)
    }
}

extension FaultTimeline.Entry {
    /// Whether the fault happens at a moment, and does not last.
    fileprivate var isMoment: Bool {
        switch kind {
        case .goAway(let goAway): goAway.every == nil && goAway.connections == .open
        case .disconnect(_, let every): every == nil
        default: false
        }
    }

    /// The fault in words: its key of the document, and its members.
    fileprivate var text: String {
        let encoder = JSONEncoder()
        encoder.outputFormatting = [.sortedKeys]
        guard let data = try? encoder.encode(self),
            let members = try? JSONDecoder().decode([String: FaultMember].self, from: data),
            let fault = members.first(where: { $0.key != "at" && $0.key != "for" })
        else { return "fault" }
        let parameters = fault.value.text
        return parameters.isEmpty ? fault.key : "\(fault.key): \(parameters)"
    }
}

/// A member of a fault's JSON form.
private enum FaultMember: Decodable {
    case text(String)
    case map([String: FaultMember])

    init(from decoder: any Decoder) throws {
        let container = try decoder.singleValueContainer()
        if let map = try? container.decode([String: FaultMember].self) {
            self = .map(map)
        } else if let text = try? container.decode(String.self) {
            self = .text(text)
        } else {
            self = .text(Self.number(try container.decode(Double.self)))
        }
    }

    private static func number(_ value: Double) -> String {
        value == value.rounded() && abs(value) < 1e15 ? "\(Int(value))" : "\(value)"
    }

    var text: String {
        switch self {
        case .text(let text): text
        case .map(let members):
            members.sorted { $0.key < $1.key }.map { "\($0.key) \($0.value.text)" }.joined(separator: ", ")
        }
    }
}
