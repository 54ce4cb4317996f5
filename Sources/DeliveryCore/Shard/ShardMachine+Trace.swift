extension ShardMachine {
    /// Returns the state of the push in a slot, for people who look for the push; nil when the slot has no pending push.
    public func pending(_ slot: UInt32, at now: DeliveryTime) -> PendingPush? {
        guard var push = delivery.pending(slot, at: now) else { return nil }
        if isAllPaused, push.cause == .stream { push.cause = .sendingPaused }
        return push
    }
}
