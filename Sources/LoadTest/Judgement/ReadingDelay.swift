/// Time that records wait for their reader, as the reader of a topic can know it.
///
/// Two times are no less than the wait. The first is the time since the reader last had no record left. The second is the
/// record's age above the least age of all records so far. The least age has the way through Kafka and the difference of
/// two clocks in it. The lesser time counts, so neither a slow writer nor an idle topic looks like a slow reader.
///
/// Times are microseconds since the beginning of the first phase.
public struct ReadingDelay: Sendable {
    /// Last time at which no record was left; nil before the first one.
    private var emptied: Int64?
    /// Least difference between the time of a reading and the record's timestamp; nil before the first timestamp.
    private var leastAge: Int64?

    public init() {}

    /// Notes that no record is left at a time.
    public mutating func noteEmpty(at time: Int64) { emptied = time }

    /// Returns the delay of a record that is read at a time, in microseconds.
    /// - Parameter stamped: timestamp of the record; nil for a record without one.
    public mutating func delay(stamped: Int64?, readAt time: Int64) -> Int64 {
        let sinceEmpty = emptied.map { max(0, time - $0) }
        guard let stamped else { return sinceEmpty ?? 0 }
        let age = time - stamped
        let least = min(leastAge ?? age, age)
        leastAge = least
        return min(sinceEmpty ?? .max, age - least)
    }
}
