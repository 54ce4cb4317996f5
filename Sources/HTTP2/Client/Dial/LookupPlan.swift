/// Decides which look-ups of names run. Each has a thread of its own, because the system's call blocks and can't be
/// ended. The plan uses no threads and no clock: the caller passes in requests and ends, with the time in nanoseconds.
/// The plan returns the look-ups to begin.
///
/// Requests for the same name share a look-up. A look-up that hangs is abandoned after a while, and the next request
/// starts another. A mended name server is thus noticed. Threads are bounded, in total and for a name, so a name that
/// hangs leaves room for the others.
struct LookupPlan: Sendable {
    struct Name: Hashable, Sendable {
        var host: String
        var port: UInt16
    }

    typealias Ticket = UInt64

    /// A look-up to begin.
    struct Start: Equatable, Sendable {
        var number: UInt64
        var name: Name
    }

    static let threads = 16
    static let threadsPerName = 3
    /// Running time after which a look-up counts as hanging, in nanoseconds. The system's resolver fails after about as
    /// long with two name servers.
    static let patience: UInt64 = 20_000_000_000
    /// Time for which an answer is kept that arrived when nobody waited for it any more, in nanoseconds.
    static let lateMemory: UInt64 = 60_000_000_000

    private struct Run {
        var number: UInt64
        var name: Name
        var began: UInt64
        var tickets: [Ticket]
    }
    /// Running look-ups, in the order of their beginning.
    private var runs: [Run] = []
    /// Requests that wait for a thread, in their order.
    private var queue: [(ticket: Ticket, name: Name)] = []
    private var late: [Name: (addresses: [SocketAddress], time: UInt64)] = [:]
    private var lastTicket: Ticket = 0
    private var lastNumber: UInt64 = 0

    /// Number of threads in use.
    var running: Int { runs.count }
    /// Number of tickets that are neither answered nor withdrawn.
    var waiting: Int { runs.reduce(queue.count) { $0 + $1.tickets.count } }

    struct Asked: Sendable {
        var ticket: Ticket
        /// Look-up to begin; nil when a look-up already runs or no thread is free.
        var start: Start?
        /// Answer, if already there: the ticket is then done. Nil otherwise.
        var addresses: [SocketAddress]?
    }

    mutating func ask(_ name: Name, now: UInt64) -> Asked {
        lastTicket += 1
        var asked = Asked(ticket: lastTicket)
        if let kept = late.removeValue(forKey: name), now < kept.time &+ Self.lateMemory {
            asked.addresses = kept.addresses
            return asked
        }
        if let index = runs.lastIndex(where: { $0.name == name }), now < runs[index].began &+ Self.patience {
            runs[index].tickets.append(asked.ticket)
        } else if mayRun(name) {
            asked.start = start(name, [asked.ticket], now: now)
        } else {
            queue.append((asked.ticket, name))
        }
        return asked
    }

    /// Withdraws a ticket for which nobody waits any more.
    mutating func withdraw(_ ticket: Ticket) {
        queue.removeAll { $0.ticket == ticket }
        for index in runs.indices { runs[index].tickets.removeAll { $0 == ticket } }
    }

    /// Records the end of a look-up. Returns the tickets that the look-up answers, and the look-up to begin on its
    /// thread.
    mutating func ended(
        _ number: UInt64, _ addresses: [SocketAddress]?, now: UInt64
    ) -> (answered: [Ticket], start: Start?) {
        guard let index = runs.firstIndex(where: { $0.number == number }) else { return ([], nil) }
        let run = runs.remove(at: index)
        var answered = run.tickets
        if let addresses {
            // Tickets that wait for another look-up of the name are answered as well.
            for index in runs.indices where runs[index].name == run.name {
                answered += runs[index].tickets
                runs[index].tickets.removeAll()
            }
            answered += queue.filter { $0.name == run.name }.map(\.ticket)
            queue.removeAll { $0.name == run.name }
            late[run.name] = answered.isEmpty ? (addresses, now) : nil
        }
        guard let next = queue.first(where: { mayRun($0.name) })?.name else { return (answered, nil) }
        let tickets = queue.filter { $0.name == next }.map(\.ticket)
        queue.removeAll { $0.name == next }
        return (answered, start(next, tickets, now: now))
    }

    private func mayRun(_ name: Name) -> Bool {
        runs.count < Self.threads && runs.count { $0.name == name } < Self.threadsPerName
    }

    private mutating func start(_ name: Name, _ tickets: [Ticket], now: UInt64) -> Start {
        lastNumber += 1
        runs.append(Run(number: lastNumber, name: name, began: now, tickets: tickets))
        return Start(number: lastNumber, name: name)
    }
}
