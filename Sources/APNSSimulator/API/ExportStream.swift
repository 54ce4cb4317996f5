import DeviceModel
import HTTP1

/// All that the model has, as JSON lines: `{"kind": …, "value": …}`. Each line is true at its own time.
final class ExportStream: HTTPStreamSource {
    private enum Stage {
        case status, apps
        case devices(from: UInt32)
        case tokens(from: UInt32)
        case pushes(before: UInt64?)
        case events(after: UInt64)
        case end
    }

    private struct Line<Value: Encodable>: Encodable {
        var kind: String
        var value: Value
    }

    private let registry: DeviceRegistry
    private let status: StatusView
    private var stage = Stage.status

    /// Entries of a part. Their views may be large.
    private static let portion = 50
    private static let tokens = 1_000

    init(registry: DeviceRegistry, status: StatusView) {
        self.registry = registry
        self.status = status
    }

    func heartbeat(_ buffer: inout [UInt8]) {}

    func fill(_ buffer: inout [UInt8]) -> HTTPStreamState {
        switch stage {
        case .status:
            add("status", [status], &buffer)
            stage = .apps
        case .apps:
            add("app", registry.read { world, _ in world.apps }, &buffer)
            stage = .devices(from: 0)
        case .devices(let first):
            let (views, next) = registry.read { world, now in
                world.devices(from: first, limit: Self.portion, now: now)
            }
            add("device", views, &buffer)
            stage = next.map { .devices(from: $0) } ?? .tokens(from: 0)
        case .tokens(let first):
            let (views, next) = registry.read { world, _ in world.tokens(from: first, limit: Self.tokens) }
            add("token", views, &buffer)
            stage = next.map { .tokens(from: $0) } ?? .pushes(before: nil)
        case .pushes(let before):
            var query = PushQuery()
            query.before = before
            query.limit = Self.portion
            let choice = query
            let views = registry.read { world, _ in world.pushes(choice) }
            add("push", views, &buffer)
            stage = views.last.map { .pushes(before: $0.number) } ?? .events(after: 0)
        case .events(let after):
            let batch = registry.read { world, _ in world.events(after: after, limit: Self.portion) }
            add("event", batch.events, &buffer)
            // Events that appear during the export belong to it only up to the end seen here.
            stage = batch.events.count < Self.portion ? .end : .events(after: batch.next)
        case .end: return .ended
        }
        return .more
    }

    private func add(_ kind: String, _ values: [some Encodable], _ buffer: inout [UInt8]) {
        for value in values {
            guard let json = try? JSONText.bytes(Line(kind: kind, value: value)) else { continue }
            buffer += json
            buffer.append(UInt8(ascii: "\n"))
        }
    }
}
