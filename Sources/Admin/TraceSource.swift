import Configuration
import DeliveryCore
import Foundation
import Gateway
import Synchronization

/// Source of `/trace`'s answers from memory: a worker, or a stand-in in tests.
public struct TraceSource: Sendable {
    /// Identifier of the worker's consumer group.
    public var group: String
    /// Name of the jobs topic.
    public var jobsTopic: String
    /// Names of apps, credentials and environments, for pushes that the store has.
    public var routes: TraceRoutes
    /// Calls its last argument once for each loop that turns, on any thread.
    public var ask: @Sendable (TraceQuery, @escaping @Sendable (TraceAnswer) -> Void) -> Void

    public init(
        group: String, jobsTopic: String, routes: TraceRoutes,
        ask: @escaping @Sendable (TraceQuery, @escaping @Sendable (TraceAnswer) -> Void) -> Void
    ) {
        self.group = group
        self.jobsTopic = jobsTopic
        self.routes = routes
        self.ask = ask
    }

    /// Searches the memory of all loops, and waits `patience` at most. Returns the loops' answers.
    func search(_ query: TraceQuery, loops: Int, for patience: Duration) async -> [TraceAnswer] {
        let gathered = Gathered(count: loops)
        ask(query) { gathered.add($0) }
        _ = await gathered.isComplete.wait(for: patience)
        return gathered.answers
    }

    private final class Gathered: Sendable {
        private let list = Mutex<[TraceAnswer]>([])
        private let count: Int
        let isComplete = Reply<Void>()

        init(count: Int) { self.count = count }

        var answers: [TraceAnswer] { list.withLock { $0 } }

        func add(_ answer: TraceAnswer) {
            let isLast = list.withLock {
                $0.append(answer)
                return $0.count == count
            }
            if isLast { isComplete.give(()) }
        }
    }
}
