/// Every member of an outcome document, in the order in which they are written.
enum OutcomeMember: String, CaseIterable {
    case outcome, job
    case deviceToken = "device-token"
    case deviceTokenHash = "device-token-hash"
    case topic
    case pushType = "push-type"
    case environment
    case apnsID = "apns-id"
    case apnsUniqueID = "apns-unique-id"
    case collapseID = "collapse-id"
    case status, reason
    case reasonClass = "reason-class"
    case deleteToken = "delete-token"
    case suspectToken = "suspect-token"
    case tokenInvalidSince = "token-invalid-since"
    case cause, message, count
    case supersededBy = "superseded-by"
    case attempts, source, adjusted
    case createdAt = "created-at"
    case polledAt = "polled-at"
    case firstSentAt = "first-sent-at"
    case finishedAt = "finished-at"
}

/// Writes outcomes as compact JSON (`Schemas/outcome.schema.json`). Allocates only when the writer grows.
public enum OutcomeEncoder {
    /// Appends a document.
    /// - Parameter hash: text of the token's hash, which stands in the token's place; nil: the token in the clear.
    public static func encode(
        _ outcome: borrowing Outcome, deviceTokenHash hash: UnsafeRawBufferPointer? = nil,
        into writer: inout ByteWriter
    ) {
        writer.append(#"{"outcome":""#)
        writer.append(outcome.kind.name)
        if outcome.job != .push {
            writer.append(#"","job":""#)
            writer.append(outcome.job.name)
        }
        if let hash {
            writer.append(#"","device-token-hash":"#)
            writer.append(jsonString: hash)
        } else {
            writer.append(#"","device-token":"#)
            writer.append(jsonString: outcome.deviceToken)
        }
        if outcome.topic.count > 0 {
            writer.append(#","topic":"#)
            writer.append(jsonString: outcome.topic)
        }
        if let type = outcome.pushType {
            writer.append(#","push-type":""#)
            writer.append(type.headerValue)
            writer.append(UInt8(ascii: "\""))
        }
        if let environment = outcome.environment {
            writer.append(#","environment":""#)
            writer.append(environment.name)
            writer.append(UInt8(ascii: "\""))
        }
        writer.append(#","apns-id":""#)
        writer.append(outcome.apnsID)
        writer.append(UInt8(ascii: "\""))
        if let id = outcome.uniqueID {
            writer.append(#","apns-unique-id":""#)
            writer.append(id)
            writer.append(UInt8(ascii: "\""))
        }
        if let collapse = outcome.collapseIdentifier {
            writer.append(#","collapse-id":"#)
            writer.append(jsonString: collapse)
        }
        encodeAnswer(outcome, into: &writer)
        encodeCause(outcome, into: &writer)
        writer.append(#","attempts":"#)
        writer.append(decimal: Int64(outcome.attempts))
        writer.append(#","source":{"topic":"#)
        writer.append(jsonString: outcome.sourceTopic)
        writer.append(#","partition":"#)
        writer.append(decimal: Int64(outcome.partition))
        writer.append(#","offset":"#)
        writer.append(decimal: outcome.offset)
        writer.append(UInt8(ascii: "}"))
        if !outcome.adjustments.isEmpty { encode(outcome.adjustments, into: &writer) }
        writer.append(#","created-at":"#)
        writer.append(milliseconds: outcome.createdMilliseconds)
        writer.append(#","polled-at":"#)
        writer.append(milliseconds: outcome.polledMilliseconds)
        if let sent = outcome.firstSentMilliseconds {
            writer.append(#","first-sent-at":"#)
            writer.append(milliseconds: sent)
        }
        writer.append(#","finished-at":"#)
        writer.append(milliseconds: outcome.finishedMilliseconds)
        writer.append(UInt8(ascii: "}"))
    }

    private static func encode(_ adjustments: JobAdjustments, into writer: inout ByteWriter) {
        writer.append(#","adjusted":["#)
        var isFirst = true
        for (adjustment, name) in JobAdjustments.names where adjustments.contains(adjustment) {
            writer.append(isFirst ? "\"" : ",\"")
            writer.append(name)
            writer.append("\"")
            isFirst = false
        }
        writer.append("]")
    }

    private static func encodeAnswer(_ outcome: borrowing Outcome, into writer: inout ByteWriter) {
        if outcome.status != 0 {
            writer.append(#","status":"#)
            writer.append(decimal: Int64(outcome.status))
        }
        if outcome.reason == .unknown {
            writer.append(#","reason":""#)
            // ReasonText holds nothing that JSON would escape.
            for index in 0..<outcome.unknownReason.count { writer.append(outcome.unknownReason[index]) }
            writer.append(UInt8(ascii: "\""))
        } else if outcome.reason != .absent {
            writer.append(#","reason":""#)
            writer.append(outcome.reason.name)
            writer.append(UInt8(ascii: "\""))
        }
        if let reasonClass = outcome.reasonClass, reasonClass != .accepted {
            writer.append(#","reason-class":""#)
            writer.append(reasonClass.name)
            writer.append(UInt8(ascii: "\""))
        }
        if outcome.deleteToken { writer.append(#","delete-token":true"#) }
        if outcome.suspectToken { writer.append(#","suspect-token":true"#) }
        if let since = outcome.tokenInvalidSinceMilliseconds {
            writer.append(#","token-invalid-since":"#)
            writer.append(milliseconds: since)
        }
    }

    private static func encodeCause(_ outcome: borrowing Outcome, into writer: inout ByteWriter) {
        if let cause = outcome.cause {
            writer.append(#","cause":""#)
            writer.append(cause.name)
            writer.append(#"","message":""#)
            writer.append(cause.message)
            writer.append(UInt8(ascii: "\""))
        }
        if let count = outcome.count {
            writer.append(#","count":"#)
            writer.append(decimal: Int64(count))
        }
        if let successor = outcome.supersededBy {
            writer.append(#","superseded-by":""#)
            writer.append(successor)
            writer.append(UInt8(ascii: "\""))
        }
    }
}
