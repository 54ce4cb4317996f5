import DeviceModel
import Foundation

/// Bodies of requests as values.
enum APIBody {
    /// Decodes an object whose members are known.
    static func decode<Value: Decodable>(_ object: JSONValue, members: [String]) throws(APIFault) -> Value {
        for name in (object.members ?? [:]).keys.sorted() where !members.contains(name) {
            throw APIFault(
                400, "there is no member `\(name)`; known are: \(members.joined(separator: ", "))")
        }
        do {
            return try JSONDecoder().decode(Value.self, from: try JSONEncoder().encode(object))
        } catch let error as DecodingError {
            throw APIFault(400, describe(error))
        } catch {
            throw APIFault(400, "the body can't be read")
        }
    }

    /// Returns a value as JSON.
    static func value(_ value: some Encodable) -> JSONValue? {
        (try? JSONEncoder().encode(value)).flatMap { JSONValue($0) }
    }

    private static func describe(_ error: DecodingError) -> String {
        func place(_ path: [any CodingKey]) -> String {
            path.isEmpty ? "body" : path.map(\.stringValue).joined(separator: ".")
        }
        switch error {
        case .keyNotFound(let key, let context): return "\(place(context.codingPath + [key])): is missing"
        case .typeMismatch(_, let context), .valueNotFound(_, let context):
            return "\(place(context.codingPath)): has another type of value"
        case .dataCorrupted(let context): return "\(place(context.codingPath)): the value is not allowed"
        @unknown default: return "the body can't be read"
        }
    }
}

extension JSONValue {
    /// Returns this object with the members of another one in place of its own.
    func merging(_ other: JSONValue) -> JSONValue {
        guard let own = members, let others = other.members else { return other }
        return .object(own.merging(others) { _, new in new })
    }
}
