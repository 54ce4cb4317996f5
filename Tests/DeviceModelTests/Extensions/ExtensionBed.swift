import SluiceModel
import Testing

@testable import DeviceModel

/// World with a device whose app has a service extension.
struct ExtensionBed {
    static let bundle = "com.example.mail"
    static let key = String(repeating: "0f", count: 32)
    /// Base64 of 32 bytes: shorter data has no nonce and tag.
    static let sealed = String(repeating: "A", count: 40) + "AAA="

    var world: DeviceWorld
    let device: UInt32
    let token: String
    var now: Int64 = 1_000_000

    static func declaration() -> ServiceExtensionDeclaration {
        var declaration = ServiceExtensionDeclaration()
        declaration.key = key
        declaration.encryptedMember = "encrypted-content"
        declaration.attachmentMember = "attachment-url"
        return declaration
    }

    init(
        _ declaration: ServiceExtensionDeclaration? = ExtensionBed.declaration(),
        entitlements: [Entitlement] = [], settings: DeviceSettings = DeviceSettings()
    ) throws {
        var app = AppDeclaration(bundle: Self.bundle)
        app.serviceExtension = declaration
        app.entitlements = entitlements
        try self.init(app, settings: settings)
    }

    init(_ app: AppDeclaration, settings: DeviceSettings = DeviceSettings()) throws {
        world = DeviceWorld(apps: [app], settings: settings)
        device = try world.addDevice(now: now)
        token = try #require(world.tokens(TokenQuery()).first?.token)
    }

    /// Payload with an alert and members beside `aps`.
    static func payload(_ members: String = "", aps: String = "") -> String {
        let alert = #""alert":{"title":"T","subtitle":"S","body":"B"}"#
        return
            #"{"aps":{\#(alert),"mutable-content":1\#(aps.isEmpty ? "" : ",")\#(aps)}\#(members.isEmpty ? "" : ",")\#(members)}"#
    }

    /// Lets a push without `mutable-content` arrive, and starts the extension for it. Returns the push's number.
    @discardableResult
    mutating func run(_ payload: String) throws -> UInt64 {
        now += 1
        _ = world.push(
            token: token, topic: Self.bundle, payload: #"{"aps":{"alert":"before"}}"#, now: now)
        let number = world.journal.next - 1
        let record = try #require(world.journal[number])
        world.startExtension(
            TransitPush(
                number: number, apnsID: record.apnsID, at: now, device: device, app: 0, token: record.token,
                purpose: .alert, type: .alert, priority: .immediate, collapseID: nil, expires: Int64.max,
                payload: Array(payload.utf8)), now: now)
        return number
    }

    mutating func finish(_ work: DeviceWork, _ result: WorkResult) {
        now += 1
        world.finish(work.id, result, now: now)
    }

    mutating func pass(_ milliseconds: Int64) {
        now += milliseconds
        world.advance(to: now)
    }

    func rules(_ push: UInt64) -> [String] { world.push(push)?.steps.map(\.rule) ?? [] }

    /// Outcomes of the runs that have ended, in order.
    var receipts: [String] {
        world.events(after: 0, limit: 100_000).events.filter { $0.kind == .receipt }.compactMap(\.detail)
    }

    /// A run of the app's extension, apart from the world.
    static func bare(
        _ declaration: ServiceExtensionDeclaration, _ payload: String, now: Int64 = 0
    ) -> ExtensionRun {
        ExtensionRun(
            TransitPush(
                number: 1, apnsID: APNSID(high: 1, low: 1), at: now, device: 0, app: 0,
                token: TokenTable.none,
                purpose: .alert, type: .alert, priority: .immediate, collapseID: nil, expires: Int64.max,
                payload: Array(payload.utf8)), declaration, limit: 30_000, now: now)
    }
}
