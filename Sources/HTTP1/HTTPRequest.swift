/// A request of HTTP/1.1 with its whole body.
package struct HTTPRequest: Sendable, Equatable {
    package struct Field: Sendable, Equatable {
        /// Lower-case name.
        package var name: String
        package var value: String
    }

    package var method: String
    /// Path as it was sent, without the query.
    package var path: String
    /// Parts of the path between its slashes, without percent-encoding.
    package var segments: [String]
    /// Parameters of the query in their order, without percent-encoding.
    package var query: [Field]
    package var fields: [Field]
    /// Host that the request is meant for; nil for HTTP/1.0 without the field.
    package var host: String?
    /// Whether the client speaks HTTP/1.0, which does not know chunks. Its connections carry a single request.
    package var isOld: Bool
    /// Whether the client keeps the connection for further requests.
    package var persists: Bool
    /// Whether the client waits for `100 Continue` before it sends the body.
    package var expectsContinue: Bool
    package var body: [UInt8] = []

    /// Value of a field; nil when it is absent. The first of several.
    package subscript(_ name: String) -> String? { fields.first { $0.name == name }?.value }

    /// Value of a cookie; nil when it is absent.
    package func cookie(_ name: String) -> String? {
        for field in fields where field.name == "cookie" {
            for pair in field.value.split(separator: ";") {
                let pair = pair.drop { $0 == " " }
                if pair.hasPrefix("\(name)=") { return String(pair.dropFirst(name.count + 1)) }
            }
        }
        return nil
    }
}

/// Fault of a request that can't be understood: the answer's status and its text.
package struct HTTPFault: Error, Sendable, Equatable {
    package var status: Int
    package var text: String

    package init(_ status: Int, _ text: String) {
        self.status = status
        self.text = text
    }
}
