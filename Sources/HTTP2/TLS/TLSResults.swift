/// The state of a handshake.
public enum TLSProgress: Sendable {
    /// The handshake is complete.
    case done
    /// The caller calls again when the socket is readable.
    case wantRead
    /// The caller calls again when the socket is writable.
    case wantWrite
    /// The handshake failed. Only `close()` is useful.
    indirect case failed(TLSError)
}

/// The result of one read.
public enum TLSRead: Sendable {
    /// Number of bytes read, always more than zero.
    case bytes(Int)
    /// No bytes are there: the caller calls again when the socket is readable.
    case wantRead
    /// TLS has to send first: the caller calls again when the socket is writable.
    case wantWrite
    /// The peer has closed: cleanly with `close_notify`, or by ending the TCP stream, which may have been cut off.
    case closed(clean: Bool)
    /// The connection failed. Only `close()` is useful.
    indirect case failed(TLSError)
}

/// The result of one write.
public enum TLSWrite: Sendable {
    /// Number of bytes accepted; at most one TLS record (16,384 bytes) per call.
    case bytes(Int)
    /// TLS has to receive first: the caller calls again when the socket is readable.
    case wantRead
    /// Nothing is accepted: the caller calls again when the socket is writable.
    case wantWrite
    /// The connection failed. Only `close()` is useful.
    indirect case failed(TLSError)
}
