/// The connections of a ``StreamScheduler``, arranged so that a connection with room is found in O(1).
///
/// A connection with a free stream and window for any body is *roomy*. Roomy ready connections are in one list per
/// number in flight, so the lowest list in use has the least loaded. Connections whose window is below the largest body
/// are *tight*: their lists are by remaining window. Reserve connections have the same lists except those by number in
/// flight, because they are filled one after another. Bitmaps mark the lists in use.
///
/// A ready connection with window for any body reserves a share of its streams for urgent notifications. A connection
/// with only reserved streams free isn't roomy but *kept*, in a list of its own.
///
/// The connection that has the run is roomy, ready, and in no list, so that its assignments move nothing.
struct ConnectionTable: ~Copyable {
    private static let none = UInt32.max
    /// Lists by number in flight. Higher numbers share the last list; stream limits of APNs are near 1000.
    private static let buckets = 4096
    /// Lists by window.
    private static let windows = 64
    private static let readyTight = buckets
    private static let reserveRoomy = readyTight + windows
    private static let reserveTight = reserveRoomy + 1
    private static let kept = reserveTight + windows
    private static let lists = kept + 1
    private static let unlisted = UInt16.max
    /// Tight connections checked per decision in the one list where the window fits some and not others.
    private static let tightTries = 16

    private struct Entry {
        var next = ConnectionTable.none
        var previous = ConnectionTable.none
        var inFlight: Int32 = 0
        var streamsFree: Int32 = 0
        /// Streams reserved for urgent notifications.
        var streamsKept: Int32 = 0
        var windowFree: Int64 = 0
        /// The list that contains the connection.
        var list = ConnectionTable.unlisted
        var state = StreamScheduler.ConnectionState.suspended
    }

    private struct List {
        var head = ConnectionTable.none
        var tail = ConnectionTable.none
    }

    let capacity: Int
    private let entries: UnsafeMutablePointer<Entry>
    private let lists: UnsafeMutablePointer<List>
    /// Bitmap with one bit per roomy ready list in use. `usedWords` has one bit per word of this bitmap.
    private let used: UnsafeMutablePointer<UInt64>
    private var usedWords: UInt64 = 0
    private var readyTightUsed: UInt64 = 0
    private var reserveTightUsed: UInt64 = 0
    private var listed = 0
    private let largestBody: Int64
    /// Bytes of window per list.
    private let windowStep: Int64
    private let runLength: Int
    private let urgentPerMille: Int
    /// The connection that has the run.
    private var run = ConnectionTable.none
    private var runLeft = 0

    init(capacity: Int, largestBody: Int, runLength: Int, urgentPerMille: Int) {
        self.capacity = capacity
        entries = .allocate(capacity: max(1, capacity))
        entries.initialize(repeating: Entry(), count: max(1, capacity))
        lists = .allocate(capacity: Self.lists)
        lists.initialize(repeating: List(), count: Self.lists)
        used = .allocate(capacity: Self.buckets / 64)
        used.initialize(repeating: 0, count: Self.buckets / 64)
        self.largestBody = Int64(largestBody)
        windowStep = (Int64(largestBody) + Int64(Self.windows) - 1) / Int64(Self.windows)
        self.runLength = runLength
        self.urgentPerMille = urgentPerMille
    }

    deinit {
        entries.deallocate()
        lists.deallocate()
        used.deallocate()
    }

    /// Connections that have room for some body.
    var placeable: Int { listed + (run == Self.none ? 0 : 1) }

    func inFlight(_ connection: UInt32) -> Int {
        Int(connection) < capacity ? Int(entries[Int(connection)].inFlight) : 0
    }

    // MARK: Reports

    mutating func update(
        _ connection: UInt32, inFlight: Int, streamsFree: Int, windowFree: Int,
        state: StreamScheduler.ConnectionState
    ) -> Bool {
        guard Int(connection) < capacity else { return false }
        let entry = entries + Int(connection)
        entry.pointee.inFlight = Int32(clamping: max(0, inFlight))
        entry.pointee.streamsFree = Int32(clamping: max(0, streamsFree))
        let streams = Int(entry.pointee.inFlight) + Int(entry.pointee.streamsFree)
        entry.pointee.streamsKept = Int32(truncatingIfNeeded: streams * urgentPerMille / 1000)
        entry.pointee.windowFree = Int64(windowFree)
        entry.pointee.state = state
        if connection == run {
            if !isRoomyAndReady(entry.pointee) { endRun() }
        } else {
            relist(connection)
        }
        endRunIfTooFull()
        return true
    }

