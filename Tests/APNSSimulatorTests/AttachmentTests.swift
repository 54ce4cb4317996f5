import DeviceModel
import Foundation
import HTTP1
import Synchronization
import TestSupport
import Testing

@testable import APNSSimulator
@testable import HTTP1

@Suite("Devices: attachments")
struct AttachmentTests {
    private static let png: [UInt8] = [0x89, 0x50, 0x4E, 0x47, 0x0D, 0x0A, 0x1A, 0x0A, 1, 2, 3]

    /// A server that sends the same bytes to each client.
    private final class FixedServer: Sendable {
        let port: UInt16
        private let descriptor: Int32
        private let accepted = Counter()
        /// Signalled at the end of the server's thread.
        private let ended = DispatchSemaphore(value: 0)

        private final class Counter: Sendable {
            let value = Mutex(0)
        }

        /// - Parameter silent: whether nothing is sent, and the connection stays open.
        init(_ answer: [UInt8], silent: Bool = false) throws {
            let descriptor = socket(AF_INET, Int32(SOCK_STREAM.rawValue), 0)
            var name = sockaddr_in()
            name.sin_family = sa_family_t(AF_INET)
            name.sin_addr.s_addr = UInt32(0x7F00_0001).bigEndian
            var length = socklen_t(MemoryLayout<sockaddr_in>.size)
            let port = withUnsafeMutablePointer(to: &name) { pointer in
                pointer.withMemoryRebound(to: sockaddr.self, capacity: 1) { address in
                    bind(descriptor, address, length)
                    listen(descriptor, 16)
                    getsockname(descriptor, address, &length)
                }
                return UInt16(bigEndian: pointer.pointee.sin_port)
            }
            self.descriptor = descriptor
            self.port = port
            let thread = Thread { [accepted, ended] in
                while true {
                    let client = accept(descriptor, nil, nil)
                    guard client >= 0 else { break }
                    accepted.value.withLock { $0 += 1 }
                    var request = [UInt8](repeating: 0, count: 4_096)
                    _ = recv(client, &request, request.count, 0)
                    if silent {
                        // Returns when the client leaves.
                        _ = recv(client, &request, request.count, 0)
                    } else {
                        _ = answer.withUnsafeBytes {
                            send(client, $0.baseAddress, $0.count, Int32(MSG_NOSIGNAL))
                        }
                    }
                    // A child process of another test may have inherited the descriptor.
                    shutdown(client, Int32(SHUT_RDWR))
                    close(client)
                }
                ended.signal()
            }
            thread.start()
        }

        var count: Int { accepted.value.withLock { $0 } }

        deinit {
            shutdown(descriptor, Int32(SHUT_RDWR))
            // The number of a closed descriptor soon belongs to another server, from which the thread would accept.
            ended.wait()
            close(descriptor)
        }
    }

    private static func answer(_ body: [UInt8], head: String = "HTTP/1.1 200 OK\r\n") -> [UInt8] {
        Array("\(head)Content-Length: \(body.count)\r\n\r\n".utf8) + body
    }

    private static func fetch(
        _ url: String, allowedHosts: [String] = [],
        limits change: (inout AttachmentFetcher.Limits) -> Void = { _ in }
    ) throws -> WorkResult {
        var limits = AttachmentFetcher.Limits()
        change(&limits)
        let fetcher = try AttachmentFetcher(limits: limits)
        let result = Mutex<WorkResult?>(nil)
        fetcher.fetch(url, allowedHosts: allowedHosts) { found in result.withLock { $0 = found } }
        return try eventually("the fetch ends") { result.withLock { $0 } }
    }

    private static func failure(_ result: WorkResult) -> String? {
        if case .failed(let text) = result { return text }
        return nil
    }

    @Test("a picture of this machine is fetched, and its type is that of its bytes")
    func picture() throws {
        let server = try FixedServer(
            Self.answer(Self.png, head: "HTTP/1.0 200 OK\r\nContent-Type: text/html\r\n"))
        for host in ["127.0.0.1", "localhost"] {
            let result = try Self.fetch("http://\(host):\(server.port)/a.png?b=c#d")
            #expect(result == .fetched(type: "image/png", bytes: Self.png))
        }
    }

