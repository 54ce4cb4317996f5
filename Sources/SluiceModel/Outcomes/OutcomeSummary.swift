/// An outcome document as tools read it: owned, and tolerant of unknown members.
public struct OutcomeSummary: Sendable {
    public var kind: OutcomeKind
    /// Kind of the job, by ``JobKind/name``.
    public var job: String
    /// Device token, the channel of a broadcast, or the hash of the device token.
    public var deviceToken: String
    /// Whether ``deviceToken`` is a hash (`outcomes.device-token: hash`).
    public var isTokenHashed: Bool
    /// Value of `apns-topic`; nil where unknown.
    public var topic: String?
    /// Value of `apns-push-type`; nil where unknown.
    public var pushType: String?
    /// A ``JobEnvironment/name``; nil where the job names none.
    public var environment: String?
    /// Identifier of the job.
    public var apnsID: APNSID
    /// Identifier that APNs gave the accepted push; nil: none.
    public var uniqueID: APNSID?
    /// Collapse identifier of the push; nil: none.
    public var collapseIdentifier: String?
    /// HTTP status of APNs' last answer; nil without an answer.
    public var status: Int?
    /// Reason of APNs' last answer, as ``ReasonText`` shows it; nil without a reason.
    public var reason: String?
    /// A ``ReasonClass/name``; nil without an answer.
    public var reasonClass: String?
    /// True when the sender should delete the device token.
    public var deleteToken: Bool
    /// True when the device token is at fault, unless environment or topic are.
    public var suspectToken: Bool
    /// Time since which APNs considers the token invalid, in milliseconds since the epoch; nil without 410.
    public var tokenInvalidSinceMilliseconds: Int64?
    /// Cause of an end that Sluice decided; nil where APNs' answer is sufficient.
    public var cause: String?
    /// Explanation for people; nil where there is none.
    public var message: String?
    /// Number of pushes that a `cancel` or `device` event affected; nil for other jobs.
    public var count: Int?
    /// `apns-id` of the job that replaced this one; nil: none.
    public var supersededBy: APNSID?
    /// Number of times that the push was sent.
    public var attempts: Int
    /// Kafka topic of the job's record.
    public var sourceTopic: String
    /// Partition of the job's record.
    public var partition: Int32
    /// Offset of the job's record.
    public var offset: Int64
    /// Names of the job's times that were later than the worker's clock.
    public var adjusted: [String]
    /// Creation of the job, in milliseconds since the epoch.
    public var createdMilliseconds: Int64
    /// Time at which the worker polled the job, in milliseconds since the epoch.
    public var polledMilliseconds: Int64
    /// Time of the first attempt, in milliseconds since the epoch; nil: never sent.
    public var firstSentMilliseconds: Int64?
    /// End of the job, in milliseconds since the epoch.
    public var finishedMilliseconds: Int64

    /// Parses a document; nil when it isn't an outcome.
    public init?(json: UnsafeRawBufferPointer) {
        do throws(JSONFault) { try JSONScanner.validateObject(json) } catch { return nil }
        let members = Members(json)
        guard let kind = members.outcomeKind,
            let token = members.text(.deviceToken) ?? members.text(.deviceTokenHash),
            let id = members.apnsID(.apnsID),
            let source = members[.source].map({ Members($0) }),
            let sourceTopic = source.text(.topic),
            let partition = source.integer(named: "partition").flatMap({ Int32(exactly: $0) }),
            let offset = source.integer(named: "offset"),
            let created = members.integer(.createdAt),
            let polled = members.integer(.polledAt),
            let finished = members.integer(.finishedAt)
        else { return nil }
        self.kind = kind
        job = members.text(.job) ?? "push"
        deviceToken = token
        isTokenHashed = members[.deviceToken] == nil
        topic = members.text(.topic)
        pushType = members.text(.pushType)
        environment = members.text(.environment)
        apnsID = id
        uniqueID = members.apnsID(.apnsUniqueID)
        collapseIdentifier = members.text(.collapseID)
        status = members.integer(.status).map { Int($0) }
        reason = members.text(.reason).map { "\(ReasonText($0))" }
        reasonClass = members.text(.reasonClass)
        deleteToken = members[.deleteToken]?.elementsEqual(bytesOf: "true") ?? false
        suspectToken = members[.suspectToken]?.elementsEqual(bytesOf: "true") ?? false
        tokenInvalidSinceMilliseconds = members.integer(.tokenInvalidSince)
        cause = members.text(.cause)
        message = members.text(.message)
        count = members.integer(.count).map { Int($0) }
        supersededBy = members.apnsID(.supersededBy)
        attempts = Int(members.integer(.attempts) ?? 0)
        self.sourceTopic = sourceTopic
        self.partition = partition
        self.offset = offset
        adjusted = members.texts(.adjusted)
        createdMilliseconds = created
        polledMilliseconds = polled
        firstSentMilliseconds = members.integer(.firstSentAt)
        finishedMilliseconds = finished
    }

