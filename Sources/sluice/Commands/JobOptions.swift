import ArgumentParser
import Foundation
import SluiceModel

extension JobMode: ExpressibleByArgument {}

/// A job, as options of the command line. Nothing is checked here, because the worker's rules do that.
struct JobOptions: ParsableArguments {
    enum Kind: String, ExpressibleByArgument, CaseIterable {
        case push, cancel, device, broadcast
    }

    @Option(
        help: ArgumentHelp(
            "push; cancel: withdraw waiting pushes by --collapse-id and --topic, or by --apns-id; device: report an --event; "
                + "broadcast: update or end all Live Activities of a --channel-id."
        ))
    var kind = Kind.push

    @Option(help: ArgumentHelp("Device token, which is also the record's key.", valueName: "hex"))
    var deviceToken: String?

    @Option(
        help: ArgumentHelp(
            "With --kind broadcast: the channel, as `sluice channels` gave it, which is also the record's key.",
            valueName: "base64"))
    var channelId: String?

    @Option(help: ArgumentHelp("apns-topic: the app's bundle identifier, with a suffix for some push types."))
    var topic: String?

    @Option(
        help: ArgumentHelp("apns-push-type: alert, background, voip, …", valueName: "type"))
    var pushType = "alert"

    @Option(
        help: ArgumentHelp("The notification, a JSON object; @path reads it from a file.", valueName: "json"))
    var payload: String?

    @Option(help: ArgumentHelp("Text of a simple alert, instead of a payload.", valueName: "text"))
    var alert: String?

    @Option(help: ArgumentHelp("apns-priority: 10, 5 or 1.", valueName: "number"))
    var priority: Int?

    @Option(
        help: ArgumentHelp("apns-expiration in UNIX seconds; 0: one attempt only.", valueName: "seconds"))
    var expiration: Int64?

    @Option(
        help: ArgumentHelp(
            "Seconds from --deliver-at or from now until the push expires, instead of an expiration.",
            valueName: "seconds")
    )
    var ttl: Int64?

    @Option(help: ArgumentHelp("apns-collapse-id, at most 64 bytes.", valueName: "text"))
    var collapseId: String?

    @Option(help: ArgumentHelp("apns-id; without it the worker derives one.", valueName: "uuid"))
    var apnsId: String?

    @Option(
        help: ArgumentHelp(
            "Earliest time to send the push, in milliseconds since the epoch.", valueName: "ms"))
    var deliverAt: Int64?

    @Option(
        help: ArgumentHelp(
            "When the push counts as delivered: accept, hold-while-offline or confirm.", valueName: "mode"))
    var delivery: String?

    @Option(
        help: ArgumentHelp(
            "Whether the push may reach the device twice: allow or avoid.", valueName: "policy"))
    var duplicates: String?

    @Option(
        help: ArgumentHelp(
            "APNs environment: production or development; default: that of the app's credential.",
            valueName: "name"))
    var environment: String?

    @Option(
        help: ArgumentHelp("With --delivery confirm: longest wait for the receipt.", valueName: "seconds"))
    var receiptTimeout: Int64?

    @Option(
        help: ArgumentHelp(
            "Time at which the app registered the token, in milliseconds since the epoch.", valueName: "ms"))
    var registeredAt: Int64?

    @Option(
        help: ArgumentHelp(
            "With --kind device: online, offline, receipt (of --apns-id), token-changed, unregistered or erase.",
            valueName: "name"))
    var event: String?

    @Option(help: ArgumentHelp("With --event token-changed: the device's new token.", valueName: "hex"))
    var newDeviceToken: String?

    @Option(
        help: ArgumentHelp(
            "With --event: time of the event, in milliseconds since the epoch; default: now.", valueName: "ms"
        )
    )
    var occurredAt: Int64?

    var isGiven: Bool {
        deviceToken != nil || channelId != nil || topic != nil || payload != nil || alert != nil
            || kind != .push || event != nil
    }

    func validateComplete() throws {
        guard isGiven else {
            throw ValidationError("give --file, or --device-token, --topic and --payload or --alert")
        }
        if kind == .broadcast {
            if channelId == nil { throw ValidationError("--channel-id is missing") }
        } else if deviceToken == nil {
            throw ValidationError("--device-token is missing")
        }
        if let stray = strayOption { throw ValidationError(stray) }
        if kind == .device, event == nil { throw ValidationError("--event is missing") }
        guard kind == .push || kind == .broadcast else { return }
        if topic == nil { throw ValidationError("--topic is missing") }
        if kind == .broadcast, payload == nil { throw ValidationError("--payload is missing") }
        if payload == nil, alert == nil { throw ValidationError("--payload or --alert is missing") }
        if payload != nil, alert != nil { throw ValidationError("--payload and --alert exclude each other") }
        if expiration != nil, ttl != nil {
            throw ValidationError("--expiration and --ttl exclude each other")
        }
    }

