import Testing

@testable import Kafka

@Suite struct VersionNegotiationTests {
    /// A request with this API key and version; the rest of it is a client's name.
    private func request(_ key: UInt8, _ version: UInt8, correlation: UInt8 = 7) -> [UInt8] {
        let body: [UInt8] = [0, key, 0, version, 0, 0, 0, correlation, 0, 2] + Array("me".utf8)
        return [0, 0, 0, UInt8(body.count)] + body
    }

    private func refusal(_ correlation: UInt8) -> [UInt8] {
        [0, 0, 0, 16, 0, 0, 0, correlation, 0, 35, 0, 0, 0, 1, 0, 18, 0, 0, 0, 2]
    }

    @Test func newerVersionsAreRefusedInTheFormOfVersion0() {
        for version in UInt8(3)...5 {
            var negotiation = VersionNegotiation()
            let (forward, answer) = negotiation.take(request(18, version))
            #expect(forward.isEmpty && answer == refusal(7))
            #expect(!negotiation.isDone)
        }
    }

    @Test func knownVersionsAndOtherRequestsPassForGood() {
        for first in [request(18, 2), request(3, 9)] {
            var negotiation = VersionNegotiation()
            let later = request(18, 4)
            #expect(negotiation.take(first).forward == first)
            #expect(negotiation.isDone)
            let (forward, answer) = negotiation.take(later)
            #expect(forward == later && answer.isEmpty)
        }
    }

    /// Bytes arrive in pieces of any size.
    @Test func piecesGiveTheSameAnswers() {
        let bytes =
            request(18, 4, correlation: 1) + request(18, 3, correlation: 2) + request(18, 2) + request(3, 1)
        for size in 1...bytes.count {
            var negotiation = VersionNegotiation()
            var forward: [UInt8] = []
            var answer: [UInt8] = []
            for start in stride(from: 0, to: bytes.count, by: size) {
                let part = negotiation.take(Array(bytes[start..<min(start + size, bytes.count)]))
                forward += part.forward
                answer += part.answer
            }
            #expect(answer == refusal(1) + refusal(2), "\(size)")
            #expect(forward == request(18, 2) + request(3, 1), "\(size)")
        }
    }

    /// Another protocol, and sizes that no request has.
    @Test func anyOtherBytesPassUnchanged() {
        for bytes in [
            Array("GET / HTTP/1.1\r\n\r\n".utf8), [0xFF, 0xFF, 0xFF, 0xFF, 0, 18, 0, 9, 0, 0, 0, 1],
            [0, 0, 0, 0, 0, 18, 0, 9, 0, 0, 0, 1], [0, 1, 0, 1, 0, 18, 0, 9, 0, 0, 0, 1],
        ] as [[UInt8]] {
            var negotiation = VersionNegotiation()
            #expect(negotiation.take(bytes).forward == bytes)
            #expect(negotiation.isDone)
        }
    }
}
