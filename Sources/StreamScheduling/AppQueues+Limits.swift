/// Limits of apps: parking, and the return to the rings.
extension AppQueues {
    /// Whether the app exists. Allocates missing records up to the app.
    @inline(__always)
    mutating func hasRecord(_ app: UInt32) -> Bool {
        Int(app) < capacity || grow(toHold: Int(app))
    }

    static func allocate(_ capacity: Int) -> UnsafeMutablePointer<App> {
        let stride = MemoryLayout<App>.stride
        return UnsafeMutableRawPointer.allocate(byteCount: max(1, capacity) * stride, alignment: 64)
            .bindMemory(to: App.self, capacity: max(1, capacity))
    }

    private mutating func grow(toHold app: Int) -> Bool {
        guard app < limit else { return false }
        let larger = min(limit, max(16, 2 * capacity, app + 1))
        let moved = Self.allocate(larger)
        moved.moveInitialize(from: apps, count: capacity)
        (moved + capacity).initialize(repeating: App(), count: larger - capacity)
        apps.deallocate()
        apps = moved
        let before = capacity
        capacity = larger
        if let old = buckets {
            buckets = nil
            makeBuckets()
            buckets!.update(from: old, count: before)
            old.deallocate()
        }
        return true
    }

    private mutating func makeBuckets() {
        guard buckets == nil else { return }
        let made = UnsafeMutablePointer<TokenBucket>.allocate(capacity: capacity)
        made.initialize(repeating: TokenBucket(ratePerSecond: 1, burst: 1), count: capacity)
        buckets = made
        wakes.reserve(capacity)
    }

    // MARK: Changes

    mutating func setLimits(app number: UInt32, _ limits: AppLimits, now: UInt64) -> Bool {
        guard limits.isValid, hasRecord(number) else { return false }
        let app = UInt16(truncatingIfNeeded: number)
        let record = apps + Int(app)
        record.pointee.weight = UInt16(limits.weight)
        for level in 0..<Self.levels where rings[level].current == app {
            rings[level].deficit = min(rings[level].deficit, UInt32(limits.weight))
        }
        setMaximumInFlight(app, limits.maximumInFlight ?? .max)
        dropWake(app)
        guard let rate = limits.ratePerSecond else {
            record.pointee.hasRate = false
            unblock(app, Block.paced)
            return true
        }
        makeBuckets()
        if record.pointee.hasRate {
            buckets![Int(app)].change(ratePerSecond: rate, burst: limits.burst, now: now)
        } else {
            buckets![Int(app)] = TokenBucket(ratePerSecond: rate, burst: limits.burst)
            record.pointee.hasRate = true
        }
        if buckets![Int(app)].availableAt > now {
            block(app, Block.paced)
        } else {
            unblock(app, Block.paced)
        }
        return true
    }

    mutating func setMaximumInFlight(_ app: UInt16, _ maximum: Int) {
        let record = apps + Int(app)
        record.pointee.maximumInFlight = UInt32(clamping: maximum)
        if record.pointee.inFlight >= record.pointee.maximumInFlight {
            block(app, Block.capped)
        } else {
            unblock(app, Block.capped)
        }
    }

    mutating func setPaused(app number: UInt32, _ isPaused: Bool) -> Bool {
        guard hasRecord(number) else { return false }
        let app = UInt16(truncatingIfNeeded: number)
        if isPaused { block(app, Block.paused) } else { unblock(app, Block.paused) }
        return true
    }

    // MARK: Parking

    /// Adds reasons not to send.
    mutating func block(_ app: UInt16, _ reasons: UInt8) {
        let record = apps + Int(app)
        let before = record.pointee.blocked
        record.pointee.blocked = before | reasons
        let waiting = record.pointee.waiting
        guard waiting != 0 else { return }
        if before == 0 {
            for level in 0..<Self.levels where waiting & 1 << UInt8(level) != 0 { unlink(app, level) }
        }
        count(reasons & ~before, 1)
        if reasons & Block.paced != 0 { wakeLater(app) }
    }

    /// Removes reasons not to send; an app without reasons is queued behind the others.
    mutating func unblock(_ app: UInt16, _ reasons: UInt8) {
        let record = apps + Int(app)
        let before = record.pointee.blocked
        let gone = before & reasons
        guard gone != 0 else { return }
        record.pointee.blocked = before & ~gone
        let waiting = record.pointee.waiting
        guard waiting != 0 else { return }
        count(gone, -1)
        guard record.pointee.blocked == 0 else { return }
        for level in 0..<Self.levels where waiting & 1 << UInt8(level) != 0 { link(app, level) }
    }

    /// Counts an app that waits and may not send.
    mutating func count(_ reasons: UInt8, _ change: Int) {
        if reasons & Block.capped != 0 { blocked.capped += change }
        if reasons & Block.paced != 0 { blocked.paced += change }
        if reasons & Block.paused != 0 { blocked.paused += change }
    }

    // MARK: Pace

    /// Spends a token; returns when the next token is available, in nanoseconds.
    mutating func spendToken(_ app: UInt16, now: UInt64) -> UInt64 {
        buckets![Int(app)].spend(now: now)
        return buckets![Int(app)].availableAt
    }

    /// Checks a paced app that waits again, or has more tokens: continues the app, or wakes it when a token is
    /// available.
    mutating func recheckPace(_ app: UInt16, now: UInt64) {
        let record = apps + Int(app)
        guard record.pointee.blocked & Block.paced != 0 else { return }
        if buckets![Int(app)].availableAt <= now {
            unblock(app, Block.paced)
        } else if record.pointee.waiting != 0 {
            wakeLater(app)
        }
    }

    private mutating func wakeLater(_ app: UInt16) {
        guard !apps[Int(app)].isToWake else { return }
        apps[Int(app)].isToWake = true
        wakes.push(.init(due: buckets![Int(app)].availableAt, app: UInt32(app)))
    }

    /// Adds a token.
    mutating func refundToken(_ app: UInt16, now: UInt64) {
        buckets![Int(app)].refund()
        // The app may continue earlier than the heap has it. If the app may continue at once, its entry can stay. Once
        // its tokens are spent again, it waits at least as long.
        if buckets![Int(app)].availableAt > now { dropWake(app) }
        recheckPace(app, now: now)
    }

    /// Removes the app from the heap, by searching.
    mutating func dropWake(_ app: UInt16) {
        guard apps[Int(app)].isToWake else { return }
        wakes.remove(app: UInt32(app))
        apps[Int(app)].isToWake = false
    }

    /// Continues the apps whose time has passed, in the order of their times.
    mutating func wake(now: UInt64) {
        while wakes.count > 0, wakes.nextDue <= now {
            let entry = wakes.pop()
            let record = apps + Int(entry.app)
            record.pointee.isToWake = false
            // The app may have no rate any more, or nothing to send; it is checked when it waits again.
            guard record.pointee.blocked & Block.paced != 0, record.pointee.waiting != 0 else { continue }
            let app = UInt16(truncatingIfNeeded: entry.app)
            // The app has spent a token since then: it waits longer, or behind others.
            if buckets![Int(app)].availableAt > entry.due {
                wakeLater(app)
            } else {
                unblock(app, Block.paced)
            }
        }
    }
}
