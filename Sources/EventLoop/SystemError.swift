import Glibc

/// A system call that failed: which one, and with which `errno`.
public struct SystemError: Error, Equatable, Sendable, CustomStringConvertible {
    /// The call, for example `epoll_create1`.
    public var call: String
    /// The value of `errno` after it.
    public var code: Int32

    public init(call: String, code: Int32 = errno) {
        self.call = call
        self.code = code
    }

    public var description: String {
        "\(call): \(String(cString: strerror(code))) (errno \(code))"
    }
}