    @Test("an answer without a length ends with the connection")
    func untilClose() throws {
        let server = try FixedServer(Array("HTTP/1.1 200 OK\r\n\r\n".utf8) + Self.png)
        #expect(
            try Self.fetch("http://127.0.0.1:\(server.port)/") == .fetched(type: "image/png", bytes: Self.png)
        )
    }

    @Test("a host beyond loopback is refused without a connection, in any spelling")
    func otherHosts() throws {
        for url in [
            "http://10.0.0.1/x", "http://192.0.2.1/", "http://0.0.0.0:80/", "http://[::]/",
            "http://example.com/",
            "http://127.0.0.1.example.com/", "http://localhost@10.0.0.1/", "http://169.254.169.254/",
            "http://2130706433/", "http://0x7f000001/", "https://127.0.0.1/", "ftp://127.0.0.1/",
            "file:///etc/passwd",
            "http://127.0.0.1:99999/", "http:///x", "http://[::1/", "", "http://127.0.0.1/a b",
        ] {
            #expect(Self.failure(try Self.fetch(url)) != nil, "\(url)")
        }
        #expect(Self.failure(try Self.fetch("http://10.0.0.1/x"))?.contains("allowed-hosts") == true)
    }

    @Test("a listed name whose address is link-local or multicast is refused")
    func specialAddresses() {
        #expect(AttachmentURL.allows("127.0.0.1", isListed: false))
        #expect(AttachmentURL.allows("::1", isListed: false))
        #expect(AttachmentURL.allows("::ffff:127.0.0.1", isListed: false))
        #expect(!AttachmentURL.allows("10.0.0.1", isListed: false))
        #expect(AttachmentURL.allows("10.0.0.1", isListed: true))
        for address in [
            "169.254.169.254", "224.0.0.1", "0.0.0.0", "fe80::1%eth0", "ff02::1", "::", "::ffff:169.254.1.1",
        ] {
            #expect(!AttachmentURL.allows(address, isListed: true), "\(address)")
        }
    }

    @Test("an entry of the list allows its port, or each port without one")
    func list() throws {
        let url = try AttachmentURL("http://Pictures.example:8000/x")
        #expect(url.isListed(in: ["pictures.example"]))
        #expect(url.isListed(in: ["a", "PICTURES.example:8000"]))
        #expect(!url.isListed(in: ["pictures.example:80", "example", "other.pictures.example"]))
        #expect(try AttachmentURL("http://[::1]:80").field == "[::1]")
        #expect(try AttachmentURL("http://a.b:81/").field == "a.b:81")
    }

    @Test("a redirect, an error, another type and a broken answer fail with their cause")
    func answers() throws {
        let cases: [(String, [UInt8])] = [
            ("redirects", Array("HTTP/1.1 302 Found\r\nLocation: http://10.0.0.1/\r\n\r\n".utf8)),
            ("404", Self.answer([], head: "HTTP/1.1 404 Not Found\r\n")),
            ("no JPEG", Self.answer(Array("<svg onload=alert(1)>".utf8))),
            ("no HTTP", Array("SSH-2.0-OpenSSH\r\n\r\n".utf8)), ("without an answer", []),
            ("of 11 bytes", Self.answer(Self.png).dropLast(2)),
            ("chunks", Array("HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n".utf8)),
            ("compresses", Array("HTTP/1.1 200 OK\r\nContent-Encoding: gzip\r\n\r\n".utf8)),
        ]
        for (cause, bytes) in cases {
            let server = try FixedServer(bytes)
            let text = Self.failure(try Self.fetch("http://127.0.0.1:\(server.port)/"))
            #expect(text?.contains(cause) == true, "\(cause): \(text ?? "")")
        }
    }

    @Test("a file beyond its type's limit is refused")
    func sizes() throws {
        let long = Self.png + [UInt8](repeating: 0, count: 1_000)
        let server = try FixedServer(Self.answer(long))
        let url = "http://127.0.0.1:\(server.port)/"
        #expect(Self.failure(try Self.fetch(url) { $0.bytes = 500 })?.contains("more than 500") == true)
        let sound = Array("ID3".utf8) + [UInt8](repeating: 0, count: 5 << 20)
        let music = try FixedServer(Self.answer(sound))
        #expect(
            Self.failure(try Self.fetch("http://127.0.0.1:\(music.port)/"))?.contains("audio/mpeg") == true)
    }

    @Test("a server that is silent costs the time limit, and a stop ends the wait")
    func silence() throws {
        let server = try FixedServer([], silent: true)
        let url = "http://127.0.0.1:\(server.port)/"
        #expect(Self.failure(try Self.fetch(url) { $0.milliseconds = 100 })?.contains("too long") == true)
        let fetcher = try AttachmentFetcher()
        let wasCalled = Mutex(false)
        let before = server.count
        fetcher.fetch(url, allowedHosts: []) { _ in wasCalled.withLock { $0 = true } }
        try eventually("the server was asked") { server.count == before + 1 }
        fetcher.stop()
        fetcher.fetch(url, allowedHosts: []) { _ in wasCalled.withLock { $0 = true } }
        #expect(!wasCalled.withLock { $0 })
    }

    @Test("many fetches run a few at once, and too many are refused")
    func queue() throws {
        let server = try FixedServer(Self.answer(Self.png))
        var limits = AttachmentFetcher.Limits()
        limits.threads = 2
        limits.waiting = 50
        let fetcher = try AttachmentFetcher(limits: limits)
        let results = Mutex<[WorkResult]>([])
        for _ in 0..<200 {
            fetcher.fetch("http://127.0.0.1:\(server.port)/", allowedHosts: []) { result in
                results.withLock { $0.append(result) }
            }
        }
        try eventually("each fetch has its result") { results.withLock { $0.count } == 200 }
        let good = results.withLock { $0.count { Self.failure($0) == nil } }
        #expect(good >= 50)
        #expect(good == server.count)
    }

    @Test("types are known by their first bytes")
    func types() {
        let cases: [([UInt8], AttachmentType?)] = [
            ([0xFF, 0xD8, 0xFF, 0xE0], .jpeg), (Self.png, .png), (Array("GIF89a".utf8), .gif),
            (Array("RIFF0000WAVE".utf8), .wav), (Array("FORM0000AIFF".utf8), .aiff),
            (Array("ID3".utf8), .mp3), ([0xFF, 0xFB, 0x90], .mp3), (Array("0000ftypM4A ".utf8), .m4a),
            (Array("0000ftypisom".utf8), .mp4), (Array("RIFF0000AVI ".utf8), nil), ([], nil), ([0xFF], nil),
            (Array("<html>".utf8), nil),
        ]
        for (bytes, type) in cases { #expect(AttachmentType(bytes) == type) }
    }
}

