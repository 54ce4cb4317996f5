/// Decides when to warn of a certificate's expiry: 30, 14, 7 and 1 days before, and when it has expired. Pure: the owner
/// passes the times in.
struct ExpiryNotice: Sendable, Equatable {
    /// Days before the expiry at which a warning is due.
    static let days: [Int64] = [30, 14, 7, 1, 0]

    /// Expiry that the last warning was about, in seconds since 1970; nil before the first warning.
    private var expires: Int64?
    /// Days of the last warning; nil when there was none for this expiry.
    private var warned: Int64?

    /// Returns the whole days that are left when a warning is due; nil when none is due. Negative numbers don't occur: an
    /// expired certificate has 0 days.
    mutating func due(expires: Int64, now: Int64) -> Int64? {
        if self.expires != expires {
            self.expires = expires
            warned = nil
        }
        let left = expires > now ? (expires - now) / 86_400 : 0
        let isExpired = expires <= now
        // The last day's warning is at 1; 0 is for the expiry itself.
        guard let step = Self.days.last(where: { isExpired ? $0 == 0 : $0 > 0 && left < $0 }),
            step < warned ?? .max
        else { return nil }
        warned = step
        return left
    }
}
