import EventLoop
import Gateway
import HTTP2
import Kafka

/// Parts of a world that faults and operators act on.
final class FaultScene {
    let scenario: WorkerScenario
    let scheduler: Scheduler
    let kafka: KafkaCluster
    let apns: SimulatedAPNS
    let hosts: [WorkerHost]
    let auditor: WorkerAuditor
    let files: SimulationFiles
    /// Receives each step.
    let note: (String) -> Void
    /// Receives each broken promise.
    let report: (WorkerViolation.Promise, String) -> Void

    init(
        _ scenario: WorkerScenario, _ scheduler: Scheduler, kafka: KafkaCluster, apns: SimulatedAPNS,
        hosts: [WorkerHost], auditor: WorkerAuditor, files: SimulationFiles, note: @escaping (String) -> Void,
        report: @escaping (WorkerViolation.Promise, String) -> Void
    ) {
        self.scenario = scenario
        self.scheduler = scheduler
        self.kafka = kafka
        self.apns = apns
        self.hosts = hosts
        self.auditor = auditor
        self.files = files
        self.note = note
        self.report = report
    }

    /// Part of the world that a fault has hit.
    struct Effect {
        /// Number of the host; nil: all of them, or none.
        var host: Int?
        /// Nanoseconds for which the fault lasts.
        var nanoseconds: UInt64 = 0
    }

    var network: SimulatedNetwork { .current }

    /// The host whose process has dialled a connection.
    func host(of link: SimulatedLink) -> WorkerHost? {
        hosts.first { $0.process != nil && $0.process === link.client.process }
    }

    // MARK: Choices

    func draw(_ range: ClosedRange<Int>) -> Int { Int.random(in: range, using: &scheduler.random) }
    func chance(_ perMille: Int) -> Bool { draw(0...999) < perMille }
    func choose<Element>(_ elements: [Element]) -> Element { elements[draw(0...elements.count - 1)] }

    // MARK: Time

    static func seconds(_ count: Int) -> UInt64 { UInt64(count) * 1_000_000_000 }

    /// Runs `body` after a number of milliseconds. Returns the nanoseconds until then.
    @discardableResult
    func after(milliseconds: ClosedRange<Int>, _ body: @escaping () -> Void) -> UInt64 {
        let length = UInt64(draw(milliseconds)) * 1_000_000
        scheduler.schedule(after: length, body)
        return length
    }

    @discardableResult
    func after(seconds: ClosedRange<Int>, _ body: @escaping () -> Void) -> UInt64 {
        after(milliseconds: seconds.lowerBound * 1000...seconds.upperBound * 1000, body)
    }
}
