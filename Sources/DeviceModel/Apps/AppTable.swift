/// Declared apps, and those that unknown topics have made.
struct AppTable: Sendable {
    /// Most apps. Further topics are not adopted.
    static let limit = 1_000

    private var apps: [AppDeclaration] = []
    private var bundles: [[UInt8]] = []
    private var indices: [String: UInt16] = [:]

    init(_ apps: [AppDeclaration]) {
        for app in apps { _ = declare(app) }
    }

    var declarations: [AppDeclaration] { apps }

    /// Adds or replaces an app. Returns nil at the limit.
    mutating func declare(_ app: AppDeclaration) -> UInt16? {
        if let index = indices[app.bundle] {
            apps[Int(index)] = app
            return index
        }
        guard apps.count < Self.limit else { return nil }
        let index = UInt16(apps.count)
        apps.append(app)
        bundles.append(Array(app.bundle.utf8))
        indices[app.bundle] = index
        return index
    }

    func find(_ bundle: String) -> UInt16? { indices[bundle] }

    subscript(index: UInt16) -> AppDeclaration {
        _read { yield apps[Int(index)] }
    }

    /// Whether bytes are an app's bundle identifier.
    func isBundle(_ index: UInt16, _ bytes: Slice<UnsafeRawBufferPointer>) -> Bool {
        bundles[Int(index)].elementsEqual(bytes)
    }
}
