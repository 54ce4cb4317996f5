import Configuration
import DeviceModel
import Foundation
import TestSupport
import Testing

@testable import APNSSimulator

@Suite("Devices: apps.yaml")
struct AppsFileTests {
    private static let example = "\(Repository.root)/Schemas/examples/simulator-apps.yaml"

    @Test("the example is read whole: each member of an app is used, and has its value")
    func example() throws {
        let file = try AppsFile.load(Self.example)
        let news = try #require(file.apps.first)
        for child in Mirror(reflecting: news).children {
            let value = Mirror(reflecting: child.value)
            #expect(value.displayStyle != .optional || !value.children.isEmpty, "\(child.label ?? "")")
        }
        #expect(news.purposes == [.alert, .voip, .widgets, .activityStart])
        #expect(news.strings?["de"]?["BREAKING_TITLE"] == "Eilmeldung: %@")
        #expect(news.categories?[1].actions?[0].input == .init(button: "Send", placeholder: "Your reply"))
        #expect(news.serviceExtension?.takes == 0.2)
        #expect(news.contentExtensions?[0].fields[2].kind == "progress")
        #expect(news.silent?[1].posts?.payload?["aps"]?["alert"]?["title"]?.string == "Digest")
        #expect(news.activities?[0].lines == ["{score}", "Minute {minute}"])
        #expect(news.local?[0].trigger?.minuteOfDay == 450)
        #expect(file.apps[1].foreground == [])
        #expect(file.devices.map(\.count) == [1, 1, 20])
        #expect(file.settings.goneDelay == 10_000)
        #expect(file.settings.unknownTokens == .refuse)
    }

    @Test("the devices of a file appear with their names, apps and switches")
    func devices() throws {
        let file = try AppsFile.load(Self.example)
        let registry = DeviceRegistry(apps: file.apps, settings: file.settings)
        try registry.add(file.devices)
        let views = registry.read { world, now in (0..<3).map { world.device(UInt32($0), now: now)! } }
        #expect(views.map(\.name) == ["Ada", "Bob", "Reader 1"])
        #expect(views[0].state.language == "de")
        #expect(views[0].state.timeZoneMinutes == 60)
        #expect(views[0].state.summaryTimes == [450, 1_140])
        #expect(views[1].state.hasDynamicIsland == false)
        #expect(views[1].isOnline == false)
        #expect(views[2].state.isLocked)
        #expect(views[2].state.isInLowPowerMode)
        #expect(views[0].apps.map(\.bundle) == ["com.example.news", "com.example.chat"])
        #expect(registry.read { world, now in world.status(now: now).devices } == 22)
    }

    @Test("all mistakes of a file are reported, each with its key and line")
    func mistakes() throws {
        let text = """
            apps:
              - bundle: com.example/news
                nam: News
                purposes: [alerts]
                categories:
                  - identifier: A
                  - identifier: A
                    actions: [{identifier: x}]
                service-extension: {key: abc, set: {tittle: x}}
                silent: [{equals: x}]
                local:
                  - {identifier: l, trigger: {interval: 5, repeats: true, region: x}}
              - name: Nameless
            devices:
              - {count: 0, apps: [com.example.absent], state: {lock: maybe, flying: true}}
            settings: {gone-delay: 5, maximum-devices: x}
            setings: {}
            """
        let error = try #require(throws: ConfigurationError.self) {
            try AppsFile.parse(text, name: "apps.yaml")
        }
        let found = Set(error.problems.map { "\($0.location): \($0.key)" })
        for expected in [
            "apps.yaml:2:13: apps[0].bundle", "apps.yaml:3:5: apps[0].nam",
            "apps.yaml:4:16: apps[0].purposes",
            "apps.yaml:8:19: apps[0].categories[1].actions[0].title",
            "apps.yaml:9:30: apps[0].service-extension.key", "apps.yaml:9:40: apps[0].service-extension.set",
            "apps.yaml:10:23: apps[0].silent[0].equals", "apps.yaml:13:5: apps[1].bundle",
            "apps.yaml:15:13: devices[0].count", "apps.yaml:15:23: devices[0].apps",
            "apps.yaml:15:58: devices[0].state.lock", "apps.yaml:15:65: devices[0].state.flying",
            "apps.yaml:16:24: settings.gone-delay", "apps.yaml:16:44: settings.maximum-devices",
            "apps.yaml:17:1: setings",
        ] { #expect(found.contains(expected), "\(expected) in \(found.sorted())") }
        #expect(!error.description.contains("abc"))
    }

    @Test("a device count beyond the limit, and an app declared twice, are refused")
    func limits() {
        for text in [
            "devices: [{count: 11}]\nsettings: {maximum-devices: 10}",
            "apps: [{bundle: a.b}, {bundle: a.b}]", "apps: []", "apps: 5", "- x",
            "apps: [{bundle: a.b, icon: \(String(repeating: "x", count: 101))}]",
        ] {
            #expect(throws: ConfigurationError.self, "\(text)") { try AppsFile.parse(text, name: "f") }
        }
    }

    @Test("an empty file has no apps, and the default settings")
    func empty() throws {
        #expect(try AppsFile.parse("", name: "f") == AppsFile())
    }

