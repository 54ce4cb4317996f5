/// Live Activities.
extension DeviceWorld {
    mutating func arriveActivity(_ push: TransitPush, now: Int64) {}
    mutating func activityIsDue(device: UInt32, app: UInt16, activity: UInt64, now: Int64) {}
    mutating func actOnActivity(_ action: DeviceAction, _ id: UInt32, now: Int64) throws(DeviceFault) {}
    /// Delivers the stored broadcast of each channel that the device listens to.
    mutating func replayBroadcasts(_ device: UInt32, now: Int64) {}
    /// Hands a broadcast to all Live Activities that listen to its channel.
    public mutating func broadcast(_ broadcast: ArrivedBroadcast, now: Int64) {}
}

extension DeviceWorld {
    func activityViews(_ installation: Installation, on device: UInt32) -> [ActivityView] { [] }
    /// Live Activities that are not dismissed.
    func activityCount(_ installation: Installation) -> Int { 0 }
}
