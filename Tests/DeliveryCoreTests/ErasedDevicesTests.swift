import SluiceModel
import Testing

@testable import DeliveryCore

/// Devices whose removals need a purge.
@Suite("Erased devices") struct ErasedDevicesTests {
    private func device(_ number: UInt64) -> DeviceKey { DeviceKey(high: number, low: number << 32) }

    @Test func theEarliestErasureIsForgottenFirst() {
        var devices = ErasedDevices(capacity: 3)
        #expect(devices.isEmpty && !devices.contains(device(1)))
        for number in [1, 2, 1, 3] as [UInt64] { devices.insert(device(number)) }
        #expect((1...3).allSatisfy { devices.contains(device($0)) })
        devices.insert(device(4))
        #expect(!devices.contains(device(1)))
        #expect((2...4).allSatisfy { devices.contains(device($0)) })
        devices.insert(device(1))
        #expect(devices.contains(device(1)) && !devices.contains(device(2)))
    }
}
