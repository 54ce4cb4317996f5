import EventLoop

/// Outcome of the look-up of a name for an opening.
package enum LookupEnd: Sendable {
    case addresses([SocketAddress])
    case failed(ResolverError)
    /// No answer arrived within the time.
    case late
}

/// Receives the outcome of a look-up, on the loop's thread. The call is made once, unless the look-up is cancelled
/// before, and never within `start()`.
package protocol AddressLookupOwner: AnyObject {
    func lookup(_ lookup: AddressLookup, ended end: LookupEnd)
}

/// A look-up of a name, with a deadline. Use on the loop's thread only.
package final class AddressLookup: TimerHandler {
    /// Number of the opening that needs the look-up, chosen by the owner.
    package let number: UInt32
    private let host: String
    private let port: UInt16
    private let deadline: Duration
    private let resolver: AddressResolver
    private let loop: EventLoop
    private weak var owner: (any AddressLookupOwner)?
    private var ticket: LookupPlan.Ticket?
    private var timer: TimerID?
    private var isOver = false

    package init(
        number: UInt32, host: String, port: UInt16, deadline: Duration, resolver: AddressResolver,
        loop: EventLoop, owner: any AddressLookupOwner
    ) {
        self.number = number
        self.host = host
        self.port = port
        self.deadline = deadline
        self.resolver = resolver
        self.loop = loop
        self.owner = owner
    }

    package func start() {
        timer = loop.schedule(after: deadline, handler: self)
        let box = LoopConfined(self)
        ticket = resolver.resolve(host: host, port: port) { [loop] answer in
            loop.execute { box.value.finish(answer.map(LookupEnd.addresses)) }
        }
    }

    /// Cancels the look-up; nothing is reported any more.
    package func cancel() {
        guard !isOver else { return }
        isOver = true
        if let timer { loop.cancel(timer) }
        timer = nil
        if let ticket { resolver.withdraw(ticket) }
        ticket = nil
    }

    package func timerFired(_ timer: TimerID) {
        self.timer = nil
        finish(.success(.late))
    }

    private func finish(_ result: Result<LookupEnd, ResolverError>) {
        guard !isOver else { return }
        cancel()
        switch result {
        case .success(let end): owner?.lookup(self, ended: end)
        case .failure(let error): owner?.lookup(self, ended: .failed(error))
        }
    }
}
