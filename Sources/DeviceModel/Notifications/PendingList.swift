/// A local notification that waits for its trigger.
struct PendingRequest: Sendable, Equatable {
    var identifier: String
    var payload: [UInt8]
    var trigger: PendingTrigger
    /// Whether the request stays after it has fired.
    var repeats: Bool
    /// Next time in milliseconds since 1970; nil for a region.
    var next: Int64?
    /// Number in the order of adding.
    var order: UInt64 = 0
}

/// A trigger that the model can carry out.
enum PendingTrigger: Sendable, Equatable {
    /// Milliseconds from scheduling.
    case interval(Int64)
    /// Minutes since local midnight.
    case calendar(minuteOfDay: Int)
    case region(String, onEntry: Bool, onExit: Bool)

    var kind: DeliveredNotification.Trigger {
        switch self {
        case .interval: .interval
        case .calendar: .calendar
        case .region: .location
        }
    }

    /// First time after `now`; nil for a region.
    /// - Parameters:
    ///   - former: time at which the trigger fired last; nil: never.
    ///   - zone: offset of the local time to UTC in minutes.
    func next(after now: Int64, former: Int64?, zone: Int) -> Int64? {
        switch self {
        case .interval(let interval):
            guard let former, former <= now else { return now + interval }
            return former + ((now - former) / interval + 1) * interval
        case .calendar(let minute): return LocalTime.next(minute: minute, after: now, zone: zone)
        case .region: return nil
        }
    }
}

/// Pending requests of an app, soonest first. Bounded: the latest request leaves.
struct PendingList: Sendable {
    /// Most pending requests of an app.
    static let limit = 64

    private(set) var requests: [PendingRequest] = []
    private var added: UInt64 = 0

    /// Adds a request, or replaces the one with its identifier.
    /// - Returns: the latest request if the list was full; it may be the new one.
    mutating func add(_ request: PendingRequest) -> PendingRequest? {
        _ = remove(request.identifier)
        added += 1
        var request = request
        request.order = added
        let index = requests.firstIndex { Self.isBefore(request, $0) } ?? requests.count
        requests.insert(request, at: index)
        return requests.count > Self.limit ? requests.removeLast() : nil
    }

    mutating func remove(_ identifier: String) -> PendingRequest? {
        requests.firstIndex { $0.identifier == identifier }.map { requests.remove(at: $0) }
    }

    /// Moves calendar triggers to the times of another zone. What is due already stays.
    /// - Returns: identifiers and new times of the requests that moved.
    mutating func reschedule(zone: Int, now: Int64) -> [(identifier: String, time: Int64)] {
        var moved: [(identifier: String, time: Int64)] = []
        for index in requests.indices {
            guard case .calendar(let minute) = requests[index].trigger, let former = requests[index].next,
                former > now
            else { continue }
            let time = LocalTime.next(minute: minute, after: now, zone: zone)
            guard time != former else { continue }
            requests[index].next = time
            moved.append((requests[index].identifier, time))
        }
        if !moved.isEmpty { requests.sort { Self.isBefore($0, $1) } }
        return moved
    }

    /// Earlier times first, regions last, ties in the order of adding.
    private static func isBefore(_ left: PendingRequest, _ right: PendingRequest) -> Bool {
        (left.next ?? .max, left.order) < (right.next ?? .max, right.order)
    }
}

/// Times of day of a device.
enum LocalTime {
    static let day: Int64 = 86_400_000

    /// First time after `now` at which the local clock shows a minute of the day.
    static func next(minute: Int, after now: Int64, zone: Int) -> Int64 {
        let time = midnight(after: now, zone: zone) - day + Int64(minute) * 60_000
        return time > now ? time : time + day
    }

    /// Next local midnight.
    static func midnight(after now: Int64, zone: Int) -> Int64 {
        let offset = Int64(zone) * 60_000
        let local = now + offset
        let sinceMidnight = ((local % day) + day) % day
        return local - sinceMidnight + day - offset
    }
}
