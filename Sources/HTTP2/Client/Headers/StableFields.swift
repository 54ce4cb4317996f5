/// Header fields that repeat from request to request. Each field has a small number, and every connection keeps the
/// fields it has used in its own HPACK table. Each pool has one instance, on the pool's loop.
///
/// Values are append-only, except for ``replace(_:value:)``, which serves the hourly provider token.
public final class StableFields {
    struct Field {
        let name: UnsafeRawBufferPointer
        var value: UnsafeRawBufferPointer
        /// Size of the entry in the table (RFC 7541 §4.1).
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

    /// Fields that requests of one kind share: all but the path's end and the values that follow.
    struct RequestTemplate {
        var leading: [Part]
        var pathPrefix: UnsafeRawBufferPointer
        var trailing: [ID]
    }

    /// A pseudo-header field before the path.
    public enum Part: Sendable {
        /// A field of RFC 7541's static table (appendix A), name and value.
        case indexedStatic(UInt8)
        /// A field that this table holds.
        case stable(ID)
    }

    /// Data that the encoders read with each request, behind a pointer, so that a read costs one load.
    struct State {
        /// Count of replacements; a connection that has seen an older value restarts its table.
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

    /// Replaces the field's value from the next request on.
    public func replace(_ id: ID, value: [UInt8]) {
        state.pointee.fields[id.index].value.deallocate()
        state.pointee.fields[id.index].value = value.withUnsafeBytes(Self.copy)
        state.pointee.version &+= 1
    }

    /// Adds a template, whose encoded form each connection keeps.
    ///
    /// - Parameters:
    ///   - leading: pseudo-header fields, which come before all others (RFC 9113 §8.3).
    ///   - pathPrefix: the start of `:path`; the request supplies the rest.
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