    mutating func remove(_ connection: UInt32) {
        _ = update(connection, inFlight: 0, streamsFree: 0, windowFree: 0, state: .suspended)
    }

    // MARK: Choice

    /// Returns the connection for a body of `bytes`, with the notification booked; nil when no connection has room.
    @inline(__always)
    mutating func assign(bytes: Int64, mayUseKept: Bool) -> UInt32? {
        if run == Self.none {
            guard usedWords != 0 else { return assignElsewhere(bytes: bytes, mayUseKept: mayUseKept) }
            run = lists[leastBucket].head
            runLeft = runLength
            unlink(run)
        }
        let connection = run
        let entry = entries + Int(connection)
        book(entry, bytes: bytes)
        runLeft -= 1
        if runLeft == 0 || entry.pointee.streamsFree <= entry.pointee.streamsKept
            || entry.pointee.windowFree < largestBody
        {
            endRun()
        }
        return connection
    }

    mutating func endRun() {
        guard run != Self.none else { return }
        let connection = run
        run = Self.none
        relist(connection)
    }

    /// Ends the run if other connections have ended so many notifications that they are much less loaded.
    private mutating func endRunIfTooFull() {
        guard run != Self.none, usedWords != 0 else { return }
        if bucket(entries[Int(run)]) > leastBucket + 2 * runLength { endRun() }
    }

    /// Finds a connection when no ready connection has room for any body. Tries kept streams first, then windows that
    /// fit the body, then the reserve.
    private mutating func assignElsewhere(bytes: Int64, mayUseKept: Bool) -> UInt32? {
        let kept = lists[Self.kept].head
        let found =
            (mayUseKept && kept != Self.none ? kept : nil)
            ?? tight(from: Self.readyTight, used: readyTightUsed, bytes: bytes)
            ?? (lists[Self.reserveRoomy].head != Self.none
                ? lists[Self.reserveRoomy].head
                : tight(from: Self.reserveTight, used: reserveTightUsed, bytes: bytes))
        guard let found else { return nil }
        book(entries + Int(found), bytes: bytes)
        relist(found)
        return found
    }

    private mutating func tight(from first: Int, used: UInt64, bytes: Int64) -> UInt32? {
        guard used != 0 else { return nil }
        // The window of list n is above n steps, and n + 1 steps at most. The last list's window is below the largest
        // body.
        let boundary = min(Int((max(bytes, 1) - 1) / windowStep), Self.windows - 1)
        let above = boundary == Self.windows - 1 ? 0 : used & (UInt64.max << UInt64(boundary + 1))
        if above != 0 { return lists[first + above.trailingZeroBitCount].head }
        guard used & (1 << UInt64(boundary)) != 0 else { return nil }
        // Skipped connections move to the end, so that the next decision checks others.
        let list = UInt16(first + boundary)
        for _ in 0..<Self.tightTries {
            let head = lists[Int(list)].head
            if entries[Int(head)].windowFree >= bytes { return head }
            unlink(head)
            link(head, to: list)
        }
        return nil
    }

    @inline(__always)
    private func book(_ entry: UnsafeMutablePointer<Entry>, bytes: Int64) {
        entry.pointee.inFlight += 1
        entry.pointee.streamsFree -= 1
        entry.pointee.windowFree -= bytes
    }

    // MARK: Lists

    /// Lowest list of roomy ready connections in use. Such a list must exist.
    private var leastBucket: Int {
        let word = usedWords.trailingZeroBitCount
        return word * 64 + used[word].trailingZeroBitCount
    }

    private func bucket(_ entry: Entry) -> Int {
        min(Int(entry.inFlight), Self.buckets - 1)
    }

    private func isRoomyAndReady(_ entry: Entry) -> Bool {
        entry.state == .ready && entry.streamsFree > entry.streamsKept && entry.windowFree >= largestBody
    }

