import Foundation

/// Signal that ends all waits of a fetcher: the end of a pipe that is closed. Frees its descriptors with the object.
// Sendable: the descriptors are set in init; the write end is closed once, behind the mutex.
final class Interruption: @unchecked Sendable {
    /// Descriptor that becomes readable at the interruption.
    let descriptor: Int32
    private let lock = NSLock()
    private var writeEnd: Int32

    init() throws(SimulatorError) {
        var ends: [Int32] = [-1, -1]
        guard pipe(&ends) == 0 else { throw SimulatorError("the system has no descriptor for a pipe") }
        for end in ends { _ = fcntl(end, F_SETFD, FD_CLOEXEC) }
        descriptor = ends[0]
        writeEnd = ends[1]
    }

    deinit {
        interrupt()
        close(descriptor)
    }

    func interrupt() {
        lock.withLock {
            if writeEnd >= 0 { close(writeEnd) }
            writeEnd = -1
        }
    }
}

/// A connection to an attachment's server, with one deadline for all. Closes its socket with the value.
struct AttachmentConnection: ~Copyable {
    /// Address that a name was resolved to.
    struct Address {
        var storage: sockaddr_storage
        var length: socklen_t
        var family: Int32
    }

    typealias Fault = AttachmentURL.Fault

    private let descriptor: Int32
    private let deadline: ContinuousClock.Instant
    private let interruption: Interruption

    /// Connects. Waits until the deadline.
    init(
        _ address: Address, deadline: ContinuousClock.Instant, interruption: Interruption
    ) throws(Fault) {
        self.deadline = deadline
        self.interruption = interruption
        descriptor = socket(
            address.family,
            Int32(SOCK_STREAM.rawValue) | Int32(SOCK_NONBLOCK.rawValue) | Int32(SOCK_CLOEXEC.rawValue), 0)
        guard descriptor >= 0 else { throw Fault(text: "the system has no descriptor for a socket") }
        let result = withUnsafePointer(to: address.storage) {
            $0.withMemoryRebound(to: sockaddr.self, capacity: 1) { connect(descriptor, $0, address.length) }
        }
        if result != 0 {
            guard errno == EINPROGRESS else { throw Self.failure("connect", errno) }
            try wait(Int16(POLLOUT))
            var code: Int32 = 0
            var size = socklen_t(MemoryLayout<Int32>.size)
            getsockopt(descriptor, SOL_SOCKET, SO_ERROR, &code, &size)
            guard code == 0 else { throw Self.failure("connect", code) }
        }
    }

    deinit { if descriptor >= 0 { close(descriptor) } }

    private static func failure(_ call: String, _ code: Int32) -> Fault {
        Fault(text: "\(call): \(String(cString: strerror(code)))")
    }

    /// Resolves a host. Throws when one of its addresses is not allowed.
    static func addresses(of url: AttachmentURL, isListed: Bool) throws(Fault) -> [Address] {
        let refusal = Fault(
            text: "`\(url.field)` is not allowed; list it in `allowed-hosts` of the app's service extension")
        if !isListed, url.host != "localhost", !AttachmentURL.allows(url.host, isListed: false) {
            throw refusal
        }
        var hints = addrinfo()
        hints.ai_socktype = Int32(SOCK_STREAM.rawValue)
        var list: UnsafeMutablePointer<addrinfo>?
        let code = getaddrinfo(url.host, "\(url.port)", &hints, &list)
        guard code == 0 else {
            throw Fault(text: "the lookup of `\(url.host)` failed: \(String(cString: gai_strerror(code)))")
        }
        defer { freeaddrinfo(list) }
        var found: [Address] = []
        var next = list
        while let entry = next?.pointee {
            next = entry.ai_next
            var text = [CChar](repeating: 0, count: 64)
            guard let name = entry.ai_addr, Int(entry.ai_addrlen) <= MemoryLayout<sockaddr_storage>.size,
                getnameinfo(name, entry.ai_addrlen, &text, 64, nil, 0, NI_NUMERICHOST) == 0
            else { continue }
            let host = String(decoding: text.prefix { $0 != 0 }.map { UInt8(bitPattern: $0) }, as: UTF8.self)
            guard AttachmentURL.allows(host, isListed: isListed) else { throw refusal }
            var storage = sockaddr_storage()
            memcpy(&storage, name, Int(entry.ai_addrlen))
            found.append(Address(storage: storage, length: entry.ai_addrlen, family: entry.ai_family))
        }
        return found
    }

    borrowing func send(_ bytes: [UInt8]) throws(Fault) {
        var sent = 0
        while sent < bytes.count {
            let count = bytes.withUnsafeBytes {
                Foundation.send(
                    descriptor, $0.baseAddress! + sent, bytes.count - sent, Int32(MSG_NOSIGNAL))
            }
            if count > 0 {
                sent += count
            } else if errno == EAGAIN || errno == EWOULDBLOCK {
                try wait(Int16(POLLOUT))
            } else if errno != EINTR {
                throw Self.failure("send", errno)
            }
        }
    }

    /// Returns some bytes; nil at the end.
    borrowing func receive() throws(Fault) -> [UInt8]? {
        var bytes = [UInt8](repeating: 0, count: 64 << 10)
        while true {
            let count = recv(descriptor, &bytes, bytes.count, 0)
            if count > 0 { return Array(bytes[..<count]) }
            if count == 0 { return nil }
            if errno == EAGAIN || errno == EWOULDBLOCK {
                try wait(Int16(POLLIN))
            } else if errno != EINTR {
                throw Self.failure("receive", errno)
            }
        }
    }

    private borrowing func wait(_ events: Int16) throws(Fault) {
        while true {
            let left = (deadline - .now) / .milliseconds(1)
            guard left > 0 else { throw Fault(text: "the server took too long") }
            var descriptors = [
                pollfd(fd: descriptor, events: events, revents: 0),
                pollfd(fd: interruption.descriptor, events: Int16(POLLIN), revents: 0),
            ]
            let count = poll(&descriptors, 2, Int32(min(left.rounded(.up), 60_000)))
            if descriptors[1].revents != 0 { throw Fault(text: "the simulator stops") }
            if count > 0 { return }
        }
    }
}
