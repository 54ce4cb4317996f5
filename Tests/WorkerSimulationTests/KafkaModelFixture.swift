@testable import SimulatedKafka

let second: UInt64 = 1_000_000_000
let millisecond: UInt64 = 1_000_000

typealias Kafka = KafkaModel

/// A model with short delays, and without random faults unless the test configures them.
func calm(_ change: (inout Kafka.Configuration) -> Void = { _ in }) -> Kafka {
    var configuration = Kafka.Configuration()
    configuration.slowPerMille = 0
    configuration.transactionSweep = 0
    configuration.initialRebalanceDelay = 0
    change(&configuration)
    return Kafka(seed: 1, configuration: configuration)
}

extension KafkaModel {
    func pass(_ time: UInt64) { advance(to: now + time) }

    /// All events of a client so far.
    func events(_ client: ClientID) -> [Event] {
        var events: [Event] = []
        while let event = nextEvent(client) { events.append(event) }
        return events
    }

    func reports(_ client: ClientID) -> [Report] {
        events(client).compactMap { if case .report(let report) = $0 { report } else { nil } }
    }

    func steps(_ client: ClientID) -> [StepResult] {
        events(client).compactMap { if case .step(_, let result) = $0 { result } else { nil } }
    }

    /// The result of the step that was started last.
    func result(_ client: ClientID, within time: UInt64 = second) -> StepResult? {
        pass(time)
        return steps(client).last
    }

    func produce(
        _ client: ClientID, _ payload: Int, key: Int = 0, to topic: Topic = .outcomes, _ partition: Int = 0
    )
        -> ProduceAnswer
    {
        produce(client, Record(payload: payload, key: key), to: topic, partition, opaque: payload)
    }

    /// A process with a transactional producer that is ready.
    func transactionalClient(_ identifier: Int = 0) -> ClientID {
        let client = addClient()
        makeProducer(client, transactionalID: identifier)
        initialize(client)
        pass(second)
        _ = events(client)
        return client
    }

    func payloads(_ topic: Topic = .outcomes, _ partition: Int = 0) -> [Int] {
        feed(of: topic, partition).map(\.payload)
    }

    /// All payloads that a reader gets from the beginning.
    func readAll(_ topic: Topic = .outcomes, _ partition: Int = 0, isolation: Isolation = .committed) -> [Int]
    {
        let client = addClient()
        read(client, topic, partition, from: nil, isolation: isolation)
        pass(second)
        var payloads: [Int] = []
        while poll(client, atMost: 100, { payloads.append($0.payload) }) > 0 { pass(second) }
        stopReading(client, topic, partition)
        return payloads
    }

    /// Answers the rebalance events of clients at once, and keeps all events.
    func settle(_ clients: [ClientID], for time: UInt64, keeping: inout [ClientID: [Event]]) {
        let end = now + time
        while now < end {
            pass(50 * millisecond)
            for client in clients {
                while let event = nextEvent(client) {
                    switch event {
                    case .assigned: assign(client)
                    case .revoked, .lost: unassign(client)
                    default: break
                    }
                    keeping[client, default: []].append(event)
                }
            }
        }
    }

    @discardableResult
    func settle(_ clients: [ClientID], for time: UInt64) -> [ClientID: [Event]] {
        var kept: [ClientID: [Event]] = [:]
        settle(clients, for: time, keeping: &kept)
        return kept
    }

    func member(instance: Int = -1) -> ClientID {
        let client = addClient()
        join(client, instance: instance)
        return client
    }

    /// The answer to a commit; nil: none arrived.
    func commitResult(_ client: ClientID, _ offsets: [OffsetCommit]) -> Failure?? {
        let reference = commit(client, offsets)
        pass(second)
        for case .committed(reference, let failure) in events(client) { return .some(failure) }
        return nil
    }

    func committed(
        _ client: ClientID, _ partition: Int, within time: UInt64 = second
    ) -> (
        CommittedOffset?, Failure?
    )? {
        let reference = fetchCommitted(client, [partition])
        pass(time)
        for case .fetchedCommitted(reference, let offsets, let failure) in events(client) {
            return (offsets.first, failure)
        }
        return nil
    }
}

extension Kafka.Event {
    /// A short form of a rebalance event.
    var name: String {
        switch self {
        case .assigned(let set): "assigned \(Array(set))"
        case .revoked(let set): "revoked \(Array(set))"
        case .lost(let set): "lost \(Array(set))"
        case .instanceFenced: "fenced"
        default: "other"
        }
    }
}
