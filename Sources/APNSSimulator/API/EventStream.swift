import DeviceModel
import HTTP1

/// Changes of the devices as server-sent events (HTML standard, 9.2).
final class EventStream: HTTPStreamSource {
    private let registry: DeviceRegistry
    /// Device whose events are sent; nil for all events.
    private let device: UInt32?
    /// Number of the last event that was sent or skipped.
    private var cursor: UInt64
    private var isFirst = true
    /// Whether the reader has missed events that it asked for.
    private var isLost = false

    private static let batch = 200

    /// - Parameter after: number of the last event that the reader knows; nil for events from now on.
    init(registry: DeviceRegistry, after: UInt64?, device: UInt32?) {
        self.registry = registry
        self.device = device
        let last = registry.read { world, _ in world.lastEvent }
        cursor = min(after ?? last, last)
        // A number from an earlier life of the simulator.
        if let after, after > last { isLost = true }
    }

    func fill(_ buffer: inout [UInt8]) -> HTTPStreamState {
        if isFirst {
            isFirst = false
            buffer += Array("retry: 1000\n\n".utf8)
        }
        let after = cursor
        let batch = registry.read { world, _ in world.events(after: after, limit: Self.batch) }
        if batch.lost || isLost { lost(before: batch.events.first?.number ?? batch.next + 1, &buffer) }
        isLost = false
        cursor = batch.next
        for event in batch.events where device == nil || event.device == nil || event.device == device {
            guard let json = try? JSONText.bytes(event) else { continue }
            buffer += Array("id: \(event.number)\nevent: \(event.kind.rawValue)\ndata: ".utf8)
            buffer += json
            buffer += Array("\n\n".utf8)
        }
        return batch.events.count < Self.batch ? .idle : .more
    }

    /// Reports that events before a number were dropped. The reader must read the state anew.
    private func lost(before number: UInt64, _ buffer: inout [UInt8]) {
        buffer += Array("id: \(number - 1)\nevent: lost\ndata: {\"next\":\(number)}\n\n".utf8)
    }

    func heartbeat(_ buffer: inout [UInt8]) {
        // The number lets a reader of few events resume near the end.
        buffer += Array("id: \(cursor)\n: alive\n\n".utf8)
    }
}
