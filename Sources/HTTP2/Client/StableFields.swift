/// The header fields of requests that repeat from one to the next: each gets a small number, and every
/// connection keeps in its own HPACK table those that it has used. One per pool, on the pool's loop.
///
/// Values are append-only but for ``replace(_:value:)``, which serves the hourly provider token.
public final class StableFields {
    struct Field {
        let name: UnsafeRawBufferPointer
        var value: UnsafeRawBufferPointer
        /// RFC 7541 §4.1: what the entry counts for in the table.
        var tableSize: Int { name.count + value.count + 32 }
    }

    private(set) var fields: [Field] = []
    /// Counts replacements; a connection that has seen an older value starts its table anew.
    private(set) var version: UInt32 = 0

    /// The identifier of a stable field (name and value), or of a name alone.
    public struct ID: Hashable, Sendable {
        var index: Int
    }

    public init() {}

    deinit {
        for field in fields {
            field.name.deallocate()
            field.value.deallocate()
        }
    }

    /// Adds a field. `name` is lower-case (RFC 9113 §8.2).
    public func add(name: StaticString, value: [UInt8]) -> ID {
        let nameBytes = UnsafeRawBufferPointer(start: name.utf8Start, count: name.utf8CodeUnitCount)
        fields.append(Field(name: Self.copy(nameBytes), value: value.withUnsafeBytes(Self.copy)))
        return ID(index: fields.count - 1)
    }

    /// Adds a field whose name repeats and whose value is new with each request.
    public func add(name: StaticString) -> ID {
        add(name: name, value: [])
    }

    /// Gives the field another value, from the next request on.
    public func replace(_ id: ID, value: [UInt8]) {
        fields[id.index].value.deallocate()
        fields[id.index].value = value.withUnsafeBytes(Self.copy)
        version &+= 1
    }

    private static func copy(_ bytes: UnsafeRawBufferPointer) -> UnsafeRawBufferPointer {
        let copy = UnsafeMutableRawBufferPointer.allocate(byteCount: bytes.count, alignment: 1)
        copy.copyMemory(from: bytes)
        return UnsafeRawBufferPointer(copy)
    }
}
