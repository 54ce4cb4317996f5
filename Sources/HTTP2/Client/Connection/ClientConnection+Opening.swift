import EventLoop
import Glibc

/// Steps from TCP to TLS.
extension ClientConnection: DialerOwner {
    func dialer(_ dialer: Dialer, failed error: DialError) {
        failedAddresses = dialer.unsuccessful(timedOut: false)
        closeSoon(.connectFailed(error))
    }

    func dialer(_ dialer: Dialer, connected socket: Int32, to address: SocketAddress) {
        self.socket = socket
        self.address = address
        hasConnected = true
        failedAddresses = dialer.unsuccessful(timedOut: false)
        self.dialer = nil
        let now = MonotonicTime.read()
        counters.connectNanoseconds = now.nanoseconds(since: phaseBegan)
        phaseBegan = now
        do throws(SystemError) {
            interest = .write
            registration = try loop.register(socket, interest: .write, handler: self)
        } catch {
            let attempt = DialError.Attempt(address: address, cause: .system(error))
            return close(.connectFailed(DialError(attempts: [attempt])))
        }
        guard let proxy = configuration.proxy else { return beginHandshake() }
        do throws(ProxyError) {
            tunnel = try ProxyTunnel(proxy: proxy, targetHost: serverName, targetPort: port)
        } catch {
            return close(.proxy(error))
        }
        state = .tunnelling
        continueTunnel()
    }

    // MARK: Proxy

    func continueTunnel() {
        while let tunnel, !tunnel.unsent.isEmpty {
            let count = tunnel.unsent.withUnsafeBytes {
                send(socket, $0.baseAddress!, $0.count, Int32(MSG_NOSIGNAL))
            }
            if count > 0 {
                self.tunnel?.didSend(count)
            } else if errno == EAGAIN {
                return want([.read, .write])
            } else if errno != EINTR {
                return close(.proxy(tunnel.error(.lost(SystemError(call: "send")))))
            }
        }
        want(.read)
        readTunnel()
    }

    private func readTunnel() {
        withUnsafeTemporaryAllocation(byteCount: 4096, alignment: 8) { buffer in
            while let tunnel {
                let count = recv(socket, buffer.baseAddress!, buffer.count, 0)
                if count < 0 {
                    if errno == EINTR { continue }
                    if errno == EAGAIN { return }
                    return close(.proxy(tunnel.error(.lost(SystemError(call: "recv")))))
                }
                guard count > 0 else { return close(.proxy(tunnel.error(.closed))) }
                switch self.tunnel?.receive(UnsafeRawBufferPointer(rebasing: buffer[..<count])) {
                case .needsMore: continue
                case .failed(let error): return close(.proxy(error))
                case .established, nil:
                    self.tunnel = nil
                    return beginHandshake()
                }
            }
        }
    }

    // MARK: TLS

    private func beginHandshake() {
        do throws(TLSError) {
            let owned = socket
            socket = -1
            transport = try TLSTransport(
                context: context, fileDescriptor: owned, serverName: certificateName, gathersOutput: true)
        } catch {
            return close(.tls(error))
        }
        state = .handshaking
        continueHandshake()
    }

    func continueHandshake() {
        guard let transport else { return }
        switch transport.handshake() {
        case .done:
            tlsDescription = "\(transport.version) \(transport.cipher)"
            applicationProtocol = transport.negotiatedProtocol
            state = .negotiating
            want(.read)
            flush()
            if state == .negotiating { readAll() }
        case .wantRead: want(.read)
        case .wantWrite: want(.write)
        case .failed(let error): close(.tls(error))
        }
    }

    /// Opens the connection, because the server's SETTINGS have arrived.
    func opened() {
        // A connection about to be closed does not open any more.
        guard pendingClose == nil else { return }
        state = .open
        transport?.resetsOnClose = true
        // A handshake may take milliseconds of the loop's turn.
        let now = MonotonicTime.read()
        counters.handshakeNanoseconds = now.nanoseconds(since: phaseBegan)
        counters.openedAtNanoseconds = now.nanoseconds
        health.bytesRead(now: now.nanoseconds)
        owner.connectionOpened(self)
        failedAddresses = []
        if state == .open { checkHealth() }
    }
}
