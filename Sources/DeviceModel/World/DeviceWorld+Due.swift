/// Entries of the queue that have lost their subject.
extension DeviceWorld {
    /// Drops the entries that no longer apply.
    mutating func compactDue() {
        var queue = due
        // The queue is not copied when the world holds it no longer.
        due = DueQueue()
        queue.compact { applies($0, at: $1) }
        due = queue
    }

    /// Whether an entry can have an effect at its time.
    private func applies(_ due: Due, at time: Int64) -> Bool {
        switch due {
        case .stored(let key): storage[key]?.entries.expiry == time
        case .goodMoment(let key): storage[key]?.entries.moment == time
        case .serviceExtension(let run): extensions.awaits(run, at: time)
        case .banner(let id): existing(id)?.banner?.until == time
        case .summary(let id): existing(id)?.summaryAt == time
        case .trigger(let id, let app, let identifier):
            installation(id, app)?.centre.pending.contains {
                $0.identifier == identifier && $0.next == time
            } ?? false
        case .wake(let id, let app): installation(id, app)?.background.held?.rule == .heldForBudget
        // Handlers end by themselves within seconds.
        case .handler: true
        case .activity(let id, let app, let number):
            installation(id, app)?.activities?.value[number]?.wakeAt == time
        case .broadcast(let key): channels.expiryAt(key) == time
        }
    }

    /// A device; nil when it is gone.
    private func existing(_ id: UInt32) -> Device? { Int(id) < devices.count ? devices[Int(id)] : nil }
}
