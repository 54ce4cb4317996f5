/// Judges whether APNs takes most of a topic's device tokens for wrong, by pushes as they begin.
///
/// APNs refuses faster than it accepts, so that the first answers are mostly those for wrong tokens. A push
/// therefore joins a round when it begins, and counts like a good push until its answer comes. No order of
/// answers makes a minority of wrong tokens look like a majority.
///
///     push begins ──▶ round that fills, until it has 100 pushes ──▶ next round
///     wrong token ──▶ most tokens are wrong, when a round has 20 wrong tokens and no other push,
///                     or 40 more wrong tokens than other pushes
///
/// A push that APNs didn't process leaves its round. The conditions are checked at the next
/// answer for a wrong token. With 45 % of wrong tokens at random, one round in a million meets a condition.
/// With 70 %, every other does.
///
/// A full round waits until nearly all of its pushes have ended. Then its number serves again. Pushes that
/// begin while all rounds wait count in none.
struct TokenRounds: BitwiseCopyable {
    /// Counts of one round.
    private struct Round: BitwiseCopyable {
        /// Pushes that count, in flight or answered, 0 to 200.
        var begun: UInt8 = 0
        /// Pushes whose token is wrong.
        var wrong: UInt8 = 0
        /// Pushes in flight, also those of the number's earlier round.
        var inFlight: UInt8 = 0

        /// True when most of the round's tokens are wrong, whatever APNs answers to its pushes in flight.
        var isMostlyWrong: Bool {
            let others = Int(begun) - Int(wrong)
            return others == 0 && wrong >= TokenRounds.leastOfAll
                || Int(wrong) - others >= TokenRounds.leastLead
        }

        /// Begins a new round. Pushes in flight of the earlier one count twice as good pushes. Their answers,
        /// which belong to the earlier round, then give wrong tokens no lead.
        mutating func startOver() {
            begun = 2 * inFlight
            wrong = 0
        }
    }

    /// Most pushes of a round.
    static let size: UInt8 = 100
    /// Least number of wrong tokens in a round that has no other push.
    static let leastOfAll: UInt8 = 20
    /// Least number of wrong tokens in a round, beyond the number of its other pushes.
    static let leastLead = 40
    /// Highest number of a round. ``DeliveryItem/round`` has four bits.
    static let last = 15
    /// Most pushes in flight of a round whose number serves again. A lost answer takes long to end its push.
    static let mostUnanswered: UInt8 = 10

    /// Rounds by number; 0 is no round.
    private var rounds = InlineArray<16, Round>(repeating: Round())
    /// Number of the round that fills.
    private var filling = 1

    /// Counts a push that begins. Returns the number of its round; 0 when it counts in none.
    @inline(__always)
    mutating func begin() -> UInt8 {
        if rounds[filling].begun >= Self.size {
            let next = filling == Self.last ? 1 : filling + 1
            guard rounds[next].inFlight <= Self.mostUnanswered else { return 0 }
            rounds[next].startOver()
            filling = next
        }
        rounds[filling].begun += 1
        rounds[filling].inFlight += 1
        return UInt8(truncatingIfNeeded: filling)
    }

    /// Counts the end of a push, by the number that its begin returned, 1 to 15.
    @inline(__always)
    mutating func end(_ round: UInt8, _ verdict: TokenVerdict) {
        rounds[Int(round)].inFlight -= 1
        switch verdict {
        case .right: break
        case .wrong: rounds[Int(round)].wrong += 1
        case .unknown: rounds[Int(round)].begun -= 1
        }
    }

    /// True when a round shows that APNs takes most tokens for wrong.
    var areMostlyWrong: Bool {
        for number in 1...Self.last where rounds[number].isMostlyWrong { return true }
        return false
    }

    /// Forgets all answers. Answers to pushes in flight won't count either.
    mutating func startOver() {
        for number in 1...Self.last { rounds[number].startOver() }
    }

    /// Pushes in flight that count.
    var inFlight: Int { (1...Self.last).reduce(0) { $0 + Int(rounds[$1].inFlight) } }
}

/// Opinion of APNs on a device token, as the end of an attempt shows it.
enum TokenVerdict {
    /// APNs doesn't take the token for wrong, as far as the end of the attempt shows.
    case right
    /// APNs takes the token for wrong.
    case wrong
    /// APNs didn't process the push.
    case unknown
}
