import SluiceModel
import Testing

@testable import DeviceModel

/// Properties that hold after each step of random scripts.
@Suite struct DevicePropertyTests {
    private static let seeds: [UInt64] = Array(1...5)

    @Test(arguments: seeds)
    func listsAndSurfacesKeepTheirRules(_ seed: UInt64) throws {
        var script = try RandomWorld(seed: seed)
        for step in 0..<500 {
            script.step()
            try checkDevices(script, "seed \(seed), step \(step)")
        }
        var query = PushQuery()
        query.limit = .max
        let pushes = script.world.pushes(query)
        let arrived = pushes.count { push in
            push.steps.contains { ["delivered-now", "delivered-from-storage"].contains($0.rule) }
        }
        #expect(pushes.count > 200)
        #expect(arrived > pushes.count / 4, "\(arrived) of \(pushes.count)")
    }

    @Test(arguments: seeds)
    func fatesOfPushesAgreeWithListsTimesAndBadges(_ seed: UInt64) throws {
        var script = try RandomWorld(seed: seed)
        for step in 0..<1_200 {
            script.step()
            if step % 100 == 99 { checkPushes(script, "seed \(seed), step \(step)") }
        }
        let batch = script.world.events(after: 0, limit: .max)
        #expect(batch.events.map(\.number) == Array(1...batch.next))
        #expect(zip(batch.events, batch.events.dropFirst()).allSatisfy { $0.at <= $1.at })
    }

    @Test func theSameSeedGivesTheSameWorld() throws {
        var first = try RandomWorld(seed: 99)
        var second = try RandomWorld(seed: 99)
        for _ in 0..<500 {
            first.step()
            second.step()
        }
        #expect(first.now == second.now)
        for id in 0..<UInt32(3) {
            #expect(first.world.device(id, now: first.now) == second.world.device(id, now: second.now))
        }
    }

    private func checkDevices(_ script: RandomWorld, _ place: String) throws {
        for id in 0..<UInt32(3) {
            let view = try #require(script.world.device(id, now: script.now))
            #expect(Set(view.stored.map(\.topic)).count == view.stored.count, "stored: \(place)")
            #expect(view.stored.allSatisfy { $0.expires > script.now }, "stored and expired: \(place)")
            if !view.state.isLocked { #expect(view.lockScreen.isEmpty, "lock screen: \(place)") }
            if view.state.isLocked || !view.state.isPoweredOn {
                #expect(view.banner == nil, "banner: \(place)")
            }
            var names: Set<String> = []
            for app in view.apps {
                let identifiers = app.delivered.map(\.identifier)
                #expect(Set(identifiers).count == identifiers.count, "identifiers: \(place)")
                #expect(identifiers.count <= 8, "delivered: \(place)")
                #expect(
                    zip(app.delivered, app.delivered.dropFirst()).allSatisfy { $0.at >= $1.at },
                    "order: \(place)")
                #expect(app.pending.count <= PendingList.limit, "pending: \(place)")
                #expect(Set(app.pending.map(\.identifier)).count == app.pending.count, "pending: \(place)")
                if view.state.isPoweredOn {
                    #expect(app.pending.allSatisfy { ($0.at ?? .max) > script.now }, "overdue: \(place)")
                }
                #expect(app.responses.count <= 50, "responses: \(place)")
                #expect(app.groups.flatMap(\.identifiers).count == identifiers.count, "groups: \(place)")
                for identifier in identifiers { names.insert("\(app.bundle) \(identifier)") }
            }
            for shown in view.lockScreen + view.summary + (view.banner.map { [$0] } ?? []) {
                #expect(names.contains("\(shown.app) \(shown.identifier)"), "surface: \(place)")
            }
        }
        if let due = script.world.nextDue { #expect(due > script.now, "due: \(place)") }
    }

    private func checkPushes(_ script: RandomWorld, _ place: String) {
        let world = script.world
        let status = world.status(now: script.now)
        #expect(status.fates.values.reduce(0, +) == status.pushes, "fates: \(place)")
        var query = PushQuery()
        query.limit = .max
        let pushes = Array(world.pushes(query).reversed())
        var listed: Set<UInt64> = []
        for id in 0..<UInt32(3) {
            for app in world.device(id, now: script.now)?.apps ?? [] {
                listed.formUnion(app.delivered.compactMap(\.push))
            }
        }
        var badges: [String: (at: Int64, number: UInt64, badge: Int)] = [:]
        for set in script.badges where set.at > script.uninstalled["\(set.device) \(set.app)"]?.at ?? 0 {
            badges["\(set.device) \(set.app)"] = (set.at, .max, set.badge)
        }
        var wakes: [String: [Int64]] = [:]
        for push in pushes {
            let place = "push \(push.number) \(push.fate) \(push.steps.map(\.rule)): \(place)"
            let rules = Set(push.steps.map(\.rule))
            let isInList = ["shown", "silent", "held"].contains(push.fate)
            if listed.contains(push.number) { #expect(isInList, "\(place)") }
            let key = "\(push.device ?? .max) \(push.app)"
            let hasEntry = !rules.isDisjoint(with: ["list", "lock-screen", "banner", "waits-for-summary"])
            if isInList, hasEntry { #expect(listed.contains(push.number), "\(place)") }
            // A new installation knows nothing of the former one.
            if let former = script.uninstalled[key], push.number <= former.push { continue }
            for step in push.steps {
                if step.rule == "delivered-from-storage", let expiration = push.expiration {
                    #expect(step.at < expiration * 1_000, "\(place)")
                }
                if step.rule == "woke-app" { wakes[key, default: []].append(step.at) }
                if step.rule == "badge" || step.rule == "badge-removed",
                    let badge = push.payload["aps"]?["badge"]?.integer,
                    badges[key].map({ ($0.at, $0.number) < (step.at, push.number) }) ?? true
                {
                    badges[key] = (step.at, push.number, Int(badge))
                }
            }
        }
        for id in 0..<UInt32(3) {
            for app in world.device(id, now: script.now)?.apps ?? [] {
                let key = "\(id) \(app.bundle)"
                #expect(app.badge == badges[key]?.badge ?? 0, "badge: \(place)")
                let times = (wakes[key] ?? []).sorted()
                for (index, time) in times.enumerated() {
                    let recent = times[...index].count { $0 > time - 3_600_000 }
                    #expect(recent <= world.settings.wakesPerHour, "wakes: \(place)")
                }
            }
        }
    }
}
