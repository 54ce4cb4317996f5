import DeviceModel

/// All that the model has, as JSON lines: `{"kind": …, "value": …}`. Each line is true at its own time.
final class ExportStream: HTTPStreamSource {
    private enum Stage {
        case status, apps
        case devices(offset: Int)
        case tokens(offset: Int)
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
    private static let tokens = 10_000

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
            stage = .devices(offset: 0)
        case .devices(let offset):
            let (views, isLast) = devices(offset)
            add("device", views, &buffer)
            stage = isLast ? .tokens(offset: 0) : .devices(offset: offset + Self.portion)
        case .tokens(let offset):
            var query = TokenQuery()
            query.offset = offset
            query.limit = Self.tokens
            let choice = query
            let views = registry.read { world, _ in world.tokens(choice) }
            add("token", views, &buffer)
            stage = views.count < Self.tokens ? .pushes(before: nil) : .tokens(offset: offset + Self.tokens)
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

    private func devices(_ offset: Int) -> (views: [DeviceView], isLast: Bool) {
        var query = DeviceQuery()
        query.offset = offset
        query.limit = Self.portion
        let choice = query
        return registry.read { world, now in
            let page = world.devices(choice)
            return (
                page.items.compactMap { world.device($0.id, now: now) },
                offset + Self.portion >= page.total
            )
        }
    }

    private func add(_ kind: String, _ values: [some Encodable], _ buffer: inout [UInt8]) {
        for value in values {
            guard let json = try? JSONText.bytes(Line(kind: kind, value: value)) else { continue }
            buffer += json
            buffer.append(UInt8(ascii: "\n"))
        }
    }
}
