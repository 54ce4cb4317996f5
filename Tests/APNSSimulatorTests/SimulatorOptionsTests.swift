import SluiceModel
import Testing

@testable import APNSSimulator

@Suite struct SimulatorOptionsTests {
    @Test func faultListIsParsed() throws {
        #expect(
            try SimulatorOptions.parseFaults("InternalServerError=0.01,TooManyRequests=0.005") == [
                .init(reason: .internalServerError, share: 0.01),
                .init(reason: .tooManyRequests, share: 0.005),
            ])
        #expect(try SimulatorOptions.parseFaults("").isEmpty)
    }

    @Test(arguments: [
        "NoSuchReason=0.1", "Shutdown", "Shutdown=1.5", "Shutdown=x", "Shutdown=0.6,Forbidden=0.6",
    ])
    func invalidFaultListIsRefused(text: String) {
        #expect(throws: SimulatorError.self) { try SimulatorOptions.parseFaults(text) }
    }

    @Test func deviceRuleListIsParsed() throws {
        #expect(
            try SimulatorOptions.parseDeviceRules("DEAD=Unregistered,bad0=BadDeviceToken") == [
                .init(prefix: "dead", reason: .unregistered), .init(prefix: "bad0", reason: .badDeviceToken),
            ])
    }

    @Test(arguments: ["xyz=Unregistered", "00", "00=Nothing"])
    func invalidDeviceRuleListIsRefused(text: String) {
        #expect(throws: SimulatorError.self) { try SimulatorOptions.parseDeviceRules(text) }
    }

    @Test func unusableOptionsAreRefused() {
        func refused(_ change: (inout SimulatorOptions) -> Void) -> Bool {
            var options = SimulatorOptions()
            change(&options)
            do {
                _ = try Simulator(options: options)
                return false
            } catch {
                return true
            }
        }
        #expect(refused { $0.threads = 0 })
        #expect(refused { $0.streamsBeforeToken = 0 })
        #expect(refused { $0.faults = [.init(reason: .shutdown, share: 2)] })
        #expect(refused { $0.faults = [.init(reason: .unknown, share: 0.1)] })
        #expect(refused { $0.deviceRules = [.init(prefix: "00", reason: .absent)] })
        #expect(refused { $0.address = "no address" })
        #expect(refused { $0.certificateDirectory = "/nonexistent/directory" })
        #expect(refused { $0.pushLog = .init(path: "/nonexistent/directory/log") })
        #expect(
            refused {
                $0.providerTokens = .keys([.init(keyID: "SHORT", teamID: "TEAM123456", key: .text(""))])
            })
        #expect(
            refused {
                $0.providerTokens = .keys([
                    .init(keyID: "KEY1234567", teamID: "TEAM123456", key: .file("/nonexistent"))
                ])
            })
    }
}
