/// Isolated pushes of a pool that are in flight.
///
/// A push may be the cause for which the other side ends connections. All pushes of such a connection are suspects,
/// and are sent again. A push that has lost two connections is *isolated*: it is sent on a connection for isolated
/// pushes, so that the others go on. Such a connection begins with one push at a time. Each answer clears a push and
/// makes room for one more. The end of the connection leaves room for one. Only a push that was alone there is its
/// cause.
struct Isolation: BitwiseCopyable {
    /// Connections that end with a push in flight before the push is isolated.
    static let losses: UInt8 = 2
    /// Most isolated pushes of a pool in flight at once.
    private static let mostInFlight = 100

    private(set) var inFlight = 0
    /// Most pushes in flight at once, from 1.
    private var most = 1
    /// True when the push in flight isn't alone, or wasn't alone before.
    private var hasCompany = false

    /// Pushes that may begin now; negative after a loss.
    var room: Int { most - inFlight }

    /// True when a single push is in flight, and has been alone since it began.
    var isAlone: Bool { inFlight == 1 && !hasCompany }

    mutating func begin() {
        inFlight += 1
        if inFlight > 1 { hasCompany = true }
    }

    mutating func end() {
        inFlight -= 1
        if inFlight == 0 { hasCompany = false }
    }

    mutating func answered() { most = min(most + 1, Self.mostInFlight) }

    mutating func lost() { most = 1 }
}

extension DeliveryMachine {
    /// Returns true when a push is sent on a connection for isolated pushes.
    public func isIsolated(_ slot: UInt32) -> Bool { items[Int(slot)].isIsolated }

    /// Returns how many more isolated pushes of a pool may begin.
    public func isolationRoom(_ pool: UInt16) -> Int { isolations[pool, default: Isolation()].room }

    /// Returns true when an item in flight is isolated, and alone on its connection.
    func isAloneOnConnection(_ slot: UInt32) -> Bool {
        items[Int(slot)].isIsolated && isolations[items[Int(slot)].pool]?.isAlone == true
    }

    /// Records an answer for an item that has lost connections: the item isn't the cause.
    mutating func endIsolation(_ slot: UInt32) {
        let item = items + Int(slot)
        if item.pointee.isIsolated { isolations[item.pointee.pool]?.answered() }
        item.pointee.losses = 0
    }

    /// Records that a connection has ended with an item, which has left it.
    /// - Returns: true when the item has ended so many connections alone that it isn't sent again.
    mutating func noteLoss(_ slot: UInt32, wasAlone: Bool) -> Bool {
        let item = items + Int(slot)
        guard item.pointee.isIsolated else {
            item.pointee.losses += 1
            if item.pointee.isIsolated {
                actions.append(.isolated(topic: item.pointee.topic))
            }
            return false
        }
        isolations[item.pointee.pool]?.lost()
        // A server that accepts nothing ends connections whatever they carry.
        guard wasAlone, isServed(item.pointee.pool, since: item.pointee.notBefore) else { return false }
        item.pointee.losses += 1
        return Int(item.pointee.losses) >= Int(Isolation.losses) + limits.isolatedAttempts
    }

    /// Returns true when APNs has accepted a push of the pool since a time of the monotonic clock.
    private func isServed(_ pool: UInt16, since time: UInt64) -> Bool {
        circuits.contains { $0.pool == pool && $0.accepted > time }
    }
}
