extension StoredPush {
    /// Most hexadecimal digits of a device token in the format.
    public static let longestToken = 2 * Int(UInt8.max)

    /// Valid instants of the format, in milliseconds since the epoch. Sums and differences of them never overflow.
    public static let instants: ClosedRange<Int64> = -(1 << 53)...1 << 53

    /// Part of the push that exceeds a limit of this version; nil when this version can send the push.
    ///
    /// A valid job always passes. After a roll-back, a record of a newer version may exceed a limit of this one. The
    /// frame layer, the scheduler and the table of jobs rely on these limits.
    public var unsendablePart: StoredPushError.Part? {
        if DeviceToken.violation(push.deviceToken) != nil { return .deviceToken }
        if push.topic.count > Topic.maximumLength || !Topic.isWellFormed(push.topic) { return .topic }
        if let identifier = push.collapseIdentifier, CollapseIdentifier.violation(identifier) != nil {
            return .collapseIdentifier
        }
        return (1...push.pushType.maximumPayloadSize).contains(push.payload.count) ? nil : .payload
    }
}
