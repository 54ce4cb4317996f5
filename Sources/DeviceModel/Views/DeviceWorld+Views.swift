import SluiceModel

/// The model as the API and the page see it.
extension DeviceWorld {
    /// All rules of the model.
    public static var rules: [RuleView] {
        DeviceRule.allCases.map {
            RuleView(rule: $0.rawValue, text: $0.text, basis: $0.basis, source: $0.source)
        }
    }

    public func status(now: Int64) -> WorldStatus {
        var fates: [String: UInt64] = [:]
        for fate in Fate.allCases where journal.fates[Int(fate.rawValue)] > 0 {
            fates[fate.name] = journal.fates[Int(fate.rawValue)]
        }
        return WorldStatus(
            now: now, devices: counts.all, online: counts.online, tokens: tokens.count, apps: apps.count,
            pushes: journal.next - 1, fates: fates, stored: storage.count,
            delivered: counts.lists.delivered, activities: counts.lists.activities, event: log.next - 1,
            oldestPush: journal.oldest)
    }

    /// A device with all that it shows; nil: there is none.
    public func device(_ id: UInt32, now: Int64) -> DeviceView? {
        guard Int(id) < devices.count, let device = devices[Int(id)] else { return nil }
        var stored: [StoredView] = []
        for installation in device.installations {
            for purpose in TokenPurpose.allCases {
                guard let found = storage[StorageKey(device: id, app: installation.app, purpose: purpose)]
                else {
                    continue
                }
                let bundle = appTable[installation.app].bundle
                stored.append(
                    StoredView(
                        push: found.push.number, apnsID: "\(found.push.apnsID)", app: bundle,
                        topic: TopicSuffix.topic(bundle, purpose), since: found.since,
                        expires: found.push.expires, rule: found.rule.rawValue))
            }
        }
        let banner = device.banner.flatMap { surface in
            surface.until.map { $0 > now } ?? true ? surface : nil
        }
        return DeviceView(
            id: id, name: device.name(id), now: now, state: device.state.value,
            isOnline: device.state.value.isReachable,
            apps: device.installations.map { view($0, on: id, now: now) },
            banner: banner.map {
                ShownView(
                    app: appTable[$0.app].bundle,
                    identifier: $0.identifier ?? GeneratedIdentifier.text($0.push, seed: settings.seed),
                    until: $0.until)
            },
            lockScreen: lockScreen(id), summary: summaryEntries(id), nextSummaryAt: nextSummary(id, now: now),
            stored: stored,
            call: device.call.map {
                CallView(app: appTable[$0.app].bundle, at: $0.at, payload: JSONValue($0.payload) ?? .null)
            })
    }

    private func view(_ installation: Installation, on device: UInt32, now: Int64) -> InstalledAppView {
        let app = appTable[installation.app]
        return InstalledAppView(
            bundle: app.bundle, name: app.name ?? app.bundle, icon: app.icon,
            environment: environment(of: installation), state: installation.state,
            wasLaunched: installation.wasLaunched, authorization: installation.authorization,
            isAsking: installation.isAsking, settings: installation.settings.value,
            badge: Int(installation.badge), tokens: tokens(of: installation).map { view(token: $0) },
            delivered: deliveredViews(installation, on: device), groups: groupViews(installation),
            pending: pendingViews(installation, on: device), responses: installation.responses.reversed(),
            activities: activityViews(installation, on: device), wakesLeft: wakesLeft(installation, now: now),
            holdsSilentPush: holdsSilentPush(installation), extensionKey: app.serviceExtension?.key)
    }

    func view(token index: UInt32) -> TokenView {
        let record = tokens[index]
        return TokenView(
            token: tokens.text(index), bundle: appTable[record.app].bundle, purpose: record.purpose,
            environment: record.environment, isValid: record.invalidSince == nil,
            invalidSince: record.invalidSince, device: record.device)
    }

    // MARK: - Pushes

    public func push(_ number: UInt64) -> PushView? { journal[number].map { view($0) } }

    /// The newest push with an `apns-id`; nil: the journal has none.
    public func push(apnsID text: String) -> PushView? {
        guard let id = APNSID(text: text) else { return nil }
        var found: PushView?
        journal.visit(before: nil) { record in
            guard record.apnsID == id else { return true }
            found = view(record)
            return false
        }
        return found
    }

    /// Pushes that match, newest first.
    public func pushes(_ query: PushQuery) -> [PushView] {
        var found: [PushView] = []
        var rest = query
        while true {
            let (views, before) = portion(of: rest)
            found += views
            guard let before, found.count < query.limit else { return found }
            rest.before = before
            rest.limit = query.limit - found.count
        }
    }