    /// Option that is present but useless to a job of this kind; nil when there is none.
    private var strayOption: String? {
        func first(_ options: [(name: String, isGiven: Bool)]) -> String? {
            options.first { $0.isGiven }?.name
        }
        let ofPushes = [
            ("--alert", alert != nil), ("--delivery", delivery != nil),
            ("--receipt-timeout", receiptTimeout != nil), ("--registered-at", registeredAt != nil),
        ]
        let ofMessages = [
            ("--payload", payload != nil), ("--priority", priority != nil),
            ("--expiration", expiration != nil), ("--ttl", ttl != nil), ("--deliver-at", deliverAt != nil),
            ("--duplicates", duplicates != nil), ("--environment", environment != nil),
        ]
        let ofDevices = [
            ("--event", event != nil), ("--new-device-token", newDeviceToken != nil),
            ("--occurred-at", occurredAt != nil),
        ]
        if kind != .push, let name = first(ofPushes) { return "\(name) is only for --kind push" }
        if kind != .push, kind != .broadcast, let name = first(ofMessages) {
            return "\(name) is only for --kind push and broadcast"
        }
        if kind != .broadcast, channelId != nil { return "--channel-id is only for --kind broadcast" }
        if kind == .broadcast,
            let name = first([("--device-token", deviceToken != nil), ("--collapse-id", collapseId != nil)])
        {
            return "\(name) is not for --kind broadcast"
        }
        if kind != .device, let name = first(ofDevices) { return "\(name) is only for --kind device" }
        if kind == .device,
            let name = first([("--topic", topic != nil), ("--collapse-id", collapseId != nil)])
        {
            return "\(name) is not for --kind device"
        }
        return nil
    }

    func encoded(in mode: JobMode) throws(CommandFailure) -> EncodedJob {
        if kind == .broadcast { return try encodedBroadcast(in: mode) }
        if kind != .push { return try encodedControl(in: mode) }
        var push = PushDescription(
            deviceToken: deviceToken ?? "", topic: topic ?? "", pushType: pushType,
            payload: try payloadBytes())
        push.priority = priority
        push.expiration = expiration
        push.ttl = ttl
        push.receiptTimeoutSeconds = receiptTimeout
        push.registeredAtMilliseconds = registeredAt
        push.collapseIdentifier = collapseId
        push.apnsID = apnsId
        push.duplicates = duplicates
        push.environment = environment
        push.deliverAtMilliseconds = deliverAt
        push.delivery = delivery
        return try encode(mode, JobEncoder.binary(push), JobEncoder.structured(push))
    }

    private func encodedBroadcast(in mode: JobMode) throws(CommandFailure) -> EncodedJob {
        var broadcast = BroadcastDescription(
            channelIdentifier: channelId ?? "", topic: topic ?? "", payload: try payloadBytes())
        broadcast.priority = priority
        broadcast.expiration = expiration
        broadcast.ttl = ttl
        broadcast.apnsID = apnsId
        broadcast.deliverAtMilliseconds = deliverAt
        broadcast.duplicates = duplicates
        broadcast.environment = environment
        return try encode(mode, JobEncoder.binary(broadcast), JobEncoder.structured(broadcast))
    }

    private func encodedControl(in mode: JobMode) throws(CommandFailure) -> EncodedJob {
        var control = ControlDescription(kind == .cancel ? .cancel : .device, deviceToken: deviceToken ?? "")
        control.topic = topic
        control.collapseIdentifier = collapseId
        control.apnsID = apnsId
        control.event = event
        control.newDeviceToken = newDeviceToken
        control.occurredAtMilliseconds = occurredAt
        return try encode(mode, JobEncoder.binary(control), JobEncoder.structured(control))
    }

    private func encode(
        _ mode: JobMode, _ binary: EncodedJob, _ structured: EncodedJob
    ) throws(CommandFailure) -> EncodedJob {
        try CommandFailure.ofJobs { () throws(JobError) in try mode.encode(binary, structured) }
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

extension CommandFailure {
    /// Returns what `body` returns. The error of a job is one of the command's input.
    static func ofJobs<Value>(_ body: () throws(JobError) -> Value) throws(CommandFailure) -> Value {
        do throws(JobError) { return try body() } catch {
            throw CommandFailure(.dataError, "the job is not valid: \(error)")
        }
    }
}
