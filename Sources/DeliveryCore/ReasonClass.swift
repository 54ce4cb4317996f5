/// What an APNs answer asks of the gateway.
public enum ReasonClass: UInt8, CaseIterable, Sendable {
    case accepted, token, job, configuration, authentication, connection, later
}
/// Whether a push whose fate is unknown may be repeated.
public enum DuplicatePolicy: UInt8, CaseIterable, Sendable {
    case allow, avoid
}
/// `apns-priority`.
public enum Priority: UInt8, CaseIterable, Sendable {
    case immediate = 10
    case powerAware = 5
    case lowPower = 1
}
