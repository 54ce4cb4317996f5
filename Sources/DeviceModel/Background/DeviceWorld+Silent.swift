/// Silent pushes.
extension DeviceWorld {
    mutating func arriveSilent(_ push: TransitPush, now: Int64) {}
    mutating func wakeHeld(device: UInt32, app: UInt16, now: Int64) {}
    /// Reacts to a launch by the user, or to the first launch.
    mutating func launched(_ app: UInt16, on device: UInt32, inFront: Bool, now: Int64) {}
}

extension DeviceWorld {
    /// Wakes that are left within this hour.
    func wakesLeft(_ installation: Installation, now: Int64) -> Int { settings.wakesPerHour }
    func holdsSilentPush(_ installation: Installation) -> Bool { false }
}
