import SluiceModel
import Testing

@testable import DeviceModel

/// Properties of Live Activities over random scripts of pushes, broadcasts, acts and time.
@Suite struct ActivityPropertyTests {
    /// Bed with a second device, and all update tokens that were ever seen.
    private struct Script {
        var bed: ActivityBed
        var random: SeededGenerator
        var tokens: [String] = []
        let devices: [UInt32]
        /// Activities that have ended, as they were then.
        var ended: [UInt64: ActivityView] = [:]
        /// Newest applied timestamp by activity.
        var newest: [UInt64: Int64] = [:]

        init(seed: UInt64) throws {
            var settings = DeviceSettings()
            settings.seed = seed
            settings.maximumActivities = 3
            settings.activityUpdatesPerHour = 20
            bed = try ActivityBed(settings: settings)
            random = SeededGenerator(seed: seed)
            devices = [bed.device, try bed.world.addDevice(now: bed.now)]
        }

        mutating func pick<Element>(_ elements: [Element]) -> Element {
            elements[Int(random.next() % UInt64(elements.count))]
        }

        mutating func number(_ limit: Int) -> Int { Int(random.next() % UInt64(limit)) }

        private var startTokens: [String] {
            devices.flatMap { bed.app(on: $0)?.tokens ?? [] }.filter { $0.purpose == .activityStart }.map(
                \.token)
        }

        private mutating func message() -> String {
            let time = 100 + number(60)
            let dates =
                [nil, "0", "\(bed.now / 1_000 + Int64(number(20_000)))", "1e300", "-1e300"] as [String?]
            let members: [String: String?] = ["stale-date": pick(dates), "dismissal-date": pick(dates)]
            let home = ["content-state": #"{"home":\#(time),"away":0}"#] as [String: String?]
            switch number(10) {
            case 0: return ActivityBed.end(at: time, members)
            case 1: return ActivityBed.end(at: time, members.merging(home) { $1 })
            case 2: return ActivityBed.update(time, at: time, ["content-state": "{}"])
            default: return ActivityBed.update(time, at: time, members)
            }
        }

        mutating func step() {
            let device = pick(devices)
            if bed.app(on: device) == nil, number(3) == 0 {
                try? bed.perform(DeviceAction(.power, on: true), on: device)
                try? bed.perform(DeviceAction(.install), on: device)
                try? bed.perform(DeviceAction(.launch), on: device)
            }
            switch number(12) {
            case 0, 1:
                guard let token = startTokens.isEmpty ? nil : pick(startTokens) else { return }
                bed.push(ActivityBed.start(number(2) == 0 ? ChannelTests.listens : [:]), to: token)
            case 2, 3, 4, 5:
                guard !tokens.isEmpty else { return }
                let token = pick(tokens)
                let text = message()
                bed.push(text, to: token, priority: number(2) == 0 ? .immediate : .powerAware)
            case 6, 7:
                let text = message()
                bed.broadcast(text, isStored: number(2) == 0, expiration: number(3) == 0 ? 0 : .max)
            case 8:
                let kinds: [DeviceAction.Kind] = [.airplane, .power, .lock, .screen]
                try? bed.perform(DeviceAction(pick(kinds), on: number(2) == 0), on: device)
                if number(2) == 0 { try? bed.perform(DeviceAction(.power, on: true), on: device) }
            case 9:
                let kinds: [DeviceAction.Kind] = [.endActivity, .dismissActivity, .tapActivity]
                var action = DeviceAction(pick(kinds))
                action.number = bed.app(on: device)?.activities.map { Int($0.id) }.randomElement(
                    using: &random)
                try? bed.perform(action, on: device)
            case 10:
                let action =
                    number(4) == 0
                    ? DeviceAction(pick([.restore, .uninstall, .install, .launch]))
                    : ActivityActionTests.start(channel: number(2) == 0 ? "AAAA" : nil)
                try? bed.perform(action, on: device)
            default: bed.pass(Int64(number(3_000_000)))
            }
        }

        /// Checks the properties after a step.
        mutating func check() {
            var listening = 0
            for device in devices {
                let views = bed.app(on: device)?.activities ?? []
                let running = views.filter { ["active", "stale"].contains($0.state) }
                #expect(running.count <= 3)
                listening += running.count { $0.channel != nil }
                let all = bed.world.installation(device, 0)?.activities?.value.activities ?? []
                let count = bed.world.installation(device, 0).map { bed.world.activityCount($0) } ?? 0
                #expect(count == views.count { $0.state != "dismissed" })
                #expect(views.count <= 3 + ActivityList.mostEnded + ActivityList.mostDismissed)
                for activity in all {
                    let timestamp = Int64(activity.timestamp)
                    #expect(timestamp >= newest[activity.number] ?? Int64.min)
                    newest[activity.number] = timestamp
                    #expect(!activity.isRunning || activity.startedAt + Activity.longestRun > bed.now)
                    #expect(activity.phase != .active || activity.staleAt ?? Int64.max > bed.now)
                    #expect(activity.phase != .ended || activity.dismissAt ?? Int64.min > bed.now)
                }
                for view in views {
                    if let token = view.token, !tokens.contains(token) { tokens.append(token) }
                    if let former = ended[view.id] {
                        // After the end only the removal from the screen happens.
                        #expect(view.contentState == former.contentState)
                        #expect(view.updatedAt == former.updatedAt)
                        #expect(view.state == "dismissed" || view.state == former.state)
                        ended[view.id] = view
                    } else if !["active", "stale"].contains(view.state) {
                        ended[view.id] = view
                    }
                }
                let valid = bed.app(on: device)?.tokens.filter { $0.purpose == .activity }.map(\.token) ?? []
                #expect(Set(valid) == Set(running.compactMap(\.token)))
            }
            #expect(bed.world.channels.count == listening)
        }
    }

    @Test(arguments: 1...8 as ClosedRange<UInt64>)
    func activitiesKeepTheirPropertiesInRandomScripts(_ seed: UInt64) throws {
        var script = try Script(seed: seed)
        for _ in 0..<300 {
            script.step()
            script.check()
        }
        #expect(script.ended.count > 3)
        #expect(script.tokens.count > 3)
        for device in script.devices { try? script.bed.world.removeDevice(device, now: script.bed.now) }
        #expect(script.bed.world.channels.count == 0)
        script.bed.pass(13 * 3_600_000)
        #expect(!script.bed.world.tokens(TokenQuery()).contains { $0.isValid })
    }

    @Test func equalScriptsHaveEqualResults() throws {
        func events(_ seed: UInt64) throws -> [DeviceModel.DeviceEvent] {
            var script = try Script(seed: seed)
            for _ in 0..<120 {
                script.step()
                script.check()
            }
            return script.bed.world.events(after: 0, limit: 100_000).events
        }
        #expect(try events(5) == events(5))
    }
}
