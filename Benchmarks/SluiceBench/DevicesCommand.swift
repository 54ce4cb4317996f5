import ArgumentParser
import DeviceModel
import Glibc
import SluiceModel

/// Measures the simulator's devices without a server.
struct DevicesCommand: ParsableCommand {
    static let configuration = CommandConfiguration(
        commandName: "devices", abstract: "The device model by itself.",
        subcommands: [Push.self, Memory.self])

    struct Push: ParsableCommand {
        static let configuration = CommandConfiguration(
            abstract: "CPU time of an alert, from APNs to the notification centre; prints one line of JSON.")

        @Option(help: "Devices, in turn.") var devices = 10_000
        @Option(help: "Pushes of a round.") var pushes = 100_000
        @Option(help: "Rounds.") var rounds = 15

        func validate() throws {
            guard (1...1_000_000).contains(devices), pushes > 0, rounds > 0 else {
                throw ValidationError("--devices must be 1 to 1000000, --pushes and --rounds at least 1")
            }
        }

        func run() throws {
            var load = DeviceLoad(devices: devices)
            var costs: [Double] = []
            // The first round makes the devices and warms up.
            for round in 0...rounds {
                let from = threadNanoseconds()
                for _ in 0..<pushes { load.push() }
                if round > 0 { costs.append(Double(threadNanoseconds() - from) / Double(pushes)) }
            }
            let status = load.world.status(now: load.now)
            precondition(status.pushes == UInt64(pushes * (rounds + 1)) && status.delivered > 0)
            var line = JSONLine()
            line.add("push_ns", costs)
            line.print()
        }
    }

    struct Memory: ParsableCommand {
        static let configuration = CommandConfiguration(
            abstract: "Memory of devices with a notification each; prints one line of JSON.")

        @Option(help: "Devices.") var devices = 1_000_000

        func validate() throws {
            guard (1...10_000_000).contains(devices) else {
                throw ValidationError("--devices must be 1 to 10000000")
            }
        }

        func run() throws {
            let before = residentBytes()
            var load = DeviceLoad(devices: devices)
            for _ in 0..<devices { load.push() }
            let status = load.world.status(now: load.now)
            precondition(status.devices == devices && status.delivered == devices)
            var line = JSONLine()
            line.add("devices", devices)
            line.add("resident_mb", Double(residentBytes()) / 1_048_576)
            line.add("bytes_per_device", Double(residentBytes() - before) / Double(devices))
            line.print()
        }
    }
}

/// Alerts for unknown tokens, which make the devices.
private struct DeviceLoad {
    var world: DeviceWorld
    private(set) var now: Int64 = 1_790_000_000_000
    private let devices: Int
    private var sent = 0
    private let tokens: UnsafeMutableRawBufferPointer
    private let topic = Array("com.example.app0".utf8)
    private let payload = Array(
        #"{"aps":{"alert":{"title":"Benchmark","body":"A text of ordinary length for a notification"},"sound":"default","badge":3,"thread-id":"scores"},"match":4711}"#
            .utf8)

    init(devices: Int) {
        var settings = DeviceSettings()
        settings.maximumDevices = devices
        world = DeviceWorld(settings: settings)
        self.devices = devices
        tokens = .allocate(byteCount: devices * 64, alignment: 8)
        var generator = SeededGenerator(seed: 7)
        let digits = Array("0123456789abcdef".utf8)
        for index in tokens.indices { tokens[index] = digits[Int(generator.next() & 15)] }
    }

    mutating func push() {
        let index = sent % devices
        sent += 1
        if sent & 127 == 0 { now += 1 }
        let token = UnsafeRawBufferPointer(rebasing: tokens[index * 64..<index * 64 + 64])
        let answer = topic.withUnsafeBytes { topic in
            payload.withUnsafeBytes { payload in
                world.receive(
                    ArrivedPush(
                        token: token, environment: .production, topic: topic, type: .alert,
                        priority: .immediate, expiration: nil, collapseID: nil,
                        apnsID: APNSID(high: UInt64(sent) &* 0x9e37_79b9_7f4a_7c15, low: UInt64(sent)),
                        payload: payload),
                    now: now)
            }
        }
        precondition(answer == .accepted)
    }
}
