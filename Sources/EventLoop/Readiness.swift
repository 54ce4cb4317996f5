import CEpoll
import Glibc

/// Readiness of a file descriptor, as reported or as watched for.
public struct Readiness: OptionSet, Sendable {
    public let rawValue: UInt8

    public init(rawValue: UInt8) {
        self.rawValue = rawValue
    }

    /// A read returns bytes or the end of the stream at once.
    public static let read = Readiness(rawValue: 1 << 0)
    /// A write accepts bytes at once.
    public static let write = Readiness(rawValue: 1 << 1)
    /// The peer closed, or the descriptor is unusable. Always reported, except for a peer that has ended its own side
    /// alone: that is reported to those who watch for `hangup` or `read`.
    public static let hangup = Readiness(rawValue: 1 << 2)
    /// An error is pending on the descriptor. Always reported.
    public static let error = Readiness(rawValue: 1 << 3)

    init(epollEvents events: UInt32) {
        var readiness: Readiness = []
        if events & EPOLLIN.rawValue != 0 { readiness.insert(.read) }
        if events & EPOLLOUT.rawValue != 0 { readiness.insert(.write) }
        if events & (EPOLLHUP.rawValue | EPOLLRDHUP.rawValue) != 0 { readiness.insert(.hangup) }
        if events & EPOLLERR.rawValue != 0 { readiness.insert(.error) }
        self = readiness
    }

    var epollEvents: UInt32 {
        var events: UInt32 = 0
        if contains(.read) { events |= EPOLLIN.rawValue | EPOLLRDHUP.rawValue }
        if contains(.write) { events |= EPOLLOUT.rawValue }
        if contains(.hangup) { events |= EPOLLRDHUP.rawValue }
        return events
    }
}

/// Handles the readiness of a registered file descriptor. Called on the loop's thread.
public protocol ReadinessHandler: AnyObject {
    /// Handles the reported kinds of readiness, at least one.
    func ready(_ readiness: Readiness)
}

/// Handles a timer that is due. Called on the loop's thread.
public protocol TimerHandler: AnyObject {
    /// Handles a due timer, which fires once.
    func timerFired(_ timer: TimerID)
}

/// Handles the end of a loop turn, once per request. Called on the loop's thread.
public protocol TurnEndHandler: AnyObject {
    /// Handles the turn's end. A further turn's end needs a further request.
    func turnEnded()
}

/// A registered file descriptor: a slot, and a generation that distinguishes it from earlier users of the slot.
public struct Registration: Hashable, Sendable {
    var slot: Int32
    var generation: UInt32

    /// Value for the event's user data. If a descriptor was replaced, the value identifies events that were already
    /// fetched for it. The loop drops such events.
    var packed: UInt64 { UInt64(UInt32(bitPattern: slot)) | UInt64(generation) << 32 }

    init(slot: Int32, generation: UInt32) {
        self.slot = slot
        self.generation = generation
    }

    init(packed: UInt64) {
        self.init(
            slot: Int32(bitPattern: UInt32(truncatingIfNeeded: packed)), generation: UInt32(packed >> 32))
    }
}
