/// Bounds of a world, below what its seed has drawn; a smaller world shows the same mistake in fewer steps.
public struct WorldLimits<Fault: CaseIterable & Hashable & Sendable>: Sendable, Equatable,
    CustomStringConvertible
{
    public var workers = Int.max
    public var shards = Int.max
    public var partitions = Int.max
    public var devices = Int.max
    /// Topics; fleets have one.
    public var apps = Int.max
    public var faults = Set(Fault.allCases)

    public init() {}

    /// Reads `workers=1,devices=4,faults=kill+freeze`; the seed decides about the rest. Nil: not readable.
    public init?(_ text: String) {
        for part in text.split(separator: ",") {
            let pair = part.split(separator: "=", maxSplits: 1)
            guard pair.count == 2 else { return nil }
            if pair[0] == "faults" {
                guard let faults = Self.faults(pair[1]) else { return nil }
                self.faults = faults
                continue
            }
            guard let size = Self.sizes.first(where: { $0.name == pair[0] }), let value = Int(pair[1]),
                value > 0
            else { return nil }
            self[keyPath: size.path] = value
        }
    }

    private static func faults(_ text: Substring) -> Set<Fault>? {
        guard text != "none" else { return [] }
        var faults: Set<Fault> = []
        for name in text.split(separator: "+") {
            guard let fault = Fault.allCases.first(where: { "\($0)" == name }) else { return nil }
            faults.insert(fault)
        }
        return faults
    }

    static var sizes: [(name: String, path: WritableKeyPath<WorldLimits, Int>)] {
        [
            ("workers", \.workers), ("shards", \.shards), ("partitions", \.partitions),
            ("devices", \.devices),
            ("apps", \.apps),
        ]
    }

    public var description: String {
        var parts: [String] = []
        for (name, path) in Self.sizes where self[keyPath: path] < .max {
            parts.append("\(name)=\(self[keyPath: path])")
        }
        if faults.count < Fault.allCases.count {
            let names = Fault.allCases.filter { faults.contains($0) }.map { "\($0)" }
            parts.append("faults=" + (names.isEmpty ? "none" : names.joined(separator: "+")))
        }
        return parts.joined(separator: ",")
    }
}

extension WorldLimits: ShrinkableLimits {
    public var smaller: [WorldLimits] {
        var smaller: [WorldLimits] = []
        for (_, path) in Self.sizes {
            let size = self[keyPath: path]
            guard size < .max else { continue }
            for less in [1, size / 2, size - 1] where less >= 1 && less < size {
                var limits = self
                limits[keyPath: path] = less
                if !smaller.contains(limits) { smaller.append(limits) }
            }
        }
        if faults.count > 1 { smaller.append(with([])) }
        for fault in Fault.allCases where faults.contains(fault) {
            smaller.append(with(faults.subtracting([fault])))
        }
        return smaller
    }

    private func with(_ faults: Set<Fault>) -> WorldLimits {
        var limits = self
        limits.faults = faults
        return limits
    }
}
