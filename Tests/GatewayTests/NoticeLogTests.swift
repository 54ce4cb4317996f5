import EventLoop
import Logging
import TestSupport
import Testing

@testable import Gateway

@Suite struct NoticeLogTests {
    private func logger(_ log: LogRecorder, _ level: Logger.Level) -> Logger {
        var logger = Logger(label: "test", factory: { _ in log })
        logger.logLevel = level
        return logger
    }

    @Test func keptNoticeIsLoggedWithItsNumberWhenItsTimeHasCome() throws {
        let log = LogRecorder()
        let loop = try EventLoop(name: "test")
        let notices = NoticeLog(loop: loop, logger: logger(log, .info), interval: 20_000_000)
        for number in 1...5 { notices.log(.info, .goAway, of: 3, "connection \(number) ends") }
        // The same timer serves both notices.
        for number in 1...2 { notices.log(.info, .connectionLost, of: 3, "connection \(number) is lost") }
        #expect(log.messages.count(containing: "connection 1") == 2)
        #expect(log.messages.count(containing: "connection") == 2)
        loop.start()
        try eventually("the kept notices are logged") { log.messages.count(containing: "connection") == 4 }
        loop.stop()
        loop.join()
        #expect(log.messages.count(containing: "connection 5 ends") == 1)
        #expect(log.messages.count(containing: "connection 2 is lost") == 1)
        #expect(log.messages.count(containing: "seconds-ago") == 2)
        #expect(log.messages.count(containing: "left-out") == 1)
        #expect(log.messages.notices(containing: "connection 5 ends") == 4)
    }

    @Test func noticeBelowTheLevelReplacesNoOther() throws {
        let log = LogRecorder()
        let notices = NoticeLog(loop: try EventLoop(name: "test"), logger: logger(log, .warning))
        for number in 1...3 {
            notices.log(.error, .circuitOpen, "open \(number)")
            notices.log(.info, .circuitHalfOpen, "half open \(number)")
        }
        #expect(log.messages.count(containing: "open") == 1)
        notices.end()
        #expect(log.messages.count(containing: "open") == 2)
        #expect(log.messages.count(containing: "open 3") == 1)
        #expect(log.messages.notices(containing: "open") == 3)
        notices.end()
        #expect(log.messages.count(containing: "open") == 2)
    }
}
