import DequeModule
import SluiceModel

/// Devices whose data was erased last. Removals of their items follow when outcomes are acknowledged, or when attempts in
/// flight end, and then the removed bytes must leave the disk.
///
/// Bounded: the earliest erasure is forgotten first. Records and pushes that haven't ended are fewer, so no removal
/// outlives its entry unless as many erasures follow. Pure.
public struct ErasedDevices: Sendable {
    private var known: Set<DeviceKey> = []
    private var order = Deque<DeviceKey>()
    private let capacity: Int

    /// - Parameter capacity: most devices, 16 bytes twice each.
    public init(capacity: Int = 1 << 16) { self.capacity = max(1, capacity) }

    /// Records an erasure.
    public mutating func insert(_ device: DeviceKey) {
        guard known.insert(device).inserted else { return }
        order.append(device)
        if order.count > capacity { known.remove(order.removeFirst()) }
    }

    /// Returns whether the device was among the last to be erased.
    @inlinable public func contains(_ device: DeviceKey) -> Bool { !isEmpty && has(device) }

    /// True before the first erasure.
    public var isEmpty: Bool { known.isEmpty }

    @usableFromInline func has(_ device: DeviceKey) -> Bool { known.contains(device) }
}
