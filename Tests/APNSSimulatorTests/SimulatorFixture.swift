import HTTP2
import TestSupport

@testable import APNSSimulator

/// A simulator with a known key, which stops with this object.
final class SimulatorFixture: Sendable {
    let simulator: Simulator
    let key: TestKey
    /// The token of all pushes, as a provider uses it.
    let token: String

    init(_ change: (inout SimulatorOptions, TestKey) -> Void = { _, _ in }) throws {
        key = try TestKey()
        token = key.token()
        var options = SimulatorOptions()
        options.providerTokens = .keys([key.simulatorKey])
        change(&options, key)
        simulator = try Simulator(options: options)
        simulator.start()
    }

    deinit { simulator.stop() }

    func connect(identity: IssuedCertificate? = nil) throws -> PushClient {
        try PushClient(port: simulator.port, authority: simulator.authority, identity: identity)
    }

    /// A push that is accepted.
    func good() -> PushRequestTemplate { .good(token: token) }
}
