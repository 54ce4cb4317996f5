import DeliveryCore
import EventLoop
import SluiceModel
import StreamScheduling

/// The pushes of the store's measurements. Each push can be computed again from its number.
struct StoreJobs: ~Copyable {
    /// Default number of items that wait for each device.
    static let itemsPerDevice = 10
    /// Milliseconds within which all items become due.
    static let window: Int64 = 3_600_000
    /// Earliest due time: the beginning of a day in 20 days.
    static let firstDue = (wallClockMilliseconds() / day + 20) * day
    private static let day: Int64 = 86_400_000

    let items: Int
    let partitions: Int
    private let itemsPerDevice: Int
    private let wait: StoredPush.Wait
    private let hasher: IdentityHasher
    private let payloads: UnsafeMutableRawBufferPointer
    private let token = UnsafeMutableRawPointer.allocate(byteCount: 64, alignment: 8)

    private static let payloadCount = 1024
    private static let payloadBytes = 506
    private static let topic: StaticString = "com.example.app0"

    init(
        items: Int, partitions: Int, hasher: IdentityHasher, itemsPerDevice: Int = Self.itemsPerDevice,
        wait: StoredPush.Wait = .none
    ) {
        self.items = items
        self.partitions = partitions
        self.itemsPerDevice = itemsPerDevice
        self.wait = wait
        self.hasher = hasher
        payloads = .allocate(byteCount: Self.payloadCount * Self.payloadBytes, alignment: 8)
        fillPayloads()
    }

    deinit {
        payloads.deallocate()
        token.deallocate()
    }

    var devices: Int { max(1, items / itemsPerDevice) }

    /// A device's items are far from each other in the order of numbers.
    func deviceNumber(_ item: Int) -> Int { item % devices }

    func partition(ofDevice device: Int) -> Int { device % partitions }

    func offset(_ item: Int) -> Int64 { Int64(item / partitions) }

    /// Due time of an item in its first or second state.
    func due(_ item: Int, state: Int) -> Int64 {
        var generator = SeededGenerator(seed: UInt64(item * 2 + state))
        return Self.firstDue + Int64(generator.next() % UInt64(Self.window))
    }

    func key(_ item: Int) -> ItemIdentity {
        let device = deviceNumber(item)
        return ItemIdentity(
            partition: partition(ofDevice: device), device: deviceKey(device), offset: offset(item))
    }

    func deviceKey(_ device: Int) -> DeviceKey {
        writeToken(device)
        return hasher.device(UnsafeRawBufferPointer(start: token, count: 64))
    }

    struct ItemIdentity {
        var partition: Int
        var device: DeviceKey
        var offset: Int64
    }

    /// Calls `body` with an item's push and the token of its device.
    @inline(__always)
    func withPush(
        _ item: Int, _ identity: ItemIdentity, attempts: UInt32, _ body: (StoredPush) -> Void
    ) {
        let payload = UnsafeRawBufferPointer(
            rebasing: payloads[
                (item % Self.payloadCount) * Self.payloadBytes..<(item % Self.payloadCount + 1)
                    * Self.payloadBytes])
        let created = Self.firstDue - Self.window
        let push = PushJob(
            deviceToken: UnsafeRawBufferPointer(start: token, count: 64),
            topic: UnsafeRawBufferPointer(
                start: Self.topic.utf8Start, count: Self.topic.utf8CodeUnitCount), pushType: .alert,
            priority: .immediate, apnsID: APNSID(high: identity.device.low, low: UInt64(item)),
            expiration: .at(UInt32(Self.firstDue / 1000 + 86_400)), collapseIdentifier: nil, payload: payload,
            deliverAtMilliseconds: nil, delivery: .holdWhileOffline,
            receiptTimeoutSeconds: JobLimits.defaultReceiptTimeout, registeredAtMilliseconds: nil,
            duplicates: .allow, createdMilliseconds: created)
        body(
            StoredPush(
                push: push,
                progress: StoredPush.Progress(
                    attempts: attempts, firstSentMilliseconds: created + 20, wait: wait,
                    storeVersion: UInt64(attempts)), partition: Int32(identity.partition),
                offset: identity.offset, polledMilliseconds: created + 15))
    }

    /// Calls `body` with the digits of a device's token.
    func withToken(ofDevice device: Int, _ body: (UnsafeRawBufferPointer) -> Void) {
        writeToken(device)
        body(UnsafeRawBufferPointer(start: token, count: 64))
    }

    private func writeToken(_ device: Int) {
        var generator = SeededGenerator(seed: UInt64(device))
        let digits: StaticString = "0123456789abcdef"
        for part in 0..<4 {
            var bits = generator.next()
            for digit in 0..<16 {
                token.storeBytes(
                    of: digits.utf8Start[Int(bits & 15)], toByteOffset: part * 16 + digit, as: UInt8.self)
                bits >>= 4
            }
        }
    }

    /// Alerts of words, an address and numbers, which compress like real alerts.
    private func fillPayloads() {
        let words = [
            "your", "order", "arrives", "today", "between", "noon", "and", "five", "please", "keep", "the",
            "door",
            "clear", "new", "message", "from", "Maria", "see", "you", "at", "station", "platform", "train",
            "late",
            "match", "goal", "score", "final", "minute", "price", "offer", "ends", "tonight", "weather",
            "rain",
        ]
        var generator = SeededGenerator(seed: 11)
        for number in 0..<Self.payloadCount {
            var text = #"{"aps":{"alert":{"title":""#
            func add(words count: Int) {
                for _ in 0..<count { text += words[Int(generator.next() % UInt64(words.count))] + " " }
            }
            add(words: 4)
            text += #"","body":""#
            add(words: 30)
            text +=
                #""},"badge":\#(generator.next() % 100),"sound":"default","thread-id":"\#(generator.next())"},"#
            text += #""link":"https://example.com/"#
            while text.utf8.count < Self.payloadBytes - 2 {
                text += String(generator.next(), radix: 36)
            }
            let bytes = Array(text.utf8.prefix(Self.payloadBytes - 2)) + Array(#""}"#.utf8)
            UnsafeMutableRawBufferPointer(
                rebasing: payloads[number * Self.payloadBytes..<(number + 1) * Self.payloadBytes]
            ).copyBytes(from: bytes)
        }
    }
}
