import Glibc
import HTTP2

/// A listening socket in the file system, which only this process's user may connect to. The stop of the
/// server removes the socket's file.
struct LocalSocket: ~Copyable {
    /// Descriptor, which doesn't block; the receiver of ``take()`` owns it. -1 afterwards.
    private var descriptor: Int32
    private let file: File

    /// The socket's file, which its owner removes if no other process has replaced it.
    final class File: Sendable {
        private let path: String
        private let device: UInt
        private let node: UInt

        fileprivate init?(_ path: String) {
            var status = stat()
            guard stat(path, &status) == 0 else { return nil }
            (self.path, device, node) = (path, UInt(status.st_dev), UInt(status.st_ino))
        }

        func remove() {
            var status = stat()
            guard stat(path, &status) == 0, UInt(status.st_dev) == device, UInt(status.st_ino) == node
            else { return }
            unlink(path)
        }
    }

    /// Most bytes of a path that the system accepts.
    static let mostBytes = 107

    /// Binds and listens. A file that an ended process has left is replaced.
    init(_ path: String) throws(ServerError) {
        func failure(_ code: Int32, _ hint: String) -> ServerError {
            ServerError(endpoint: path, reason: String(cString: strerror(code)), hint: hint)
        }
        guard var name = Self.name(path) else {
            throw ServerError(
                endpoint: path, reason: "the path is longer than \(Self.mostBytes) bytes",
                hint: "choose a shorter path")
        }
        let type = Int32(SOCK_STREAM.rawValue) | Int32(SOCK_NONBLOCK.rawValue) | Int32(SOCK_CLOEXEC.rawValue)
        let socket = Glibc.socket(AF_UNIX, type, 0)
        guard socket >= 0 else { throw failure(errno, "see socket(2)") }
        var code = Self.bind(socket, &name)
        if code == EADDRINUSE {
            guard Self.isAbandoned(path, &name, type) else {
                close(socket)
                throw failure(
                    EADDRINUSE, "another process uses the path, or it is no socket; choose another path")
            }
            unlink(path)
            code = Self.bind(socket, &name)
        }
        // Nobody can connect before `listen`, so the rights are in force in time.
        guard code == 0, chmod(path, 0o600) == 0, listen(socket, 64) == 0, let file = File(path) else {
            let reason = code == 0 ? errno : code
            close(socket)
            if code == 0 { unlink(path) }
            throw failure(reason, "the directory must exist, and the worker must be allowed to write to it")
        }
        descriptor = socket
        self.file = file
    }

    deinit { if descriptor >= 0 { close(descriptor) } }

    /// Hands the descriptor and the file to a new owner.
    consuming func take() -> (descriptor: Int32, file: File) {
        let taken = (descriptor, file)
        descriptor = -1
        return taken
    }

    private static func name(_ path: String) -> sockaddr_un? {
        guard (1...mostBytes).contains(path.utf8.count), !path.utf8.contains(0) else { return nil }
        var name = sockaddr_un()
        name.sun_family = sa_family_t(AF_UNIX)
        withUnsafeMutableBytes(of: &name.sun_path) { $0.copyBytes(from: path.utf8) }
        return name
    }

    /// Returns 0 or the system's error.
    private static func bind(_ socket: Int32, _ name: inout sockaddr_un) -> Int32 {
        let result = withUnsafePointer(to: &name) {
            $0.withMemoryRebound(to: sockaddr.self, capacity: 1) {
                Glibc.bind(socket, $0, socklen_t(MemoryLayout<sockaddr_un>.size))
            }
        }
        return result == 0 ? 0 : errno
    }

    /// Returns whether the path is a socket that no process listens at.
    private static func isAbandoned(_ path: String, _ name: inout sockaddr_un, _ type: Int32) -> Bool {
        var status = stat()
        guard lstat(path, &status) == 0, status.st_mode & S_IFMT == S_IFSOCK else { return false }
        let socket = Glibc.socket(AF_UNIX, type, 0)
        guard socket >= 0 else { return false }
        defer { close(socket) }
        let result = withUnsafePointer(to: &name) {
            $0.withMemoryRebound(to: sockaddr.self, capacity: 1) {
                connect(socket, $0, socklen_t(MemoryLayout<sockaddr_un>.size))
            }
        }
        return result != 0 && errno == ECONNREFUSED
    }
}
