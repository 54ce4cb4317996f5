/// Poll times of one partition's records, kept coarsely. They show how old the head of line is.
///
/// A *mark* is an offset and the time at which it was polled. The mark stands for the records that follow up to the
/// next mark. A record is marked when none is outstanding before it, or when the last mark is older than the interval.
/// When the marks are full, they are joined with their neighbours until half of the room is free again. Joining makes
/// the interval longer. The interval shrinks again as the old marks go.
///
/// An age is never understated. It is overstated at most by the interval or by 1/128 of the greatest age, whichever is
/// more. The greatest age counts from when the partition last had nothing outstanding.
///
/// Pure: time is an argument, in nanoseconds of a monotonic clock. Each record costs O(1) amortised. All marks take at
/// most 16 KiB.
public struct PollTimes: Sendable {
    private struct Mark: Sendable {
        var offset: Int64
        var time: UInt64
    }

    /// Ring of marks, from `first` on; grows to `capacity`.
    private var marks: [Mark] = []
    private var first = 0
    private var count = 0
    private let shortest: UInt64
    private let capacity: Int
    private var interval: UInt64

    /// - Parameters:
    ///   - interval: nanoseconds between two marks, at least 1.
    ///   - capacity: marks at most; a power of two, at least 8.
    public init(interval: UInt64 = 100_000_000, capacity: Int = 1024) {
        // The 1/128 holds for 1024 marks.
        precondition(
            capacity >= 8 && capacity & (capacity - 1) == 0, "capacity \(capacity): no power of two from 8 on"
        )
        shortest = max(1, interval)
        self.interval = shortest
        self.capacity = capacity
    }

    /// Notes that a record was polled.
    /// - Parameters:
    ///   - offset: the record's offset, above all offsets before.
    ///   - watermark: the oldest offset that is outstanding now, this record's included.
    public mutating func polled(_ offset: Int64, at now: UInt64, watermark: Int64) {
        if watermark >= offset {
            count = 0
            interval = shortest
        } else {
            dropPassed(watermark)
            if count > 0, now < self[count - 1].time &+ interval { return }
        }
        if count == marks.count { makeRoom() }
        count += 1
        self[count - 1] = Mark(offset: offset, time: now)
    }

    /// Returns when the record that holds the watermark was polled, in nanoseconds. `nil`: nothing was polled at or
    /// below the watermark.
    public func time(of offset: Int64) -> UInt64? {
        guard count > 0, self[0].offset <= offset else { return nil }
        var low = 0
        var high = count
        while high - low > 1 {
            let middle = (low + high) / 2
            if self[middle].offset <= offset { low = middle } else { high = middle }
        }
        return self[low].time
    }

    /// Removes marks whose records are all finished.
    private mutating func dropPassed(_ watermark: Int64) {
        while count > 1, self[1].offset <= watermark {
            first = (first + 1) & (marks.count - 1)
            count -= 1
            if count <= capacity / 4, interval > shortest { interval = max(shortest, interval / 2) }
        }
    }

    private mutating func makeRoom() {
        if marks.count < capacity {
            let kept = (0..<count).map { self[$0] }
            let larger = max(8, marks.count * 2)
            marks = kept + Array(repeating: Mark(offset: 0, time: 0), count: larger - count)
            first = 0
            return
        }
        while count > capacity / 2 {
            interval = interval &* 2
            var last = 0
            for index in 1..<count where self[index].time >= self[last].time &+ interval {
                last += 1
                self[last] = self[index]
            }
            count = last + 1
        }
    }

    private subscript(index: Int) -> Mark {
        get { marks[(first + index) & (marks.count - 1)] }
        set { marks[(first + index) & (marks.count - 1)] = newValue }
    }
}
