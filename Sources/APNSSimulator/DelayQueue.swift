import EventLoop
import SluiceModel

/// Answer that waits for its time.
struct DelayedAnswer {
    var due: UInt64
    var stream: Int32
    var reason: Reason
    var identifier: APNSID
    /// Whether the answer is to a broadcast.
    var isBroadcast: Bool
    /// Timestamp of a 410 in milliseconds since 1970; nil for the simulator's start.
    var since: Int64?
    var handler: PushHandler
}

/// Answers in the order of their times: a binary heap behind a single timer of the loop.
final class DelayQueue: TimerHandler {
    private let loop: EventLoop
    private var heap: [DelayedAnswer] = []
    private var timer: TimerID?
    private var armedFor = UInt64.max

    init(loop: EventLoop) { self.loop = loop }

    func add(_ answer: DelayedAnswer) {
        heap.append(answer)
        var index = heap.count - 1
        while index > 0, heap[(index - 1) / 2].due > heap[index].due {
            heap.swapAt(index, (index - 1) / 2)
            index = (index - 1) / 2
        }
        arm()
    }

    /// Drops all answers, when no client is left to receive them.
    func removeAll() {
        if let timer { loop.cancel(timer) }
        timer = nil
        armedFor = .max
        heap = []
    }

    private func arm() {
        guard let due = heap.first?.due, due < armedFor else { return }
        if let timer { loop.cancel(timer) }
        armedFor = due
        timer = loop.schedule(at: MonotonicTime(nanoseconds: due), handler: self)
    }

    func timerFired(_ id: TimerID) {
        timer = nil
        armedFor = .max
        while let first = heap.first, first.due <= loop.now.nanoseconds {
            removeFirst()
            first.handler.answer(first)
        }
        arm()
    }

    private func removeFirst() {
        heap.swapAt(0, heap.count - 1)
        heap.removeLast()
        var index = 0
        while true {
            var least = index
            for child in [2 * index + 1, 2 * index + 2]
            where child < heap.count && heap[child].due < heap[least].due {
                least = child
            }
            if least == index { return }
            heap.swapAt(index, least)
            index = least
        }
    }
}
