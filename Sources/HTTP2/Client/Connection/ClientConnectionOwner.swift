import EventLoop

/// Told what happens on a connection; on the loop's thread. Events come in batches, one call a read.
public protocol ClientConnectionOwner: AnyObject {
    /// TLS is up and the server's SETTINGS have come.
    func connectionOpened(_ connection: ClientConnection)
    /// Answers, failures, changed settings. The buffer is valid during the call.
    func connection(_ connection: ClientConnection, received events: UnsafeBufferPointer<ClientEvent>)
    /// ``ClientConnection/availableStreams`` has changed without an event: it has become suspect and takes no
    /// requests for the moment, or has shown a sign of life; or its socket has taken what it could not before.
    func connectionAvailabilityChanged(_ connection: ClientConnection)
    /// The last call; every request has been answered for before.
    func connectionClosed(_ connection: ClientConnection, reason: ConnectionCloseReason)
}
