import APNS
import DeliveryCore
import Glibc
import HTTP2
import SluiceModel
import StreamScheduling

/// Material for pushes: distinct device tokens and the headers of a real sender. All of it is made beforehand,
/// and a push only points to it. Used on the loop's thread.
final class LoadMaterial {
    private let encoder: PushRequestEncoder
    private let topics: UnsafeMutablePointer<(name: UnsafeRawBufferPointer, field: PushRequestEncoder.Topic)>
    private let tokens: UnsafeMutableRawPointer
    private let collapseIdentifiers: UnsafeMutableRawPointer
    private let payload: UnsafeRawBufferPointer
    private let tokenCount: Int
    private var sent = 0

    private static let collapseCount = 1000
    private static let collapseLength = 16
    private static let topicCount = 4

    var payloadBytes: Int { payload.count }

    init(fields: StableFields, authority: String, payloadBytes: Int, tokenCount: Int) {
        encoder = PushRequestEncoder(fields: fields, authority: authority)
        // As long as a provider token; the server ignores its content.
        encoder.setAuthorization(
            Array(("bearer " + String(repeating: "eyJhbGciOiJFUzI1NiIs", count: 9)).utf8))
        topics = .allocate(capacity: Self.topicCount)
        for index in 0..<Self.topicCount {
            let name = Self.copy("com.example.app\(index)")
            (topics + index).initialize(to: (name, encoder.topic(name)))
        }
        self.tokenCount = tokenCount
        tokens = .allocate(byteCount: tokenCount * 64, alignment: 8)
        var generator = SeededGenerator(seed: 7)
        let digits = Array("0123456789abcdef".utf8)
        for index in 0..<tokenCount * 64 {
            tokens.storeBytes(of: digits[Int(generator.next() & 15)], toByteOffset: index, as: UInt8.self)
        }
        let size = Self.collapseCount * Self.collapseLength
        collapseIdentifiers = .allocate(byteCount: size, alignment: 8)
        for index in 0..<Self.collapseCount {
            let text = "score-update-\(100 + index % 900)"
            memcpy(collapseIdentifiers + index * Self.collapseLength, text, Self.collapseLength)
        }
        let start = #"{"aps":{"alert":{"title":"Benchmark","body":""#
        let filler = max(0, payloadBytes - start.utf8.count - 4)
        payload = Self.copy(start + String(repeating: "x", count: filler) + "\"}}}")
    }

    deinit {
        for index in 0..<Self.topicCount { topics[index].name.deallocate() }
        topics.deallocate()
        tokens.deallocate()
        collapseIdentifiers.deallocate()
        payload.deallocate()
    }

    /// Submits the next push. Returns false if the connection didn't take the push.
    @inline(__always)
    func submit(slot: UInt32, priority: Priority, to connection: ClientConnection) -> Bool {
        let token = sent % tokenCount
        let collapse = sent % Self.collapseCount
        let topic = topics[sent & (Self.topicCount - 1)]
        let push = PushJob(
            deviceToken: UnsafeRawBufferPointer(start: tokens + token * 64, count: 64),
            topic: topic.name, pushType: .alert, priority: priority,
            apnsID: APNSID(
                high: UInt64(sent) &* 0x9e37_79b9_7f4a_7c15, low: UInt64(sent) &* 0xc2b2_ae3d_27d4_eb4f),
            expiration: .at(1_900_000_000 + UInt32(sent & 0xffff)),
            collapseIdentifier: UnsafeRawBufferPointer(
                start: collapseIdentifiers + collapse * Self.collapseLength, count: Self.collapseLength),
            payload: payload, createdMilliseconds: 0)
        let result = connection.submit(tag: slot, body: push.payload) { [encoder] block in
            encoder.encode(push, topic: topic.field, into: &block)
        }
        guard result == .submitted else { return false }
        sent += 1
        return true
    }

    private static func copy(_ text: String) -> UnsafeRawBufferPointer {
        let bytes = UnsafeMutableRawBufferPointer.allocate(byteCount: text.utf8.count, alignment: 1)
        bytes.copyBytes(from: text.utf8)
        return UnsafeRawBufferPointer(bytes)
    }
}
