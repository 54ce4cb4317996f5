/// Local time of a device.
extension DeviceWorld {
    /// Offsets of local times to UTC, in minutes.
    public static let zones = -720...840

    /// Sets the time zone or the times of the scheduled summary.
    mutating func setTime(_ action: DeviceAction, _ id: UInt32, now: Int64) throws(DeviceFault) {
        if action.action == .timeZone {
            guard let minutes = action.number, Self.zones.contains(minutes) else {
                throw DeviceFault(
                    .invalid,
                    "number: the offset to UTC in minutes, \(Self.zones.lowerBound) to \(Self.zones.upperBound)"
                )
            }
            return try change(id, now: now) { $0.timeZoneMinutes = minutes }
        }
        guard let text = action.text, let times = SummaryTimes.parse(text) else {
            throw DeviceFault(
                .invalid,
                "text: times of the summary as `8:00,18:00`, at most \(SummaryTimes.most); empty for none")
        }
        try change(id, now: now) { $0.summaryTimes = times }
    }

    /// Moves what follows the local time: calendar triggers and the scheduled summary.
    mutating func localTimeChanged(_ device: UInt32, now: Int64) {
        guard let found = devices[Int(device)] else { return }
        let zone = found.state.value.timeZoneMinutes
        for installation in found.installations {
            let app = installation.app
            if found.state.value.summaryTimes.isEmpty { releaseSummary(app, on: device, now: now) }
            guard !installation.centre.pending.isEmpty else { continue }
            let moved =
                with(device, app) { installation in
                    installation.centre.changePending { $0.reschedule(zone: zone, now: now) }
                } ?? []
            for (identifier, time) in moved {
                due.schedule(.trigger(device: device, app: app, identifier: identifier), at: time)
            }
        }
        // The entry for the former time applies no longer.
        devices[Int(device)]!.summaryAt = 0
        resumeSummary(device, now: now)
    }
}
