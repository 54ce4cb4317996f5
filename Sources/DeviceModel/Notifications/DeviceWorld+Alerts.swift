/// Alerts.
extension DeviceWorld {
    mutating func arriveAlert(_ push: TransitPush, now: Int64) {}
    mutating func showSummary(device: UInt32, now: Int64) {}
    mutating func fireTrigger(device: UInt32, app: UInt16, identifier: String, now: Int64) {}
    mutating func scheduleDeclared(_ app: UInt16, on device: UInt32, now: Int64) {}
    mutating func actOnNotification(_ action: DeviceAction, _ id: UInt32, now: Int64) throws(DeviceFault) {}
    /// Reacts to a passed border of a region.
    mutating func moved(_ device: UInt32, from: String?, to: String?, now: Int64) {}
    /// Reacts to a change of switches.
    mutating func stateChanged(_ device: UInt32, from: DeviceState, to: DeviceState, now: Int64) {}
    mutating func settingsChanged(_ app: UInt16, on device: UInt32, now: Int64) {}
}

/// Views of notifications.
extension DeviceWorld {
    /// Delivered notifications, newest first.
    func deliveredViews(_ installation: Installation, on device: UInt32) -> [NotificationView] { [] }
    func groupViews(_ installation: Installation) -> [GroupView] { [] }
    func pendingViews(_ installation: Installation, on device: UInt32) -> [PendingView] { [] }
    /// Entries of the lock screen, newest first.
    func lockScreen(_ device: UInt32) -> [ShownView] { [] }
    /// Entries that wait for the scheduled summary.
    func summaryEntries(_ device: UInt32) -> [ShownView] { [] }
    func nextSummary(_ device: UInt32, now: Int64) -> Int64? { nil }
    /// Title and body of a notification in a line; nil for a payload without an alert.
    func line(of payload: [UInt8], app: UInt16, language: String) -> String? { nil }
    /// Newest notification of an app; nil: none.
    func newest(_ installation: Installation) -> (at: Int64, payload: [UInt8])? { nil }
    func deliveredCount(_ installation: Installation) -> Int { installation.centre.delivered.count }
}
