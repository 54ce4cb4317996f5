import Glibc

/// A failed system call, with its `errno`.
public struct SystemError: Error, Equatable, Sendable, CustomStringConvertible {
    /// Name of the call, for example `epoll_create1`.
    public var call: String
    /// Value of `errno` after the call.
    public var code: Int32

    public init(call: String, code: Int32 = errno) {
        self.call = call
        self.code = code
    }

    public var description: String {
        "\(call): \(String(cString: strerror(code))) (errno \(code))"
    }
}
