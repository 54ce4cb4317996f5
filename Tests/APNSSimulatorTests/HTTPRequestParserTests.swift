import HTTP1
import SluiceModel
import TestSupport
import Testing

@testable import APNSSimulator
@testable import HTTP1

@Suite("HTTP request parser")
struct HTTPRequestParserTests {
    private static func steps(_ text: String) throws(HTTPFault) -> [HTTPRequest] {
        var parser = HTTPRequestParser()
        parser.append(text.utf8)
        var requests: [HTTPRequest] = []
        while true {
            switch try parser.next() {
            case .wait: return requests
            case .head: continue
            case .request(let request): requests.append(request)
            }
        }
    }

    private static func status(_ text: String) -> Int? {
        do throws(HTTPFault) {
            _ = try steps(text)
            return nil
        } catch {
            return error.status
        }
    }

    @Test("a request with query and body is read with its escapes resolved")
    func requestIsRead() throws {
        let request = try #require(
            try Self.steps(
                "POST /api/a%20b/c?text=Hi+%C3%A4&flag HTTP/1.1\r\nHost: x:1\r\nContent-Length: 2\r\nX-A:  b \r\n\r\n{}"
            ).first)
        #expect(request.method == "POST")
        #expect(request.segments == ["api", "a b", "c"])
        #expect(request.query == [.init(name: "text", value: "Hi ä"), .init(name: "flag", value: "")])
        #expect(request["x-a"] == "b")
        #expect(request.host == "x:1")
        #expect(request.body == Array("{}".utf8))
        #expect(request.persists)
    }

    @Test("chunks are joined; extensions and trailers are skipped")
    func chunksAreJoined() throws {
        let requests = try Self.steps(
            "PUT /a HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\n3;e=1\r\nabc\r\n2\r\nde\r\n0\r\nT: 1\r\n\r\n"
                + "GET /b HTTP/1.1\r\nHost: x\r\n\r\n")
        #expect(requests.map { String(decoding: $0.body, as: UTF8.self) } == ["abcde", ""])
        #expect(requests.map(\.path) == ["/a", "/b"])
    }

    @Test("a target in absolute form names the host")
    func absoluteForm() throws {
        let request = try #require(
            try Self.steps("GET http://evil.example/x?a=1 HTTP/1.1\r\nHost: localhost\r\n\r\n").first)
        #expect(request.host == "evil.example")
        #expect(request.path == "/x")
    }

    @Test(
        "a request that breaks the protocol's rules is a fault with its status",
        arguments: [
            ("GET / HTTP/1.1\r\n\r\n", 400), ("GET / HTTP/1.1\r\nHost: a\r\nHost: b\r\n\r\n", 400),
            ("GET  / HTTP/1.1\r\nHost: a\r\n\r\n", 400), ("GET / HTTP/2.0\r\nHost: a\r\n\r\n", 505),
            ("GET / FTP/1.1\r\nHost: a\r\n\r\n", 400), ("GET x HTTP/1.1\r\nHost: a\r\n\r\n", 400),
            ("G\u{1}T / HTTP/1.1\r\nHost: a\r\n\r\n", 400), ("GET /%zz HTTP/1.1\r\nHost: a\r\n\r\n", 400),
            ("GET /?a=%ff HTTP/1.1\r\nHost: a\r\n\r\n", 400),
            ("GET / HTTP/1.1\r\nHost : a\r\n\r\n", 400),
            ("GET / HTTP/1.1\r\nHost: a\r\n b\r\n\r\n", 400),
            ("GET / HTTP/1.1\r\nHost: a\r\nA: \u{0}\r\n\r\n", 400),
            ("POST / HTTP/1.1\r\nHost: a\r\nContent-Length: -1\r\n\r\n", 400),
            ("POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 1, 2\r\n\r\n", 400),
            ("POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 99999999999999999999\r\n\r\n", 400),
            ("POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 1048577\r\n\r\n", 413),
            (
                "POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 1\r\nTransfer-Encoding: chunked\r\n\r\n", 400
            ),
            ("POST / HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: gzip, chunked\r\n\r\n", 501),
            ("POST / HTTP/1.0\r\nTransfer-Encoding: chunked\r\n\r\n", 400),
            ("POST / HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\nx\r\n", 400),
            ("POST / HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n1\r\nabc\r\n", 400),
            ("POST / HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\nffffff\r\n", 413),
            ("POST / HTTP/1.1\r\nHost: a\r\nExpect: teapot\r\n\r\n", 417),
            ("GET / HTTP/1.1\r\nHost: a\r\nA: \(String(repeating: "x", count: 17_000))", 431),
            ("GET / HTTP/1.1\r\nHost: a\r\n\(String(repeating: "A: b\r\n", count: 101))\r\n", 431),
        ])
    func faultHasItsStatus(text: String, status: Int) {
        #expect(Self.status(text) == status)
    }

    @Test(
        "a line that ends without CR and LF, and a line that is no field, are refused",
        arguments: [
            "GET / HTTP/1.1\nHost: a\r\n\r\n", "GET / HTTP/1.1\r\nHost: a\n\r\n",
            "GET / HTTP/1.1\r\nHost: a\r\n\n", "GET / HTTP/1.1\nHost: a\n\n",
            "\nGET / HTTP/1.1\r\nHost: a\r\n\r\n", "\n", "\r\n\n", "GET / HTTP/1.1\n",
            "\rGET / HTTP/1.1\r\nHost: a\r\n\r\n", "GET / HTTP/1.1\rHost: a\r\n\r\n",
            "GET / HTTP/1.1\r\r\nHost: a\r\n\r\n", "GET / HTTP/1.1 \r\nHost: a\r\n\r\n",
            "GET\t/ HTTP/1.1\r\nHost: a\r\n\r\n", "GET / HTTP/1.1\r\nHost: a\r\r\n\r\n",
            "GET / HTTP/1.1\r\nHost: a\rA: b\r\n\r\n", "GET / HTTP/1.1\r\n Host: a\r\n\r\n",
            "GET / HTTP/1.1\r\nHost: a\r\n A: b\r\n\r\n", "GET / HTTP/1.1\r\nHost: a\r\n\tA: b\r\n\r\n",
            "GET / HTTP/1.1\r\nHost: a\r\nA : b\r\n\r\n", "GET / HTTP/1.1\r\nHost: a\r\nA\t: b\r\n\r\n",
            "GET / HTTP/1.1\r\nHost: a\r\nA b: c\r\n\r\n", "GET / HTTP/1.1\r\nHost: a\r\nA\r\n\r\n",
            "GET / HTTP/1.1\r\nHost: a\r\n: b\r\n\r\n", "GET / HTTP/1.1\r\nHost: a\r\nA: \u{B}b\r\n\r\n",
            "GET / HTTP/1.1\r\nHost: a\r\nA\u{0}: b\r\n\r\n",
            "GET / HTTP/1.1\r\nHost: a\r\nA: \u{7F}\r\n\r\n",
        ])
    func malformedLines(text: String) {
        #expect(Self.status(text) == 400)
    }

    @Test(
        "a length of the body that is not certain is refused",
        arguments: [
            "Content-Length: 2 7", "Content-Length: 2\t7", "Content-Length: +5", "Content-Length: 0x5",
            "Content-Length: 5.0", "Content-Length: 5;", "Content-Length: 5,", "Content-Length: ,",
            "Content-Length:", "Content-Length: \u{665}", "Content-Length: 5\u{A0}", "Content-Length: 5, 05",
            "Content-Length: 5\r\nContent-Length: 6", "Content-Length: 5\r\n 6", "Content-Length : 5",
            "Content-Length: 5\r\nTransfer-Encoding: chunked",
            "Transfer-Encoding: chunked\r\nContent-Length: 5", "Transfer-Encoding: chunked x",
            "Transfer-Encoding: chunked\tx", "Transfer-Encoding: chunked;a=b",
            "Transfer-Encoding: x chunked", "Transfer-Encoding: xchunked", "Transfer-Encoding: \"chunked\"",
            "Transfer-Encoding: , chunked", "Transfer-Encoding: chunked,", "Transfer-Encoding:",
            "Transfer-Encoding: chunked, chunked", "Transfer-Encoding: chunked\r\nTransfer-Encoding: chunked",
            "Transfer-Encoding: chunked, gzip", "Transfer-Encoding: gzip", "Transfer-Encoding: identity",
            "Transfer-Encoding: chun\u{212A}ed", "Transfer-Encoding: chunked\u{A0}",
            "Transfer-Encoding: \u{B}chunked", "Transfer-Encoding : chunked",
            "Transfer-Encoding\r\n : chunked",
        ])
    func uncertainLength(fields: String) {
        #expect(Self.status("POST / HTTP/1.1\r\nHost: a\r\n\(fields)\r\n\r\n5\r\nhello\r\n0\r\n\r\n") == 400)
    }

    @Test(
        "a chunk, or a trailer, that is not of the form of RFC 9112 is refused",
        arguments: [
            "2 zz\r\nab\r\n", "2\tzz\r\nab\r\n", "2zz\r\nab\r\n", "2 \r\nab\r\n", " 2\r\nab\r\n",
            "+2\r\nab\r\n", "-2\r\nab\r\n", "0x2\r\nab\r\n", "2,2\r\nab\r\n", "2 2\r\nab\r\n",
            "\r\nab\r\n", ";a=b\r\nab\r\n", "000000002\r\nab\r\n", "\u{662}\r\nab\r\n", "2\nab\r\n",
            "2;a\nab\r\n", "2;a\rb\r\nab\r\n",
            "2;a\u{0}\r\nab\r\n", "2\r\r\nab\r\n", "2\r\nab\n\r\n", "2\r\nab\rc\r\n", "2\r\nabc\r\n",
            "0\n\r\n", "0\r\n\n", "0\r\nT: 1\n\r\n", "0\r\nT: 1\r\n\n", "0\r\nT : 1\r\n\r\n",
            "0\r\n T: 1\r\n\r\n", "0\r\nT: 1\r\n 2\r\n\r\n", "0\r\nT\r\n\r\n", "0\r\nT: a\rb\r\n\r\n",
        ])
    func malformedChunks(body: String) {
        #expect(
            Self.status("POST / HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n\(body)") == 400)
    }

    @Test(
        "blanks around values, leading zeros, equal lengths and extensions of chunks are permitted",
        arguments: [
            "Content-Length:5\r\n\r\nhello", "Content-Length: 5 \t \r\n\r\nhello",
            "Content-Length:\t 5\r\n\r\nhello", "Content-Length: 005\r\n\r\nhello",
            "Content-Length: 5 ,5\r\n\r\nhello", "Content-Length: 5\r\nContent-Length: 5\r\n\r\nhello",
            "Transfer-Encoding:chunked\r\n\r\n5\r\nhello\r\n0\r\n\r\n",
            "Transfer-Encoding: \t Chunked \t \r\n\r\n5;a=b\r\nhello\r\n0;c\r\n\r\n",
            "Transfer-Encoding: chunked\r\n\r\n2 ; a = \"\tb\"\r\nhe\r\n"
                + "03\t;c;d=e\r\nllo\r\n000\r\nT:\r\nU: v \r\n\r\n",
        ])
    func permittedForms(rest: String) throws {
        let requests = try Self.steps(
            "POST / HTTP/1.1\r\nHost: \t a \r\n\(rest)GET /b HTTP/1.1\r\nHost: a\r\n\r\n")
        #expect(requests.map { String(decoding: $0.body, as: UTF8.self) } == ["hello", ""])
        #expect(requests.map(\.host) == ["a", "a"])
    }

    @Test("bytes that arrive in any pieces give the same requests")
    func piecesDoNotMatter() throws {
        let text =
            "\r\nPOST /a?b=c HTTP/1.1\r\nHost: x\r\nContent-Length: 5\r\n\r\nhello"
            + "\r\n\r\nPUT /d HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\n"
            + "4;a=b\r\nabcd\r\n1\r\ne\r\n0\r\nT: 1\r\n\r\n"
            + "GET /e HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n"
        let whole = try Self.steps(text)
        #expect(whole.count == 3)
        var random = SeededGenerator(seed: 7)
        for _ in 0..<200 {
            var parser = HTTPRequestParser()
            var rest = Array(text.utf8)[...]
            var requests: [HTTPRequest] = []
            while true {
                switch try parser.next() {
                case .head: continue
                case .request(let request): requests.append(request)
                case .wait:
                    guard !rest.isEmpty else { break }
                    let count = min(rest.count, 1 + Int(random.next() % 9))
                    parser.append(rest.prefix(count))
                    rest = rest.dropFirst(count)
                    continue
                }
                if requests.count == 3 { break }
            }
            #expect(requests == whole)
        }
    }

    @Test("random changes of a request give a request or a fault, and never more than the limits hold")
    func changedBytes() {
        let text = Array(
            "PUT /d?x=%20 HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\n4\r\nabcd\r\n0\r\n\r\n"
                .utf8)
        var random = SeededGenerator(seed: 11)
        var faults = 0
        for _ in 0..<20_000 {
            var bytes = text
            for _ in 0..<(1 + random.next() % 3) {
                bytes[Int(random.next() % UInt64(bytes.count))] = UInt8(truncatingIfNeeded: random.next())
            }
            var parser = HTTPRequestParser()
            parser.append(bytes)
            do throws(HTTPFault) {
                while try parser.next() != .wait {}
            } catch {
                faults += 1
                #expect((400...599).contains(error.status))
            }
            #expect(parser.waiting <= bytes.count)
        }
        #expect(faults > 1_000)
    }
}
