import EventLoop

/// Receives a connection's events, on the loop's thread. Events arrive in batches, one call per read.
public protocol ClientConnectionOwner: AnyObject {
    /// Reports that TLS is up and the server's SETTINGS have arrived.
    func connectionOpened(_ connection: ClientConnection)
    /// Reports answers, failures and changed settings. The buffer is valid during the call.
    func connection(_ connection: ClientConnection, received events: UnsafeBufferPointer<ClientEvent>)
    /// Reports that ``ClientConnection/availableStreams`` has changed without an event. The connection has become
    /// suspect and accepts no requests for the moment, or has received a sign of life. Or its socket has accepted
    /// output that waited.
    func connectionAvailabilityChanged(_ connection: ClientConnection)
    /// Reports the end of the connection, as the last call. The outcome of every request has been reported before.
    func connectionClosed(_ connection: ClientConnection, reason: ConnectionCloseReason)
}
