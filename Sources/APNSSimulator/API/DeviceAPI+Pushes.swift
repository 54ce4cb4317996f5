import DeviceModel
import EventLoop
import HTTP1

/// Pushes, attachments, waits and events.
extension DeviceAPI {
    static let waitParameters = [
        "device", "app", "identifier", "title", "body", "text", "level", "badge", "count", "apns-id", "fate",
        "activity", "online", "response", "gone", "timeout",
    ]

    var pushRoutes: [APIRoute] {
        [
            APIRoute(
                "GET", "/api/pushes", parameters: ["query", "device", "app", "fate", "before", "limit"]
            ) { [unowned self] request throws(APIFault) in try pushes(request.query) },
            APIRoute("GET", "/api/pushes/{push}") { [unowned self] request throws(APIFault) in
                try push(request.path[0])
            },
            APIRoute("GET", "/api/attachments/{id}") { [unowned self] request throws(APIFault) in
                try attachment(request.path[0])
            },
            APIRoute("GET", "/api/wait", parameters: Self.waitParameters) {
                [unowned self] request throws(APIFault) in try wait(request.query)
            },
            APIRoute("GET", "/api/events", parameters: ["after", "device"]) {
                [unowned self] request throws(APIFault) in try events(request)
            },
        ]
    }

    private func pushes(_ query: APIParameters) throws(APIFault) -> HTTPAnswer {
        var choice = PushQuery()
        choice.query = query.text("query")
        choice.device = try query.text("device").map { (text) throws(APIFault) in try device(text) }
        choice.app = query.text("app")
        choice.fate = query.text("fate")
        choice.before = try query.integer("before", in: 0...UInt64.max)
        choice.limit = try query.integer("limit", in: 1...Self.mostEntries) ?? choice.limit
        return .response(.json(200, registry.pushes(choice)))
    }

    private func push(_ text: String) throws(APIFault) -> HTTPAnswer {
        let found: PushView? = registry.read { world, _ in
            if let number = UInt64(text) { return world.push(number) }
            return world.push(apnsID: text)
        }
        guard let found else {
            throw APIFault(404, "no push of the journal has this number or apns-id; the oldest leave first")
        }
        return .response(.json(200, found))
    }

    private func attachment(_ text: String) throws(APIFault) -> HTTPAnswer {
        let id = UInt64(text) ?? UInt64.max
        let found: (type: String, bytes: [UInt8])? = registry.read { world, _ in
            guard let file = world.attachment(id) else { return nil }
            return (file.type, file.bytes)
        }
        guard let (type, bytes) = found else {
            throw APIFault(404, "there is no attachment `\(text)`; its notification is gone")
        }
        // The file was fetched from elsewhere, so that a browser must not run anything in it.
        return .response(
            HTTPResponse(status: 200, type: type, body: bytes)
                .with("Content-Security-Policy", "default-src 'none'; sandbox")
                .with("X-Content-Type-Options", "nosniff")
                .with("Cross-Origin-Resource-Policy", "same-origin")
                // Numbers begin anew with each start of the simulator.
                .with("Cache-Control", "no-store"))
    }

    // MARK: - Waiting

    /// Longest wait in seconds.
    static let longestWait = 60.0

    private func wait(_ query: APIParameters) throws(APIFault) -> HTTPAnswer {
        var condition = WaitCondition()
        condition.app = query.text("app")
        condition.identifier = query.text("identifier")
        condition.title = query.text("title")
        condition.body = query.text("body")
        condition.text = query.text("text")
        condition.level = query.text("level")
        condition.badge = try query.integer("badge", in: 0...Int(Int32.max))
        condition.count = try query.integer("count", in: 0...Int(Int32.max))
        condition.apnsID = query.text("apns-id")?.lowercased()
        condition.fate = query.text("fate")
        condition.activity = query.text("activity")
        condition.isOnline = try query.boolean("online")
        condition.response = query.text("response")
        condition.isAbsent = try query.boolean("gone")
        let seconds = try query.seconds("timeout", in: 0...Self.longestWait) ?? 10
        return .waiter(
            ConditionWaiter(
                registry: registry, condition: condition, device: query.text("device"), seconds: seconds,
                deadline: loop.now + .seconds(seconds)))
    }

    // MARK: - Events

    private func events(_ request: APIRequest) throws(APIFault) -> HTTPAnswer {
        let last = request.request["last-event-id"]
        var after = try request.query.integer("after", in: 0...UInt64.max - 1)
        if let last {
            guard let number = UInt64(last), number < UInt64.max else {
                throw APIFault(400, "Last-Event-ID: the number of an event")
            }
            after = number
        }
        let chosen = try request.query.text("device").map { (text) throws(APIFault) in try device(text) }
        var response = HTTPResponse(status: 200, type: "text/event-stream")
        response.fields += [
            ("Cache-Control", "no-store"), ("X-Content-Type-Options", "nosniff"),
            ("Cross-Origin-Resource-Policy", "same-origin"),
        ]
        return .stream(response, EventStream(registry: registry, after: after, device: chosen))
    }
}
