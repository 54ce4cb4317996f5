import SluiceModel

/// The key of a record of the changelog topic. It identifies an item, a device or a mark. A record without a value
/// removes it.
///
/// | bytes | |
/// |---|---|
/// | 1 | 1: an item, 2: a device, 3: a mark, 4: the last erasure |
/// | 8 | of an item or mark: the offset of its job's record, big-endian |
/// | the rest | of an item or device: the device token, in lower case |
///
/// Values:
/// - An item's value is its due time (milliseconds since the epoch, 8 bytes, big-endian) and its ``StoredPush``.
/// - A device's value is its state as the store keeps it.
/// - A mark's value is a 1 and the `apns-id` (16 bytes, big-endian).
/// - An erasure's value is its time (milliseconds since the epoch, 8 bytes, big-endian). Each partition has one such key,
///   which is never removed: whoever restores older values of the partition has to purge its copy.
///
/// Partitions are those of the jobs topic.
public enum ChangelogKey {
    /// An item, by its record's offset and its device token.
    case item(offset: Int64, deviceToken: UnsafeRawBufferPointer)
    /// The state of a device.
    case device(deviceToken: UnsafeRawBufferPointer)
    /// A mark of the record at this offset.
    case mark(offset: Int64)
    /// The last erasure of something in the partition.
    case erasure

    private static let itemKind: UInt8 = 1
    private static let deviceKind: UInt8 = 2
    private static let markKind: UInt8 = 3
    private static let erasureKind: UInt8 = 4

    /// Parses a key; nil for bytes that aren't a key. The token is a part of the bytes.
    public init?(_ bytes: UnsafeRawBufferPointer) {
        switch bytes.first {
        case Self.itemKind where bytes.count > 9:
            let offset = Int64(bigEndian: bytes.loadUnaligned(fromByteOffset: 1, as: Int64.self))
            self = .item(offset: offset, deviceToken: UnsafeRawBufferPointer(rebasing: bytes[9...]))
        case Self.deviceKind where bytes.count > 1:
            self = .device(deviceToken: UnsafeRawBufferPointer(rebasing: bytes[1...]))
        case Self.markKind where bytes.count == 9:
            self = .mark(offset: Int64(bigEndian: bytes.loadUnaligned(fromByteOffset: 1, as: Int64.self)))
        case Self.erasureKind where bytes.count == 1: self = .erasure
        default: return nil
        }
    }

    public func encode(into writer: inout ByteWriter) {
        let token: UnsafeRawBufferPointer
        switch self {
        case .item(let offset, let deviceToken):
            writer.append(Self.itemKind)
            withUnsafeBytes(of: offset.bigEndian) { writer.append($0) }
            token = deviceToken
        case .device(let deviceToken):
            writer.append(Self.deviceKind)
            token = deviceToken
        case .mark(let offset):
            writer.append(Self.markKind)
            return withUnsafeBytes(of: offset.bigEndian) { writer.append($0) }
        case .erasure: return writer.append(Self.erasureKind)
        }
        // Sets the bit by which the cases of a letter differ; all digits have it.
        for byte in token { writer.append(byte | 0x20) }
    }

    /// Appends a device's value.
    public static func encode(_ state: DeviceState, into writer: inout ByteWriter) {
        withUnsafeTemporaryAllocation(byteCount: DeviceStateBytes.count, alignment: 1) { bytes in
            DeviceStateBytes.write(state, to: bytes.baseAddress!)
            writer.append(UnsafeRawBufferPointer(bytes))
        }
    }

    /// Appends a mark's value.
    public static func encode(_ mark: RelocationMark, into writer: inout ByteWriter) {
        withUnsafeTemporaryAllocation(byteCount: RelocationMarkBytes.count, alignment: 1) { bytes in
            RelocationMarkBytes.write(mark, to: bytes.baseAddress!)
            writer.append(UnsafeRawBufferPointer(bytes))
        }
    }

    /// Appends an erasure's value.
    public static func encode(erasedMilliseconds: Int64, into writer: inout ByteWriter) {
        withUnsafeBytes(of: erasedMilliseconds.bigEndian) { writer.append($0) }
    }

    /// Appends an item's value.
    /// - Returns: number of bytes before those of the push.
    public static func encode(_ push: StoredPush, due: Int64, into writer: inout ByteWriter) -> Int {
        let due = DueBytes(due)
        withUnsafeBytes(of: due) { writer.append($0) }
        push.encode(into: &writer)
        return DueBytes.count
    }
}
