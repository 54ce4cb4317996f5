import Glibc

/// Server's state of an open stream, in memory that does not move.
struct ServerStreamSlot {
    enum Phase: UInt8 {
        /// Header fields or body are arriving.
        case receiving
        /// The handler has the request and has not answered.
        case handedOver
        /// The answer was submitted.
        case answered
    }

    var stream: Int32 = 0
    var phase = Phase.receiving
    /// Whether the header list was too long.
    var isOversized = false
    /// Whether the method is HEAD, whose answer has no content (RFC 9110 §9.3.2).
    var isHead = false
    /// Storage that collects the request; nil once it was handed over.
    var request: UnsafeMutablePointer<RequestStorage>?
    /// Body of the response; kept from one use of the slot to the next.
    var response: UnsafeMutableRawPointer?
    var responseCapacity = 0
    var responseCount = 0
    var responseSent = 0
    var next: UnsafeMutablePointer<ServerStreamSlot>?
}

/// The streams of a connection. Slots and request storage are reused by way of free lists. Nothing is allocated once
/// the lists have grown to the connection's concurrency, which nghttp2 bounds.
///
/// The table lies at a fixed address, because nghttp2's callbacks receive it as user data. They reach the connection
/// through the table.
struct ServerStreamTable {
    private var freeSlots: UnsafeMutablePointer<ServerStreamSlot>?
    private var slotBlocks: [UnsafeMutablePointer<ServerStreamSlot>] = []
    private var freeStorage: [UnsafeMutablePointer<RequestStorage>] = []
    private var allStorage: [UnsafeMutablePointer<RequestStorage>] = []
    private let headerListSize: Int
    private let bodyLimit: Int
    let parts: RequestParts

    /// Stream of the last frame. Frames of a stream often arrive in a row, so remembering its slot saves nghttp2's
    /// look-up.
    var currentStream: Int32 = 0
    var current: UnsafeMutablePointer<ServerStreamSlot>?
    /// The connection that owns this table, and so outlives it.
    unowned(unsafe) var connection: ServerConnection?
    /// Number of streams in use.
    private(set) var count = 0
    /// Highest stream that was opened; 0 before the first.
    private(set) var lastStream: Int32 = 0
    /// Streams that were refused in this turn, although DATA follows.
    var refusedWithData: [Int32] = []

    private static let blockSize = 32

    init(options: ServerOptions) {
        headerListSize = Int(options.maximumHeaderListSize)
        bodyLimit = options.maximumBodySize
        parts = options.requestParts
    }

    func deallocate() {
        for block in slotBlocks {
            for index in 0..<Self.blockSize { block[index].response?.deallocate() }
            block.deallocate()
        }
        for storage in allStorage {
            storage.pointee.deallocate()
            storage.deallocate()
        }
    }

    mutating func open(_ stream: Int32) -> UnsafeMutablePointer<ServerStreamSlot> {
        if freeSlots == nil { addSlots() }
        let slot = freeSlots!
        freeSlots = slot.pointee.next
        slot.pointee.stream = stream
        slot.pointee.phase = .receiving
        slot.pointee.isOversized = false
        slot.pointee.isHead = false
        slot.pointee.request = takeStorage()
        slot.pointee.responseCount = 0
        slot.pointee.responseSent = 0
        currentStream = stream
        current = slot
        lastStream = stream
        count += 1
        return slot
    }

    mutating func close(_ slot: UnsafeMutablePointer<ServerStreamSlot>) {
        releaseStorage(of: slot)
        if current == slot {
            current = nil
            currentStream = 0
        }
        slot.pointee.stream = 0
        slot.pointee.next = freeSlots
        freeSlots = slot
        count -= 1
    }

    mutating func releaseStorage(of slot: UnsafeMutablePointer<ServerStreamSlot>) {
        guard let storage = slot.pointee.request else { return }
        slot.pointee.request = nil
        freeStorage.append(storage)
    }

    private mutating func takeStorage() -> UnsafeMutablePointer<RequestStorage> {
        if let storage = freeStorage.popLast() {
            storage.pointee.reset()
            return storage
        }
        let storage = UnsafeMutablePointer<RequestStorage>.allocate(capacity: 1)
        storage.initialize(to: RequestStorage(headerListSize: headerListSize, bodyLimit: bodyLimit))
        allStorage.append(storage)
        return storage
    }

    private mutating func addSlots() {
        let block = UnsafeMutablePointer<ServerStreamSlot>.allocate(capacity: Self.blockSize)
        block.initialize(repeating: ServerStreamSlot(), count: Self.blockSize)
        slotBlocks.append(block)
        for index in (0..<Self.blockSize).reversed() {
            block[index].next = freeSlots
            freeSlots = block + index
        }
    }
}

extension ServerStreamSlot {
    /// Keeps the body of a response until it is sent.
    mutating func setResponse(_ bytes: UnsafeRawBufferPointer) {
        if responseCapacity < bytes.count {
            response?.deallocate()
            responseCapacity = max(bytes.count, 128)
            response = .allocate(byteCount: responseCapacity, alignment: 16)
        }
        if let source = bytes.baseAddress, let response { memcpy(response, source, bytes.count) }
        responseCount = bytes.count
        responseSent = 0
    }
}
