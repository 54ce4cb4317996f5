import ArgumentParser
import Foundation
import SluiceModel

/// A push, as options of the command line. Nothing is judged here: that is the worker's rules' business.
struct JobOptions: ParsableArguments {
    enum Mode: String, ExpressibleByArgument, CaseIterable {
        /// The record's value is the payload, everything else is headers.
        case binary
        /// The record's value is one JSON document.
        case structured
    }

    @Option(help: "How the job is encoded: payload and headers, or one JSON document.")
    var mode = Mode.binary

    @Option(help: ArgumentHelp("The device, and the record's key.", valueName: "hex"))
    var deviceToken: String?

    @Option(help: ArgumentHelp("apns-topic: the app's bundle identifier, with a suffix for some push types."))
    var topic: String?

    @Option(
        help: ArgumentHelp("apns-push-type: alert, background, voip, …", valueName: "type"))
    var pushType = "alert"

    @Option(
        help: ArgumentHelp("The notification: a JSON object; @path reads it from a file.", valueName: "json"))
    var payload: String?

    @Option(help: ArgumentHelp("Instead of a payload: the text of a simple alert.", valueName: "text"))
    var alert: String?

    @Option(help: ArgumentHelp("apns-priority: 10, 5 or 1.", valueName: "number"))
    var priority: Int?

    @Option(
        help: ArgumentHelp("apns-expiration in UNIX seconds; 0: deliver now or never.", valueName: "seconds"))
    var expiration: Int64?

    @Option(
        help: ArgumentHelp("Instead of an expiration: seconds from the job's creation.", valueName: "seconds")
    )
    var ttl: Int64?

    @Option(help: ArgumentHelp("apns-collapse-id, at most 64 bytes.", valueName: "text"))
    var collapseId: String?

    @Option(help: ArgumentHelp("apns-id; without it the worker derives one.", valueName: "uuid"))
    var apnsId: String?

    @Option(help: ArgumentHelp("Not before this instant, in milliseconds since the epoch.", valueName: "ms"))
    var deliverAt: Int64?

    @Option(
        help: ArgumentHelp(
            "When it counts as done: accept, hold-while-offline or confirm.", valueName: "mode"))
    var delivery: String?

    @Option(help: ArgumentHelp("Whether the device may see it twice: allow or avoid.", valueName: "policy"))
    var duplicates: String?

    var isGiven: Bool { deviceToken != nil || topic != nil || payload != nil || alert != nil }

    func validateComplete() throws {
        guard isGiven else {
            throw ValidationError("give --file, or --device-token, --topic and --payload or --alert")
        }
        if deviceToken == nil { throw ValidationError("--device-token is missing") }
        if topic == nil { throw ValidationError("--topic is missing") }
        if payload == nil, alert == nil { throw ValidationError("--payload or --alert is missing") }
        if payload != nil, alert != nil { throw ValidationError("--payload and --alert exclude each other") }
        if expiration != nil, ttl != nil {
            throw ValidationError("--expiration and --ttl exclude each other")
        }
    }

    func encoded() throws(CommandFailure) -> EncodedJob {
        var push = PushDescription(
            deviceToken: deviceToken ?? "", topic: topic ?? "", pushType: pushType,
            payload: try payloadBytes())
        push.priority = priority
        push.expiration = expiration
        push.ttl = ttl
        push.collapseIdentifier = collapseId
        push.apnsID = apnsId
        push.duplicates = duplicates
        push.deliverAtMilliseconds = deliverAt
        push.delivery = delivery
        return mode == .binary ? JobEncoder.binary(push) : JobEncoder.structured(push)
    }

    private func payloadBytes() throws(CommandFailure) -> [UInt8] {
        if let alert {
            var writer = ByteWriter()
            writer.append(#"{"aps":{"alert":"#)
            let text = Array(alert.utf8)
            text.withUnsafeBytes { writer.append(jsonString: $0) }
            writer.append("}}")
            return Array(writer.bytes)
        }
        guard let payload, payload.hasPrefix("@") else { return Array((payload ?? "").utf8) }
        let path = String(payload.dropFirst())
        guard let data = FileManager.default.contents(atPath: path) else {
            throw CommandFailure(.dataError, "can't read the payload from \(path)")
        }
        return Array(data)
    }
}
