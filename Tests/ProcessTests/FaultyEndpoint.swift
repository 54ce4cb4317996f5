import Foundation
import TestSupport

/// A worker's admin endpoint that fails in one way. Each connection gets the next answer of a script; the last answer
/// repeats.
final class FaultyEndpoint {
    /// Answer to a request.
    enum Answer: Sendable {
        /// A complete answer with this body.
        case body(String)
        /// A complete answer, after ``FaultyEndpoint/release()``.
        case held(String)
        /// These bytes, and the end of the connection.
        case bytes(String)
        /// Nothing, on a connection that stays open.
        case silence
        /// The head of an answer of 1 GB, and its body until the client closes.
        case flood
    }

    /// Address for `--url`.
    let address: String
    private let listener: Listener
    private let gate: DispatchSemaphore
    private let requests: DispatchSemaphore

    init(_ answers: Answer...) throws {
        precondition(!answers.isEmpty)
        let listener = Listener()
        self.listener = listener
        var name = sockaddr_in()
        name.sin_family = sa_family_t(AF_INET)
        name.sin_addr.s_addr = in_addr_t(0x7f00_0001).bigEndian
        var size = socklen_t(MemoryLayout<sockaddr_in>.size)
        let descriptor = listener.descriptor
        let isBound = withUnsafeMutablePointer(to: &name) { pointer in
            pointer.withMemoryRebound(to: sockaddr.self, capacity: 1) {
                bind(descriptor, $0, size) == 0 && listen(descriptor, 16) == 0
                    && getsockname(descriptor, $0, &size) == 0
            }
        }
        guard isBound else { throw POSIXError(.EIO) }
        address = "127.0.0.1:\(UInt16(bigEndian: name.sin_port))"
        let (gate, requests) = (DispatchSemaphore(value: 0), DispatchSemaphore(value: 0))
        (self.gate, self.requests) = (gate, requests)
        let thread = Thread { Self.serve(listener, answers, gate, requests) }
        thread.name = "faulty endpoint"
        thread.start()
    }

    deinit {
        // Ends the thread's accept; the thread closes its connections.
        shutdown(listener.descriptor, Int32(SHUT_RDWR))
        gate.signal()
    }

    /// A socket, closed when neither the endpoint nor its thread has it any more.
    private final class Listener: Sendable {
        let descriptor = socket(AF_INET, Int32(SOCK_STREAM.rawValue) | Int32(SOCK_CLOEXEC.rawValue), 0)

        /// Returns the next connection; nil after the shutdown.
        func accept() -> Int32? {
            while true {
                let connection = Glibc.accept(descriptor, nil, nil)
                if connection >= 0 { return connection }
                guard errno == EINTR || errno == ECONNABORTED else { return nil }
            }
        }

        deinit { close(descriptor) }
    }

    /// Lets the held answer go.
    func release() { gate.signal() }

    /// Waits for the next request.
    func waitForRequest() throws {
        try eventually("a request to \(address)") { requests.wait(timeout: .now()) == .success }
    }

    private static func serve(
        _ listener: Listener, _ answers: [Answer], _ gate: DispatchSemaphore, _ requests: DispatchSemaphore
    ) {
        var silent: [Int32] = []
        var number = 0
        while let connection = listener.accept() {
            guard readRequest(connection) else {
                close(connection)
                continue
            }
            requests.signal()
            switch answers[min(number, answers.count - 1)] {
            case .body(let text): send(answer(text), to: connection)
            case .held(let text):
                gate.wait()
                send(answer(text), to: connection)
            case .bytes(let text): send(text, to: connection)
            case .silence: silent.append(connection)
            case .flood:
                send("HTTP/1.1 200 OK\r\nContent-Length: 1000000000\r\n\r\n", to: connection)
                let chunk = String(repeating: "[", count: 1 << 20)
                while send(chunk, to: connection) {}
            }
            if silent.last != connection { close(connection) }
            number += 1
        }
        silent.forEach { close($0) }
    }

    private static func answer(_ body: String) -> String {
        "HTTP/1.1 200 OK\r\nContent-Length: \(body.utf8.count)\r\n\r\n\(body)"
    }

    private static func readRequest(_ connection: Int32) -> Bool {
        var request: [UInt8] = []
        var chunk = [UInt8](repeating: 0, count: 4_096)
        while !request.suffix(4).elementsEqual("\r\n\r\n".utf8) {
            let count = recv(connection, &chunk, chunk.count, 0)
            guard count > 0 else { return false }
            request += chunk[..<count]
        }
        return true
    }

    @discardableResult
    private static func send(_ text: String, to connection: Int32) -> Bool {
        var rest = Array(text.utf8)[...]
        while !rest.isEmpty {
            let count = rest.withUnsafeBytes {
                Glibc.send(connection, $0.baseAddress, $0.count, Int32(MSG_NOSIGNAL))
            }
            guard count > 0 else { return false }
            rest = rest.dropFirst(count)
        }
        return true
    }
}
