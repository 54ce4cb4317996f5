import SluiceModel

/// A push on its way from APNs to an app, with all that its delivery needs.
struct TransitPush: Sendable {
    /// Number in the journal.
    var number: UInt64
    var apnsID: APNSID
    /// Arrival at APNs in milliseconds since 1970.
    var at: Int64
    var device: UInt32
    var app: UInt16
    /// Index of the token; `TokenTable.none` for a broadcast.
    var token: UInt32
    /// Serial of the token, which may be forgotten while the push is stored.
    var tokenSerial: UInt32 = 0
    var purpose: TokenPurpose
    var type: PushType
    var priority: Priority
    var collapseID: String?
    /// First millisecond at which the push is no longer delivered.
    var expires: Int64
    var payload: [UInt8]
}
