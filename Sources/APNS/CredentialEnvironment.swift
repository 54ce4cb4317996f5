/// APNs environment of a device token and a credential (the app's `aps-environment` entitlement). TestFlight and App
/// Store builds are production.
public enum APNSEnvironment: String, Sendable, CaseIterable {
    case development
    case production

    /// Host for device pushes and broadcasts (APNs: "Sending notification requests to APNs").
    public var host: String {
        switch self {
        case .development: "api.sandbox.push.apple.com"
        case .production: "api.push.apple.com"
        }
    }

    /// Host for channel management (APNs: "Sending channel management requests to APNs").
    public var managementHost: String {
        switch self {
        case .development: "api-manage-broadcast.sandbox.push.apple.com"
        case .production: "api-manage-broadcast.push.apple.com"
        }
    }

    /// Port for channel management.
    public var managementPort: UInt16 {
        switch self {
        case .development: 2195
        case .production: 2196
        }
    }

    /// Port of HTTPS, on which APNs serves by default.
    public static let standardPort: UInt16 = 443
    /// Port of the same service, for firewalls that distinguish APNs from other HTTPS by the port.
    public static let alternativePort: UInt16 = 2197
}

/// A host and port with the APNs provider protocol: Apple's, a proxy's or a simulator's.
public struct APNSEndpoint: Sendable, Hashable, CustomStringConvertible {
    /// Name or address of the server.
    public let host: String
    public let port: UInt16

    /// Creates the endpoint of an Apple environment.
    public init(_ environment: APNSEnvironment, alternativePort: Bool = false) {
        host = environment.host
        port = alternativePort ? APNSEnvironment.alternativePort : APNSEnvironment.standardPort
    }

    /// Creates any other endpoint. Throws when the host or the port is invalid.
    public init(host: String, port: UInt16) throws(CredentialError) {
        guard !host.isEmpty, !host.utf8.contains(where: { $0 <= 0x20 || $0 == 0x2F || $0 == 0x7F }) else {
            throw CredentialError(
                field: "host", requirement: "must be a host name or address, without scheme and path")
        }
        guard port > 0 else {
            throw CredentialError(field: "port", requirement: "must be between 1 and 65535")
        }
        self.host = host
        self.port = port
    }

    public var description: String { host.utf8.contains(0x3A) ? "[\(host)]:\(port)" : "\(host):\(port)" }
}
