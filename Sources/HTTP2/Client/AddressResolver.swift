import EventLoop
import Glibc

/// A name that could not be resolved.
public struct ResolverError: Error, Sendable, CustomStringConvertible {
    public var host: String
    public var reason: String
    public var description: String { "cannot resolve \(host): \(reason)" }
}

/// Looks names up, afresh each time, so that load spreads over the hosts behind a name (APNs: SNR).
enum AddressResolver {
    private struct Lookup: Sendable {
        let host: String
        let port: UInt16
        let loop: EventLoop
        let completion: @Sendable (Result<[SocketAddress], ResolverError>) -> Void
    }

    /// Resolves on a thread of its own, as the system's call blocks, and answers on `loop`.
    static func resolve(
        host: String, port: UInt16, on loop: EventLoop,
        completion: @escaping @Sendable (Result<[SocketAddress], ResolverError>) -> Void
    ) {
        final class Box: Sendable {
            let lookup: Lookup
            init(_ lookup: Lookup) { self.lookup = lookup }
        }
        let box = Box(Lookup(host: host, port: port, loop: loop, completion: completion))
        var thread = pthread_t()
        let created = pthread_create(
            &thread, nil,
            { context in
                let lookup = Unmanaged<Box>.fromOpaque(context!).takeRetainedValue().lookup
                let result = AddressResolver.resolveBlocking(host: lookup.host, port: lookup.port)
                lookup.loop.execute { lookup.completion(result) }
                return nil
            }, Unmanaged.passRetained(box).toOpaque())
        guard created == 0 else {
            Unmanaged.passUnretained(box).release()
            let error = ResolverError(host: host, reason: String(cString: strerror(created)))
            loop.execute { completion(.failure(error)) }
            return
        }
        pthread_detach(thread)
    }

    private static func isNumeric(_ host: String) -> Bool {
        host.utf8.allSatisfy { $0 == UInt8(ascii: ".") || ($0 >= 0x30 && $0 <= 0x39) }
            || host.utf8.contains(0x3A)
    }

    static func resolveBlocking(host: String, port: UInt16) -> Result<[SocketAddress], ResolverError> {
        var hints = addrinfo()
        hints.ai_socktype = Int32(SOCK_STREAM.rawValue)
        // Only families that this host has an address of. Loopback does not count for that, and "localhost" is on it.
        hints.ai_flags = AI_NUMERICSERV
        if !isNumeric(host), host != "localhost" { hints.ai_flags |= AI_ADDRCONFIG }
        var list: UnsafeMutablePointer<addrinfo>?
        let result = getaddrinfo(host, String(port), &hints, &list)
        guard result == 0 else {
            return .failure(ResolverError(host: host, reason: String(cString: gai_strerror(result))))
        }
        defer { freeaddrinfo(list) }
        var addresses: [SocketAddress] = []
        var next = list
        while let info = next {
            var address = SocketAddress()
            memcpy(&address.storage, info.pointee.ai_addr, Int(info.pointee.ai_addrlen))
            address.length = info.pointee.ai_addrlen
            addresses.append(address)
            next = info.pointee.ai_next
        }
        return addresses.isEmpty
            ? .failure(ResolverError(host: host, reason: "no address")) : .success(addresses)
    }
}
