import SluiceModel
import Testing

@testable import DeliveryCore

/// Devices whose removals need a purge.
@Suite("Erased devices") struct ErasedDevicesTests {
    private func device(_ number: UInt64) -> DeviceKey { DeviceKey(high: number, low: number << 32) }

    @Test func theEarliestErasureIsForgottenFirst() {
        var devices = ErasedDevices(capacity: 3)
        #expect(devices.isEmpty && !devices.contains(device(1), at: 0))
        for number in 1...3 as ClosedRange<UInt64> { devices.insert(device(number), at: Int64(number)) }
        #expect((1...3).allSatisfy { devices.contains(device($0), at: 3) })
        devices.insert(device(4), at: 4)
        #expect(!devices.contains(device(1), at: 4))
        #expect((2...4).allSatisfy { devices.contains(device($0), at: 4) })
        devices.insert(device(1), at: 5)
        #expect(devices.contains(device(1), at: 5) && !devices.contains(device(2), at: 5))
    }

    /// A device that is used again is no longer an erased one.
    @Test func entriesEndAfterAnHour() {
        var devices = ErasedDevices()
        devices.insert(device(1), at: 1_000)
        devices.insert(device(1), at: 2_000)
        devices.insert(device(2), at: 3_000)
        #expect(devices.contains(device(1), at: 2_000 + ErasedDevices.life))
        #expect(!devices.contains(device(1), at: 2_001 + ErasedDevices.life))
        #expect(devices.contains(device(2), at: 2_001 + ErasedDevices.life))
        // A clock that was set back ends nothing early.
        #expect(devices.contains(device(2), at: 0))
        devices.insert(device(3), at: 4_000 + ErasedDevices.life)
        #expect(!devices.contains(device(2), at: 0) && devices.contains(device(3), at: 0))
    }
}
