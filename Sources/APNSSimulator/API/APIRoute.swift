import DeviceModel
import HTTP1

/// Request of the API that can't be fulfilled: the answer's status and its text.
struct APIFault: Error, Sendable, Equatable {
    var status: Int
    var text: String

    init(_ status: Int, _ text: String) {
        self.status = status
        self.text = text
    }

    init(_ fault: DeviceFault) {
        let status =
            switch fault.kind {
            case .absent: 404
            case .invalid: 400
            case .impossible: 409
            case .limit: 429
            }
        self.init(status, fault.description)
    }

    var response: HTTPResponse { .error(status, text) }
}

/// A request that has found its route.
struct APIRequest {
    let request: HTTPRequest
    /// Values of the path's parameters, in their order.
    let path: [String]
    let query: APIParameters

    /// Body as a JSON object.
    func object() throws(APIFault) -> JSONValue {
        guard let value = JSONValue(request.body), value.members != nil else {
            throw APIFault(400, "the body is not a JSON object")
        }
        return value
    }
}

/// A path of the API with a method. The OpenAPI document has the same paths, held by a test.
struct APIRoute {
    typealias Handler = (APIRequest) throws(APIFault) -> HTTPAnswer

    var method: String
    /// Path with `{name}` in place of a parameter.
    var template: String
    /// Names of the query's parameters.
    var parameters: [String]
    var handler: Handler

    init(
        _ method: String, _ template: String, parameters: [String] = [], _ handler: @escaping Handler
    ) {
        self.method = method
        self.template = template
        self.parameters = parameters
        self.handler = handler
    }

    /// Returns the values of the path's parameters; nil when the path is another.
    func match(_ segments: [String]) -> [String]? {
        let parts = template.split(separator: "/")
        guard parts.count == segments.count else { return nil }
        var values: [String] = []
        for (part, segment) in zip(parts, segments) {
            if part.hasPrefix("{") {
                values.append(segment)
            } else if part != segment {
                return nil
            }
        }
        return values
    }
}

/// Parameters of a query, each with a known name.
struct APIParameters {
    private var values: [String: String] = [:]

    init(_ query: [HTTPRequest.Field], known: [String]) throws(APIFault) {
        // A parameter that nobody reads would make a test wait for less than it names.
        for field in query where field.name != APIAccess.parameter {
            guard known.contains(field.name) else {
                let list = known.isEmpty ? "none" : known.joined(separator: ", ")
                throw APIFault(400, "there is no parameter `\(field.name)`; known are: \(list)")
            }
            guard values.updateValue(field.value, forKey: field.name) == nil else {
                throw APIFault(400, "the parameter `\(field.name)` appears twice")
            }
        }
    }

    var isEmpty: Bool { values.isEmpty }

    func text(_ name: String) -> String? { values[name] }

    func integer<Number: FixedWidthInteger>(
        _ name: String, in range: ClosedRange<Number>
    ) throws(APIFault) -> Number? {
        guard let text = values[name] else { return nil }
        guard let number = Number(text), range.contains(number) else {
            throw APIFault(400, "\(name): a number from \(range.lowerBound) to \(range.upperBound)")
        }
        return number
    }

    /// Reads a duration in seconds.
    func seconds(_ name: String, in range: ClosedRange<Double>) throws(APIFault) -> Double? {
        guard let text = values[name] else { return nil }
        guard let number = Double(text), range.contains(number) else {
            throw APIFault(400, "\(name): seconds from \(range.lowerBound) to \(range.upperBound)")
        }
        return number
    }

    func boolean(_ name: String) throws(APIFault) -> Bool? {
        switch values[name] {
        case nil: return nil
        case "1", "true", "": return true
        case "0", "false": return false
        default: throw APIFault(400, "\(name): true or false")
        }
    }

    func choice<Value: RawRepresentable & CaseIterable>(
        _ name: String, of type: Value.Type
    ) throws(APIFault) -> Value? where Value.RawValue == String {
        guard let text = values[name] else { return nil }
        guard let value = Value(rawValue: text) else {
            let list = Value.allCases.map(\.rawValue).joined(separator: ", ")
            throw APIFault(400, "\(name): `\(text)` is none of \(list)")
        }
        return value
    }
}
