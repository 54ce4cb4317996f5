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

    /// The identifier of a stable field (name and value), or of a name alone.
    public struct ID: Hashable, Sendable {
        var index: Int
    }

    /// The identifier of a ``RequestTemplate``.
    public struct TemplateID: Hashable, Sendable {
        var index: Int
    }

    /// What requests of one kind have in common: all but the path's end and the values that follow.
    struct RequestTemplate {
        var leading: [Part]
        var pathPrefix: UnsafeRawBufferPointer
        var trailing: [ID]
    }

    /// A pseudo-header field before the path.
    public enum Part: Sendable {
        /// A field of RFC 7541's static table (appendix A), name and value.
        case indexedStatic(UInt8)
        case stable(ID)
    }

    /// What the encoders read with each request: behind a pointer, so that reading it costs a load.
    struct State {
        /// Counts replacements; a connection that has seen an older value starts its table anew.
        var version: UInt32 = 0
        var count = 0
        var capacity: Int
        var fields: UnsafeMutablePointer<Field>
    }

    let state: UnsafeMutablePointer<State>
    private(set) var templates: [RequestTemplate] = []

    public init() {
        let capacity = 64
        state = .allocate(capacity: 1)
        state.initialize(to: State(capacity: capacity, fields: .allocate(capacity: capacity)))
    }

    deinit {
        for index in 0..<state.pointee.count {
            state.pointee.fields[index].name.deallocate()
            state.pointee.fields[index].value.deallocate()
        }
        state.pointee.fields.deallocate()
        state.deallocate()
        for template in templates { template.pathPrefix.deallocate() }
    }

    /// Adds a field. `name` is lower-case (RFC 9113 §8.2).
    public func add(name: StaticString, value: [UInt8]) -> ID {
        let index = state.pointee.count
        if index == state.pointee.capacity { grow() }
        (state.pointee.fields + index).initialize(
            to: Field(name: Self.copy(name), value: value.withUnsafeBytes(Self.copy)))
        state.pointee.count += 1
        return ID(index: index)
    }

    /// Adds a field whose name repeats and whose value is new with each request.
    public func add(name: StaticString) -> ID {
        add(name: name, value: [])
    }

    /// Gives the field another value, from the next request on.
    public func replace(_ id: ID, value: [UInt8]) {
        state.pointee.fields[id.index].value.deallocate()
        state.pointee.fields[id.index].value = value.withUnsafeBytes(Self.copy)
        state.pointee.version &+= 1
    }

    /// Adds a template, whose encoded form each connection keeps.
    ///
    /// - Parameters:
    ///   - leading: pseudo-header fields, which come before all others (RFC 9113 §8.3).
    ///   - pathPrefix: how `:path` begins; the request gives the rest.
    ///   - trailing: stable fields that follow the path.
    public func addTemplate(leading: [Part], pathPrefix: StaticString, trailing: [ID]) -> TemplateID {
        templates.append(
            RequestTemplate(leading: leading, pathPrefix: Self.copy(pathPrefix), trailing: trailing))
        return TemplateID(index: templates.count - 1)
    }

    private func grow() {
        let grown = UnsafeMutablePointer<Field>.allocate(capacity: 2 * state.pointee.capacity)
        grown.moveInitialize(from: state.pointee.fields, count: state.pointee.count)
        state.pointee.fields.deallocate()
        state.pointee.fields = grown
        state.pointee.capacity *= 2
    }

    private static func copy(_ text: StaticString) -> UnsafeRawBufferPointer {
        copy(UnsafeRawBufferPointer(start: text.utf8Start, count: text.utf8CodeUnitCount))
    }

    private static func copy(_ bytes: UnsafeRawBufferPointer) -> UnsafeRawBufferPointer {
        let copy = UnsafeMutableRawBufferPointer.allocate(byteCount: bytes.count, alignment: 1)
        copy.copyMemory(from: bytes)
        return UnsafeRawBufferPointer(copy)
    }
}
