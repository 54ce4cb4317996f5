import Glibc

@testable import HTTP2

/// A client and a server joined by a socket pair in this process.
struct TLSPair {
    let client: TLSTransport
    let server: TLSTransport

    init(
        client clientContext: TLSContext, server serverContext: TLSContext, name: String? = "localhost",
        socketBuffer: Int32? = nil, gathersOutput: Bool = false
    ) throws {
        var descriptors: (Int32, Int32) = (-1, -1)
        let made = withUnsafeMutableBytes(of: &descriptors) {
            socketpair(
                AF_UNIX,
                Int32(SOCK_STREAM.rawValue) | Int32(SOCK_CLOEXEC.rawValue) | Int32(SOCK_NONBLOCK.rawValue), 0,
                $0.baseAddress!.assumingMemoryBound(to: Int32.self))
        }
        precondition(made == 0)
        if var size = socketBuffer {
            for descriptor in [descriptors.0, descriptors.1] {
                setsockopt(descriptor, SOL_SOCKET, SO_SNDBUF, &size, 4)
                setsockopt(descriptor, SOL_SOCKET, SO_RCVBUF, &size, 4)
            }
        }
        client = try TLSTransport(
            context: clientContext, fileDescriptor: descriptors.0, serverName: name,
            gathersOutput: gathersOutput)
        server = try TLSTransport(context: serverContext, acceptedFileDescriptor: descriptors.1)
    }

    enum Handshake {
        case done
        case clientFailed(TLSError)
        case serverFailed(TLSError)
        case stalled
    }

    /// Runs both sides in turn until both are done or one has failed.
    func handshake() -> Handshake {
        var clientDone = false
        var serverDone = false
        for _ in 0..<100 where !(clientDone && serverDone) {
            if !clientDone {
                switch client.handshake() {
                case .done: clientDone = true
                case .failed(let error): return .clientFailed(error)
                case .wantRead, .wantWrite: break
                }
            }
            if !serverDone {
                switch server.handshake() {
                case .done: serverDone = true
                case .failed(let error):
                    // The alert carries the reason to the client, unless the client failed first.
                    if case .failed(let reason) = client.handshake() { return .clientFailed(reason) }
                    return .serverFailed(error)
                case .wantRead, .wantWrite: break
                }
            }
        }
        return clientDone && serverDone ? .done : .stalled
    }
}

extension TLSPair.Handshake {
    var isDone: Bool { if case .done = self { true } else { false } }
    var clientError: TLSError? { if case .clientFailed(let error) = self { error } else { nil } }
    var serverError: TLSError? { if case .serverFailed(let error) = self { error } else { nil } }
}

extension TLSTransport {
    /// Reads once into an array.
    func readBytes(_ limit: Int = 65_536) -> (result: TLSRead, bytes: [UInt8]) {
        var bytes = [UInt8](repeating: 0, count: limit)
        let result = bytes.withUnsafeMutableBytes { read(into: $0) }
        if case .bytes(let count) = result { return (result, Array(bytes[..<count])) }
        return (result, [])
    }

    func writeBytes(_ bytes: [UInt8]) -> TLSWrite {
        bytes.withUnsafeBytes { write($0) }
    }
}

/// The authority and the contexts that most tests use; keys are generated once.
struct TLSFixture: Sendable {
    let authority: CertificateAuthority
    let serverCertificate: IssuedCertificate

    init() throws {
        authority = try CertificateAuthority()
        serverCertificate = try authority.issueServer(names: [
            "localhost", "127.0.0.1", "::1", "*.example.com",
        ])
    }

    var clientOptions: ClientTLSOptions {
        var options = ClientTLSOptions()
        options.trust = .authorities(.text(authority.certificatePEM))
        return options
    }

    var serverOptions: ServerTLSOptions { ServerTLSOptions(identity: serverCertificate.identity) }

    func pair(
        name: String? = "localhost", socketBuffer: Int32? = nil, gathersOutput: Bool = false,
        client: (inout ClientTLSOptions) -> Void = { _ in },
        server: (inout ServerTLSOptions) -> Void = { _ in }
    ) throws -> TLSPair {
        var clientSide = clientOptions
        client(&clientSide)
        var serverSide = serverOptions
        server(&serverSide)
        return try TLSPair(
            client: .client(clientSide), server: .server(serverSide), name: name, socketBuffer: socketBuffer,
            gathersOutput: gathersOutput)
    }
}
