/// Presentation of alerts that a service extension has handled.
extension DeviceWorld {
    mutating func presentAlert(_ push: TransitPush, changes: ContentChanges?, now: Int64) {}
}
