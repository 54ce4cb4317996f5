import EventLoop
import SluiceModel
import Synchronization

/// A channel of the simulator, as a test sees it.
public struct SimulatorChannel: Sendable, Equatable {
    public var storage: ChannelStorage
    /// Broadcasts that were accepted.
    public var published: UInt64
    /// Live Activities that were started with this channel.
    public var subscriptions: UInt64
    /// Subscriptions that received the stored broadcast at once.
    public var replayed: UInt64
    /// Payload of the stored broadcast; nil when none is stored, or it has expired.
    public var storedPayload: [UInt8]?
}

/// Owner of the channels, which all shards and the management listener share.
final class ChannelRegistry: Sendable {
    private let table: Mutex<ChannelTable>

    init(_ options: SimulatorOptions) {
        // Identifiers of one environment are not valid in the other.
        let environment: UInt64 = options.environment == .sandbox ? 0x5A4D_B0C5 : 0
        table = Mutex(ChannelTable(limits: options.channelLimits, seed: options.identifierSeed ^ environment))
    }

    func admit(app: String) -> Bool {
        table.withLock { $0.admit(app: app, now: wallClockMilliseconds()) }
    }

    func create(app: String, storage: ChannelStorage) -> String? {
        table.withLock { $0.create(app: app, storage: storage) }
    }

    func storage(app: String, _ identifier: String) -> ChannelStorage? {
        table.withLock { $0.channel(app: app, identifier)?.storage }
    }

    func delete(app: String, _ identifier: String) -> Bool {
        table.withLock { $0.delete(app: app, identifier) }
    }

    func list(app: String) -> [String] { table.withLock { $0.list(app: app) } }

    func publish(
        app: String, _ identifier: String, expiration: Int64, payload: UnsafeRawBufferPointer
    ) -> Reason {
        table.withLock {
            $0.publish(
                app: app, identifier, expiration: expiration, payload: payload, now: wallClockMilliseconds())
        }
    }

    func subscribe(app: String, _ identifier: String) -> Bool {
        table.withLock { $0.subscribe(app: app, identifier, now: wallClockMilliseconds()) }
    }

    func snapshot(app: String, _ identifier: String) -> SimulatorChannel? {
        let now = wallClockMilliseconds()
        return table.withLock { table in
            table.channel(app: app, identifier).map { channel in
                SimulatorChannel(
                    storage: channel.storage, published: channel.published,
                    subscriptions: channel.subscriptions, replayed: channel.replayed,
                    storedPayload: channel.stored.flatMap { $0.expires > now ? $0.payload : nil })
            }
        }
    }
}
