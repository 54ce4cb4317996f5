import SluiceModel
import TestSupport

/// A job to produce.
struct JobDraft {
    var deviceToken: String
    var kind: AuditedJob.Kind
    /// Time to wait for a push's receipt, in seconds; nil: the worker's default.
    var receiptTimeout: Int64?
    /// Length of the alert's text, in bytes.
    var payload = 2

    init(_ deviceToken: String, _ kind: AuditedJob.Kind, receiptTimeout: Int64? = nil) {
        self.deviceToken = deviceToken
        self.kind = kind
        self.receiptTimeout = receiptTimeout
    }

    init(_ deviceToken: String, _ event: AuditedJob.DeviceEvent) { self.init(deviceToken, .event(event)) }

    /// - Parameter created: the instant of creation; nil: the time at which Kafka receives the record.
    func encoded(created: Int64?) -> EncodedJob {
        switch kind {
        case .push(let push):
            var job = PushDescription(
                deviceToken: deviceToken, topic: push.topic,
                payload: Array(#"{"aps":{"alert":"\#(String(repeating: "x", count: payload))"}}"#.utf8))
            job.apnsID = push.apnsID
            job.collapseIdentifier = push.collapseID
            job.delivery = "\(push.delivery.name)"
            job.expiration = push.expiration.map { $0 / 1_000 }
            job.deliverAtMilliseconds = push.deliverAt
            job.receiptTimeoutSeconds = receiptTimeout
            job.createdAtMilliseconds = created
            return JobEncoder.binary(job)
        case .cancel(let target):
            var job = ControlDescription(.cancel, deviceToken: deviceToken)
            switch target {
            case .collapse(let topic, let identifier):
                (job.topic, job.collapseIdentifier) = (topic, identifier)
            case .notification(let identifier): job.apnsID = identifier
            }
            job.createdAtMilliseconds = created
            return JobEncoder.binary(job)
        case .event(let event):
            var job = ControlDescription(.device, deviceToken: deviceToken)
            switch event {
            case .online: job.event = "online"
            case .offline: job.event = "offline"
            case .unregistered: job.event = "unregistered"
            case .receipt(let identifier): (job.event, job.apnsID) = ("receipt", identifier)
            case .tokenChanged(let new): (job.event, job.newDeviceToken) = ("token-changed", new)
            }
            job.createdAtMilliseconds = created
            job.occurredAtMilliseconds = created
            return JobEncoder.binary(job)
        }
    }
}

extension SeededGenerator {
    /// Returns a random `apns-id`.
    mutating func identifier() -> String {
        let digits = Array(hexadecimal(bytes: 16))
        let parts = [digits[0..<8], digits[8..<12], digits[12..<16], digits[16..<20], digits[20..<32]]
        return parts.map { String($0) }.joined(separator: "-")
    }

    mutating func chance(_ percent: Int) -> Bool { Int.random(in: 0..<100, using: &self) < percent }
}
