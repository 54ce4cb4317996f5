import DeliveryCore
import SluiceModel

/// Values of a shard.
extension ShardProcess {
    /// A record from the intake.
    struct Incoming {
        var job: Int
        var offset: Int64
        var slot: UInt16
        var isReplay: Bool

        var place: RecordPlace { RecordPlace(partitionSlot: slot, offset: offset) }
    }

    /// A push, in a slot of the delivery machine or on its way to one.
    struct Held {
        var job = -1
        var slot: UInt16 = 0
        var offset: Int64 = 0
        /// The device token that it is for.
        var address = 0
        /// The token that it moves to when it is retried; -1: none.
        var noted = -1
        /// The token under which the changelog has it; -1: that of ``address``.
        var storedToken = -1
        var isRestored = false
        var isQueued = false

        var changelogKey: FleetItemKey {
            FleetItemKey(token: storedToken >= 0 ? storedToken : address, offset: offset)
        }
    }

    /// An item on its way to the shard of its device's new token.
    struct Migration {
        var held: Held
        var item: ItemMigration
        /// Nil: it may be taken over at once.
        var release: Release?

        /// Set by the shard that the item leaves, when the changelog has that shard's records of it.
        final class Release {
            var isReleased = false
        }

        var isReleased: Bool { release?.isReleased ?? true }
    }

    /// Orders to the shard's loop, in this order.
    enum Message {
        case request(ShardRequest)
        case begin(
            UInt16, FleetPart?, readThrough: Int64, earlierFrom: Int64, FleetCommitted, [Int64: APNSID])
        case awaited(UInt16, [Int])
        case found(UInt16, [DueItem])
        case scanned(UInt16)
        case batchEnded(FleetBatch, [FleetLoaded])
        case importItem(Migration)
        case released(DeviceKey)
    }

    /// Events that wait under a handle.
    enum Event {
        case record(Incoming)
        case migration(Migration)
        case change(Incoming)
    }

    /// A partition's part of the store.
    struct Stored {
        var part: FleetPart
        var committed: FleetCommitted
    }

    /// A request that APNs has, or has answered.
    struct Request {
        var slot: UInt32
        var answersAt: UInt64
    }

    /// A record that the order keeps.
    struct Output {
        var topic: KafkaModel.Topic
        /// The job of an outcome or a dead letter.
        var job: Int
        var word: FleetWord
        /// The outcome is `device-limit`: the job's device has no room for it.
        var isRefused = false
        /// Change of a changelog record; nil for other topics.
        var change: FleetChange?
        /// Partition of the changelog.
        var partition = 0
    }
}
