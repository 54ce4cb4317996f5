import HTTP2
import SluiceModel

/// Writes the header blocks of device pushes (APNs: SNR, "Sending notification requests") for the connections of
/// one pool. What repeats (authority, provider token, topic, push type, priority) enters the connection's header
/// table once; what belongs to one device never does (CON's guidance on HPACK). Loop's thread only.
public final class PushRequestEncoder {
    /// The topic of an app as these pools know it; looked up once, not per push.
    public struct Topic {
        fileprivate var field: StableFields.ID
    }

    private let fields: StableFields
    private let authority: StableFields.ID
    private var authorization: StableFields.ID?
    private let pushTypes: UnsafeMutablePointer<StableFields.ID>
    private let immediate: StableFields.ID
    private let powerAware: StableFields.ID
    private let lowPower: StableFields.ID
    private let apnsID: StableFields.ID
    private let expiration: StableFields.ID
    private let collapseIdentifier: StableFields.ID
    /// For values that are turned into text.
    private let scratch = UnsafeMutableRawPointer.allocate(byteCount: 64, alignment: 8)

    // RFC 7541, appendix A.
    private static let methodPost: UInt8 = 3
    private static let schemeHTTPS: UInt8 = 7

    /// - Parameter authority: the server's name, with its port where that is not 443.
    public init(fields: StableFields, authority: String) {
        self.fields = fields
        self.authority = fields.add(name: ":authority", value: Array(authority.utf8))
        pushTypes = .allocate(capacity: PushType.allCases.count)
        for type in PushType.allCases {
            (pushTypes + Int(type.rawValue)).initialize(
                to: fields.add(name: "apns-push-type", value: Self.bytes(type.headerValue)))
        }
        let priority = { (value: Priority) in
            fields.add(name: "apns-priority", value: Self.bytes(value.headerValue))
        }
        immediate = priority(.immediate)
        powerAware = priority(.powerAware)
        lowPower = priority(.lowPower)
        apnsID = fields.add(name: "apns-id")
        expiration = fields.add(name: "apns-expiration")
        collapseIdentifier = fields.add(name: "apns-collapse-id")
    }

    deinit {
        pushTypes.deallocate()
        scratch.deallocate()
    }

    /// Makes a topic known.
    public func topic(_ name: UnsafeRawBufferPointer) -> Topic {
        Topic(field: fields.add(name: "apns-topic", value: Array(name)))
    }

    /// Sets the `authorization` of the requests from now on, `bearer` included; never called on certificate
    /// connections.
    public func setAuthorization(_ value: [UInt8]) {
        if let authorization {
            fields.replace(authorization, value: value)
        } else {
            authorization = fields.add(name: "authorization", value: value)
        }
    }

    /// Writes the header block of one push.
    public func encode(_ push: borrowing PushJob, topic: Topic, into block: inout HeaderBlockEncoder) {
        block.indexedStatic(Self.methodPost)
        block.indexedStatic(Self.schemeHTTPS)
        block.stable(authority)
        block.path("/3/device/", push.deviceToken)
        if let authorization { block.stable(authorization) }
        block.stable(topic.field)
        block.stable(pushTypes[Int(push.pushType.rawValue)])
        switch push.priority {
        case .immediate: block.stable(immediate)
        case .powerAware: block.stable(powerAware)
        case .lowPower: block.stable(lowPower)
        }
        push.apnsID.write(to: scratch)
        block.value(apnsID, UnsafeRawBufferPointer(start: scratch, count: APNSID.textLength))
        if let seconds = push.expiration.headerSeconds {
            block.value(expiration, decimal(seconds))
        }
        if let identifier = push.collapseIdentifier {
            block.value(collapseIdentifier, identifier)
        }
    }

    private func decimal(_ number: UInt32) -> UnsafeRawBufferPointer {
        var number = number
        var start = 16
        repeat {
            start -= 1
            scratch.storeBytes(
                of: UInt8(ascii: "0") + UInt8(number % 10), toByteOffset: start, as: UInt8.self)
            number /= 10
        } while number > 0
        return UnsafeRawBufferPointer(start: scratch + start, count: 16 - start)
    }

    private static func bytes(_ text: StaticString) -> [UInt8] {
        Array(UnsafeBufferPointer(start: text.utf8Start, count: text.utf8CodeUnitCount))
    }
}
