import APNSSimulator
import DeviceModel
import Dispatch
import Kafka
import SluiceModel
import Synchronization

/// Sends events of the simulator's devices to Kafka as jobs of the kind `device`, in their order.
///
/// Kafka never holds up the devices: jobs beyond ``mostOutstanding`` are dropped and counted.
final class DeviceJobs: Sendable {
    struct Counts {
        /// Jobs that were handed to the producer.
        var produced = 0
        /// Jobs that were dropped, or that Kafka did not acknowledge.
        var lost = 0
    }

    /// Most jobs that wait for Kafka.
    static let mostOutstanding = 50_000

    private let queue = DispatchQueue(label: "sluice.device-jobs")
    private let registry: DeviceRegistry
    private let producer: Confined
    private let state = Mutex(Counts())

    /// Carries the producer to the queue.
    // Sendable: only closures of the serial queue use the producer, after init.
    private struct Confined: @unchecked Sendable {
        let producer: RecordProducer
    }

    init(bootstrapServers: String, topic: String, registry: DeviceRegistry) throws(CommandFailure) {
        self.registry = registry
        let cluster = KafkaCluster(bootstrapServers: bootstrapServers)
        _ = try cluster.partitionCount(of: topic)
        producer = Confined(
            producer: try RecordProducer(topic: topic, properties: cluster.properties) { error in
                Terminal.error("sluice: device jobs: Kafka: \(error)")
            })
    }

    var counts: Counts { state.withLock { $0 } }

    /// Receiver of the events.
    var tap: DeviceEventTap {
        DeviceEventTap(
            receive: { events in
                let jobs = events.flatMap { self.jobs($0) }
                guard !jobs.isEmpty else { return }
                self.queue.async { self.send(jobs) }
            },
            lost: {
                Terminal.error("sluice: device jobs: some events were dropped before they were read")
                self.state.withLock { $0.lost += 1 }
            })
    }

    private func send(_ jobs: [EncodedJob]) {
        let producer = producer.producer
        for job in jobs {
            producer.poll()
            guard producer.outstanding < Self.mostOutstanding, (try? producer.produce(job)) != nil else {
                state.withLock { $0.lost += 1 }
                continue
            }
            state.withLock { $0.produced += 1 }
        }
        producer.poll()
    }

    /// Sends what waits, for ten seconds at most.
    func finish() {
        queue.sync {
            let producer = producer.producer
            producer.finish(timeoutMilliseconds: 10_000)
            state.withLock { $0.lost += producer.failed }
        }
    }

    // MARK: - Jobs

    /// Ends of a service extension that leave it the time to report a receipt. An extension that crashes, runs out of
    /// time or can't decrypt reports none.
    private static let reportingEnds: Set = ["done", "hidden", "empty"]

    /// Returns the jobs that report an event: a job for each device token that the event concerns.
    private func jobs(_ event: DeviceModel.DeviceEvent) -> [EncodedJob] {
        switch event.kind {
        case .online, .offline:
            let name = event.kind == .online ? "online" : "offline"
            return tokens(of: event.device).map { Self.job(name, $0, event) }
        case .receipt:
            guard Self.reportingEnds.contains(event.detail ?? ""), let token = token(of: event) else {
                return []
            }
            var control = Self.control("receipt", token, event)
            control.apnsID = event.apnsID
            return [JobEncoder.binary(control)]
        case .token:
            guard let token = event.token else { return [] }
            if let former = event.formerToken {
                var control = Self.control("token-changed", former, event)
                control.newDeviceToken = token
                return [JobEncoder.binary(control)]
            }
            return event.detail == "unregistered" ? [Self.job("unregistered", token, event)] : []
        case .push, .device, .app, .notification, .response, .activity, .wake, .call, .reset: return []
        }
    }

    private static func job(
        _ name: String, _ token: String, _ event: DeviceModel.DeviceEvent
    ) -> EncodedJob {
        JobEncoder.binary(control(name, token, event))
    }

    private static func control(
        _ name: String, _ token: String, _ event: DeviceModel.DeviceEvent
    ) -> ControlDescription {
        var control = ControlDescription(.device, deviceToken: token)
        control.event = name
        control.occurredAtMilliseconds = event.at
        return control
    }

    /// Valid tokens of all apps on a device.
    private func tokens(of device: UInt32?) -> [String] {
        guard let device, let view = registry.read({ world, now in world.device(device, now: now) }) else {
            return []
        }
        return view.apps.flatMap(\.tokens).filter(\.isValid).map(\.token)
    }

    /// Token of the push that a receipt confirms.
    private func token(of event: DeviceModel.DeviceEvent) -> String? {
        if let token = event.token { return token }
        guard let number = event.push, let push = registry.read({ world, _ in world.push(number) }) else {
            return nil
        }
        return push.token.isEmpty ? nil : push.token
    }
}
