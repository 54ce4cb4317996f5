/// Requests from outside.
extension PendingRequest {
    /// Longest identifier in bytes.
    static let longestIdentifier = 256
    /// Longest payload in bytes of JSON.
    static let longestPayload = 16_384
    /// Longest interval: ten years, in seconds.
    static let longestInterval = 315_360_000.0

    /// Checks a request.
    /// - Returns: the identifier, the payload as JSON, and the trigger; nil: at once.
    static func check(
        _ request: LocalRequest
    ) throws(DeviceFault) -> (identifier: String, payload: [UInt8], trigger: PendingTrigger?) {
        let length = request.identifier.utf8.count
        guard length > 0, length <= longestIdentifier else {
            throw DeviceFault(
                .invalid, "request.identifier: 1 to \(longestIdentifier) bytes, not \(length)")
        }
        let payload = request.payload ?? .object([:])
        guard case .object = payload, let bytes = payload.bytes(limit: longestPayload) else {
            throw DeviceFault(
                .invalid, "request.payload: an object with `aps`, at most \(longestPayload) bytes of JSON")
        }
        return (request.identifier, bytes, try request.trigger.map(check) ?? nil)
    }

    private static func check(_ trigger: LocalTrigger) throws(DeviceFault) -> PendingTrigger? {
        let members = [trigger.interval != nil, trigger.minuteOfDay != nil, trigger.region != nil]
        let count = members.count(where: { $0 })
        guard count <= 1 else {
            throw DeviceFault(
                .invalid, "request.trigger: only one of interval, minute-of-day and region may be set")
        }
        let repeats = trigger.repeats ?? false
        if let interval = trigger.interval {
            guard interval > 0, interval <= longestInterval else {
                throw DeviceFault(
                    .invalid, "request.trigger.interval: above 0 and at most \(Int(longestInterval)) seconds")
            }
            guard !repeats || interval >= 60 else {
                throw DeviceFault(
                    .invalid, "request.trigger.interval: a repeating trigger needs at least 60 seconds")
            }
            return .interval(max(1, Int64(interval * 1_000)))
        }
        if let minute = trigger.minuteOfDay {
            guard (0..<1_440).contains(minute) else {
                throw DeviceFault(.invalid, "request.trigger.minute-of-day: 0 to 1439, not \(minute)")
            }
            return .calendar(minuteOfDay: minute)
        }
        guard let region = trigger.region else {
            guard !repeats else {
                throw DeviceFault(
                    .invalid, "request.trigger.repeats: set interval, minute-of-day or region too")
            }
            return nil
        }
        guard !region.isEmpty, region.utf8.count <= longestIdentifier else {
            throw DeviceFault(.invalid, "request.trigger.region: 1 to \(longestIdentifier) bytes")
        }
        switch trigger.on ?? "enter" {
        case "enter": return .region(region, onEntry: true, onExit: false)
        case "exit": return .region(region, onEntry: false, onExit: true)
        case "both": return .region(region, onEntry: true, onExit: true)
        default: throw DeviceFault(.invalid, "request.trigger.on: enter, exit or both")
        }
    }
}
