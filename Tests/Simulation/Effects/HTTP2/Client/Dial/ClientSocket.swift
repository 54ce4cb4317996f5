import EventLoop

/// System calls for a client's simulated sockets.
enum ClientSocket {
    static func connect(
        to address: SocketAddress, userTimeoutMilliseconds: Int32
    ) throws(SystemError) -> Int32 {
        try SimulatedNetwork.current.connect(
            to: address, userTimeout: UInt64(userTimeoutMilliseconds) * 1_000_000)
    }

    static func error(of socket: Int32) -> Int32 {
        SimulatedNetwork.current.socket(socket)?.takeError() ?? 0
    }

    /// Also after the end of the simulation, whose objects end with it.
    static func close(_ socket: Int32) {
        guard let scheduler = Scheduler.currentIfAny else { return }
        SimulatedNetwork.of(scheduler).socket(socket)?.close()
    }
}
