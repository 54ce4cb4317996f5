import SluiceModel
import Testing

@testable import DeviceModel

/// A script for each rule of presentation, responses and silent pushes. The script returns the push that the rule decides.
private let scripts: [DeviceRule: @Sendable () throws -> (Script, UInt64)] = [
    .neverLaunched: { try neverLaunched() },
    .notAuthorized: {
        var script = try Script { app in
            app.permission = PermissionRequest()
            app.permission?.answer = .wait
        }
        let push = script.push()
        return (script, push)
    },
    .denied: {
        var script = try Script { app in
            app.permission = PermissionRequest()
            app.permission?.answer = .deny
        }
        let push = script.push()
        return (script, push)
    },
    .provisional: {
        var script = try Script { app in
            app.permission = PermissionRequest()
            app.permission?.options = ["alert", "provisional"]
        }
        let push = script.push()
        return (script, push)
    },
    .nothingToShow: {
        var script = try Script()
        let push = script.push(aps: "")
        return (script, push)
    },
    .banner: {
        var script = try Script()
        let push = script.push()
        return (script, push)
    },
    .lockScreen: {
        var script = try Script()
        try script.act(.lock, on: true)
        let push = script.push()
        return (script, push)
    },
    .list: {
        var script = try Script()
        let push = script.push()
        return (script, push)
    },
    .sound: {
        var script = try Script()
        let push = script.push(aps: #""sound":"default""#)
        return (script, push)
    },
    .badge: {
        var script = try Script()
        let push = script.push(aps: #""badge":3"#)
        return (script, push)
    },
    .badgeRemoved: {
        var script = try Script()
        script.push(aps: #""badge":3"#)
        let push = script.push(aps: #""badge":0"#)
        return (script, push)
    },
    .noAlerts: {
        var script = try Script()
        try script.set { $0.alerts = false }
        let push = script.push()
        return (script, push)
    },
    .noBanner: {
        var script = try Script()
        try script.set { $0.alertStyle = .none }
        let push = script.push()
        return (script, push)
    },
    .noLockScreen: {
        var script = try Script()
        try script.set { $0.lockScreen = false }
        try script.act(.lock, on: true)
        let push = script.push()
        return (script, push)
    },
    .noList: {
        var script = try Script()
        try script.set { $0.notificationCentre = false }
        let push = script.push()
        return (script, push)
    },
    .noSound: {
        var script = try Script()
        try script.set { $0.sounds = false }
        let push = script.push(aps: #""sound":"default""#)
        return (script, push)
    },
    .noBadge: {
        var script = try Script()
        try script.set { $0.badges = false }
        let push = script.push(aps: #""badge":1"#)
        return (script, push)
    },
    .muted: {
        var script = try Script()
        try script.act(.mute, on: true)
        let push = script.push(aps: #""sound":"default""#)
        return (script, push)
    },
    .criticalSound: {
        var script = try Script { $0.entitlements = [.critical] }
        try script.act(.mute, on: true)
        let push = script.push(aps: #""alert":"A","sound":{"critical":1,"name":"default","volume":0.5}"#)
        return (script, push)
    },
    .passive: {
        var script = try Script()
        let push = script.push(aps: #""alert":"A","interruption-level":"passive""#)
        return (script, push)
    },
    .timeSensitive: {
        var script = try Script { $0.entitlements = [.timeSensitive] }
        let push = script.push(aps: #""alert":"A","interruption-level":"time-sensitive""#)
        return (script, push)
    },
    .timeSensitiveNotEntitled: {
        var script = try Script()
        let push = script.push(aps: #""alert":"A","interruption-level":"time-sensitive""#)
        return (script, push)
    },
    .timeSensitiveOff: {
        var script = try Script { $0.entitlements = [.timeSensitive] }
        try script.set { $0.timeSensitive = false }
        let push = script.push(aps: #""alert":"A","interruption-level":"time-sensitive""#)
        return (script, push)
    },
    .critical: {
        var script = try Script { $0.entitlements = [.critical] }
        let push = script.push(aps: #""alert":"A","interruption-level":"critical""#)
        return (script, push)
    },
    .criticalNotEntitled: {
        var script = try Script()
        let push = script.push(aps: #""alert":"A","interruption-level":"critical""#)
        return (script, push)
    },
    .silencedByFocus: {
        var script = try Script()
        try script.focus()
        let push = script.push()
        return (script, push)
    },
    .allowedByFocus: {
        var script = try Script()
        try script.focus(allows: [Script.bundle])
        let push = script.push()
        return (script, push)
    },
    .filteredByFocus: {
        var script = try Script()
        try script.focus(allows: [Script.bundle], filter: "work")
        let push = script.push(aps: #""alert":"A","filter-criteria":"home""#)
        return (script, push)
    },
    .waitsForSummary: {
        var script = try Script()
        try script.set { $0.scheduledSummary = true }
        let push = script.push()
        return (script, push)
    },
    .shownInSummary: {
        var script = try Script()
        try script.set { $0.scheduledSummary = true }
        let push = script.push()
        script.wait(LocalTime.day)
        return (script, push)
    },
    .foregroundShown: {
        var script = try Script { $0.foreground = [.banner] }
        try script.act(.launch)
        let push = script.push()
        return (script, push)
    },
    .foregroundSilent: {
        var script = try Script { $0.foreground = [] }
        try script.act(.launch)
        let push = script.push()
        return (script, push)
    },
    .foregroundNoDelegate: {
        var script = try Script()
        try script.act(.launch)
        let push = script.push()
        return (script, push)
    },
    .previewsHidden: {
        var script = try Script()
        try script.act(.lock, on: true)
        let push = script.push()
        return (script, push)
    },
    .unknownCategory: {
        var script = try Script()
        let push = script.push(aps: #""alert":"A","category":"message""#)
        return (script, push)
    },
    .unknownSound: {
        var script = try Script { $0.sounds = ["bell.caf"] }
        let push = script.push(aps: #""sound":"horn.caf""#)
        return (script, push)
    },
    .unknownString: {
        var script = try Script { $0.strings = ["en": ["other": "Text"]] }
        let push = script.push(aps: #""alert":{"loc-key":"missing"}"#)
        return (script, push)
    },
    .replacedInPlace: {
        var script = try Script()
        script.push(collapseID: "a")
        let push = script.push(collapseID: "a")
        return (script, push)
    },
    .replacedPending: {
        var script = try Script()
        var request = LocalRequest(identifier: "a")
        request.trigger = LocalTrigger()
        request.trigger?.interval = 600
        try script.act(.schedule) { [request] in $0.request = request }
        let push = script.push(collapseID: "a")
        return (script, push)
    },
    .droppedFromList: {
        var script = try Script(settings: { $0.maximumDelivered = 2 })
        let push = script.push()
        for _ in 0..<2 { script.push() }
        return (script, push)
    },
    .removedByUser: {
        var script = try Script()
        let push = script.push(collapseID: "a")
        try script.act(.dismiss, "a")
        return (script, push)
    },
    .removedByApp: {
        var script = try Script()
        let push = script.push(collapseID: "a")
        try script.act(.removeDelivered, "a")
        return (script, push)
    },
    .opened: {
        var script = try Script()
        let push = script.push(collapseID: "a")
        try script.act(.tap, "a")
        return (script, push)
    },
    .actionChosen: {
        var script = try Script { $0.addMessageCategory() }
        let push = script.push(aps: #""alert":"A","category":"message""#, collapseID: "a")
        try script.act(.act, "a") { $0.choice = "mark" }
        return (script, push)
    },
    .dismissed: {
        var script = try Script { $0.addMessageCategory(options: ["custom-dismiss"]) }
        let push = script.push(aps: #""alert":"A","category":"message""#, collapseID: "a")
        try script.act(.dismiss, "a")
        return (script, push)
    },
    .dismissalNotReported: {
        var script = try Script()
        let push = script.push(collapseID: "a")
        try script.act(.dismiss, "a")
        return (script, push)
    },
    .wokeApp: {
        var script = try Script()
        let push = script.silent()
        return (script, push)
    },
    .noBackgroundMode: {
        var script = try Script { $0.backgroundModes = ["voip"] }
        let push = script.silent()
        return (script, push)
    },
    .backgroundRefreshOff: {
        var script = try Script()
        try script.act(.backgroundRefresh, on: false)
        let push = script.silent()
        return (script, push)
    },
    .lowPowerMode: {
        var script = try Script()
        try script.act(.lowPower, on: true)
        let push = script.silent()
        return (script, push)
    },
    .forceQuit: {
        var script = try Script()
        try script.act(.forceQuit)
        let push = script.silent()
        return (script, push)
    },
    .heldForBudget: {
        var script = try Script(settings: { $0.wakesPerHour = 1 })
        _ = script.silent()
        let push = script.silent()
        return (script, push)
    },
    .replacedWhileHeld: {
        var script = try Script(settings: { $0.wakesPerHour = 0 })
        let push = script.silent()
        _ = script.silent()
        return (script, push)
    },
    .droppedAtReset: {
        var script = try Script(settings: { $0.wakesPerDay = 1 })
        _ = script.silent()
        let push = script.silent()
        script.wait(LocalTime.day)
        return (script, push)
    },
    .handlerNotCalled: {
        var script = try Script { app in
            var rule = SilentRule()
            rule.result = "never"
            app.silent = [rule]
        }
        let push = script.silent()
        script.wait(DeviceWorld.handlerTime)
        return (script, push)
    },
    .handedToApp: {
        var script = try Script()
        try script.act(.launch)
        let push = script.silent()
        return (script, push)
    },
    .extensionSkippedNoAlert: {
        var script = try Script { $0.serviceExtension = ServiceExtensionDeclaration() }
        let push = script.push(aps: #""badge":1,"mutable-content":1"#)
        return (script, push)
    },
    .extensionSkippedNone: {
        var script = try Script()
        let push = script.push(aps: #""alert":"A","mutable-content":1"#)
        return (script, push)
    },
    .extensionSkippedAlertsOff: {
        var script = try Script { $0.serviceExtension = ServiceExtensionDeclaration() }
        try script.set { $0.alerts = false }
        let push = script.push(aps: #""alert":"A","mutable-content":1"#)
        return (script, push)
    },
]

/// An app whose token is valid, though the app was never launched.
private func neverLaunched() throws -> (Script, UInt64) {
    var script = try Script()
    _ = script.world.with(script.device, 0) { $0.wasLaunched = false }
    let push = script.push()
    return (script, push)
}

/// State of a push after its rule's script, where it is not `shown`.
private let fates: [DeviceRule: String] = [
    .neverLaunched: "dropped", .notAuthorized: "dropped", .denied: "dropped", .provisional: "silent",
    .nothingToShow: "dropped", .badge: "updated", .badgeRemoved: "updated", .noAlerts: "silent",
    .noBanner: "silent", .noLockScreen: "silent", .noSound: "dropped", .noBadge: "dropped", .muted: "dropped",
    .passive: "silent", .silencedByFocus: "silent", .filteredByFocus: "silent", .waitsForSummary: "held",
    .foregroundSilent: "woken", .droppedFromList: "removed", .removedByUser: "removed",
    .removedByApp: "removed", .opened: "opened", .actionChosen: "opened", .dismissed: "dismissed",
    .dismissalNotReported: "removed", .wokeApp: "woken", .noBackgroundMode: "dropped",
    .backgroundRefreshOff: "dropped", .lowPowerMode: "held", .forceQuit: "dropped", .heldForBudget: "held",
    .replacedWhileHeld: "replaced", .droppedAtReset: "dropped", .handlerNotCalled: "woken",
    .handedToApp: "woken", .extensionSkippedNoAlert: "updated", .extensionSkippedAlertsOff: "silent",
]

@Suite struct RuleScriptTests {
    @Test func eachRuleOfAlertsAndSilentPushesHasAScript() {
        let all = DeviceRule.allCases
        let first = all.firstIndex(of: .neverLaunched)!
        let last = all.firstIndex(of: .handlerNotCalled)!
        let expected =
            Set(all[first...last])
            .union([
                .handedToApp, .extensionSkippedNoAlert, .extensionSkippedNone, .extensionSkippedAlertsOff,
            ])
        #expect(Set(scripts.keys) == expected)
    }

    @Test(arguments: scripts.keys.sorted { $0.rawValue < $1.rawValue })
    func aScriptReachesItsRuleAndFate(_ rule: DeviceRule) throws {
        let (script, push) = try scripts[rule]!()
        #expect(script.rules(push).contains(rule))
        #expect(script.fate(push) == fates[rule] ?? "shown")
    }
}
