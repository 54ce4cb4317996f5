// Makes a job from fields, with all rules about values in one place for all modes.

extension JobDecoder {
    func makeJob(
        _ kind: JobKind, _ fields: borrowing JobFields, _ record: JobRecord, _ times: inout JobTimes
    ) throws(JobError) -> DecodedJob {
        if let field = fields.present.subtracting(kind.allowed).first {
            throw fields.error(field, .notForKind, "a job of kind \(kind.name) does not have this field")
        }
        if let field = kind.required.subtracting(fields.present).first {
            throw fields.error(field, .required, requirement(field, fields))
        }
        let created = times.created(try fields.instant(.createdAt))
        switch kind {
        case .push: return .push(try makePush(fields, record, created: created, &times))
        case .broadcast: return .push(try makeBroadcast(fields, record, created: created, times))
        case .cancel, .device:
            let detail = kind == .cancel ? try cancelDetail(fields) : try deviceDetail(fields)
            let token = try fields.deviceToken(.deviceToken)
            let occurred = times.past(try fields.instant(.occurredAt), created: created, .occurredAt)
            return .control(
                ControlJob(
                    kind: kind, address: token, topic: fields[.topic] ?? .empty, apnsID: .derived(record),
                    detail: detail, occurredMilliseconds: occurred ?? created, createdMilliseconds: created,
                    adjustments: times.adjustments, passedHeaders: fields.passed, storage: fields.storage))
        }
    }

    private func requirement(_ field: JobField, _ fields: borrowing JobFields) -> String {
        switch field {
        case .deviceToken where !fields.isStructured: "the record's key must be the device token, as text"
        case .channelIdentifier where !fields.isStructured: "the record's key must be the channel identifier"
        case .payload where fields.isPacked: "an empty line and the payload must follow the fields"
        case .payload where !fields.isStructured: "the record's value must be the payload"
        case _ where fields.isPacked:
            "is missing among the lines of the value, which holds the fields because it begins with a letter"
        default: "is missing"
        }
    }

    private func makePush(
        _ fields: borrowing JobFields, _ record: JobRecord, created: Int64, _ times: inout JobTimes
    ) throws(JobError) -> PushJob {
        let token = try fields.deviceToken(.deviceToken)
        let type = try fields.pushType()
        let topic = try fields.topic(for: type)
        let priority = try fields.priority(for: type)
        let deliverAt = try fields.instant(.deliverAt)
        let expiration = try fields.expirationOrTTL(from: deliverAt ?? created)
        let delivery = try fields.delivery()
        let timeout = try fields.integer(.receiptTimeout, in: JobLimits.receiptTimeout, "seconds")
        if timeout != nil, delivery != .confirm {
            throw fields.error(.receiptTimeout, .onlyWith, "is only for delivery: confirm")
        }
        let apnsID = try fields.apnsID(.apnsID) ?? .derived(record)
        let registered = times.past(
            try fields.instant(.registeredAt), created: created, .registeredAt)
        return PushJob(
            deviceToken: token, topic: topic, pushType: type, priority: priority, apnsID: apnsID,
            expiration: expiration, collapseIdentifier: try fields.collapseIdentifier(),
            payload: try payload(fields, limit: type.maximumPayloadSize), deliverAtMilliseconds: deliverAt,
            delivery: delivery,
            receiptTimeoutSeconds: timeout.map { UInt32($0) } ?? JobLimits.defaultReceiptTimeout,
            registeredAtMilliseconds: registered, duplicates: try fields.duplicates(),
            environment: try fields.environment(), createdMilliseconds: created,
            adjustments: times.adjustments, passedHeaders: fields.passed, storage: fields.storage)
    }

    private func makeBroadcast(
        _ fields: borrowing JobFields, _ record: JobRecord, created: Int64, _ times: JobTimes
    ) throws(JobError) -> PushJob {
        let channel = try fields.channelIdentifier()
        if fields[.pushType] != nil, try fields.pushType() != .liveActivity {
            throw fields.error(.pushType, .choice, "a broadcast must have push type liveactivity")
        }
        let topic = try fields.topic(for: .alert)
        let deliverAt = try fields.instant(.deliverAt)
        if let deliverAt, deliverAt > created + JobLimits.broadcastLead {
            throw fields.error(
                .deliverAt, .range,
                "of a broadcast is at most \(JobLimits.broadcastLead / 1000) s after its creation, because a waiting "
                    + "broadcast holds up its partition; produce the broadcast when it is due")
        }
        guard fields[.expiration] != nil || fields[.ttl] != nil else {
            throw fields.error(.expiration, .required, "a broadcast must have an expiration or a ttl")
        }
        let expiration = try fields.expirationOrTTL(from: deliverAt ?? created)
        let priority = try fields.anyPriority() ?? .immediate
        let payload = try payload(fields, limit: PushType.maximumBroadcastPayloadSize)
        return PushJob(
            deviceToken: channel, isBroadcast: true, topic: topic, pushType: .liveActivity,
            priority: priority, apnsID: try fields.apnsID(.apnsID) ?? .derived(record),
            expiration: expiration, payload: payload, deliverAtMilliseconds: deliverAt,
            duplicates: try fields.duplicates(), environment: try fields.environment(),
            createdMilliseconds: created,
            adjustments: times.adjustments, passedHeaders: fields.passed, storage: fields.storage)
    }