    /// Pushes among the next ones that a query visits, newest first, and the number from which a further call goes on;
    /// nil at the end. A call takes a limited time, so that others get the world between two calls.
    public func portion(of query: PushQuery) -> (views: [PushView], before: UInt64?) {
        var found: [PushView] = []
        let text = query.query?.lowercased() ?? ""
        let id = APNSID(text: text)
        var left = text.isEmpty || id != nil ? Self.lookedPushes : Self.lookedTexts
        var last: UInt64?
        journal.visit(before: query.before) { record in
            guard found.count < query.limit, left > 0 else { return false }
            left -= 1
            last = record.number
            guard query.device == nil || record.device == query.device, isApp(record.app, query.app),
                query.fate == nil || record.fate.name == query.fate,
                text.isEmpty || matches(record, text, id)
            else { return true }
            found.append(view(record))
            return true
        }
        return (found, last.flatMap { $0 > journal.oldest ? $0 : nil })
    }

    /// - Parameter id: the text as an `apns-id`, which is searched for by its value alone; nil: another text.
    private func matches(_ record: borrowing PushRecord, _ text: String, _ id: APNSID?) -> Bool {
        if let id, record.apnsID == id { return true }
        if tokens.text(mark(of: record))?.hasPrefix(text) ?? false { return true }
        if record.collapseID?.lowercased() == text { return true }
        guard id == nil else { return false }
        guard let line = line(of: record) else { return false }
        return line.lowercased().contains(text)
    }

    private func line(of record: borrowing PushRecord) -> String? {
        if let line = record.line { return line }
        guard let app = record.app else { return nil }
        return line(of: record.payload, app: app, language: record.device.map { state($0).language } ?? "en")
    }

    private func view(_ record: borrowing PushRecord) -> PushView {
        let bundle = record.app.map { appTable[$0].bundle } ?? ""
        let at = record.at
        return PushView(
            number: record.number, at: at, apnsID: "\(record.apnsID)", device: record.device, app: bundle,
            topic: TopicSuffix.topic(bundle, record.purpose), type: "\(record.type.headerValue)",
            priority: record.priority.number, collapseID: record.collapseID, expiration: record.expiration,
            environment: record.environment,
            token: tokens.text(mark(of: record)) ?? "",
            status: record.reason == .absent ? 200 : Int(record.reason.status),
            reason: record.reason == .absent ? nil : "\(record.reason.name)", fate: record.fate.name,
            steps: record.steps.map {
                StepView(
                    at: at + Int64($0.after), rule: $0.rule.rawValue, text: $0.rule.text, basis: $0.rule.basis
                )
            },
            text: line(of: record), payload: JSONValue(record.payload) ?? .null)
    }

    private func mark(of record: borrowing PushRecord) -> TokenMark {
        TokenMark(index: record.token, serial: record.tokenSerial)
    }

    // MARK: - Events

    /// Events after a number.
    public func events(after number: UInt64, limit: Int) -> EventBatch {
        let first = max(number &+ 1, log.oldest)
        var events: [DeviceEvent] = []
        var next = first
        while next < log.next, events.count < limit, let record = log[next] {
            events.append(view(record, number: next))
            next += 1
        }
        return EventBatch(events: events, next: next - 1, lost: number &+ 1 < log.oldest)
    }

    /// Identifier of the notification; nil for an event of another kind.
    private func identifier(of record: EventRecord) -> String? {
        if let identifier = record.identifier { return identifier }
        guard record.kind == .notification || record.kind == .response, let push = record.push else {
            return nil
        }
        return GeneratedIdentifier.text(push, seed: settings.seed)
    }

    private func view(_ record: EventRecord, number: UInt64) -> DeviceEvent {
        DeviceEvent(
            number: number, at: record.at, kind: record.kind, device: record.device,
            app: record.app.map { appTable[$0].bundle }, push: record.push,
            apnsID: record.push.flatMap { journal[$0] }.map { "\($0.apnsID)" },
            identifier: identifier(of: record),
            fate: record.fate?.name, detail: record.detail, token: record.token.flatMap { tokens.text($0) },
            formerToken: record.formerToken.flatMap { tokens.text($0) })
    }
}

extension Priority {
    /// Number of the header.
    var number: Int {
        switch self {
        case .immediate: 10
        case .powerAware: 5
        default: 1
        }
    }
}
