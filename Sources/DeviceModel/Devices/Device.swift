/// A device with its apps.
struct Device: Sendable {
    /// Name; nil for a name made of the number.
    var name: String?
    var state: Boxed<DeviceState>
    var installations: [Installation] = []
    /// Banner that is visible; nil: none.
    var banner: Surface?
    /// Incoming call; nil: none.
    var call: Call?
    /// Last push that reached APNs for the device, in milliseconds since 1970; 0: none.
    var lastPushAt: Int64 = 0
    /// Time of the summary that is scheduled, in milliseconds since 1970; 0: none.
    var summaryAt: Int64 = 0
    /// Ends of tokens that wait for the network; nil: none.
    var ends: Boxed<TokenEnds>?

    /// A notification on a surface until a time.
    struct Surface: Sendable {
        var app: UInt16
        /// Identifier of the request; nil: generated from `push`.
        var identifier: String?
        /// Number of the push; 0 for a local notification.
        var push: UInt64
        /// End of the surface in milliseconds since 1970; nil: it stays.
        var until: Int64?
    }

    struct Call: Sendable {
        var app: UInt16
        var push: UInt64
        var at: Int64
        var payload: [UInt8]
    }

    func name(_ id: UInt32) -> String { name ?? "Device \(id)" }

    func installation(_ app: UInt16) -> Int? { installations.firstIndex { $0.app == app } }
}

extension DeviceState {
    /// Whether a connection to APNs is possible.
    var isReachable: Bool { isPoweredOn && hasNetwork && !isInAirplaneMode }
}

/// An app on a device.
struct Installation: Sendable {
    /// Index of the app.
    var app: UInt16
    var state: AppState = .notRunning {
        didSet { if state.isRunning, !oldValue.isRunning { launches &+= 1 } }
    }
    /// Starts of the app's process, from 0 and again after the largest number.
    private(set) var launches: UInt16 = 0
    /// Environment of the tokens of a made-up device; nil: that of the declaration.
    var environment: PushEnvironment?
    var wasLaunched = false
    var authorization: Authorization = .notDetermined
    /// Whether the permission prompt waits for the user.
    var isAsking = false
    var settings: Boxed<NotificationSettings>
    var badge: Int32 = 0
    /// First token of the list; `TokenTable.none` without tokens.
    var firstToken: UInt32 = TokenTable.none
    var centre = NotificationCentre()
    var background = BackgroundBudget()
    /// Live Activities; nil: there were none.
    var activities: Boxed<ActivityList>?
    /// Responses that the app received, oldest first; bounded.
    var responses: [ResponseView] = []
    /// VoIP pushes in a row that the app did not report.
    var unreportedCalls: UInt8 = 0
}

extension AppState {
    /// Whether the app has a process.
    var isRunning: Bool { self == .foreground || self == .background }
}
