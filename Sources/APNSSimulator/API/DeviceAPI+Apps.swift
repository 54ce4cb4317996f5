import Configuration
import DeviceModel
import HTTP1

/// Apps and their declarations.
extension DeviceAPI {
    var appRoutes: [APIRoute] {
        [
            APIRoute("GET", "/api/apps") { [unowned self] _ throws(APIFault) in
                .response(.json(200, registry.read { world, _ in world.apps }))
            },
            APIRoute("GET", "/api/apps/{bundle}") { [unowned self] request throws(APIFault) in
                try app(request.path[0])
            },
            APIRoute("PUT", "/api/apps/{bundle}") { [unowned self] request throws(APIFault) in
                try declare(request)
            },
        ]
    }

    private func app(_ bundle: String) throws(APIFault) -> HTTPAnswer {
        let apps = registry.read { world, _ in world.apps }
        guard let app = apps.first(where: { $0.bundle == bundle }) else {
            throw APIFault(404, "there is no app `\(bundle)`")
        }
        return .response(.json(200, app))
    }

    private func declare(_ request: APIRequest) throws(APIFault) -> HTTPAnswer {
        let bundle = request.path[0]
        let body = try request.object()
        let app: AppDeclaration
        do throws(ConfigurationError) {
            app = try AppsFile.app(body, bundle: bundle)
        } catch {
            throw APIFault(400, error.description)
        }
        do throws(DeviceFault) {
            try registry.change { (world, now) throws(DeviceFault) in try world.declare(app, now: now) }
        } catch {
            throw APIFault(error)
        }
        return try self.app(bundle)
    }
}
