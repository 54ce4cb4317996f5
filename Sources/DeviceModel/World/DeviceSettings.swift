/// Limits and assumed rules of the model.
public struct DeviceSettings: Codable, Sendable, Equatable {
    /// Treatment of a token that no device has.
    public enum UnknownTokens: String, Codable, Sendable {
        /// A device appears, with the app of the push installed, launched and authorized.
        case adopt
        /// The push is answered with BadDeviceToken.
        case refuse
    }
    public var unknownTokens = UnknownTokens.adopt
    /// Most devices; further ones are refused, and unknown tokens are answered with BadDeviceToken.
    public var maximumDevices = 1_000_000
    /// Notifications that the delivered list of an app keeps; older ones are dropped.
    public var maximumDelivered = 100
    /// Pushes that the journal keeps.
    public var maximumPushes = 100_000
    /// Bytes of all delivered notifications, which are their payloads, texts, and 128 bytes each. The oldest ones are
    /// dropped.
    public var deliveredRoom = 512 << 20
    /// Bytes of the journal's pushes, which are their payloads and 256 bytes each. The oldest ones leave.
    public var journalRoom = 256 << 20
    /// Events that are kept for readers.
    public var maximumEvents = 100_000
    /// Longest time from the end of a token to 410, in milliseconds. The actual time is random.
    public var goneDelay: Int64 = 60_000
    /// Silent pushes that wake an app within an hour.
    public var wakesPerHour = 3
    /// Silent pushes that wake an app within a day.
    public var wakesPerDay = 48
    /// Longest time until a good moment for a push of priority 5 on a locked device, in milliseconds.
    public var goodMoment: Int64 = 30_000
    /// Time that a temporary banner is visible, in milliseconds.
    public var bannerTime: Int64 = 5_000
    /// Time of a service extension, in milliseconds.
    public var extensionTime: Int64 = 30_000
    /// Service extensions that run at once on all devices; further pushes are shown unchanged.
    public var maximumExtensionRuns = 10_000
    /// Largest attachment in bytes. The system's own limits of images, audio and movies hold besides.
    public var largestAttachment = 10 << 20
    /// Bytes of all attachments; the oldest attachments are dropped.
    public var attachmentRoom = 64 << 20
    /// Live Activities of an app that run at once on a device.
    public var maximumActivities = 5
    /// Live Activities of an app that pushes start on a device within an hour.
    public var activityStartsPerHour = 10
    /// Live Activity updates of priority 10 within an hour.
    public var activityUpdatesPerHour = 60
    /// The same with the setting for frequent updates.
    public var frequentUpdatesPerHour = 600
    /// Seed of tokens, names and random times.
    public var seed: UInt64 = 1

    public init() {}
}
