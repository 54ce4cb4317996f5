import APNS
import APNSSimulator
import Glibc
import HTTP2
import SluiceModel
import TestSupport
import Testing

@testable import sluice

/// Channel management against the simulator.
@Suite struct ChannelClientTests {
    /// Waits and texts that a client reports instead of waiting.
    final class Log {
        var waits: [Duration] = []
        var texts: [String] = []
    }

    private let log = Log()

    private func simulator(_ change: (inout SimulatorOptions) -> Void = { _ in }) throws -> Simulator {
        var options = SimulatorOptions()
        options.managementPort = 0
        change(&options)
        let simulator = try Simulator(options: options)
        simulator.start()
        return simulator
    }

    private func client(
        _ simulator: Simulator, app: String = "com.example.app", port: UInt16? = nil
    ) throws -> ChannelClient {
        let key = try SigningKey(pem: Array(CertificateAuthority(commonName: "key").privateKeyPEM.utf8))
        let source = ProviderTokenSource(
            TokenCredential(keyID: try KeyID("ABC123DEFG"), teamID: try TeamID("DEF123GHIJ"), key: key))
        var tls = ClientTLSOptions()
        tls.trust = .authorities(.text(simulator.authority.certificatePEM))
        let log = log
        return ChannelClient(
            client: RequestClient(
                host: "localhost", port: try #require(port ?? simulator.managementPort), tls: tls,
                authorization: try source.current(at: .now()).authorization),
            app: app, report: { log.texts.append($0) }, sleep: { log.waits.append($0) })
    }

    private func failure(_ body: () throws -> Void) throws -> ChannelError {
        try #require(throws: ChannelError.self, performing: body)
    }

    @Test func channelIsCreatedReadListedAndDeleted() throws {
        let simulator = try simulator()
        defer { simulator.stop() }
        let client = try client(simulator)
        #expect(try client.list() == [])
        let stored = try client.create(.newest)
        let unstored = try client.create(.none)
        #expect(try client.list() == [stored, unstored])
        #expect(try client.read(stored).storage == .newest)
        #expect(try client.read(unstored).storage == .none)
        #expect(try client.read(unstored).pushType == "LiveActivity")
        try client.delete(stored)
        #expect(try client.list() == [unstored])
        let failure = try failure { _ = try client.read(stored) }
        #expect(failure.kind == .refused(.channelNotRegistered))
        #expect(failure.status == .failure)
        #expect(failure.description.contains("sluice channels list"))
    }

    /// Ten thousand identifiers take more bytes than a stream's window.
    @Test func listOfAsManyChannelsAsAnAppMayHaveIsRead() throws {
        let simulator = try simulator()
        defer { simulator.stop() }
        let channels = (0..<10_000).compactMap { _ in
            simulator.createChannel(app: "com.example.app", storage: .none)
        }
        #expect(channels.count == 10_000)
        let client = try client(simulator)
        #expect(try client.list() == channels)
        #expect(try failure { _ = try client.create(.none) }.kind == .refused(.cannotCreateChannelConfig))
    }

    @Test func throttledRequestIsSentAgainAFewTimes() throws {
        let simulator = try simulator {
            $0.managementRequestsPerSecond = 0
            $0.retryAfterSeconds = 3
        }
        defer { simulator.stop() }
        let client = try client(simulator)
        let failure = try failure { _ = try client.create(.none) }
        #expect(failure.kind == .refused(.tooManyRequests))
        #expect(failure.description.contains("5 attempts have failed"))
        #expect(log.waits == [3, 3, 4, 8].map { .seconds($0) })
        #expect(log.texts[0] == "APNs answered TooManyRequests; next attempt in 3 s")
        #expect(simulator.summary.managementRequests == 5)
    }

    @Test func throttledRequestSucceedsInTheNextSecond() throws {
        let simulator = try simulator { $0.managementRequestsPerSecond = 1 }
        defer { simulator.stop() }
        var client = try client(simulator)
        let log = log
        client.sleep = { pause in
            log.waits.append(pause)
            let second = time(nil)
            try? eventually("the next second") { time(nil) > second }
        }
        let channels = try (0..<3).map { _ in try client.create(.none) }
        #expect(Set(channels).count == 3)
        #expect(simulator.summary.managementRequests == 3 + UInt64(log.waits.count))
    }

    @Test func refusalNamesReasonRequestAndRemedy() throws {
        let simulator = try simulator { $0.appsWithoutBroadcast = ["com.example.app"] }
        defer { simulator.stop() }
        let client = try client(simulator)
        let refused = try failure { _ = try client.create(.none) }
        #expect(refused.description.hasPrefix("APNs answered FeatureNotEnabled (apns-request-id "))
        #expect(refused.description.contains("broadcast capability"))
        let suffixed = try self.client(simulator, app: "com.example.app.push-type.liveactivity")
        #expect(try failure { _ = try suffixed.list() }.kind == .refused(.topicDisallowed))
    }

    @Test func portOfPushesIsNotThatOfChannels() throws {
        let simulator = try simulator()
        defer { simulator.stop() }
        let client = try client(simulator, port: simulator.port)
        let failure = try failure { _ = try client.create(.none) }
        #expect(failure.kind == .refused(.badPath))
        #expect(failure.description.contains("check --host and --port"))
    }

    @Test func serverThatCantBeReachedIsUnavailable() throws {
        let simulator = try simulator()
        let client = try client(simulator)
        simulator.stop()
        let failure = try failure { _ = try client.create(.none) }
        #expect(failure.kind == .unavailable)
        #expect(failure.status == .unavailable)
        #expect(failure.description.contains("localhost:"))
    }
}