@Suite("Devices: decryption")
struct MessageDecryptionTests {
    // Test case 3 of the GCM specification (McGrew and Viega), without additional data.
    private static let key = bytes("feffe9928665731c6d6a8f9467308308")
    private static let nonce = bytes("cafebabefacedbaddecaf888")
    private static let clear = bytes(
        "d9313225f88406e5a55909c5aff5269a86a7a9531534f7da2e4c303d8a318a721c3c0c95956809532fcf0e2449a6b525b16aedf5aa0de657ba637b391aafd255"
    )
    private static let cipher = bytes(
        "42831ec2217774244b7221b784d0d49ce3aa212f2c02a4e035c17e2329aca12e21d514b25466931c7d8f6a5aac84aa051ba30b396a0aac973d58e091473f5985"
    )
    private static let tag = bytes("4d5c2af327cd64a62cf35abd2ba6fab4")

    private static func bytes(_ text: String) -> [UInt8] {
        let digits = Array(text.utf8).compactMap { hexadecimalDigit($0) }
        return stride(from: 0, to: digits.count, by: 2).map { digits[$0] << 4 | digits[$0 + 1] }
    }

    @Test("a message of the specification is decrypted")
    func decrypts() {
        let message = Self.nonce + Self.cipher + Self.tag
        #expect(MessageDecryption.decrypt(message, key: Self.key) == .decrypted(Self.clear))
    }

    @Test("keys of 24 and 32 bytes, and an empty text, are decrypted")
    func otherKeys() {
        // Test cases 7 and 13: an empty text under keys of zeros.
        let nonce = [UInt8](repeating: 0, count: 12)
        for (length, tag) in [
            (24, "cd33b28ac773f74ba00ed1f312572435"), (32, "530f8afbc74536b9a963b4f1c4cb738b"),
        ] {
            let key = [UInt8](repeating: 0, count: length)
            #expect(MessageDecryption.decrypt(nonce + Self.bytes(tag), key: key) == .decrypted([]))
        }
    }

    @Test("each changed byte, another key, a short message and a wrong key length fail")
    func refuses() {
        let message = Self.nonce + Self.cipher + Self.tag
        for index in message.indices {
            var changed = message
            changed[index] ^= 1
            guard case .failed = MessageDecryption.decrypt(changed, key: Self.key) else {
                Issue.record("byte \(index)")
                continue
            }
        }
        for (data, key) in [
            (message, [UInt8](repeating: 7, count: 16)), (Array(message.prefix(27)), Self.key),
            ([], Self.key),
            (message, Array(Self.key.dropLast())), (message, []),
        ] {
            guard case .failed = MessageDecryption.decrypt(data, key: key) else {
                Issue.record("\(data.count) bytes, key of \(key.count)")
                continue
            }
        }
    }
}
