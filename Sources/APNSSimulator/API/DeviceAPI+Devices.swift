import DeviceModel
import HTTP1

/// Devices, actions on them, and their tokens.
extension DeviceAPI {
    /// Most entries of a page.
    static let mostEntries = 500
    /// Most devices that a request adds.
    static let mostNewDevices = 100_000

    var deviceRoutes: [APIRoute] {
        [
            APIRoute(
                "GET", "/api/devices",
                parameters: ["offset", "limit", "query", "app", "filter", "sort"]
            ) { [unowned self] request throws(APIFault) in try devices(request.query) },
            APIRoute("POST", "/api/devices") { [unowned self] request throws(APIFault) in
                try addDevices(request)
            },
            APIRoute("GET", "/api/devices/{id}") { [unowned self] request throws(APIFault) in
                try view(device(request.path[0]))
            },
            APIRoute("DELETE", "/api/devices/{id}") { [unowned self] request throws(APIFault) in
                try removeDevice(device(request.path[0]))
            },
            APIRoute("POST", "/api/devices/{id}/actions") { [unowned self] request throws(APIFault) in
                try act(request)
            },
            APIRoute(
                "GET", "/api/tokens",
                parameters: ["device", "app", "purpose", "environment", "offset", "limit"]
            ) { [unowned self] request throws(APIFault) in try tokens(request.query) },
        ]
    }

    /// Device of a number or a device token.
    func device(_ text: String) throws(APIFault) -> UInt32 {
        // A token has at least 32 digits, a number at most ten.
        if text.utf8.count <= 10 {
            guard let id = UInt32(text) else {
                throw APIFault(404, "`\(text)` is neither a device's number nor a device token")
            }
            return id
        }
        guard let id = registry.read({ world, _ in world.device(ofToken: text.lowercased()) }) else {
            throw APIFault(404, "no device has this token")
        }
        return id
    }

    private func devices(_ query: APIParameters) throws(APIFault) -> HTTPAnswer {
        var choice = DeviceQuery()
        choice.offset = try query.integer("offset", in: 0...Int(Int32.max)) ?? 0
        choice.limit = try query.integer("limit", in: 0...Self.mostEntries) ?? choice.limit
        choice.query = query.text("query")
        choice.app = query.text("app")
        choice.filter = try query.choice("filter", of: DeviceQuery.Filter.self)
        choice.order = try query.choice("sort", of: DeviceQuery.Order.self) ?? .id
        return .response(.json(200, registry.devices(choice)))
    }

    private func view(_ id: UInt32) throws(APIFault) -> HTTPAnswer {
        guard let view = registry.read({ world, now in world.device(id, now: now) }) else {
            throw APIFault(404, "there is no device \(id)")
        }
        return .response(.json(200, view))
    }

    private struct NewDevices: Decodable {
        var name: String?
        var apps: [String]?
        var count: Int?
    }

    private func addDevices(_ request: APIRequest) throws(APIFault) -> HTTPAnswer {
        let new: NewDevices = try APIBody.decode(request.object(), members: ["name", "apps", "count"])
        let count = new.count ?? 1
        guard (1...Self.mostNewDevices).contains(count) else {
            throw APIFault(400, "count: a number from 1 to \(Self.mostNewDevices)")
        }
        return .work(DeviceAddition(registry: registry, name: new.name, apps: new.apps, count: count))
    }

    private func removeDevice(_ id: UInt32) throws(APIFault) -> HTTPAnswer {
        do throws(DeviceFault) {
            try registry.change { (world, now) throws(DeviceFault) in try world.removeDevice(id, now: now) }
        } catch {
            throw APIFault(error)
        }
        return .response(HTTPResponse(status: 204).with("Cache-Control", "no-store"))
    }

    private func act(_ request: APIRequest) throws(APIFault) -> HTTPAnswer {
        let id = try device(request.path[0])
        var body = try request.object()
        completeSettings(&body, of: id)
        let action: DeviceAction = try APIBody.decode(body, members: Self.actionMembers)
        do throws(DeviceFault) {
            try registry.change { (world, now) throws(DeviceFault) in
                try world.perform(action, on: id, now: now)
            }
        } catch {
            throw APIFault(error)
        }
        return try view(id)
    }

    static let actionMembers = [
        "action", "app", "identifier", "on", "text", "number", "choice", "settings", "focus", "request",
        "payload",
    ]

    /// Adds the members of `settings` and `focus` that a request omits: those of the app, and the defaults.
    private func completeSettings(_ body: inout JSONValue, of id: UInt32) {
        guard var members = body.members else { return }
        if let settings = members["settings"], let bundle = members["app"]?.string {
            let view = registry.read { world, now in world.device(id, now: now) }
            let present = view?.apps.first { $0.bundle == bundle }?.settings ?? NotificationSettings()
            members["settings"] = APIBody.value(present)?.merging(settings) ?? settings
        }
        if let focus = members["focus"], focus.members != nil {
            members["focus"] = APIBody.value(FocusState(name: "Focus"))?.merging(focus) ?? focus
        }
        body = .object(members)
    }

    private func tokens(_ query: APIParameters) throws(APIFault) -> HTTPAnswer {
        var choice = TokenQuery()
        choice.device = try query.text("device").map { (text) throws(APIFault) in try device(text) }
        choice.app = query.text("app")
        choice.purpose = try query.choice("purpose", of: TokenPurpose.self)
        choice.environment = try query.choice("environment", of: PushEnvironment.self)
        choice.offset = try query.integer("offset", in: 0...Int(Int32.max)) ?? 0
        choice.limit = try query.integer("limit", in: 0...100_000) ?? choice.limit
        let copy = choice
        return .response(.json(200, registry.read { world, _ in world.tokens(copy) }))
    }
}
