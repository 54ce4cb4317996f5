/// Numbers that are asked for often.
extension DeviceWorld {
    /// Number of the last event; 0 before the first.
    public var lastEvent: UInt64 { log.next - 1 }

    public func hasDevice(_ id: UInt32) -> Bool { Int(id) < devices.count && devices[Int(id)] != nil }
}

extension WaitResult {
    /// Result of a condition about something that does not exist.
    public static func nothing(matches: Bool) -> WaitResult {
        WaitResult(matches: matches, notifications: [], pushes: [], activities: [], responses: [])
    }
}
