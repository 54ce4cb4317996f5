import EventLoop
import Logging

/// Logs the notices of one event loop, as far as ``NoticeLimit`` allows. Loop's thread only.
///
/// A line has `left-out`, the number of notices before it that have no line. A line that was kept has `seconds-ago`, the
/// age of its notice.
final class NoticeLog: TimerHandler {
    private struct Line {
        var level: Logger.Level
        var message: Logger.Message
        var metadata: Logger.Metadata
    }

    /// For lines that nothing repeats.
    let logger: Logger
    private let loop: EventLoop
    private var limit: NoticeLimit<Line>
    /// Timer for the next kept line; nil when none is set.
    private var timer: TimerID?
    /// Time of the timer, in nanoseconds; meaningless without one.
    private var timerAt: UInt64 = 0

    /// Nanoseconds in which the same notice has one line.
    static let interval: UInt64 = 10_000_000_000

    init(loop: EventLoop, logger: Logger, interval: UInt64 = NoticeLog.interval) {
        self.loop = loop
        self.logger = logger
        limit = NoticeLimit(interval: interval)
    }

    /// Logs a notice, now or later.
    /// - Parameter subject: index or number of what the notice is about, as ``Notice`` says.
    func log(
        _ level: Logger.Level, _ notice: Notice, of subject: Int = 0, _ message: Logger.Message,
        metadata: Logger.Metadata = [:]
    ) {
        // A notice that the log's level leaves out must not replace one that the level lets pass.
        guard level >= logger.logLevel else { return }
        let line = Line(level: level, message: message, metadata: metadata)
        switch limit.note(notice, of: subject, line, at: loop.now.nanoseconds) {
        case .log(let leftOut): write(line, leftOut: leftOut)
        case .keep(let until): arm(at: until)
        }
    }

    /// Logs the kept lines at the end. Called when the loop has ended, on any thread.
    func end() {
        for late in limit.takeAll(at: MonotonicTime.read().nanoseconds) { write(late) }
    }

    func timerFired(_ timer: TimerID) {
        self.timer = nil
        for late in limit.takeDue(at: loop.now.nanoseconds) { write(late) }
        if let next = limit.nextDue { arm(at: next) }
    }

    private func arm(at time: UInt64) {
        if let timer {
            guard time < timerAt else { return }
            loop.cancel(timer)
        }
        timerAt = time
        timer = loop.schedule(at: MonotonicTime(nanoseconds: time), handler: self)
    }

    private func write(_ late: NoticeLimit<Line>.Late) {
        var line = late.line
        line.metadata["seconds-ago"] = "\(late.age / 1_000_000_000)"
        write(line, leftOut: late.leftOut)
    }

    private func write(_ line: Line, leftOut: Int) {
        var metadata = line.metadata
        if leftOut > 0 { metadata["left-out"] = "\(leftOut)" }
        logger.log(level: line.level, line.message, metadata: metadata)
    }
}
