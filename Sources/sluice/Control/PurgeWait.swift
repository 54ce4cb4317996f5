import Foundation

/// Decides after each look at a worker whether the requested purges have ended. Pure: looks and their times in, steps out.
///
/// The need of a purge is in the store and outlives the process. The request is in the process's memory: a store that was
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
        /// Look again.
        case wait
        /// No file of the worker has bytes of entries that were removed before the request.
        case purged
        /// The end isn't known, or was none: status of the command, and its message.
        case end(ExitStatus, String)
    }

    private let opening: String
    /// Purges that had failed before the request.
    private let failed: Int
    /// Partitions whose purge was requested.
    private let partitions: Set<Int>
    /// Partitions of the request that the worker had then.
    private let held: Set<Int>
    /// Partitions of these that the worker has not had in a later look.
    private var lost: Set<Int> = []
    /// Time of the first look without an answer since the last answer; nil: the last look had an answer.
    private var silentSince: Duration?

    /// Longest time without an answer: a worker may need this long to start anew.
    static let patience: Duration = .seconds(30)

    /// - Parameters:
    ///   - before: the worker before the request.
    ///   - partitions: partitions that the worker purges for the request.
    init(_ before: PurgeProgress, _ partitions: Set<Int>) {
        opening = before.opening
        failed = before.failed
        self.partitions = partitions
        held = partitions.intersection(before.assigned)
    }

    /// Returns the step after a look.
    /// - Parameter time: time of the look, from any beginning.
    mutating func next(_ look: Look, at time: Duration) -> Step {
        switch look {
        case .progress(let progress):
            silentSince = nil
            return next(progress)
        case .silence(let reason):
            let since = silentSince ?? time
            silentSince = since
            guard time - since >= Self.patience else { return .wait }
            return .end(
                .failure,
                "no answer for \(Self.patience.components.seconds) seconds, so the end of the purge is unknown (\(reason)); "
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
        if progress.failed > failed {
            return .end(
                .failure, "\(progress.failure ?? "a purge failed"); the worker tries again later")
        }
        lost.formUnion(held.subtracting(progress.assigned))
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
    /// Name of the store's opening, which a restart of the worker changes.
    var opening: String
    /// Partitions that the worker has.
    var assigned: Set<Int>
    /// Partitions whose requested purge hasn't ended.
    var requested: Set<Int>
    /// Purges that have failed since the opening.
    var failed: Int
    /// Cause for which the last purge failed; nil: the last purge succeeded, or there was none.
    var failure: String?
}

extension PurgeProgress {
    /// Reads a worker's `/store`.
    /// - Throws: `CommandFailure` when the answer isn't that of a worker's `/store`.
    init(_ answer: ControlAnswer) throws(CommandFailure) {
        let document = try Self.document(answer)
        guard let purges = document["purges"] as? [String: Any],
            let opening = purges["opening"] as? String,
            let pending = purges["pending"] as? [[String: Any]], let failed = purges["failed"] as? Int,
            let partitions = document["partitions"] as? [[String: Any]]
        else { throw Self.foreign }
        self.init(
            opening: opening, assigned: Set(partitions.compactMap { $0["partition"] as? Int }),
            requested: Set(
                pending.filter { $0["requested"] as? Bool == true }.compactMap { $0["partition"] as? Int }),
            failed: failed, failure: (purges["last"] as? [String: Any])?["error"] as? String)
    }

    /// Returns the partitions that a command has the worker purge.
    /// - Throws: `CommandFailure` when the answer isn't a worker's.
    static func requested(_ answer: ControlAnswer) throws(CommandFailure) -> Set<Int> {
        guard let partitions = try document(answer)["partitions"] as? [Int] else { throw foreign }
        return Set(partitions)
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
