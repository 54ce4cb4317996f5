extension DeliveryMachine {
    /// APNs ended a connection, blamed a topic, and did not process these pushes of it: the topic stops, as after an answer
    /// that blames it, and they wait with the others. One more attempt isn't counted, nor one that failed.
    ///
    /// - Parameter slot: of a push in flight.
    public mutating func topicRefused(_ slot: UInt32, at now: DeliveryTime) {
        circuitFailed(slot, at: now)
        failed(slot, processed: false, at: now)
    }
}