    @Test("the schema judges documents as the reader does")
    func schemaAgrees() throws {
        let documents = [
            #"{}"#, #"{"apps":[{"bundle":"a.b"}]}"#, #"{"apps":[{}]}"#, #"{"apps":[{"bundle":"a b"}]}"#,
            #"{"apps":[{"bundle":"a.b","purposes":["activity"]}]}"#,
            #"{"apps":[{"bundle":"a.b","purposes":["voip"],"sounds":[],"foreground":[]}]}"#,
            #"{"apps":[{"bundle":"a.b","permission":{"ask":"later"}}]}"#,
            #"{"apps":[{"bundle":"a.b","categories":[{"identifier":"x","actions":[{"identifier":"y"}]}]}]}"#,
            #"{"apps":[{"bundle":"a.b","service-extension":{"key":"00"}}]}"#,
            #"{"apps":[{"bundle":"a.b","service-extension":{"encrypted-member":"x"}}]}"#,
            #"{"apps":[{"bundle":"a.b","service-extension":{"set":{"other":"x"}}}]}"#,
            #"{"apps":[{"bundle":"a.b","service-extension":{"takes":30,"ends":"crash"}}]}"#,
            #"{"apps":[{"bundle":"a.b","content-extensions":[{"categories":["x"],"fields":[{"kind":"text"}]}]}]}"#,
            #"{"apps":[{"bundle":"a.b","content-extensions":[{"fields":[{"kind":"text"}]}]}]}"#,
            #"{"apps":[{"bundle":"a.b","content-extensions":[{"categories":["x"],"fields":[{"kind":"map"}]}]}]}"#,
            #"{"apps":[{"bundle":"a.b","silent":[{"equals":"x"}]}]}"#,
            #"{"apps":[{"bundle":"a.b","silent":[{"member":"m","equals":"x","posts":{"identifier":"i"}}]}]}"#,
            #"{"apps":[{"bundle":"a.b","local":[{"identifier":"x","trigger":{"interval":5,"repeats":true}}]}]}"#,
            #"{"apps":[{"bundle":"a.b","local":[{"identifier":"x","trigger":{"interval":5,"region":"r"}}]}]}"#,
            #"{"apps":[{"bundle":"a.b","local":[{"identifier":"x","payload":5}]}]}"#,
            #"{"apps":[{"bundle":"a.b","activities":[{"type":"T","lines":["x"]}]}]}"#,
            #"{"apps":[{"bundle":"a.b","activities":[{"lines":["x"]}]}]}"#,
            #"{"devices":[{"count":3,"state":{"lock":true,"language":"de"}}]}"#,
            #"{"devices":[{"count":0}]}"#, #"{"devices":[{"state":{"lock":"maybe"}}]}"#,
            #"{"devices":[{"state":{"time-zone":-720,"summary-times":["8:00","19:30"],"dynamic-island":false}}]}"#,
            #"{"devices":[{"state":{"summary-times":[]}}]}"#, #"{"devices":[{"state":{"time-zone":841}}]}"#,
            #"{"devices":[{"state":{"summary-times":["24:00"]}}]}"#,
            #"{"devices":[{"state":{"summary-times":["8:00,9:00"]}}]}"#,
            #"{"apps":[{"bundle":"a.b","service-extension":{"set":{"badge":"1","level":"passive"}}}]}"#,
            #"{"settings":{"gone-delay":"10s","attachment-room":1048576,"seed":3}}"#,
            #"{"settings":{"gone-delay":"10"}}"#, #"{"settings":{"maximum-devices":0}}"#, #"{"other":1}"#,
        ]
        let lines = documents.map { hexadecimal(Array($0.utf8)) }.joined(separator: "\n") + "\n"
        let directory = try TemporaryDirectory("apps")
        try directory.write(lines, to: "documents")
        let command = "exec python3 '\(Repository.root)/Schemas/validate.py' documents simulator-apps"
        let result = try ChildProcess.run("/bin/sh", ["-c", "\(command) < '\(directory.file("documents"))'"])
        let verdicts = result.standardOutput.split(separator: "\n")
        #expect(verdicts.count == documents.count, "\(result.standardError)")
        var refused = 0
        for (document, verdict) in zip(documents, verdicts) {
            let isRead = (try? AppsFile.parse(document, name: "f")) != nil
            #expect(isRead == (verdict == "valid"), "\(document): \(verdict)")
            if !isRead { refused += 1 }
        }
        #expect(refused > 15)
    }

    @Test("the schema has the members of the code's declarations")
    func schemaMembers() throws {
        let data = try Data(
            contentsOf: URL(filePath: "\(Repository.root)/Schemas/simulator-apps.schema.json"))
        let schema = try JSONSerialization.jsonObject(with: data) as? [String: Any]
        let app = (schema?["$defs"] as? [String: [String: Any]])?["app"]?["properties"] as? [String: Any]
        let file = try AppsFile.load(Self.example)
        let encoded = try JSONSerialization.jsonObject(with: JSONEncoder().encode(file.apps[0]))
        #expect(Set((app ?? [:]).keys) == Set((encoded as? [String: Any] ?? [:]).keys))
        let settings = (schema?["properties"] as? [String: [String: Any]])?["settings"]?["properties"]
        let members = Mirror(reflecting: DeviceSettings()).children.count
        #expect((settings as? [String: Any])?.count == members)
    }
}
