import SluiceModel

/// What an operator sees, and what a pool grows by.
extension StreamScheduler {
    /// Notifications waiting, all classes, those of parked apps included.
    public var waiting: Int { queues.waiting }

    /// Notifications assigned and not ended.
    public var assigned: Int { queues.assigned }

    /// Whether something waits that may go now, as of the last decision: parked apps don't count.
    public var hasEligible: Bool { queues.active != 0 }

    /// Notifications waiting in one class.
    public func depth(_ priority: Priority) -> Int { queues.rings[Self.level(priority)].waiting }

    /// Notifications waiting of one app in one class; 0 for an app that doesn't exist.
    public func depth(app: UInt32, _ priority: Priority) -> Int {
        Int(app) < queues.capacity ? Int(queues.queue(UInt16(app), Self.level(priority)).pointee.count) : 0
    }

    /// How long the notification that is next in its class has waited, in nanoseconds; nil when none waits that may go.
    /// One app's, but as apps take turns, a sample of what all wait. O(1): what to grow by.
    public func nextAge(_ priority: Priority, now: UInt64) -> UInt64? {
        let level = Self.level(priority)
        let app = queues.rings[level].current
        return app == AppQueues.none ? nil : age(app, level, now: now)
    }

    /// The longest that the first notification of any app has waited in one class, in nanoseconds; nil when none waits.
    /// Looks at every app, parked ones included: for reports.
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

    /// How long the first notification of one app in one class has waited, in nanoseconds; nil when none waits.
    public func oldestAge(app: UInt32, _ priority: Priority, now: UInt64) -> UInt64? {
        Int(app) < queues.capacity ? age(UInt16(app), Self.level(priority), now: now) : nil
    }

    private func age(_ app: UInt16, _ level: Int, now: UInt64) -> UInt64? {
        let queue = queues.queue(app, level)
        guard queue.pointee.count > 0 else { return nil }
        let since = queues.nodes[Int(queue.pointee.head)].since
        return now > since ? now - since : 0
    }

    /// Notifications of one app that are assigned and not ended.
    public func inFlight(app: UInt32) -> Int {
        Int(app) < queues.capacity ? Int(queues.apps[Int(app)].inFlight) : 0
    }

    /// Apps that wait and may not send.
    public var parkedApps: ParkedApps { queues.parked }

    /// The class that `slot` is in, or was in last.
    public func priority(slot: UInt32) -> Priority {
        switch queues.nodes[Int(slot)].level {
        case 0: .immediate
        case 1: .powerAware
        default: .lowPower
        }
    }

    /// Whether `slot` waits here.
    public func isWaiting(slot: UInt32) -> Bool { queues.state(of: slot) == .waiting }

    /// Whether `slot` is assigned here and has not ended.
    public func isAssigned(slot: UInt32) -> Bool { queues.state(of: slot) == .assigned }

    /// Connections that could take a notification now.
    public var placeableConnections: Int { connections.placeable }

    /// Notifications in flight on one connection, as far as reported and assigned.
    public func inFlight(_ connection: UInt32) -> Int { connections.inFlight(connection) }
}
