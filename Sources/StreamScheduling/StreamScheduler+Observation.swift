import SluiceModel

/// Figures for operators, and for a pool that decides about growth.
extension StreamScheduler {
    /// Notifications waiting in all classes, including blocked apps.
    public var waiting: Int { queues.waiting }

    /// Notifications assigned and not ended.
    public var assigned: Int { queues.assigned }

    /// Whether a waiting notification may be sent, as of the last decision; blocked apps don't count.
    public var hasEligible: Bool { queues.active != 0 }

    /// Returns an app with waiting notifications that may send and for which `isWanted` returns true; nil when there is none.
    public func eligibleApp(where isWanted: (UInt32) -> Bool) -> UInt32? {
        queues.eligibleApp(where: isWanted)
    }

    /// Returns the number of notifications waiting in one class.
    public func depth(_ priority: Priority) -> Int { queues.rings[Self.level(priority)].waiting }

    /// Returns the number of notifications of one app waiting in one class; 0 for an app that doesn't exist.
    public func depth(app: UInt32, _ priority: Priority) -> Int {
        Int(app) < queues.capacity ? Int(queues.queue(UInt16(app), Self.level(priority)).pointee.count) : 0
    }

    /// Returns how long the next notification of a class has waited, in nanoseconds; nil when none that may be sent
    /// waits. The age of one app; because apps take turns, it is a sample of all waits. O(1): suited to decide about
    /// growth.
    public func nextAge(_ priority: Priority, now: UInt64) -> UInt64? {
        let level = Self.level(priority)
        let app = queues.rings[level].current
        return app == AppQueues.none ? nil : age(app, level, now: now)
    }

    /// Returns the longest wait of any app's first notification in one class, in nanoseconds; nil when none waits.
    /// Checks every app, including blocked apps: for reports.
    public func oldestAge(_ priority: Priority, now: UInt64) -> UInt64? {
        let level = Self.level(priority)
        guard queues.rings[level].waiting > 0 else { return nil }
        var oldest: UInt64?
        for app in 0..<queues.capacity {
            guard let age = age(UInt16(app), level, now: now) else { continue }
            oldest = max(oldest ?? 0, age)
        }
        return oldest
    }

    /// Returns how long the first notification of one app in one class has waited, in nanoseconds; nil when none waits.
    public func oldestAge(app: UInt32, _ priority: Priority, now: UInt64) -> UInt64? {
        Int(app) < queues.capacity ? age(UInt16(app), Self.level(priority), now: now) : nil
    }

    private func age(_ app: UInt16, _ level: Int, now: UInt64) -> UInt64? {
        let queue = queues.queue(app, level)
        guard queue.pointee.count > 0 else { return nil }
        let since = queues.nodes[Int(queue.pointee.head)].since
        return now > since ? now - since : 0
    }

    /// Returns the app of the notification that the slot has or had last.
    public func lastApp(slot: UInt32) -> UInt32 {
        Int(slot) < queues.slots ? UInt32(queues.nodes[Int(slot)].app) : 0
    }

    /// Returns the number of one app's notifications that are assigned and not ended.
    public func inFlight(app: UInt32) -> Int {
        Int(app) < queues.capacity ? Int(queues.apps[Int(app)].inFlight) : 0
    }

    /// Apps that have waiting notifications and may not send.
    public var blockedApps: BlockedApps { queues.blocked }

    /// Returns the current or last class of `slot`.
    public func priority(slot: UInt32) -> Priority {
        switch queues.nodes[Int(slot)].level {
        case 0: .immediate
        case 1: .powerAware
        default: .lowPower
        }
    }

    /// Returns whether `slot` waits in this scheduler.
    public func isWaiting(slot: UInt32) -> Bool { queues.state(of: slot) == .waiting }

    /// Returns whether `slot` is assigned in this scheduler and has not ended.
    public func isAssigned(slot: UInt32) -> Bool { queues.state(of: slot) == .assigned }

    /// Number of connections that could accept a notification now.
    public var placeableConnections: Int { connections.placeable }

    /// Returns the number of notifications in flight on one connection, as reported and assigned.
    public func inFlight(_ connection: UInt32) -> Int { connections.inFlight(connection) }
}
