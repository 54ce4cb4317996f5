import EventLoop
import Glibc

/// System calls for a client's sockets.
enum ClientSocket {
    /// Begins to connect. The caller owns the socket, which does not block and is writable once the result is there.
    static func connect(
        to address: SocketAddress, userTimeoutMilliseconds: Int32
    ) throws(SystemError) -> Int32 {
        let socket = Glibc.socket(
            address.family, Int32(SOCK_STREAM.rawValue | SOCK_NONBLOCK.rawValue | SOCK_CLOEXEC.rawValue), 0)
        guard socket >= 0 else { throw SystemError(call: "socket") }
        var one: Int32 = 1
        setsockopt(socket, Int32(IPPROTO_TCP), TCP_NODELAY, &one, socklen_t(MemoryLayout<Int32>.size))
        var patience = userTimeoutMilliseconds
        setsockopt(
            socket, Int32(IPPROTO_TCP), TCP_USER_TIMEOUT, &patience, socklen_t(MemoryLayout<Int32>.size))
        let code = address.withPointer { Glibc.connect(socket, $0, $1) == 0 ? 0 : errno }
        guard code == 0 || code == EINPROGRESS else {
            Glibc.close(socket)
            throw SystemError(call: "connect", code: code)
        }
        return socket
    }

    /// Returns the `errno` of a failed attempt to connect; 0 for a connected socket.
    static func error(of socket: Int32) -> Int32 {
        var code: Int32 = 0
        var length = socklen_t(MemoryLayout<Int32>.size)
        return getsockopt(socket, SOL_SOCKET, SO_ERROR, &code, &length) == 0 ? code : errno
    }

    static func close(_ socket: Int32) { Glibc.close(socket) }
}
