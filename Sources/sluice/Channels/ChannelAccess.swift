import APNS
import ArgumentParser
import Configuration
import Gateway

/// Options that name an app and its server of channel management.
struct ChannelOptions: ParsableArguments {
    @Option(
        name: [.short, .long],
        help: ArgumentHelp(
            "The worker's configuration file, with the app's credential; SLUICE_ variables override it. Without a file all "
                + "settings come from the environment.",
            valueName: "path"))
    var config: String?

    @Option(
        help: ArgumentHelp(
            "Name of an app of the configuration; not needed if it has one.", valueName: "name"))
    var app: String?

    @Option(
        help: ArgumentHelp("Bundle identifier; not needed if the app has one.", valueName: "bundle-id"))
    var bundleId: String?

    @Option(
        help: ArgumentHelp(
            "Environment of the channels: development or production. Default: that of the app's credential.",
            valueName: "environment"))
    var environment: APNSEnvironment?

    @Option(
        help: ArgumentHelp(
            "Server of channel management. Default: Apple's of the environment.", valueName: "host"))
    var host: String?

    @Option(
        help: ArgumentHelp(
            "Port of channel management. Default: 2195 in development, 2196 in production.", valueName: "port"
        ))
    var port: UInt16?

    @Flag(help: "Print one JSON document.")
    var json = false

    /// Returns the client that the options and the configuration describe.
    func access() throws -> ChannelAccess {
        try ChannelAccess(self, try loadConfiguration(config, .start).configuration)
    }
}

extension APNSEnvironment: ExpressibleByArgument {}

/// An app's access to its channels.
struct ChannelAccess {
    let client: ChannelClient
    /// Name of the environment, for people and documents: development, production or custom.
    let environment: String

    init(_ options: ChannelOptions, _ configuration: Configuration) throws {
        let app = try Self.app(options, configuration)
        let bundleIdentifier = try Self.bundleIdentifier(options, app)
        let credential = try Self.credential(options, configuration, app)
        let endpoint = configuration.endpoint(of: credential)
        let server = try Self.server(options, endpoint)
        environment = server.environment
        let client: RequestClient
        do throws(WorkerError) {
            client = try configuration.requestClient(for: credential, host: server.host, port: server.port)
        } catch {
            throw CommandFailure(error)
        }
        self.client = ChannelClient(client: client, app: bundleIdentifier) { text in
            Terminal.error("sluice: \(text)")
        }
    }

    private static func app(
        _ options: ChannelOptions, _ configuration: Configuration
    ) throws -> Configuration.App {
        let names = configuration.apps.map(\.name).joined(separator: ", ")
        if let name = options.app {
            guard let app = configuration.apps.first(where: { $0.name == name }) else {
                throw CommandFailure(
                    .configuration, "--app \(name): the configuration has no such app, but \(names)")
            }
            return app
        }
        if let bundle = options.bundleId {
            guard let app = configuration.apps.first(where: { $0.topics.contains(bundle) }) else {
                throw CommandFailure(
                    .configuration,
                    "--bundle-id \(bundle): no app of the configuration has this topic; the apps are \(names)"
                )
            }
            return app
        }
        guard configuration.apps.count == 1 else {
            throw CommandFailure(
                .configuration, "the configuration has several apps; name one with --app: \(names)")
        }
        return configuration.apps[0]
    }

    private static func bundleIdentifier(_ options: ChannelOptions, _ app: Configuration.App) throws -> String
    {
        let topics = app.topics.joined(separator: ", ")
        if let bundle = options.bundleId {
            guard app.topics.contains(bundle) else {
                throw CommandFailure(
                    .configuration, "--bundle-id \(bundle): app \(app.name) has other topics: \(topics)")
            }
            return bundle
        }
        guard app.topics.count == 1 else {
            throw CommandFailure(
                .configuration, "app \(app.name) has several topics; name one with --bundle-id: \(topics)")
        }
        return app.topics[0]
    }

    /// Returns the app's credential of the environment. A key without an environment of its own may serve both, so the
    /// first credential stands in for one that is missing.
    private static func credential(
        _ options: ChannelOptions, _ configuration: Configuration, _ app: Configuration.App
    ) throws -> Configuration.Credential {
        let credentials = configuration.credentials(of: app)
        let matching = credentials.first { credential in
            configuration.endpoint(of: credential).environment.rawValue == options.environment?.rawValue
        }
        guard let credential = matching ?? credentials.first else {
            throw CommandFailure(.configuration, "app \(app.name) has no credential")
        }
        return credential
    }

    private static func server(
        _ options: ChannelOptions, _ endpoint: Configuration.Endpoint
    ) throws -> (environment: String, host: String, port: Int) {
        let own = APNSEnvironment(rawValue: endpoint.environment.rawValue)
        if let apple = options.environment ?? own {
            return (
                apple.rawValue, options.host ?? apple.managementHost,
                Int(options.port ?? apple.managementPort)
            )
        }
        guard let port = options.port else {
            throw CommandFailure(
                .configuration,
                "the app's environment is custom; name the server of channel management with --port and, unless it is "
                    + "\(endpoint.host), --host")
        }
        return (endpoint.environment.rawValue, options.host ?? endpoint.host, Int(port))
    }
}
