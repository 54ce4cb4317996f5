import EventLoop
import Glibc

/// Decides the order in which the addresses of a name are tried (after RFC 8305 §4). The families alternate. Each
/// opening begins with another address, so that none is preferred for ever. Addresses of the pool's other connections
/// are later, because APNs asks for spread load. Addresses that failed within the last minute are last, the longest ago
/// first.
///
/// The value is pure: time is an argument, in nanoseconds. Its memory is bounded.
struct AddressOrder {
    /// Highest number of remembered failures; the oldest is dropped first.
    static let capacity = 64
    /// Time for which a failure counts, in nanoseconds.
    static let failureMemory: UInt64 = 60_000_000_000

    private struct Failure {
        var address: SocketAddress
        var time: UInt64
    }
    /// Failures, the oldest first, no address twice.
    private var failures: [Failure] = []
    private var turn = 0

    /// Number of remembered failures.
    var remembered: Int { failures.count }

    /// Records that the address did not connect, or that a later attempt to another address overtook it.
    mutating func failed(_ address: SocketAddress, now: UInt64) {
        forget(before: now)
        failures.removeAll { $0.address == address }
        if failures.count == Self.capacity { failures.removeFirst() }
        failures.append(Failure(address: address, time: now))
    }

    /// Records that a connection to the address is open.
    mutating func connected(_ address: SocketAddress) {
        failures.removeAll { $0.address == address }
    }

    /// Returns the order for the next opening, each address once.
    mutating func next(_ addresses: [SocketAddress], inUse: [SocketAddress], now: UInt64) -> [SocketAddress] {
        forget(before: now)
        var fresh: [SocketAddress] = []
        var used: [SocketAddress] = []
        var seen: Set<SocketAddress> = []
        for address in addresses where seen.insert(address).inserted {
            if failures.contains(where: { $0.address == address }) { continue }
            if inUse.contains(address) { used.append(address) } else { fresh.append(address) }
        }
        let dead = failures.compactMap { seen.contains($0.address) ? $0.address : nil }
        defer { turn &+= 1 }
        return interleaved(fresh) + interleaved(used) + dead
    }

    private mutating func forget(before now: UInt64) {
        failures.removeAll { now >= $0.time && now - $0.time >= Self.failureMemory }
    }

    /// Alternates the families, beginning with another one each time, and each family from another address on.
    private func interleaved(_ addresses: [SocketAddress]) -> [SocketAddress] {
        guard let first = addresses.first?.family else { return [] }
        let one = addresses.filter { $0.family == first }
        let other = addresses.filter { $0.family != first }
        guard !other.isEmpty else { return rotated(one, by: turn) }
        let swapped = turn & 1 == 1
        let a = rotated(swapped ? other : one, by: turn >> 1)
        let b = rotated(swapped ? one : other, by: turn >> 1)
        var result: [SocketAddress] = []
        for index in 0..<max(a.count, b.count) {
            if index < a.count { result.append(a[index]) }
            if index < b.count { result.append(b[index]) }
        }
        return result
    }

    private func rotated(_ addresses: [SocketAddress], by turns: Int) -> [SocketAddress] {
        let start = turns % addresses.count
        return Array(addresses[start...] + addresses[..<start])
    }
}