    /// Checks the payload's size by push type, and its JSON. In structured mode the whole document was validated before.
    private func payload(_ fields: borrowing JobFields, limit: Int) throws(JobError) -> UnsafeRawBufferPointer
    {
        guard let payload = fields[.payload] else { throw fields.error(.payload, .required, "is missing") }
        guard payload.count <= limit else {
            throw fields.error(
                .payload, .payloadSize,
                "has \(payload.count) bytes, but this push type allows at most \(limit)")
        }
        if !fields.isStructured { try validateObject(payload, field: "payload") }
        return payload
    }

    private func cancelDetail(_ fields: borrowing JobFields) throws(JobError) -> ControlJob.Detail {
        if fields[.topic] != nil { try fields.wellFormedTopic() }
        let collapse = try fields.collapseIdentifier()
        let apnsID = try fields.apnsID(.apnsID)
        switch (collapse, apnsID) {
        case (.some, .some):
            throw fields.error(
                .apnsID, .exclusive,
                "a cancel must have either \(fields.name(.collapseIdentifier)) or apns-id, not both"
            )
        case (nil, nil):
            throw fields.error(
                .collapseIdentifier, .required,
                "a cancel must name the pushes to withdraw, by this field or by apns-id")
        case (.some(let collapse), nil):
            guard fields[.topic] != nil else {
                throw fields.error(
                    .topic, .requiredWith, "a collapse identifier needs its topic")
            }
            return .cancelCollapseIdentifier(collapse)
        case (nil, .some(let apnsID)): return .cancelNotification(apnsID)
        }
    }

    private func deviceDetail(_ fields: borrowing JobFields) throws(JobError) -> ControlJob.Detail {
        guard let event = fields[.event].flatMap({ DeviceEvent(name: $0) }) else {
            throw fields.error(
                .event, .choice, "must be online, offline, receipt, token-changed, unregistered or erase")
        }
        if event != .receipt, fields[.apnsID] != nil {
            throw fields.error(.apnsID, .onlyWith, "is only for event: receipt")
        }
        if event != .tokenChanged, fields[.newDeviceToken] != nil {
            throw fields.error(.newDeviceToken, .onlyWith, "is only for event: token-changed")
        }
        switch event {
        case .online: return .online
        case .offline: return .offline
        case .unregistered: return .unregistered
        case .erase: return .erase
        case .receipt:
            guard let apnsID = try fields.apnsID(.apnsID) else {
                throw fields.error(
                    .apnsID, .requiredWith, "a receipt must name the notification that arrived")
            }
            return .receipt(apnsID)
        case .tokenChanged:
            guard fields[.newDeviceToken] != nil else {
                throw fields.error(
                    .newDeviceToken, .requiredWith, "token-changed must name the new device token")
            }
            return .tokenChanged(try fields.deviceToken(.newDeviceToken))
        }
    }
}

/// Kinds of device events: the `event` field.
public enum DeviceEvent: UInt8, CaseIterable, Sendable {
    case online, offline, receipt, tokenChanged, unregistered, erase

    /// Value of the field `event`.
    public var name: StaticString {
        switch self {
        case .online: "online"
        case .offline: "offline"
        case .receipt: "receipt"
        case .tokenChanged: "token-changed"
        case .unregistered: "unregistered"
        case .erase: "erase"
        }
    }

    init?(name: UnsafeRawBufferPointer) {
        var raw: UInt8 = 0
        while let event = DeviceEvent(rawValue: raw) {
            if name.elementsEqual(bytesOf: event.name) {
                self = event
                return
            }
            raw += 1
        }
        return nil
    }
}

extension APNSID {
    static func derived(_ record: JobRecord) -> APNSID {
        derived(topic: record.topic, partition: record.partition, offset: record.offset)
    }
}

extension UnsafeRawBufferPointer {
    static var empty: UnsafeRawBufferPointer { UnsafeRawBufferPointer(start: nil, count: 0) }
}
