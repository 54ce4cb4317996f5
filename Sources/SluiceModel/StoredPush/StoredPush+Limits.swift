extension StoredPush {
    /// Hexadecimal digits of a device token that the format has room for.
    public static let longestToken = 2 * Int(UInt8.max)

    /// Instants that the format takes, in milliseconds since the epoch. Sums and differences of them never overflow.
    public static let instants: ClosedRange<Int64> = -(1 << 53)...1 << 53

    /// Names the part by which this version can't send the push; nil when it can.
    ///
    /// A valid job always passes. A record of a newer version may exceed a limit of this one, after a roll-back. The
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
