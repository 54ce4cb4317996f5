import DeviceModel
import EventLoop
import HTTP1

/// The HTTP API of the devices, and the page. Used on its server's loop only, after init.
final class DeviceAPI: HTTPHandler {
    let registry: DeviceRegistry
    let facts: SimulatorFacts
    private let access: APIAccess
    private(set) var routes: [APIRoute] = []
    let loop: EventLoop

    init(
        registry: DeviceRegistry, loop: EventLoop, access: APIAccess, facts: SimulatorFacts,
        more: [APIRoute] = []
    ) {
        self.registry = registry
        self.loop = loop
        self.access = access
        self.facts = facts
        routes = [
            APIRoute("GET", "/api/status") { [unowned self] request throws(APIFault) in try status(request) },
            APIRoute("GET", "/api/rules") { _ throws(APIFault) in .response(.json(200, DeviceWorld.rules)) },
            APIRoute("POST", "/api/reset") { [unowned self] _ throws(APIFault) in reset() },
            APIRoute("GET", "/api/export") { [unowned self] _ throws(APIFault) in export() },
        ]
        routes += appRoutes + deviceRoutes + pushRoutes + more
    }

    func refuse(_ request: HTTPRequest, local: String?) -> HTTPResponse? {
        access.refuse(request, local: local)
    }

    func fault(_ fault: HTTPFault) -> HTTPResponse { .error(fault.status, fault.text) }

    func answer(_ request: HTTPRequest, of server: HTTPServer) -> HTTPAnswer {
        let method = request.method == "HEAD" ? "GET" : request.method
        var allowed: [String] = []
        for route in routes {
            guard let path = route.match(request.segments) else { continue }
            allowed.append(route.method)
            guard route.method == method else { continue }
            do throws(APIFault) {
                let query = try APIParameters(request.query, known: route.parameters)
                return try route.handler(APIRequest(request: request, path: path, query: query))
            } catch {
                return .response(error.response)
            }
        }
        if !allowed.isEmpty { return .response(Self.notAllowed(allowed)) }
        if !request.isAPI, let file = PageFiles.response(request.path) {
            return .response(method == "GET" ? file : Self.notAllowed(["GET"]))
        }
        return .response(.error(404, "there is no such path; `Schemas/simulator.openapi.yaml` lists them"))
    }

    private static func notAllowed(_ methods: [String]) -> HTTPResponse {
        let list = methods.joined(separator: ", ")
        return HTTPResponse.error(405, "the path allows \(list)").with("Allow", list)
    }

    // MARK: - The simulator as a whole

    private func status(_ request: APIRequest) throws(APIFault) -> HTTPAnswer {
        .response(.json(200, statusView))
    }

    var statusView: StatusView {
        let (world, settings) = registry.read { world, now in (world.status(now: now), world.settings) }
        return StatusView(
            version: facts.version, productionPort: facts.productionPort, sandboxPort: facts.sandboxPort,
            environments: facts.environments, anyKey: facts.takesAnyKey, faults: facts.hasFaults,
            hints: StatusView.Hints(bootstrapServers: facts.bootstrapServers), world: world,
            settings: settings)
    }

    private func reset() -> HTTPAnswer {
        registry.change { world, now in world.reset(now: now) }
        return .response(.json(200, statusView))
    }

    private func export() -> HTTPAnswer {
        var response = HTTPResponse(status: 200, type: "application/x-ndjson")
        response.fields += [
            ("Cache-Control", "no-store"), ("X-Content-Type-Options", "nosniff"),
            ("Content-Disposition", "attachment; filename=\"simulator.jsonl\""),
        ]
        return .stream(response, ExportStream(registry: registry, status: statusView))
    }
}

/// Facts about the simulator that the API reports.
public struct SimulatorFacts: Sendable {
    /// Version of the program.
    public var version: String
    /// Port of the environment `production`; nil when it is not served.
    public var productionPort: UInt16?
    /// Port of the environment `sandbox`; nil when it is not served.
    public var sandboxPort: UInt16?
    /// Kafka's bootstrap servers for the commands that the page shows; nil when they are not known.
    public var bootstrapServers: String?
    /// Whether provider tokens of any key are accepted, so that a signature of no real key does.
    var takesAnyKey = false
    /// Whether faults can be read and replaced.
    var hasFaults = false

    /// Environments that are served.
    var environments: [PushEnvironment] {
        (productionPort == nil ? [] : [.production]) + (sandboxPort == nil ? [] : [.sandbox])
    }

    public init(version: String, productionPort: UInt16? = nil, sandboxPort: UInt16? = nil) {
        self.version = version
        self.productionPort = productionPort
        self.sandboxPort = sandboxPort
    }
}

/// Answer of `GET /api/status`.
struct StatusView: Codable, Sendable {
    var version: String
    var productionPort: UInt16?
    var sandboxPort: UInt16?
    /// Environments that are served.
    var environments: [PushEnvironment]
    /// Whether provider tokens of any key are accepted.
    var anyKey: Bool
    var faults: Bool
    var hints: Hints
    var world: WorldStatus
    var settings: DeviceSettings

    /// Facts about the surroundings, for commands to copy.
    struct Hints: Codable, Sendable {
        /// Kafka's bootstrap servers; nil when they are not known.
        var bootstrapServers: String?
    }
}