    /// Parses a document; nil when it isn't an outcome.
    public init?(json: [UInt8]) {
        guard let summary = json.withUnsafeBytes({ OutcomeSummary(json: $0) }) else { return nil }
        self = summary
    }

    /// Summary in one line. Examples: "rejected: 410 Unregistered", "rejected: broadcast 400 ChannelNotRegistered",
    /// "cancelled: cancel, 2 pushes".
    public var headline: String {
        var details: [String] = []
        if job != "push" {
            details.append(count.map { "\(job), \($0) \($0 == 1 ? "push" : "pushes")" } ?? job)
        }
        if let status, status != 200 { details.append("\(status)") }
        if let reason { details.append(reason) }
        if let message { details.append(details.isEmpty ? message : "– \(message)") }
        return details.isEmpty ? "\(kind.name)" : "\(kind.name): \(details.joined(separator: " "))"
    }
}

/// Looks up members of a valid object. Each lookup walks the object, which is fast enough for tools.
struct Members {
    private let object: UnsafeRawBufferPointer

    init(_ object: UnsafeRawBufferPointer) { self.object = object }

    subscript(member: OutcomeMember) -> UnsafeRawBufferPointer? { self[member.rawValue] }

    subscript(name: String) -> UnsafeRawBufferPointer? {
        var members = JSONMembers(object)
        while let member = members.next() {
            if name.utf8.elementsEqual(member.name) { return member.value }
        }
        return nil
    }

    func text(_ member: OutcomeMember) -> String? { text(named: member.rawValue) }

    func text(named name: String) -> String? {
        guard let value = self[name], value.count >= 2, value[0] == UInt8(ascii: "\"") else { return nil }
        let raw = value.slice(1..<value.count - 1)
        if raw.count == 0 { return "" }
        return String(unsafeUninitializedCapacity: raw.count) { buffer in
            unescapeJSON(raw, into: UnsafeMutableRawPointer(buffer.baseAddress!))
        }
    }

    /// Returns the texts of an array of plain strings.
    func texts(_ member: OutcomeMember) -> [String] {
        guard let value = self[member], value.first == UInt8(ascii: "[") else { return [] }
        return value.slice(1..<value.count - 1).split(separator: UInt8(ascii: ",")).map {
            String(decoding: $0, as: UTF8.self).filter { $0 != "\"" && !$0.isWhitespace }
        }
    }

    func integer(_ member: OutcomeMember) -> Int64? { integer(named: member.rawValue) }

    func integer(named name: String) -> Int64? {
        guard let value = self[name], isDigit(value[0]) || value[0] == UInt8(ascii: "-") else { return nil }
        return jsonInteger(value)
    }

    func apnsID(_ member: OutcomeMember) -> APNSID? {
        guard var text = text(member) else { return nil }
        return text.withUTF8 { APNSID(anyCase: UnsafeRawBufferPointer($0)) }
    }

    var outcomeKind: OutcomeKind? {
        guard let name = text(.outcome) else { return nil }
        return OutcomeKind.allCases.first { $0.name.description == name }
    }
}
