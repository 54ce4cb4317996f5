import SluiceModel

/// Push that has passed APNs' checks. Its slices are valid within the call that hands it over.
public struct ArrivedPush {
    /// Device token in hexadecimal text.
    public var token: UnsafeRawBufferPointer
    public var environment: PushEnvironment
    public var topic: UnsafeRawBufferPointer
    public var type: PushType
    public var priority: Priority
    /// `apns-expiration` in seconds since 1970; nil without the header.
    public var expiration: Int64?
    public var collapseID: UnsafeRawBufferPointer?
    public var apnsID: APNSID
    public var payload: UnsafeRawBufferPointer

    public init(
        token: UnsafeRawBufferPointer, environment: PushEnvironment, topic: UnsafeRawBufferPointer,
        type: PushType, priority: Priority, expiration: Int64?, collapseID: UnsafeRawBufferPointer?,
        apnsID: APNSID, payload: UnsafeRawBufferPointer
    ) {
        self.token = token
        self.environment = environment
        self.topic = topic
        self.type = type
        self.priority = priority
        self.expiration = expiration
        self.collapseID = collapseID
        self.apnsID = apnsID
        self.payload = payload
    }
}

/// Broadcast that APNs has published to a channel. Its slices are valid within the call that hands it over.
public struct ArrivedBroadcast {
    /// Bundle identifier of the app.
    public var app: UnsafeRawBufferPointer
    public var channel: UnsafeRawBufferPointer
    public var environment: PushEnvironment
    public var priority: Priority
    /// `apns-expiration` in seconds since 1970.
    public var expiration: Int64
    /// Whether the channel stores the newest broadcast for devices that are unreachable.
    public var isStored: Bool
    public var apnsID: APNSID
    public var payload: UnsafeRawBufferPointer

    public init(
        app: UnsafeRawBufferPointer, channel: UnsafeRawBufferPointer, environment: PushEnvironment,
        priority: Priority, expiration: Int64, isStored: Bool, apnsID: APNSID, payload: UnsafeRawBufferPointer
    ) {
        self.app = app
        self.channel = channel
        self.environment = environment
        self.priority = priority
        self.expiration = expiration
        self.isStored = isStored
        self.apnsID = apnsID
        self.payload = payload
    }
}

/// Answer of APNs to a push, as far as the devices decide it.
public enum PushAnswer: Sendable, Equatable {
    case accepted
    /// `since` is the timestamp of a 410 in milliseconds since 1970; nil for other reasons.
    case refused(Reason, since: Int64?)
}

/// Work that needs an effect. The result returns through ``DeviceWorld/finish(_:_:now:)``.
public struct DeviceWork: Sendable, Equatable {
    public enum Kind: Sendable, Equatable {
        /// AES-GCM: `data` is a nonce of 12 bytes, the cipher text, and a tag of 16 bytes.
        case decrypt(key: [UInt8], data: [UInt8])
        /// Fetches a file over HTTP. Hosts beyond loopback must be listed.
        case fetch(url: String, allowedHosts: [String])
    }
    public var id: UInt64
    public var kind: Kind
}

public enum WorkResult: Sendable, Equatable {
    case decrypted([UInt8])
    /// `type` is the MIME type that the file's content has.
    case fetched(type: String, bytes: [UInt8])
    /// Cause in a sentence.
    case failed(String)
}
