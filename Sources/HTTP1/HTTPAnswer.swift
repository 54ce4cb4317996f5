import EventLoop

/// Answer of a handler: at once, in parts, or later.
package enum HTTPAnswer {
    case response(HTTPResponse)
    /// The response's body is empty; the source gives its parts.
    case stream(HTTPResponse, any HTTPStreamSource)
    case waiter(any HTTPWaiter)
    case work(any HTTPWork)
}

/// State of a source after a call.
package enum HTTPStreamState {
    /// Further bytes are there when there is room.
    case more
    /// Nothing is there until the server's next ``HTTPServer/pump()``, or the next heartbeat.
    case idle
    case ended
}

/// Source of an answer's parts. Used on the server's loop only.
package protocol HTTPStreamSource: AnyObject {
    /// Appends further bytes, about 64 KiB at most.
    func fill(_ buffer: inout [UInt8]) -> HTTPStreamState
    /// Appends bytes that keep an idle connection alive; nothing when the source needs none.
    func heartbeat(_ buffer: inout [UInt8])
}

/// Request that waits for a condition. Used on the server's loop only.
package protocol HTTPWaiter: AnyObject {
    /// Time at which the wait ends without success.
    var deadline: MonotonicTime { get }
    /// Whether the answer is wanted although the client sends nothing more. A closed connection looks the same.
    var outlivesInput: Bool { get }
    /// Returns the answer when the condition holds, nil otherwise.
    func poll() -> HTTPResponse?
    /// Returns the answer at the deadline.
    func expired() -> HTTPResponse
}

extension HTTPWaiter {
    package var outlivesInput: Bool { false }
}

/// State of a work after a step.
package enum HTTPWorkState {
    /// The next step can follow in the loop's next turn.
    case more
    /// The next step is possible after the server's next ``HTTPServer/pump()``.
    case idle
    case ended(HTTPResponse)
}

/// Request that changes much, in steps between which the loop has its turns. Used on the server's loop only.
package protocol HTTPWork: AnyObject {
    /// Does a step, some milliseconds long.
    func step() -> HTTPWorkState
}

/// Subject of the server's requests. Used on the server's loop only.
package protocol HTTPHandler: AnyObject {
    /// Judges a request by its head, before its body is read. Returns the refusal, or nil.
    func refuse(_ request: HTTPRequest, local: String?) -> HTTPResponse?
    /// Answers a request that was not refused. News of a waiter or source are reported to the server: ``HTTPServer/pump()``.
    func answer(_ request: HTTPRequest, of server: HTTPServer) -> HTTPAnswer
    /// Returns the answer to a request that is no valid HTTP, or that exceeds a limit of the server.
    func fault(_ fault: HTTPFault) -> HTTPResponse
}
