/// The open streams of a client connection, in preallocated cells. A stream's cell follows from its id, so nothing is
/// searched. An id is skipped when a slow older stream still uses its cell, which the protocol allows (RFC 9113
/// §5.1.1). The open streams also form a list in the order of their start.
struct ClientStreamTable: ~Copyable {
    struct Cell {
        /// Stream id; 0 when the cell is free.
        var id: UInt32 = 0
        var tag: UInt32 = 0
        var previous: Int32 = -1
        var next: Int32 = -1
        /// Time when the request expires, in nanoseconds of the monotonic clock.
        var deadline: UInt64 = 0
        /// Content not yet framed; the owner keeps it alive until the stream ends.
        var unsent = UnsafeRawBufferPointer(start: nil, count: 0)
        /// Position in the output behind the request's last byte; `.max` until that byte is framed.
        var outputEnd: UInt64 = .max
        /// Bytes of the request's content that the server still accepts, from -(2³¹-1) on.
        var sendWindow: Int32 = 0
        /// Bytes that the server may still send.
        var receiveWindow: Int32 = 0
        var retryAfterSeconds: UInt32 = 0
        var status: UInt16 = 0
        /// Length of the answer's `apns-unique-id`, whose text ``ClientStreamTable`` keeps; 0 when there is none.
        var uniqueIDCount: UInt8 = 0
        /// Content arrived in more than one frame and is collected aside.
        var collectsBody = false
    }

    let capacity: Int
    private let mask: UInt32
    private let cells: UnsafeMutablePointer<Cell>
    private(set) var count = 0
    private(set) var oldest: Int32 = -1
    private var newest: Int32 = -1
    /// Room for the `apns-unique-id` of each cell's answer, owned. Nil until an answer has the field, which only
    /// APNs' development environment sends for pushes.
    private var uniqueIDs: UnsafeMutableRawPointer?

    /// Creates a table for `streams` open streams, in at least twice as many cells.
    init(streams: Int) {
        var size = 16
        while size < 2 * streams { size *= 2 }
        capacity = size
        mask = UInt32(size - 1)
        cells = .allocate(capacity: size)
        cells.initialize(repeating: Cell(), count: size)
    }

    deinit {
        cells.deallocate()
        uniqueIDs?.deallocate()
    }

    /// Keeps the `apns-unique-id` of a stream's answer, at most ``HeaderBlockDecoder/maximumUniqueID`` bytes.
    mutating func keepUniqueID(_ text: UnsafeRawBufferPointer, of index: Int32) {
        cells[Int(index)].uniqueIDCount = UInt8(text.count)
        guard let source = text.baseAddress else { return }
        let room = HeaderBlockDecoder.maximumUniqueID
        if uniqueIDs == nil {
            uniqueIDs = .allocate(byteCount: capacity * room, alignment: 1)
        }
        uniqueIDs?.advanced(by: Int(index) * room).copyMemory(from: source, byteCount: text.count)
    }

    /// Returns the kept text, which is valid until the cell's next answer.
    func uniqueID(of index: Int32) -> UnsafeRawBufferPointer {
        let count = Int(cells[Int(index)].uniqueIDCount)
        guard let uniqueIDs else { return UnsafeRawBufferPointer(start: nil, count: 0) }
        return UnsafeRawBufferPointer(
            start: uniqueIDs + Int(index) * HeaderBlockDecoder.maximumUniqueID, count: count)
    }

    /// Returns the cell of an open stream; nil when the stream is not open.
    func find(_ id: UInt32) -> Int32? {
        let index = (id >> 1) & mask
        return cells[Int(index)].id == id ? Int32(index) : nil
    }

    subscript(_ index: Int32) -> Cell {
        get { cells[Int(index)] }
        nonmutating _modify { yield &cells[Int(index)] }
    }

    /// Returns the first id from `id` on whose cell is free. A free cell lies within ``capacity`` steps, because at
    /// most half of the cells are in use.
    func nextUsable(_ id: UInt32) -> UInt32 {
        var id = id
        while cells[Int((id >> 1) & mask)].id != 0 { id += 2 }
        return id
    }

    mutating func insert(_ cell: Cell) -> Int32 {
        let index = Int32((cell.id >> 1) & mask)
        cells[Int(index)] = cell
        cells[Int(index)].previous = newest
        cells[Int(index)].next = -1
        if newest >= 0 { cells[Int(newest)].next = index } else { oldest = index }
        newest = index
        count += 1
        return index
    }

    mutating func remove(_ index: Int32) {
        let cell = cells[Int(index)]
        if cell.previous >= 0 { cells[Int(cell.previous)].next = cell.next } else { oldest = cell.next }
        if cell.next >= 0 { cells[Int(cell.next)].previous = cell.previous } else { newest = cell.previous }
        cells[Int(index)].id = 0
        count -= 1
    }
}
