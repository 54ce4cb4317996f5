/// Views of notifications.
extension DeviceWorld {
    /// Content of a notification with the changes of its extensions.
    func content(
        of entry: DeliveredNotification, app: UInt16, language: String
    ) -> NotificationContent {
        var content = NotificationContent(entry.payload, strings: appTable[app].strings, language: language)
        if let changes = entry.changes?.value { content.apply(changes) }
        return content
    }

    /// Title and body of a notification in a line; nil for a payload without an alert.
    func line(of payload: [UInt8], app: UInt16, language: String) -> String? {
        NotificationContent(payload, strings: appTable[app].strings, language: language).line
    }

    func deliveredCount(_ installation: Installation) -> Int { installation.centre.delivered.count }

    /// Registered category of a content; nil: there is none.
    func category(of content: NotificationContent, app: UInt16) -> CategoryDeclaration? {
        guard let name = content.category else { return nil }
        return appTable[app].categories?.first { $0.identifier == name }
    }

    func actions(of content: NotificationContent, app: UInt16) -> [ActionDeclaration] {
        Array((category(of: content, app: app)?.actions ?? []).prefix(Self.mostActions))
    }

    /// Content extension that draws a notification; nil: none does.
    func contentExtension(
        for content: NotificationContent, app: UInt16
    ) -> ContentExtensionDeclaration? {
        guard let name = content.category else { return nil }
        return appTable[app].contentExtensions?.first { $0.categories.contains(name) }
    }

    // MARK: - Lists of an app

    /// Delivered notifications, newest first.
    func deliveredViews(_ installation: Installation, on device: UInt32) -> [NotificationView] {
        let state = state(device)
        let entries = installation.centre.delivered.reversed().map { entry in
            (entry, content(of: entry, app: installation.app, language: state.language))
        }
        let hides = installation.settings.value.previews.hides(whileLocked: state.isLocked)
        var threads: [String?: Int] = [:]
        if hides { for (_, content) in entries { threads[content.thread, default: 0] += 1 } }
        return entries.map { entry, content in
            view(
                entry, content, app: installation.app, language: state.language,
                hidden: hides
                    ? hiddenTexts(content, app: installation.app, count: threads[content.thread] ?? 0) : nil)
        }
    }

    private func view(
        _ entry: DeliveredNotification, _ content: NotificationContent, app: UInt16, language: String,
        hidden: NotificationView.HiddenTexts?
    ) -> NotificationView {
        let original = NotificationContent(entry.payload, strings: appTable[app].strings, language: language)
        let isChanged =
            original.title != content.title || original.subtitle != content.subtitle
            || original.body != content.body
        let attachments = entry.changes?.value.attachments ?? []
        return NotificationView(
            identifier: entry.identifier(seed: settings.seed),
            apnsID: entry.push == 0 ? nil : "\(entry.apnsID)",
            push: entry.push == 0 ? nil : entry.push, trigger: "\(entry.trigger)", at: entry.at,
            title: content.title, subtitle: content.subtitle, body: content.body, hidden: hidden,
            sound: soundName(content, app: app), badge: content.badge.map { Int($0) }, thread: content.thread,
            category: content.category, actions: actions(of: content, app: app),
            level: "\(content.level.name)", relevance: content.relevance,
            targetContent: content.targetContent,
            attachments: attachmentViews(attachments),
            original: isChanged
                ? NotificationView.OriginalTexts(
                    title: original.title, subtitle: original.subtitle, body: original.body) : nil,
            custom: customView(entry, content, app: app), replaced: Int(entry.replaced),
            payload: JSONValue(entry.payload) ?? .null)
    }

    /// Name of the sound that is played; nil: silent.
    private func soundName(_ content: NotificationContent, app: UInt16) -> String? {
        guard let sound = content.sound else { return nil }
        let expected = AlertExpectations(categories: nil, sounds: appTable[app].sounds, filter: nil)
        return expected.sound(sound.name) == .known ? sound.name : "default"
    }

    /// Texts while previews are hidden.
    /// - Parameter count: notifications in the thread.
    private func hiddenTexts(
        _ content: NotificationContent, app: UInt16, count: Int
    ) -> NotificationView.HiddenTexts {
        let category = category(of: content, app: app)
        let name = appTable[app].name ?? appTable[app].bundle
        func shows(_ option: String) -> Bool { category?.options?.contains(option) ?? false }
        return NotificationView.HiddenTexts(
            title: shows("hidden-previews-show-title") && !content.title.isEmpty ? content.title : name,
            subtitle: shows("hidden-previews-show-subtitle") ? content.subtitle : "",
            body: category?.hiddenBody.map { FormattedText.count($0, count) } ?? "Notification")
    }

