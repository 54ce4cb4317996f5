import Foundation

/// Decides after each look at a worker whether the requested purges have ended. Pure: looks and their times in, steps out.
///
/// The need of a purge is in the store and outlives the process. The request is in the process's memory. A store that was
/// opened anew doesn't know the request, and looks as if its purges had ended.
struct PurgeWait {
    /// Look at the worker.
    enum Look {
        case progress(PurgeProgress)
        /// No usable answer, with the reason: the worker is starting, is busy, or has ended.
        case silence(String)
    }

    /// Next step of the command.
    enum Step: Equatable {
        /// Another look is needed.
        case wait
        /// No file of the worker has bytes of entries that were removed before the request.
        case purged
        /// The end isn't known, or was none: status of the command, and its message.
        case end(ExitStatus, String)
    }

    private let opening: String
    /// Purges before the request whose partition was gone before the end, by partition.
    private let dropped: [Int: Int]
    /// Partitions whose purge was requested.
    private let partitions: Set<Int>
    /// Partitions of the request that the worker had in any look. The others are copies, which may go.
    private var held: Set<Int>
    /// Partitions of these that the worker has not had in a later look, or whose files it has replaced.
    private var lost: Set<Int> = []
    /// Begin of the first look without an answer since the last answer; nil: the last look had an answer.
    private var silentSince: Duration?

    /// Longest time without an answer: a worker may need this long to start anew.
    static let patience: Duration = .seconds(30)

    /// - Parameters:
    ///   - before: the worker before the request.
    ///   - partitions: partitions that the worker purges for the request.
    init(_ before: PurgeProgress, _ partitions: Set<Int>) {
        opening = before.opening
        dropped = before.dropped
        self.partitions = partitions
        held = partitions.intersection(before.assigned)
    }

    /// Returns the step after a look.
    /// - Parameter time: times of the look's begin and end, from any beginning.
    mutating func next(_ look: Look, during time: ClosedRange<Duration>) -> Step {
        switch look {
        case .progress(let progress):
            silentSince = nil
            return next(progress)
        case .silence(let reason):
            let since = silentSince ?? time.lowerBound
            silentSince = since
            let silence = time.upperBound - since
            guard silence >= Self.patience else { return .wait }
            return .end(
                .unfinished,
                "no answer for \(silence.components.seconds) seconds, so the end of the purge is unknown (\(reason)); "
                    + "the store keeps the need: repeat the command once the worker answers")
        }
    }

    private mutating func next(_ progress: PurgeProgress) -> Step {
        guard progress.opening == opening else {
            return .end(
                .unfinished,
                "the worker has started anew since the request, so the end of the purge is unknown; "
                    + "the store keeps the need of a purge: repeat the command, which begins at once")
        }
        if let failed = progress.failing.intersection(partitions).min() {
            return .end(
                .failure, "\(progress.cause(ofFailure: failed)); the worker tries again later")
        }
        lost.formUnion(held.subtracting(progress.assigned))
        held.formUnion(partitions.intersection(progress.assigned))
        lost.formUnion(held.filter { progress.dropped[$0, default: 0] > dropped[$0, default: 0] })
        guard progress.requested.isDisjoint(with: partitions) else { return .wait }
        guard !lost.isEmpty else { return .purged }
        let numbers = lost.sorted().map { "\($0)" }.joined(separator: ", ")
        return .end(
            .unfinished,
            "\(lost.count == 1 ? "partition \(numbers) has" : "partitions \(numbers) have") left this worker since the "
                + "request, and at most copies here are purged; repeat the command at the owner")
    }
}

/// Purges of a worker's store.
struct PurgeProgress: Equatable {
    /// Failure of the last purge that ended.
    struct Failure: Equatable {
        var partition: Int
        var text: String
    }

    /// Name of the store's opening, which a restart of the worker changes.
    var opening: String
    /// Partitions that the worker has.
    var assigned: Set<Int>
    /// Partitions whose requested purge hasn't ended.
    var requested: Set<Int>
    /// Partitions whose last purge failed, and whose next one nobody has requested.
    var failing: Set<Int>
    /// Purges since the opening whose partition was gone before the end, by partition.
    var dropped: [Int: Int]
    /// Failure of the last purge; nil: the last purge hasn't failed, or there was none.
    var failure: Failure?

