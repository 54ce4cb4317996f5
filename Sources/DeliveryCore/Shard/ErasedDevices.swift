import DequeModule
import SluiceModel

/// Devices whose data was erased last. Removals of their items follow when outcomes are acknowledged, or when attempts in
/// flight end, and then the removed bytes must leave the disk.
///
/// An entry ends after an hour, within which all pushes from before the erasure have ended. A device that is used again
/// afterwards needs no purge. Bounded: the earliest erasure is forgotten first. Pure; times are milliseconds since the
/// epoch.
public struct ErasedDevices: Sendable {
    private struct Entry: Sendable {
        var device: DeviceKey
        var erasedAt: Int64
    }

    /// Time of each device's last erasure.
    private var known: [DeviceKey: Int64] = [:]
    private var order = Deque<Entry>()
    private let capacity: Int

    /// Life of an entry, in milliseconds.
    static let life: Int64 = 3_600_000

    /// - Parameter capacity: most devices, 48 bytes each.
    public init(capacity: Int = 1 << 16) { self.capacity = max(1, capacity) }

    /// Records an erasure.
    public mutating func insert(_ device: DeviceKey, at now: Int64) {
        while let first = order.first, isOver(first.erasedAt, at: now) || order.count >= capacity {
            order.removeFirst()
            // A later erasure of the device has an entry of its own.
            if known[first.device] == first.erasedAt { known[first.device] = nil }
        }
        known[device] = now
        order.append(Entry(device: device, erasedAt: now))
    }

    /// Returns whether the device was erased within the last hour.
    @inlinable public func contains(_ device: DeviceKey, at now: Int64) -> Bool {
        !isEmpty && has(device, at: now)
    }

    /// True before the first erasure.
    public var isEmpty: Bool { known.isEmpty }

    @usableFromInline func has(_ device: DeviceKey, at now: Int64) -> Bool {
        known[device].map { !isOver($0, at: now) } ?? false
    }

    private func isOver(_ time: Int64, at now: Int64) -> Bool { now >= time && now - time > Self.life }
}