    /// View of the content extension; nil: none draws the notification.
    private func customView(
        _ entry: DeliveredNotification, _ content: NotificationContent, app: UInt16
    ) -> CustomView? {
        guard let drawn = contentExtension(for: content, app: app) else { return nil }
        let ratio = drawn.sizeRatio ?? 1
        return CustomView(
            title: drawn.title, sizeRatio: ratio.isFinite && ratio > 0 ? min(ratio, 10) : 1,
            hidesDefaultContent: drawn.hidesDefaultContent ?? false,
            isInteractive: drawn.isInteractive ?? false,
            fields: drawn.fields.map { field in
                var field = field
                field.value = field.value.map { value in Template.fill(value) { content.member($0) } }
                return field
            },
            status: entry.changes?.value.status)
    }

    // MARK: - Groups

    /// Groups of the delivered list, newest first.
    func groupViews(_ installation: Installation) -> [GroupView] {
        let grouping = installation.settings.value.grouping
        var groups: [GroupView] = []
        var places: [String: Int] = [:]
        var formats: [String?] = []
        for entry in installation.centre.delivered.reversed() {
            let content = content(of: entry, app: installation.app, language: "en")
            let thread = grouping == .byApp ? "" : content.thread ?? ""
            let name = entry.identifier(seed: settings.seed)
            if grouping != .off, let place = places[thread] {
                groups[place].identifiers.append(name)
                continue
            }
            places[thread] = groups.count
            groups.append(GroupView(thread: thread, identifiers: [name], summary: nil))
            formats.append(category(of: content, app: installation.app)?.summary)
        }
        for index in groups.indices where groups[index].identifiers.count > 1 {
            let others = groups[index].identifiers.count - 1
            groups[index].summary =
                formats[index].map { FormattedText.count($0, others) }
                ?? "\(others) more notification\(others == 1 ? "" : "s")"
        }
        return groups
    }

    // MARK: - Pending requests

    /// Pending requests in the order of their next time.
    func pendingViews(_ installation: Installation, on device: UInt32) -> [PendingView] {
        let language = state(device).language
        return installation.centre.pending.map { request in
            let content = NotificationContent(
                request.payload, strings: appTable[installation.app].strings, language: language)
            return PendingView(
                identifier: request.identifier, trigger: "\(request.trigger.kind)", at: request.next,
                repeats: request.repeats, title: content.title, body: content.body)
        }
    }

    // MARK: - Surfaces

    /// Entries of the lock screen, newest first.
    func lockScreen(_ device: UInt32) -> [ShownView] {
        guard state(device).isLocked else { return [] }
        return entries(device, on: .lockScreen).sorted { $0.entry.at > $1.entry.at }.map { shown($0) }
    }

    /// Entries that wait for the scheduled summary, the most relevant first.
    func summaryEntries(_ device: UInt32) -> [ShownView] {
        let waiting = entries(device, on: .summary).map { found in
            (found, content(of: found.entry, app: found.app, language: "en").relevance)
        }
        return waiting.sorted { ($0.1, $0.0.entry.at) > ($1.1, $1.0.entry.at) }.map { shown($0.0) }
    }

    /// Entries on a surface, the newest of each app first.
    private func entries(
        _ device: UInt32, on surface: Surfaces
    ) -> [(app: UInt16, entry: DeliveredNotification)] {
        (devices[Int(device)]?.installations ?? []).flatMap { installation in
            installation.centre.delivered.reversed().filter { $0.surfaces.contains(surface) }.map {
                (installation.app, $0)
            }
        }
    }

    private func shown(_ found: (app: UInt16, entry: DeliveredNotification)) -> ShownView {
        ShownView(
            app: appTable[found.app].bundle, identifier: found.entry.identifier(seed: settings.seed),
            until: nil)
    }

    /// Next time of the scheduled summary; nil: no app uses it.
    func nextSummary(_ device: UInt32, now: Int64) -> Int64? {
        let isUsed = devices[Int(device)]?.installations.contains { $0.settings.value.scheduledSummary }
        return isUsed ?? false ? summaryTime(device, after: now) : nil
    }
}

extension NotificationContent {
    /// Text of a member beside `aps`, else of the content; nil: there is none.
    func member(_ name: String) -> String? {
        if let value = JSONValue.object(userInfo).value(at: name) { return value.plainText }
        switch name {
        case "title": return title
        case "subtitle": return subtitle
        case "body": return body
        default: return nil
        }
    }
}
