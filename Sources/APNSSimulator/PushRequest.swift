import Glibc
import HTTP2
import SluiceModel

/// A push as it was received: slices of the connection's memory, valid within the handler's call.
struct PushRequest {
    static var none: UnsafeRawBufferPointer { UnsafeRawBufferPointer(start: nil, count: 0) }

    var deviceToken = none
    var authorization: UnsafeRawBufferPointer?
    var topic: UnsafeRawBufferPointer?
    var pushTypeText: UnsafeRawBufferPointer?
    var identifierText: UnsafeRawBufferPointer?
    var expirationText: UnsafeRawBufferPointer?
    var priorityText: UnsafeRawBufferPointer?
    var collapseIdentifier: UnsafeRawBufferPointer?
    var hasDuplicateHeaders = false
    var bodyLength = 0

    init(_ request: ServerRequest) {
        bodyLength = request.bodyLength
        for index in 0..<request.headerCount {
            let (name, value) = request.header(index)
            readHeader(name, value, request, index)
        }
    }

    private mutating func readHeader(
        _ name: UnsafeRawBufferPointer, _ value: UnsafeRawBufferPointer, _ request: ServerRequest,
        _ index: Int
    ) {
        switch name.count {
        case 7 where name.equals("apns-id"): set(\.identifierText, value)
        case 10 where name.equals("apns-topic"): set(\.topic, value)
        case 13 where name.equals("authorization"): set(\.authorization, value)
        case 13 where name.equals("apns-priority"): set(\.priorityText, value)
        case 14 where name.equals("apns-push-type"): set(\.pushTypeText, value)
        case 15 where name.equals("apns-expiration"): set(\.expirationText, value)
        case 16 where name.equals("apns-collapse-id"): set(\.collapseIdentifier, value)
        default:
            for earlier in 0..<index where request.header(earlier).name.equals(name) {
                hasDuplicateHeaders = true
            }
        }
    }

    private mutating func set(
        _ field: WritableKeyPath<PushRequest, UnsafeRawBufferPointer?>, _ value: UnsafeRawBufferPointer
    ) {
        if self[keyPath: field] == nil {
            self[keyPath: field] = value
        } else {
            hasDuplicateHeaders = true
        }
    }

    // MARK: - Rules that need nothing but the request

    /// Reads `/3/device/TOKEN`. The token's form is checked later.
    mutating func readPath(_ path: UnsafeRawBufferPointer) -> Reason {
        guard let rest = path.dropping("/3/device/") else { return .badPath }
        deviceToken = rest
        return rest.isEmpty ? .missingDeviceToken : .absent
    }

    /// Checks the headers' forms. Returns `absent` if all are good.
    func checkHeaders() -> Reason {
        if hasDuplicateHeaders { return .duplicateHeaders }
        if let identifierText, APNSID(canonical: identifierText) == nil { return .badMessageId }
        if let expirationText, expirationText.decimal == nil { return .badExpirationDate }
        if let priorityText, Priority(headerValue: priorityText) == nil { return .badPriority }
        if let collapseIdentifier, collapseIdentifier.count > 64 { return .badCollapseId }
        return .absent
    }

    /// Checks the push type, and the priority and topic that belong to it.
    /// - Parameters:
    ///   - topic: topic of the request, or by default topic of the certificate.
    ///   - isBundle: whether the topic is known as a bundle identifier, although it ends like a suffixed topic.
    func checkType(topic: UnsafeRawBufferPointer, isBundle: () -> Bool) -> Reason {
        guard topic.isTopic else { return .badTopic }
        guard let pushTypeText else { return .absent }
        guard let type = PushType(headerValue: pushTypeText) else { return .invalidPushType }
        // The priority is 10 without the header, which is wrong for background pushes.
        let priority = priorityText.flatMap { Priority(headerValue: $0) } ?? .immediate
        guard type.allows(priority) else { return .badPriority }
        guard topic.hasSuffix(type.topicSuffix), topic.dropping(type.topicPrefix)?.isEmpty == false else {
            return .badTopic
        }
        if topic.belongsToAnotherType(than: type), !isBundle() { return .badTopic }
        return topic.count > type.topicSuffix.utf8CodeUnitCount ? .absent : .badTopic
    }

    /// Checks the payload's size: at most 5,120 bytes for VoIP, 4,096 for the other types.
    func checkPayload() -> Reason {
        if bodyLength == 0 { return .payloadEmpty }
        let type = pushTypeText.flatMap { PushType(headerValue: $0) } ?? .alert
        return bodyLength > type.maximumPayloadSize ? .payloadTooLarge : .absent
    }

    /// Checks for hexadecimal of whole bytes. The length is variable by contract; the simulator accepts 16 to 200
    /// bytes.
    func checkDeviceToken() -> Reason {
        let isToken =
            deviceToken.count % 2 == 0 && (32...400).contains(deviceToken.count)
            && deviceToken.allSatisfy(hexDigit)
        return isToken ? .absent : .badDeviceToken
    }
}

extension UnsafeRawBufferPointer {
    func equals(_ other: UnsafeRawBufferPointer) -> Bool {
        guard count == other.count else { return false }
        guard let baseAddress, let start = other.baseAddress else { return true }
        return memcmp(baseAddress, start, count) == 0
    }

    func equals(_ literal: StaticString) -> Bool {
        equals(UnsafeRawBufferPointer(start: literal.utf8Start, count: literal.utf8CodeUnitCount))
    }

    /// Returns the bytes after the prefix, or nil without the prefix.
    func dropping(_ prefix: StaticString) -> UnsafeRawBufferPointer? {
        let length = prefix.utf8CodeUnitCount
        guard count >= length, UnsafeRawBufferPointer(rebasing: self[..<length]).equals(prefix) else {
            return nil
        }
        return UnsafeRawBufferPointer(rebasing: self[length...])
    }

    func hasSuffix(_ suffix: StaticString) -> Bool {
        let length = suffix.utf8CodeUnitCount
        return count >= length && UnsafeRawBufferPointer(rebasing: self[(count - length)...]).equals(suffix)
    }

    /// Whether a topic is that of MDM, or has a suffix of a push type, while this type's topics have none.
    fileprivate func belongsToAnotherType(than type: PushType) -> Bool {
        guard type.topicSuffix.utf8CodeUnitCount == 0, type != .mdm else { return false }
        if dropping(PushType.mdm.topicPrefix) != nil { return true }
        for other in PushType.allCases
        where other.topicSuffix.utf8CodeUnitCount > 0 && hasSuffix(other.topicSuffix) { return true }
        return false
    }

    /// Unsigned decimal number of at most 18 digits; nil for other text.
    var decimal: Int64? {
        guard count > 0, count <= 18 else { return nil }
        var value: Int64 = 0
        for byte in self {
            guard byte >= UInt8(ascii: "0"), byte <= UInt8(ascii: "9") else { return nil }
            value = value * 10 + Int64(byte - UInt8(ascii: "0"))
        }
        return value
    }

    /// Whether the text has only letters, digits, points, hyphens and underscores.
    var isTopic: Bool {
        count > 0 && count <= 255
            && allSatisfy { byte in
                switch byte {
                case UInt8(ascii: "a")...UInt8(ascii: "z"), UInt8(ascii: "A")...UInt8(ascii: "Z"),
                    UInt8(ascii: "0")...UInt8(ascii: "9"), UInt8(ascii: "."), UInt8(ascii: "-"),
                    UInt8(ascii: "_"):
                    true
                default: false
                }
            }
    }

    var text: String { String(decoding: self, as: UTF8.self) }
}
