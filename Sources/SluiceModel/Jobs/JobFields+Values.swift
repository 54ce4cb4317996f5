// The rules of single fields, in the order of the field table.

extension JobFields {
    func deviceToken(_ field: JobField) throws(JobError) -> UnsafeRawBufferPointer {
        let text = self[field] ?? .empty
        switch DeviceToken.violation(text) {
        case nil: return text
        case .hex: throw error(field, .hex, "a device token must consist of hexadecimal digits")
        case .evenLength:
            throw error(
                field, .evenLength, "a device token must have an even number of digits, not \(text.count)")
        default:
            throw error(
                field, .length,
                "a device token must have \(DeviceToken.minimumLength) to \(DeviceToken.maximumLength) digits, "
                    + "not \(text.count)")
        }
    }

    func channelIdentifier() throws(JobError) -> UnsafeRawBufferPointer {
        let text = self[.channelIdentifier] ?? .empty
        guard (1...JobLimits.maximumChannelIdentifierLength).contains(text.count) else {
            throw error(
                .channelIdentifier, .length,
                "has \(text.count) characters, 1 to \(JobLimits.maximumChannelIdentifierLength) are allowed")
        }
        for byte in text where !isBase64(byte) {
            throw error(.channelIdentifier, .charset, "a channel identifier must be base64 text")
        }
        return text
    }

    private func isBase64(_ byte: UInt8) -> Bool {
        if isLetter(byte) || isDigit(byte) { return true }
        switch byte {
        case UInt8(ascii: "+"), UInt8(ascii: "/"), UInt8(ascii: "="), UInt8(ascii: "-"), UInt8(ascii: "_"):
            return true
        default: return false
        }
    }

    @discardableResult
    func wellFormedTopic() throws(JobError) -> UnsafeRawBufferPointer {
        let topic = self[.topic] ?? .empty
        guard (1...Topic.maximumLength).contains(topic.count) else {
            throw error(.topic, .length, "has \(topic.count) bytes, 1 to \(Topic.maximumLength) are allowed")
        }
        guard Topic.isWellFormed(topic) else {
            throw error(
                .topic, .charset,
                "must be a bundle identifier: letters, digits, hyphens and underscores in parts joined by "
                    + "periods")
        }
        return topic
    }

    func topic(for type: PushType) throws(JobError) -> UnsafeRawBufferPointer {
        let topic = try wellFormedTopic()
        guard Topic.matches(topic, type) else { throw error(.topic, .topicSuffix, topicRequirement(type)) }
        return topic
    }

    private func topicRequirement(_ type: PushType) -> String {
        if type == .mdm { return "push type mdm needs a topic that begins with \(type.topicPrefix)" }
        if type.topicSuffix.utf8CodeUnitCount == 0 { return "has the suffix of another push type" }
        return "push type \(type.headerValue) needs a bundle identifier followed by \(type.topicSuffix)"
    }

    func pushType() throws(JobError) -> PushType {
        guard let type = PushType(headerValue: self[.pushType] ?? .empty) else {
            let names = PushType.allCases.map(\.headerValue.description).joined(separator: ", ")
            throw error(.pushType, .choice, "must be one of \(names)")
        }
        return type
    }

    /// Returns the priority as given; nil when the record has none.
    func anyPriority() throws(JobError) -> Priority? {
        guard self[.priority] != nil else { return nil }
        let value = try integer(.priority, in: Int64.min...Int64.max, "10, 5 or 1") ?? 0
        guard let raw = UInt8(exactly: value), let priority = Priority(rawValue: raw) else {
            throw error(.priority, .choice, "must be 10, 5 or 1")
        }
        return priority
    }

    func priority(for type: PushType) throws(JobError) -> Priority {
        guard let priority = try anyPriority() else { return type.defaultPriority }
        guard type.allows(priority) else {
            throw error(
                .priority, .pushTypePriority,
                type == .background
                    ? "a background push has priority 5" : "a \(type.headerValue) push has priority 10 or 5")
        }
        return priority
    }

    /// Returns `expiration`, or `ttl` counted from `start` (milliseconds), rounded down so that nothing is late.
    func expirationOrTTL(from start: Int64) throws(JobError) -> Expiration {
        let ttl = try integer(.ttl, in: JobLimits.timeToLive, "seconds")
        guard let text = self[.expiration] else {
            guard let ttl else { return .unspecified }
            if ttl == 0 { return .once }
            return .at(UInt32(clamping: start / 1000 + ttl))
        }
        if ttl != nil {
            throw error(.ttl, .exclusive, "give ttl or \(name(.expiration)), not both")
        }
        let value = number(text)
        if value == 0 { return .once }
        let seconds = try checked(value, .expiration, in: JobLimits.expiration, "0, or UNIX seconds")
        return .at(UInt32(clamping: seconds))
    }

    func collapseIdentifier() throws(JobError) -> UnsafeRawBufferPointer? {
        guard let text = self[.collapseIdentifier] else { return nil }
        switch CollapseIdentifier.violation(text) {
        case nil: return text
        case .length:
            throw error(
                .collapseIdentifier, .length,
                "has \(text.count) bytes, 1 to \(JobLimits.maximumCollapseIdentifierLength) are allowed")
        default:
            throw error(
                .collapseIdentifier, .charset, "must be printable ASCII without a blank at either end")
        }
    }

    func apnsID(_ field: JobField) throws(JobError) -> APNSID? {
        guard let text = self[field] else { return nil }
        guard let id = APNSID(canonical: text) else {
            throw error(
                field, .uuid, "must be a UUID in canonical form: lower-case hexadecimal digits, 8-4-4-4-12")
        }
        return id
    }

    func instant(_ field: JobField) throws(JobError) -> Int64? {
        try integer(field, in: JobLimits.instant, "milliseconds since the epoch")
    }

    func delivery() throws(JobError) -> DeliveryMode {
        guard let text = self[.delivery] else { return .accept }
        var raw: UInt8 = 0
        while let mode = DeliveryMode(rawValue: raw) {
            if text.elementsEqual(bytesOf: mode.name) { return mode }
            raw += 1
        }
        throw error(.delivery, .choice, "must be accept, hold-while-offline or confirm")
    }

    func duplicates() throws(JobError) -> DuplicatePolicy {
        guard let text = self[.duplicates] else { return .allow }
        if text.elementsEqual(bytesOf: DuplicatePolicy.allow.name) { return .allow }
        if text.elementsEqual(bytesOf: DuplicatePolicy.avoid.name) { return .avoid }
        throw error(.duplicates, .choice, "must be allow or avoid")
    }

    func environment() throws(JobError) -> JobEnvironment? {
        guard let text = self[.environment] else { return nil }
        guard let environment = JobEnvironment(name: text) else {
            throw error(.environment, .choice, "must be production or development (Apple's sandbox)")
        }
        return environment
    }
}
