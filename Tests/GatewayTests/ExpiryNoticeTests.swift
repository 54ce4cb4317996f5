import Testing

@testable import Gateway

@Suite struct ExpiryNoticeTests {
    private let day: Int64 = 86_400

    @Test func warningsFollowThirtyFourteenSevenAndOneDayBeforeTheExpiryAndAtTheExpiry() {
        var notice = ExpiryNotice()
        let expires = 1_800_000_000 as Int64
        var warned: [Int64] = []
        for hour in stride(from: Int64(24 * 40), through: -48, by: -1) {
            if notice.due(expires: expires, now: expires - hour * 3600) != nil { warned.append(hour) }
        }
        let hours: [Int64] = [719, 335, 167, 23, 0]
        #expect(warned == hours)
    }

    @Test func firstLookWarnsOnceHoweverFewDaysAreLeft() {
        var notice = ExpiryNotice()
        #expect(notice.due(expires: 100 * day, now: 97 * day) == 3)
        #expect(notice.due(expires: 100 * day, now: 98 * day) == nil)
        #expect(notice.due(expires: 100 * day, now: 99 * day + 1) == 0)
        #expect(notice.due(expires: 100 * day, now: 101 * day) == 0)
        #expect(notice.due(expires: 100 * day, now: 102 * day) == nil)
    }

    @Test func renewedCertificateIsWatchedAnew() {
        var notice = ExpiryNotice()
        #expect(notice.due(expires: 100 * day, now: 95 * day) != nil)
        #expect(notice.due(expires: 200 * day, now: 96 * day) == nil)
        #expect(notice.due(expires: 200 * day, now: 171 * day) == 29)
    }
}
