import Testing

@testable import Gateway

@Suite struct ExpiredTokenRunsTests {
    private let longest = ExpiredTokenRuns.longest

    @Test func connectionThatRefusesFreshTokensInARowIsReplaced() {
        var runs = ExpiredTokenRuns()
        for _ in 1..<longest { #expect(runs.refused(3, isFresh: true) == false) }
        #expect(runs.refused(4, isFresh: true) == false, "another connection")
        #expect(runs.refused(3, isFresh: true) == true)
        #expect(runs.refused(3, isFresh: true) == false, "the connection is being replaced")
    }

    @Test func acceptedTokenEndsTheRun() {
        var runs = ExpiredTokenRuns()
        for _ in 0..<100 {
            for _ in 1..<longest { #expect(runs.refused(0, isFresh: true) == false) }
            #expect(!runs.isEmpty)
            runs.ended(0)
            #expect(runs.isEmpty)
        }
    }

    /// The token expires while many requests with it are in flight.
    @Test func refusalsOfAnOldTokenReplaceNoConnection() {
        var runs = ExpiredTokenRuns()
        for _ in 0..<1_000 { #expect(runs.refused(0, isFresh: false) == false) }
    }

    /// The server resets all further streams.
    @Test func unansweredRequestsCountAfterARefusedToken() {
        var runs = ExpiredTokenRuns()
        for _ in 0..<100 { #expect(runs.failed(0) == false, "no token was refused") }
        #expect(runs.isEmpty)
        #expect(runs.refused(0, isFresh: false) == false)
        for _ in 1..<longest { #expect(runs.failed(0) == false) }
        #expect(runs.failed(0) == true)
    }
}
