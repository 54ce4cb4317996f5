/// Service extensions that run.
struct ExtensionRuns: Sendable {
}

extension DeviceWorld {
    mutating func extensionIsDue(_ run: UInt64, now: Int64) {}
    /// Takes the work that waits for effects.
    public mutating func takeWork() -> [DeviceWork] { [] }
    /// Takes the result of work.
    public mutating func finish(_ id: UInt64, _ result: WorkResult, now: Int64) {}
    /// Content of an attachment; nil when it is gone.
    public func attachment(_ id: UInt64) -> (type: String, bytes: [UInt8])? { nil }
}
