import SluiceModel

/// Decides which generation of a credential serves, and what a refusal by APNs means for it.
///
/// A renewed credential, and another key of the same credential, is a new generation. Generations before serve on their
/// connections until these are replaced. Pure: connections and keys are facts that the caller gives.
struct CredentialGenerations<Access> {
    struct Generation {
        let number: UInt32
        /// False for a certificate.
        let hasKeys: Bool
        fileprivate(set) var access: Access
    }

    /// Consequence of an answer or a GOAWAY on a connection of some generation.
    enum Refusal: Equatable {
        /// The reason doesn't refuse the credential, or nothing can take its place.
        case none
        /// Another generation serves already.
        case isReplaced
        /// The key in use is refused; the next key serves. When all are refused, single pushes try the keys in turn.
        case refusesKey
        /// The renewed certificate is refused; the one before its renewal serves again.
        case undoesRenewal
    }

    /// The generation in use.
    private(set) var serving: Generation
    /// Generations before, newest first.
    private(set) var earlier: [Generation] = []
    /// Highest number so far.
    private var highest: UInt32 = 0

    init(hasKeys: Bool, _ access: Access) {
        serving = Generation(number: 0, hasKeys: hasKeys, access: access)
    }

    /// Returns a generation that is in use or before; nil for a number that is forgotten.
    func generation(_ number: UInt32) -> Generation? {
        number == serving.number ? serving : earlier.first { $0.number == number }
    }

    /// Changes what belongs to a generation, for all of them.
    mutating func update(_ body: (UInt32, inout Access) -> Void) {
        body(serving.number, &serving.access)
        for index in earlier.indices { body(earlier[index].number, &earlier[index].access) }
    }

    /// A new generation serves from now on.
    mutating func replace(hasKeys: Bool, by access: Access) {
        highest += 1
        earlier.insert(serving, at: 0)
        serving = Generation(number: highest, hasKeys: hasKeys, access: access)
    }

    /// Forgets generations without connections. The newest one before a certificate stays, so that the renewal can be
    /// undone.
    mutating func forget(withoutConnection hasConnection: (UInt32) -> Bool) {
        let kept = serving.hasKeys ? nil : earlier.first?.number
        earlier.removeAll { $0.number != kept && !hasConnection($0.number) }
    }

    /// Judges a reason that a connection of a generation has received.
    /// - Parameter isProven: whether APNs has accepted a request of the generation in use.
    func judge(_ reason: Reason, on number: UInt32, isProven: Bool) -> Refusal {
        guard serving.hasKeys ? reason.refusesKey : reason.refusesCertificate else { return .none }
        // A connection may be older than all that is known.
        guard number == serving.number else { return generation(number) == nil ? .none : .isReplaced }
        if serving.hasKeys { return .refusesKey }
        return earlier.isEmpty || isProven ? .none : .undoesRenewal
    }

    /// Returns whether the pool stops because a GOAWAY or a TLS alert refuses the credential, and nothing takes its
    /// place.
    ///
    /// With keys, a refused key doesn't stop the pool, because single pushes try all keys in turn. A refused
    /// certificate doesn't either: there is none, so that the server or its balancer is wrong.
    func stopsPool(after reason: Reason) -> Bool {
        !(serving.hasKeys && (reason.refusesKey || reason.refusesCertificate))
    }

    /// The generation before serves again, and the one in use becomes the newest before.
    mutating func undoRenewal() {
        guard let before = earlier.first else { return }
        earlier[0] = serving
        serving = before
    }
}
