import ArgumentParser
import EventLoop
import Gateway
import Glibc
import Kafka
import Logging
import RetryStore
import SluiceModel

/// Measures devices with held pushes that come online within a minute, while other jobs arrive.
struct ReturnCommand: ParsableCommand {
    static let configuration = CommandConfiguration(
        commandName: "return",
        abstract:
            "Let devices of a store come online within a time, beside other jobs; prints one line of JSON.",
        discussion: "The store is left by `store fill --wait held --per-device 1`.")

    @OptionGroup var surroundings: WorkerSurroundings
    @Option(help: "The store's directory.") var store: String
    @Option(help: "Items of the store, and devices.") var items = 1_000_000
    @Option(help: "Partitions of the jobs topic.") var partitions = 24
    @Option(help: "Other jobs by the second.") var rate = 2_000
    @Option(help: "Devices that come online.") var devices = 1_000_000
    @Option(help: "Seconds in which they do.") var seconds = 60

    func validate() throws {
        guard items > 0, partitions > 0, rate > 0, (0...items).contains(devices), seconds > 0 else {
            throw ValidationError(
                "--items, --partitions, --rate, --seconds at least 1, --devices 0 to --items")
        }
    }

    func run() throws {
        var configuration = surroundings.configuration(connections: 2)
        configuration.store = .init(directory: store, changelog: .off)
        let logger = Logger(label: "bench", factory: { _ in SwiftLogNoOpLogHandler() })
        let worker = try Worker(configuration: configuration, logger: logger)
        worker.start()
        let hasher = worker.store?.hasher ?? IdentityHasher(key0: 1, key1: 2)
        let jobs = StoreJobs(items: items, partitions: partitions, hasher: hasher, itemsPerDevice: 1)
        worker.waitUntilSettled(partitions: partitions)

        var properties = KafkaProperties(bootstrapServers: surroundings.bootstrapServers)
        properties["linger.ms"] = "20"
        let producer = try KafkaProducer(properties: properties)
        let topic = try producer.topic("sluice.jobs")
        let before = worker.snapshot().counters.finished
        var load = Load(topic: topic, jobs: jobs, partitions: partitions)
        let from = MonotonicTime.read()
        var most = 0
        while true {
            let elapsed = Double(MonotonicTime.read().nanoseconds(since: from)) / 1e9
            let part = min(1, elapsed / Double(seconds))
            try load.produce(
                pushes: Int(part * Double(rate * seconds)), events: Int(part * Double(devices)), producer)
            most = max(most, residentBytes())
            guard elapsed < Double(seconds) else { break }
            usleep(2000)
        }
        try producer.flush(timeoutMilliseconds: 10_000)
        // Gives the last records as much time as the others had.
        usleep(200_000)
        let finished = worker.snapshot().counters.finished - before
        let counters = worker.snapshot().totals
        producer.close()
        worker.requestStop()
        _ = worker.waitUntilStopped()
        var line = JSONLine()
        line.add("produced", Double(load.pushes + load.events))
        line.add("finished", Double(finished))
        line.add("intake_ratio", Double(finished) / Double(load.pushes + load.events))
        line.add("accepted", Double(counters.count(of: .accepted)))
        line.add("loaded", Double(counters.store.loaded))
        line.add("max_resident_mb", Double(most) / 1e6)
        line.print()
    }

    private struct Load: ~Copyable {
        let topic: KafkaTopic
        let jobs: StoreJobs
        let partitions: Int
        private(set) var pushes = 0
        private(set) var events = 0

        init(topic: KafkaTopic, jobs: consuming StoreJobs, partitions: Int) {
            self.topic = topic
            self.jobs = jobs
            self.partitions = partitions
        }

        /// Produces until `most` pushes and `mostEvents` events have been produced.
        mutating func produce(pushes most: Int, events mostEvents: Int, _ producer: KafkaProducer) throws {
            while pushes < most {
                // These devices have nothing in the store.
                let push = PushDescription(
                    deviceToken: token(ofOther: pushes), topic: "com.example.app1",
                    payload: Array(#"{"aps":{"alert":"other"}}"#.utf8))
                try send(JobEncoder.binary(push), pushes % partitions, producer)
                pushes += 1
            }
            while events < mostEvents {
                let device = events
                var token = ""
                jobs.withToken(ofDevice: device) { token = String(decoding: $0, as: UTF8.self) }
                let document = #"{"kind":"device","device-token":"\#(token)","event":"online"}"#
                guard let event = JobEncoder.document(Array(document.utf8)) else {
                    throw LoadError(description: "a device event can't be encoded")
                }
                try send(event, jobs.partition(ofDevice: device), producer)
                events += 1
            }
            producer.pollDeliveryReports { _ in }
        }

        private func token(ofOther number: Int) -> String {
            let digits = String(number, radix: 16)
            return "fe" + String(repeating: "0", count: 62 - digits.count) + digits
        }

        private func send(_ job: EncodedJob, _ partition: Int, _ producer: KafkaProducer) throws {
            while true {
                let result = job.key.withUnsafeBytes { key in
                    job.value.withUnsafeBytes { value in
                        producer.produce(
                            topic, key: key, value: value, headers: job.headers.map { ($0.name, $0.value) },
                            opaque: 0, partition: Int32(partition))
                    }
                }
                if case .queued = result { return }
                if case .failed(let error) = result { throw error }
                producer.pollDeliveryReports(timeoutMilliseconds: 10) { _ in }
            }
        }
    }
}
