/// Conditions that hold between any two calls, whatever the server sends. For tests and the fuzzer.
extension ClientSession {
    /// Limit on unread answers; see ``maximumUnreadAnswers``.
    package static var answerLimit: Int { maximumUnreadAnswers }

    /// Returns the first broken condition; nil when all hold.
    package func brokenInvariant() -> String? {
        if let broken = streams.brokenInvariant(below: nextID) { return broken }
        var collecting = 0
        var waiting = 0
        var index = streams.oldest
        while index >= 0 {
            let cell = streams[index]
            if cell.unsent.isEmpty != (cell.outputEnd <= output.endPosition) {
                return "stream \(cell.id): its request ends at \(cell.outputEnd) of \(output.endPosition)"
            }
            if cell.receiveWindow < 0 { return "stream \(cell.id): it took more than its window" }
            if cell.collectsBody {
                collecting += 1
                guard let body = collectedBodies[cell.id], body.count <= Self.maximumResponseBody else {
                    return "stream \(cell.id): content collected is missing or too long"
                }
            }
            if !cell.unsent.isEmpty {
                waiting += 1
                if !blockedStreams.contains(cell.id) { return "stream \(cell.id): waits and is in no list" }
                if cell.sendWindow > 0, connectionSendWindow > 0, failure == nil {
                    return "stream \(cell.id): waits although both windows are open"
                }
            }
            index = cell.next
        }
        if collecting != collectedBodies.count { return "content of \(collectedBodies.count) streams" }
        if blockedStreams.count > streams.capacity { return "\(blockedStreams.count) streams wait" }
        if connectionSendWindow < 0 || (connectionSendWindow > 0x7fff_ffff && failure == nil) {
            return "a connection window of \(connectionSendWindow)"
        }
        if connectionReceiveWindow < 0, failure == nil { return "the connection took more than its window" }
        if pendingBlock == nil, pendingBlockBytes.count > 0, failure == nil {
            return "bytes of no header block"
        }
        if pendingBlockBytes.count > Self.maximumHeaderBlock { return "a header block too long" }
        if unreadAnswers.bytes > Self.maximumUnreadAnswers, failure == nil {
            return "unread answers too long"
        }
        return nil
    }
}

extension ClientStreamTable {
    func brokenInvariant(below next: UInt32) -> String? {
        var seen = 0
        var previous: Int32 = -1
        var last: UInt32 = 0
        var index = oldest
        while index >= 0 {
            let cell = self[index]
            if cell.id & 1 == 0 || cell.id <= last || cell.id >= next {
                return "stream \(cell.id) in the list"
            }
            if find(cell.id) != index { return "stream \(cell.id) is not in its cell" }
            if cell.previous != previous { return "stream \(cell.id): the list is broken" }
            last = cell.id
            previous = index
            index = cell.next
            seen += 1
            if seen > capacity { return "the list is a ring" }
        }
        return seen == count ? nil : "\(seen) streams in the list of \(count)"
    }
}
