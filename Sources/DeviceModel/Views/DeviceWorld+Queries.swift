/// Searches over devices and tokens.
extension DeviceWorld {
    /// Device of a token in hexadecimal text; nil: none has the token.
    public func device(ofToken text: String) -> UInt32? {
        let index = Array(text.utf8).withUnsafeBytes { tokens.find($0) }
        guard let index else { return nil }
        let device = tokens[index].device
        return devices[Int(device)] == nil ? nil : device
    }

    /// Tokens that match, in the order of their places.
    public func tokens(_ query: TokenQuery) -> [TokenView] {
        var found: [TokenView] = []
        var skipped = 0
        let app = query.app.map { appTable.find($0) }
        for index in 0..<UInt32(tokens.places) {
            if found.count >= query.limit { break }
            let record = tokens[index]
            guard !record.bytes.isEmpty, query.device == nil || record.device == query.device,
                app == nil || record.app == app!,
                query.purpose == nil || record.purpose == query.purpose,
                query.environment == nil || record.environment == query.environment
            else { continue }
            skipped += 1
            if skipped > query.offset { found.append(view(token: index)) }
        }
        return found
    }

    /// Devices that match, a page of them.
    public func devices(_ query: DeviceQuery) -> DevicePage {
        var search = DeviceSearch(query)
        while !look(&search) {}
        return page(of: search)
    }

    func passes(_ device: Device, _ filter: DeviceQuery.Filter) -> Bool {
        switch filter {
        case .online: device.state.value.isReachable
        case .offline: !device.state.value.isReachable
        case .unread: device.installations.contains { deliveredCount($0) > 0 }
        case .activity: device.installations.contains { activityCount($0) > 0 }
        }
    }

    /// Device of the newest push with an `apns-id`; nil: another text, or no device.
    func deviceOfPush(_ text: String) -> UInt32? { push(apnsID: text)?.device }

    func matches(_ device: Device, _ id: UInt32, _ text: String) -> Bool {
        if device.name(id).lowercased().contains(text) { return true }
        for installation in device.installations {
            if tokens(of: installation).contains(where: { tokens.text($0).hasPrefix(text) }) { return true }
            for notification in installation.centre.delivered {
                let content = content(
                    of: notification, app: installation.app, language: device.state.value.language)
                if content.line?.lowercased().contains(text) ?? false { return true }
            }
        }
        return false
    }

    func summary(_ id: UInt32) -> DeviceSummary? {
        guard let device = devices[Int(id)] else { return nil }
        let state = device.state.value
        var newest: (entry: DeliveredNotification, app: UInt16)?
        var badge = 0
        var delivered = 0
        var stored = 0
        var activities = 0
        for installation in device.installations {
            badge += Int(installation.badge)
            delivered += deliveredCount(installation)
            activities += activityCount(installation)
            if storage.count > 0 {
                for purpose in TokenPurpose.allCases
                where storage[StorageKey(device: id, app: installation.app, purpose: purpose)] != nil {
                    stored += 1
                }
            }
            if let last = installation.centre.delivered.last, newest.map({ $0.entry.at <= last.at }) ?? true {
                newest = (last, installation.app)
            }
        }
        return DeviceSummary(
            id: id, name: device.name(id), isOnline: state.isReachable, isLocked: state.isLocked,
            badge: badge,
            delivered: delivered, stored: stored, activities: activities,
            lastPushAt: device.lastPushAt == 0 ? nil : device.lastPushAt,
            lastText: newest.flatMap { content(of: $0.entry, app: $0.app, language: state.language).line },
            lastApp: newest.map { appTable[$0.app].bundle })
    }
}
