import SluiceModel
import Testing

@testable import DeviceModel

@Suite struct DeviceMemoryTests {
    /// A million devices with a delivered notification each must fit into a gibibyte with room for the rest. The sum is of
    /// the layouts, because other tests allocate at the same time.
    @Test func aDeviceWithANotificationTakesAtMost900Bytes() {
        let payload =
            #"{"aps":{"alert":{"title":"Breaking news","body":"Something has happened"},"badge":1}}"#
        // Arrays of a million elements have 2^20 places; a hash table has 2^21.
        let places = Double(1 << 20) / 1_000_000
        let inTables =
            Double(MemoryLayout<Device?>.stride + MemoryLayout<TokenRecord>.stride) * places
            + Double(MemoryLayout<DeviceKey>.stride + MemoryLayout<UInt32>.stride) * places * 2
            // The order of arrivals may have an entry that has left beside each other one.
            + Double(MemoryLayout<ArrivalOrder.Entry>.stride) * places * 2
        let onHeap =
            Self.array(MemoryLayout<Installation>.stride)
            + Self.array(MemoryLayout<DeliveredNotification>.stride) + Self.array(payload.utf8.count)
            // The bytes of the token.
            + Self.array(32)
        let bytes = Int(inTables) + onHeap
        #expect(bytes <= 900, "\(bytes) bytes")
        #expect(MemoryLayout<DeliveredNotification>.stride <= 72)
    }

    /// Bytes of an array on the heap: the array's header of 32, the allocator's header of 8, in steps of 16.
    private static func array(_ bytes: Int) -> Int { (32 + bytes + 8 + 15) / 16 * 16 }
}
