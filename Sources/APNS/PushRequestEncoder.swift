import HTTP2
import SluiceModel

/// Writes the header blocks of device pushes for the connections of one pool (APNs: "Sending notification requests to
/// APNs"). Repeated fields (authority, provider token, topic, push type, priority) enter the connection's header table
/// once. A field of a single device enters the table at most once, so that later requests name the field by its index.
/// Loop's thread only.
public final class PushRequestEncoder {
    /// Topic of an app in this encoder; looked up once, not per push.
    public struct Topic {
        fileprivate var index: Int
    }

    let fields: StableFields
    let authority: StableFields.ID
    private(set) var authorization: StableFields.ID?
    let pushTypes: [StableFields.ID]
    let priorities: [StableFields.ID]
    private let apnsID: StableFields.ID
    let expiration: StableFields.ID
    private let collapseIdentifier: StableFields.ID
    /// Fields of broadcasts.
    var broadcasts: BroadcastFields
    private var topicFields: [StableFields.ID] = []
    /// Names of the topics and of the server, for copies.
    private var topicNames: [[UInt8]] = []
    private let authorityName: String
    /// Templates by topic, push type and priority; nil until first used.
    private var templates: [StableFields.TemplateID?] = []

    private static let pushTypeCount = PushType.allCases.count
    private static let priorityCount = Priority.allCases.count

    // RFC 7541, appendix A.
    static let methodPost: UInt8 = 3
    static let schemeHTTPS: UInt8 = 7

    /// - Parameter authority: Name of the server, with its port if the port is not 443.
    public init(fields: StableFields, authority: String) {
        self.fields = fields
        authorityName = authority
        self.authority = fields.add(name: ":authority", value: Array(authority.utf8))
        pushTypes = PushType.allCases.sorted { $0.rawValue < $1.rawValue }.map {
            fields.add(name: "apns-push-type", value: Self.bytes($0.headerValue))
        }
        priorities = [Priority.immediate, .powerAware, .lowPower].map {
            fields.add(name: "apns-priority", value: Self.bytes($0.headerValue))
        }
        apnsID = fields.add(name: "apns-id")
        expiration = fields.add(name: "apns-expiration")
        collapseIdentifier = fields.add(name: "apns-collapse-id")
        broadcasts = BroadcastFields(
            channel: fields.add(name: "apns-channel-id"), requestID: fields.add(name: "apns-request-id"))
    }

    /// Creates an encoder for connections with another credential. The copy has no `authorization`, and the same
    /// topics and apps of broadcasts: a ``Topic`` or ``BroadcastApp`` of either serves both.
    public convenience init(copying other: PushRequestEncoder, fields: StableFields) {
        self.init(fields: fields, authority: other.authorityName)
        for name in other.topicNames { _ = name.withUnsafeBytes(topic) }
        for name in other.broadcasts.apps { _ = name.withUnsafeBytes(broadcastApp) }
    }

    /// Adds a topic.
    public func topic(_ name: UnsafeRawBufferPointer) -> Topic {
        topicNames.append(Array(name))
        topicFields.append(fields.add(name: "apns-topic", value: Array(name)))
        templates.append(
            contentsOf: repeatElement(nil, count: Self.pushTypeCount * Self.priorityCount))
        return Topic(index: topicFields.count - 1)
    }

    /// Sets the `authorization` of later requests, `bearer` included; never called on certificate connections.
    public func setAuthorization(_ value: [UInt8]) {
        if let authorization {
            fields.replace(authorization, value: value)
        } else {
            authorization = fields.add(name: "authorization", value: value)
            for index in templates.indices { templates[index] = nil }
        }
    }

    /// Writes the header block of one push. With `collapsesByIdentifier`, a push without a collapse identifier uses its
    /// `apns-id`. A repeat then replaces the push on the device.
    public func encode(
        _ push: borrowing PushJob, topic: Topic, collapsesByIdentifier: Bool = false,
        into block: inout HeaderBlockEncoder
    ) {
        let kind = (topic.index * Self.pushTypeCount + Int(push.pushType.rawValue)) * Self.priorityCount
        block.request(template(kind + priorityIndex(push.priority), topic, push), path: push.deviceToken)
        block.value(apnsID, identifier: push.apnsID.high, push.apnsID.low)
        if let seconds = push.expiration.headerSeconds { block.value(expiration, decimal: seconds) }
        if let identifier = push.collapseIdentifier {
            block.value(collapseIdentifier, identifier)
        } else if collapsesByIdentifier {
            block.value(collapseIdentifier, identifier: push.apnsID.high, push.apnsID.low)
        }
    }

    @inline(__always)
    func priorityIndex(_ priority: Priority) -> Int {
        switch priority {
        case .immediate: 0
        case .powerAware: 1
        case .lowPower: 2
        }
    }

    @inline(__always)
    private func template(
        _ kind: Int, _ topic: Topic, _ push: borrowing PushJob
    ) -> StableFields.TemplateID {
        if let template = templates[kind] { return template }
        return makeTemplate(kind, topic, push)
    }

    private func makeTemplate(
        _ kind: Int, _ topic: Topic, _ push: borrowing PushJob
    ) -> StableFields.TemplateID {
        var trailing: [StableFields.ID] = []
        if let authorization { trailing.append(authorization) }
        trailing += [topicFields[topic.index], pushTypes[Int(push.pushType.rawValue)]]
        trailing.append(priorities[priorityIndex(push.priority)])
        let template = fields.addTemplate(
            leading: [
                .indexedStatic(Self.methodPost), .indexedStatic(Self.schemeHTTPS), .stable(authority),
            ], pathPrefix: "/3/device/", trailing: trailing)
        templates[kind] = template
        return template
    }

    private static func bytes(_ text: StaticString) -> [UInt8] {
        Array(UnsafeBufferPointer(start: text.utf8Start, count: text.utf8CodeUnitCount))
    }
}