    private func list(for entry: Entry) -> UInt16 {
        let isReady = entry.state == .ready
        guard isReady || entry.state == .reserve, entry.streamsFree > 0, entry.windowFree > 0 else {
            return Self.unlisted
        }
        guard entry.windowFree < largestBody else {
            guard isReady else { return UInt16(Self.reserveRoomy) }
            return UInt16(entry.streamsFree > entry.streamsKept ? bucket(entry) : Self.kept)
        }
        return UInt16(
            (isReady ? Self.readyTight : Self.reserveTight) + Int((entry.windowFree - 1) / windowStep))
    }

    private mutating func relist(_ connection: UInt32) {
        let entry = entries[Int(connection)]
        let list = self.list(for: entry)
        guard list != entry.list else { return }
        if entry.list != Self.unlisted { unlink(connection) }
        if list != Self.unlisted { link(connection, to: list) }
    }

    private mutating func link(_ connection: UInt32, to list: UInt16) {
        let tail = lists[Int(list)].tail
        entries[Int(connection)].previous = tail
        entries[Int(connection)].next = Self.none
        entries[Int(connection)].list = list
        lists[Int(list)].tail = connection
        listed += 1
        guard tail == Self.none else {
            entries[Int(tail)].next = connection
            return
        }
        lists[Int(list)].head = connection
        mark(Int(list), true)
    }

    private mutating func unlink(_ connection: UInt32) {
        let entry = entries[Int(connection)]
        let list = Int(entry.list)
        if entry.previous == Self.none {
            lists[list].head = entry.next
        } else {
            entries[Int(entry.previous)].next = entry.next
        }
        if entry.next == Self.none {
            lists[list].tail = entry.previous
        } else {
            entries[Int(entry.next)].previous = entry.previous
        }
        entries[Int(connection)].list = Self.unlisted
        listed -= 1
        if lists[list].head == Self.none { mark(list, false) }
    }

    /// Records in the bitmaps whether a list is in use.
    private mutating func mark(_ list: Int, _ isUsed: Bool) {
        switch list {
        case ..<Self.readyTight:
            let word = list / 64
            Self.set(&used[word], list % 64, isUsed)
            Self.set(&usedWords, word, used[word] != 0)
        case ..<Self.reserveRoomy: Self.set(&readyTightUsed, list - Self.readyTight, isUsed)
        case Self.reserveRoomy, Self.kept: break
        default: Self.set(&reserveTightUsed, list - Self.reserveTight, isUsed)
        }
    }

    private static func set(_ bits: inout UInt64, _ bit: Int, _ value: Bool) {
        if value { bits |= 1 << UInt64(bit) } else { bits &= ~(1 << UInt64(bit)) }
    }

    // MARK: Checks

    /// Describes the first error in lists, counts and bitmaps; nil when there is none.
    func problem() -> String? {
        var found = 0
        for list in 0..<Self.lists {
            var previous = Self.none
            var connection = lists[list].head
            while connection != Self.none {
                let entry = entries[Int(connection)]
                guard Int(entry.list) == list, entry.previous == previous else {
                    return
                        "connection \(connection): its links or list \(entry.list) are wrong in list \(list)"
                }
                found += 1
                previous = connection
                connection = entry.next
                guard found <= capacity else { return "list \(list) is a circle" }
            }
            guard lists[list].tail == previous else { return "list \(list) ends elsewhere" }
            let isMarked =
                switch list {
                case ..<Self.readyTight: used[list / 64] & 1 << UInt64(list % 64) != 0
                case ..<Self.reserveRoomy: readyTightUsed & 1 << UInt64(list - Self.readyTight) != 0
                case Self.reserveRoomy, Self.kept: lists[list].head != Self.none
                default: reserveTightUsed & 1 << UInt64(list - Self.reserveTight) != 0
                }
            guard isMarked == (lists[list].head != Self.none) else { return "list \(list) is marked wrongly" }
        }
        for word in 0..<Self.buckets / 64
        where (used[word] != 0) != (usedWords & 1 << UInt64(word) != 0) {
            return "word \(word) is marked wrongly"
        }
        guard found == listed else { return "\(found) connections are listed, counted \(listed)" }
        for connection in 0..<UInt32(capacity) {
            let entry = entries[Int(connection)]
            if connection == run {
                guard entry.list == Self.unlisted, isRoomyAndReady(entry), runLeft > 0 else {
                    return "connection \(connection) can't have the run"
                }
            } else if entry.list != list(for: entry) {
                return "connection \(connection) is in list \(entry.list), should be in \(list(for: entry))"
            }
        }
        return nil
    }
}
