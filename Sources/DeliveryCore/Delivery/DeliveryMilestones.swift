import SluiceModel

/// Counts of items that arrived, of their states, and of their ends. The sums add up after every call:
/// ``isBalanced``.
public struct DeliveryMilestones: Sendable {
    /// Pushes handed in, however they ended.
    public internal(set) var received = 0
    /// Items restored from the store.
    public internal(set) var restored = 0
    /// Items taken over from other shards.
    public internal(set) var imported = 0
    /// Records that the machine had already, restored.
    public internal(set) var repeated = 0
    /// Items dropped without an outcome.
    public internal(set) var dropped = 0
    /// Items left to the store, which loads them when they are due or their device reports.
    public internal(set) var evicted = 0
    /// Items that moved to another shard with their device's new token.
    public internal(set) var departed = 0

    /// Requests handed to a connection.
    public internal(set) var sent = 0
    /// Failed attempts after which the item is retried.
    public internal(set) var retried = 0
    /// Puts that the store was asked for.
    public internal(set) var stored = 0
    /// Stops of topics, because APNs refused the credential, the topic or most device tokens.
    public internal(set) var stops = 0
    /// Times that a tenant's pushes beyond its share were parked.
    public internal(set) var parkings = 0
    /// Times that a tenant's pushes began to be parked so that records behind them are read.
    public internal(set) var readAheads = 0
    /// Cancels and device events taken in.
    public internal(set) var events = 0

    private var live = InlineArray<16, Int>(repeating: 0)
    private var ended = InlineArray<16, Int>(repeating: 0)

    /// Items in this state now.
    public subscript(state: ItemState) -> Int { live[Int(state.rawValue)] }

    /// Items with this kind of outcome.
    public subscript(kind: OutcomeKind) -> Int { ended[Int(kind.rawValue)] }

    /// Items between their arrival and their end.
    public var pending: Int {
        ItemState.allCases.reduce(0) { $1.isLive ? $0 + self[$1] : $0 }
    }

    /// Items that ended, with any outcome.
    public var finished: Int { OutcomeKind.allCases.reduce(0) { $0 + self[$1] } }

    /// Items that arrived and aren't accounted for; any value but 0 is an error.
    public var unaccounted: Int {
        received + restored + imported - (pending + finished + repeated + dropped + departed + evicted)
    }

    /// True when every item that arrived is pending, has ended, or was handed on.
    public var isBalanced: Bool { unaccounted == 0 }

    mutating func moved(from old: ItemState, to new: ItemState) {
        live[Int(old.rawValue)] -= 1
        live[Int(new.rawValue)] += 1
    }

    mutating func entered(_ state: ItemState) { live[Int(state.rawValue)] += 1 }

    mutating func exited(_ state: ItemState) { live[Int(state.rawValue)] -= 1 }

    mutating func ended(_ kind: OutcomeKind) { ended[Int(kind.rawValue)] += 1 }
}
