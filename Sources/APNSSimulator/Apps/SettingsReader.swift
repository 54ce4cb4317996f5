import Configuration
import DeviceModel

/// Reads limits and assumed rules of the model.
struct SettingsReader {
    let section: SectionReader

    init(_ section: SectionReader) { self.section = section }

    func read() -> DeviceSettings {
        var settings = DeviceSettings()
        let unknown = section.word(
            "unknown-tokens", of: ["adopt", "refuse"], help: "treatment of a token that no device has")
        if let unknown { settings.unknownTokens = DeviceSettings.UnknownTokens(rawValue: unknown) ?? .adopt }
        number("maximum-devices", 1...10_000_000, &settings.maximumDevices, "most devices")
        number("maximum-delivered", 1...10_000, &settings.maximumDelivered, "notifications of an app's list")
        number("maximum-pushes", 1...100_000_000, &settings.maximumPushes, "pushes that the journal keeps")
        number(
            "delivered-room", 0...1_099_511_627_776, &settings.deliveredRoom,
            "bytes of all delivered notifications")
        number(
            "journal-room", 0...1_099_511_627_776, &settings.journalRoom, "bytes of the journal's pushes")
        number("maximum-events", 1...100_000_000, &settings.maximumEvents, "events kept for readers")
        time("gone-delay", 86_400_000, &settings.goneDelay, "longest time from a token's end to 410")
        number("wakes-per-hour", 0...3_600, &settings.wakesPerHour, "silent pushes that wake within an hour")
        number("wakes-per-day", 0...86_400, &settings.wakesPerDay, "silent pushes that wake within a day")
        time("good-moment", 86_400_000, &settings.goodMoment, "longest time to a moment for priority 5")
        time("banner-time", 3_600_000, &settings.bannerTime, "time that a temporary banner is visible")
        time("extension-time", 600_000, &settings.extensionTime, "time of a service extension")
        number(
            "maximum-extension-runs", 1...1_000_000, &settings.maximumExtensionRuns,
            "service extensions that run at once")
        number(
            "largest-attachment", 1...52_428_800, &settings.largestAttachment, "largest attachment in bytes")
        number("attachment-room", 0...17_179_869_184, &settings.attachmentRoom, "bytes of all attachments")
        number(
            "maximum-activities", 0...1_000, &settings.maximumActivities,
            "Live Activities of an app that run at once on a device")
        number(
            "activity-starts-per-hour", 0...36_000, &settings.activityStartsPerHour,
            "Live Activities that pushes start within an hour")
        number(
            "activity-updates-per-hour", 0...36_000, &settings.activityUpdatesPerHour,
            "Live Activity updates of priority 10 within an hour")
        number(
            "frequent-updates-per-hour", 0...36_000, &settings.frequentUpdatesPerHour,
            "the same with frequent updates")
        if let seed = section.integer("seed", 0...Int.max, help: "seed of tokens, names and random times") {
            settings.seed = UInt64(seed)
        }
        return settings
    }

    private func number(_ key: String, _ range: ClosedRange<Int>, _ value: inout Int, _ help: String) {
        value = section.integer(key, range, default: value, help: help) ?? value
    }

    /// Reads a duration into milliseconds.
    private func time(_ key: String, _ most: Int64, _ value: inout Int64, _ help: String) {
        let duration = section.duration(
            key, .zero ... .milliseconds(most), default: .milliseconds(value), help: help)
        value = Int64(duration / .milliseconds(1))
    }
}

/// Reads devices that are alike.
struct DeviceGroupReader {
    let section: SectionReader

    init(_ section: SectionReader) { self.section = section }

    func read(_ apps: [AppDeclaration]) -> AppsFile.DeviceGroup {
        let bundles = apps.map(\.bundle)
        var group = AppsFile.DeviceGroup()
        group.count = section.integer("count", 1...10_000_000, default: 1, help: "number of devices") ?? 1
        group.name = section.text("name", help: "name of the device", check: AppReader.short)
        group.apps = section.textsIfPresent(
            "apps", mayBeEmpty: true, help: "installed apps",
            check: { bundles.contains($0) ? nil : "there is no `\($0)` in `apps`" })
        group.actions = section.section("state", state)
        return group
    }

    private func state(_ section: SectionReader) -> [DeviceAction] {
        var actions: [DeviceAction] = []
        let texts: [(DeviceAction.Kind, String)] = [
            (.language, "language, as in strings"), (.location, "region that the device is in"),
        ]
        for (kind, help) in texts {
            guard let text = section.text(kind.rawValue, help: help) else { continue }
            var action = DeviceAction(kind)
            action.text = text
            actions.append(action)
        }
        let zone = section.integer(
            DeviceAction.Kind.timeZone.rawValue, DeviceWorld.zones,
            help: "offset of the local time to UTC in minutes")
        if let zone {
            var action = DeviceAction(.timeZone)
            action.number = zone
            actions.append(action)
        }
        let times = section.textsIfPresent(
            DeviceAction.Kind.summaryTimes.rawValue, mayBeEmpty: true, help: "times of the scheduled summary",
            check: { SummaryTimes.parse($0)?.count == 1 ? nil : "`\($0)` is not a time as 8:00" })
        if let times {
            if times.count > SummaryTimes.most {
                section.problem(
                    DeviceAction.Kind.summaryTimes.rawValue, "has more than \(SummaryTimes.most) times")
            } else {
                var action = DeviceAction(.summaryTimes)
                action.text = times.joined(separator: ",")
                actions.append(action)
            }
        }
        let switches: [(DeviceAction.Kind, String)] = [
            (.lock, "whether the device is locked"), (.screen, "whether the screen is on"),
            (.charging, "whether the device charges"), (.lowPower, "Low Power Mode"),
            (.mute, "mute switch"), (.backgroundRefresh, "whether apps may be woken in the background"),
            (.dynamicIsland, "whether the device has a Dynamic Island"),
            (.airplane, "airplane mode"), (.network, "whether there is a network"),
            (.power, "whether the device is on"),
        ]
        for (kind, help) in switches {
            guard let on = section.boolean(kind.rawValue, help: help) else { continue }
            actions.append(DeviceAction(kind, on: on))
        }
        return actions
    }
}
