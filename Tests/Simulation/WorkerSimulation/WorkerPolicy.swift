/// Records of services beside plain pushes.
enum WorkerEvent: CaseIterable {
    case cancel, presence, receipt, tokenChange, unregistration, erasure
}

/// Terms of pushes that are drawn for a part of them.
enum WorkerPolicy: CaseIterable {
    case holds, confirmations, avoidance, once, priorities, states, registrations, sameIdentifiers
}
