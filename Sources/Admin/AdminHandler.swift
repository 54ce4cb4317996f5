import Configuration
import EventLoop
import HTTP1

/// Requests of the admin endpoint: judges them, and begins the search for their answers. Loop's thread, after its making.
final class AdminHandler: HTTPHandler {
    private let executor: LoopExecutor
    /// Hosts that requests may be meant for; nil at a socket of the file system, which no page of a browser reaches.
    private let hosts: AllowedHosts?
    private let access: AdminAccess
    private let refusedHosts: AdminCounter
    private let handling: Duration
    private let probes: Budget
    private let others: Budget
    private let routes: [String: AdminServer.Handler]
    private let commands: [String: AdminServer.Handler]

    /// Paths whose answers have a budget of their own, so that no other request keeps them waiting.
    private static let probePaths: Set<String> = ["/livez", "/readyz"]
    /// Paths whose answers are quick, so that a client may end its side of the connection before.
    private static let quickPaths = probePaths.union(["/metrics", "/store"])

    init(
        loop: EventLoop, routes: [String: AdminServer.Handler], commands: [String: AdminServer.Handler],
        hosts: AllowedHosts?, access: AdminAccess, refusedHosts: AdminCounter, limits: AdminServer.Limits
    ) {
        self.routes = routes
        self.commands = commands
        self.access = access
        executor = LoopExecutor(loop: loop)
        self.hosts = hosts
        self.refusedHosts = refusedHosts
        handling = limits.handling
        probes = Budget(limits.probes)
        others = Budget(limits.others)
    }

    func refuse(_ request: HTTPRequest, local: String?) -> HTTPResponse? {
        if let hosts, !hosts.allows(request.host, local: local) {
            refusedHosts.add()
            return AdminResponse.error(
                421,
                "the request is for host `\(request.host ?? "")`, which is not a known name of this worker: "
                    + "add the name to `admin.allowed-hosts`, or `*` for any host"
            ).response
        }
        if let site = request["sec-fetch-site"], site != "none", site != "same-origin" {
            return AdminResponse.error(
                403,
                "a page of another site sent the request; open the address in a tab of its own, or use curl"
            ).response
        }
        if commands[request.path] != nil {
            guard request.method == "POST" else {
                return AdminResponse.error(405, "only POST is allowed").response.with("Allow", "POST")
            }
            return access.refusal(authorization: request["authorization"])?.response
        }
        guard routes[request.path] != nil else {
            let paths = (Array(routes.keys) + commands.keys).sorted()
            return AdminResponse.json(404, ["error": "there is no such path", "paths": paths]).response
        }
        guard request.method == "GET" || request.method == "HEAD" else {
            return AdminResponse.error(405, "only GET and HEAD are allowed").response
                .with("Allow", "GET, HEAD")
        }
        return nil
    }

    func answer(_ request: HTTPRequest, of server: HTTPServer) -> HTTPAnswer {
        guard let route = routes[request.path] ?? commands[request.path] else {
            return .response(fault(HTTPFault(404, "no such path")))
        }
        guard let wanted = AdminRequest(request) else {
            return .response(fault(HTTPFault(400, "the query has a parameter twice")))
        }
        let budget = Self.probePaths.contains(request.path) ? probes : others
        guard budget.take() else {
            let busy = HTTPFault(503, "too many requests wait for an answer; retry when some have ended")
            return .response(fault(busy).with("Retry-After", "1"))
        }
        return .waiter(
            PendingAnswer(
                wanted, route, budget: budget, outlivesInput: Self.quickPaths.contains(request.path),
                deadline: server.loop.now + handling, executor, server))
    }

    func fault(_ fault: HTTPFault) -> HTTPResponse { AdminResponse.error(fault.status, fault.text).response }
}

/// Count of answers that may be under way. Loop's thread.
private final class Budget {
    private var left: Int

    init(_ most: Int) { left = most }

    /// Takes a place; returns false when there is none.
    func take() -> Bool {
        guard left > 0 else { return false }
        left -= 1
        return true
    }

    func giveBack() { left += 1 }
}

/// A request whose answer is being found. The end of its connection cancels the search.
private final class PendingAnswer: HTTPWaiter {
    let deadline: MonotonicTime
    let outlivesInput: Bool
    private let budget: Budget
    private let found: Found
    private let search: Task<Void, Never>

    /// The answer, once there is one. Loop's thread.
    // Sendable: the executor runs all that uses the response on the loop's thread.
    private final class Found: @unchecked Sendable {
        var response: AdminResponse?
    }

    init(
        _ request: AdminRequest, _ handler: @escaping AdminServer.Handler, budget: Budget,
        outlivesInput: Bool, deadline: MonotonicTime,
        _ executor: LoopExecutor, _ server: HTTPServer
    ) {
        self.budget = budget
        self.deadline = deadline
        self.outlivesInput = outlivesInput
        let found = Found()
        self.found = found
        search = Task(executorPreference: executor) {
            let response = await handler(request)
            executor.loop.execute {
                found.response = response
                server.pump()
            }
        }
    }

    // The server holds the answer alone, and drops it on the loop's thread.
    deinit {
        search.cancel()
        budget.giveBack()
    }

    func poll() -> HTTPResponse? { found.response?.response }

    func expired() -> HTTPResponse {
        AdminResponse.error(503, "the answer was not found in time").response
    }
}

/// Runs tasks on an event loop, so that they do not depend on the threads that Swift's tasks share.
private final class LoopExecutor: TaskExecutor {
    let loop: EventLoop

    init(loop: EventLoop) { self.loop = loop }

    func enqueue(_ job: consuming ExecutorJob) {
        let job = UnownedJob(job)
        let isAccepted = loop.execute { [self] in job.runSynchronously(on: asUnownedTaskExecutor()) }
        // The loop has ended. The task must still end, because it holds memory.
        if !isAccepted { job.runSynchronously(on: asUnownedTaskExecutor()) }
    }

    func asUnownedTaskExecutor() -> UnownedTaskExecutor { UnownedTaskExecutor(ordinary: self) }
}
