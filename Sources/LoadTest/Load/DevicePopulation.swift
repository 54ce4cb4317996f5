import SluiceModel

/// Devices of a load: how often each one is pushed to, which ones are offline until when, and when their tokens change.
public struct DevicePopulation: Sendable {
    public let count: Int
    private let settings: LoadScenario.Devices
    private let seed: UInt64
    private let zipf: ZipfDistribution?
    /// Permutation of the ranks, so that popular devices are not neighbours: rank × factor + shift, modulo the count.
    private let factor: Int
    private let shift: Int

    public init(_ settings: LoadScenario.Devices, seed: UInt64) {
        self.settings = settings
        self.seed = seed
        count = settings.count
        if case .zipf(let exponent) = settings.popularity {
            zipf = ZipfDistribution(count: settings.count, exponent: exponent)
        } else {
            zipf = nil
        }
        var random = SeededGenerator(seed: seed)
        shift = Int(random.next() % UInt64(count))
        var factor = Int(random.next() % UInt64(count)) | 1
        while Self.divisor(factor, count) != 1 { factor += 2 }
        self.factor = factor
    }

    private static func divisor(_ a: Int, _ b: Int) -> Int { b == 0 ? a : divisor(b, a % b) }

    /// Draws the device of a job.
    public func draw(_ random: inout SeededGenerator) -> UInt32 {
        let rank = zipf.map { $0.draw(&random) - 1 } ?? Int(random.next() % UInt64(count))
        return device(rank: rank)
    }

    /// Returns the device of a rank, 0 for the most popular device.
    public func device(rank: Int) -> UInt32 {
        UInt32((count.dividingFullWidth(rank.multipliedFullWidth(by: factor)).remainder + shift) % count)
    }

    /// Number of 0..<1 that belongs to a device, for one of several purposes.
    private func share(of device: UInt32, _ purpose: UInt64) -> Double {
        var random = SeededGenerator(seed: seed &+ purpose &* 0x9E37_79B9 &+ UInt64(device) &* 0x1_0000_01B3)
        return Arrivals.unit(&random)
    }

    /// Whether the device is offline at the beginning.
    public func isOffline(_ device: UInt32) -> Bool {
        settings.offlineShare > 0 && share(of: device, 1) < settings.offlineShare
    }

    /// All devices that are offline at the beginning.
    public var offline: [UInt32] {
        settings.offlineShare > 0 ? (0..<UInt32(count)).filter { isOffline($0) } : []
    }

    /// Time at which an offline device is back, in seconds since the beginning of the run.
    /// - Parameter begin: time at which the first device returns.
    public func returnTime(_ device: UInt32, begin: Double) -> Double {
        begin + settings.returnOver * share(of: device, 2)
    }

    /// Number of tokens that the device had before its token at a time of the run.
    public func generation(of device: UInt32, at time: Double) -> UInt32 {
        guard settings.churnPerMinute > 0 else { return 0 }
        let period = Double(count) * 60 / settings.churnPerMinute
        return UInt32(min(max(0, time) / period + share(of: device, 3), 1e9))
    }
}