    /// Returns text on the failure of a partition's purge. Of earlier failures the worker no longer has the cause.
    fileprivate func cause(ofFailure partition: Int) -> String {
        guard let failure, failure.partition == partition else {
            return "the purge of partition \(partition) failed, with the cause in the worker's log"
        }
        return failure.text
    }
}

extension PurgeProgress {
    /// Reads a worker's `/store`.
    /// - Throws: `CommandFailure` when the answer isn't that of a worker's `/store`, or has no purges to wait for because
    ///   the worker is of an earlier version.
    init(_ answer: ControlAnswer) throws(CommandFailure) {
        let document = try Self.document(answer)
        guard let partitions = document["partitions"] as? [[String: Any]],
            let assigned = Self.numbers("partition", of: partitions)
        else { throw Self.foreign }
        guard let purges = document["purges"] as? [String: Any],
            let opening = purges["opening"] as? String,
            let pending = (purges["pending"] as? [[String: Any]]).flatMap({ Self.needs($0) }),
            let dropped = (purges["dropped"] as? [[String: Any]]).flatMap({ Self.counts($0) })
        else {
            throw CommandFailure(
                .failure,
                "the worker's version is too old for --wait; update the worker, or leave out --wait and look at `/store`"
            )
        }
        let last = purges["last"] as? [String: Any]
        self.init(
            opening: opening, assigned: Set(assigned),
            requested: Set(pending.filter(\.isRequested).map(\.partition)),
            failing: Set(pending.filter { $0.failures > 0 && !$0.isRequested }.map(\.partition)),
            dropped: dropped,
            failure: (last?["error"] as? String).flatMap { text in
                (last?["partition"] as? Int).map { Failure(partition: $0, text: text) }
            })
    }

    /// Returns the partitions that a command has the worker purge.
    /// - Throws: `CommandFailure` when the answer isn't a worker's.
    static func requested(_ answer: ControlAnswer) throws(CommandFailure) -> Set<Int> {
        guard let partitions = try document(answer)["partitions"] as? [Int] else { throw foreign }
        return Set(partitions)
    }

    /// Need of a partition's purge.
    private struct Need {
        var partition: Int
        var isRequested: Bool
        /// Purges that have failed in succession.
        var failures: Int
    }

    /// Returns all needs, or nil when any can't be read: a need left out would look like a purge that has ended.
    private static func needs(_ elements: [[String: Any]]) -> [Need]? {
        let needs = elements.compactMap { element -> Need? in
            guard let partition = element["partition"] as? Int, let failures = element["failures"] as? Int,
                let isRequested = element["requested"] as? Bool
            else { return nil }
            return Need(partition: partition, isRequested: isRequested, failures: failures)
        }
        return needs.count == elements.count ? needs : nil
    }

    /// Returns purges by partition, or nil when an element can't be read.
    private static func counts(_ elements: [[String: Any]]) -> [Int: Int]? {
        guard let partitions = numbers("partition", of: elements),
            let purges = numbers("purges", of: elements)
        else { return nil }
        return Dictionary(zip(partitions, purges), uniquingKeysWith: max)
    }

    /// Returns a number of each element, or nil when an element lacks it.
    private static func numbers(_ name: String, of elements: [[String: Any]]) -> [Int]? {
        let numbers = elements.compactMap { $0[name] as? Int }
        return numbers.count == elements.count ? numbers : nil
    }

    private static var foreign: CommandFailure {
        CommandFailure(.failure, "the answer is not a worker's; check the address")
    }

    private static func document(_ answer: ControlAnswer) throws(CommandFailure) -> [String: Any] {
        guard
            let document = try? JSONSerialization.jsonObject(with: Data(answer.text.utf8)) as? [String: Any]
        else { throw foreign }
        return document
    }
}
