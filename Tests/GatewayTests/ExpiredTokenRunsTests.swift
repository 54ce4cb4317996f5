import Testing

@testable import Gateway

@Suite struct ExpiredTokenRunsTests {
    private let longest = ExpiredTokenRuns.longest

    /// Runs whose requests follow each other.
    private struct Requests {
        var runs = ExpiredTokenRuns()
        private var now: UInt64 = 1

        mutating func refused(_ connection: UInt32, isFresh: Bool) -> Bool {
            now += 2
            return runs.refused(connection, isFresh: isFresh, sentAt: now, at: now + 1)
        }
    }

    @Test func connectionThatRefusesFreshTokensInARowIsReplaced() {
        var requests = Requests()
        for _ in 1..<longest { #expect(requests.refused(3, isFresh: true) == false) }
        #expect(requests.refused(4, isFresh: true) == false, "another connection")
        #expect(requests.refused(3, isFresh: true) == true)
        #expect(requests.refused(3, isFresh: true) == false, "the connection is being replaced")
    }

    /// APNs refuses faster than it accepts: the first answers of many requests in flight are refusals.
    @Test func refusalsOfRequestsThatWereSentTogetherCountOnce() {
        var runs = ExpiredTokenRuns()
        for answer in 0..<100 {
            #expect(runs.refused(0, isFresh: true, sentAt: 5, at: 10 + UInt64(answer)) == false)
        }
        for sent in 1..<longest - 1 {
            #expect(
                runs.refused(0, isFresh: true, sentAt: 1_000 * UInt64(sent), at: 1_000 * UInt64(sent) + 1)
                    == false)
        }
        #expect(runs.refused(0, isFresh: true, sentAt: 900_000, at: 900_001) == true)
    }

    @Test func acceptedTokenEndsTheRun() {
        var requests = Requests()
        for _ in 0..<100 {
            for _ in 1..<longest { #expect(requests.refused(0, isFresh: true) == false) }
            #expect(!requests.runs.isEmpty)
            requests.runs.ended(0)
            #expect(requests.runs.isEmpty)
        }
    }

    /// The token expires while many requests with it are in flight.
    @Test func refusalsOfAnOldTokenReplaceNoConnection() {
        var requests = Requests()
        for _ in 0..<1_000 { #expect(requests.refused(0, isFresh: false) == false) }
    }

    /// The server resets all further streams.
    @Test func unansweredRequestsCountAfterARefusedToken() {
        var requests = Requests()
        for _ in 0..<100 { #expect(requests.runs.failed(0) == false, "no token was refused") }
        #expect(requests.runs.isEmpty)
        #expect(requests.refused(0, isFresh: false) == false)
        for _ in 1..<longest { #expect(requests.runs.failed(0) == false) }
        #expect(requests.runs.failed(0) == true)
    }
}
