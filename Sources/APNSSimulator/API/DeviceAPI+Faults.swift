import Configuration
import HTTP1

/// Faults by script of the APNs servers that belong to the API.
struct FaultRoutes: Sendable {
    /// Servers of both environments, which play the same timeline.
    let simulators: [Simulator]

    var routes: [APIRoute] {
        guard let first = simulators.first else { return [] }
        return [
            APIRoute("GET", "/api/faults") { _ throws(APIFault) in .response(.json(200, first.faults)) },
            APIRoute("PUT", "/api/faults") { request throws(APIFault) in try replace(request, first) },
        ]
    }

    private func replace(_ request: APIRequest, _ first: Simulator) throws(APIFault) -> HTTPAnswer {
        guard let text = String(validating: request.request.body, as: UTF8.self) else {
            throw APIFault(400, "the body is not UTF-8 text")
        }
        _ = try request.object()
        let timeline: FaultTimeline
        do throws(ConfigurationError) {
            timeline = try FaultTimeline.parse(text, name: "faults")
        } catch {
            throw APIFault(400, error.description)
        }
        do {
            for simulator in simulators { try simulator.replaceFaults(with: timeline) }
        } catch {
            throw APIFault(400, "\(error)")
        }
        return .response(.json(200, first.faults))
    }
}
