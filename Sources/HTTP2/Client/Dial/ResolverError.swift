/// A name that could not be resolved.
public struct ResolverError: Error, Sendable, CustomStringConvertible {
    public var host: String
    /// Resolver's text of the error.
    public var reason: String
    /// Whether the name servers gave no answer, which proves nothing about the name.
    public var isTemporary = false
    public var description: String { "cannot resolve \(host): \(reason)" }
}
