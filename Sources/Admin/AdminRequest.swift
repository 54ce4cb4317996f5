import HTTP1

/// Request of the admin endpoint, as its handlers see it.
public struct AdminRequest: Sendable, Equatable {
    /// Path without the query.
    public var path: String
    /// Decoded values by name.
    public var query: [String: String] = [:]
    /// Value of the field `Accept`; nil when there is none.
    public var accept: String?

    public init(path: String, query: [String: String] = [:], accept: String? = nil) {
        self.path = path
        self.query = query
        self.accept = accept
    }

    /// Nil when a parameter appears twice.
    init?(_ request: HTTPRequest) {
        path = request.path
        accept = request["accept"]
        for field in request.query where query.updateValue(field.value, forKey: field.name) != nil {
            return nil
        }
    }
}
