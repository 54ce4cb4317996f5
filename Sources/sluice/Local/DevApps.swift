import APNSSimulator
import Configuration
import DeviceModel
import Foundation

/// Apps and devices of `sluice dev`: those of a file, or a sample.
struct DevApps {
    /// Path of the file that the simulator reads.
    let path: String
    let apps: [LocalStage.Plan.App]
    /// Nil: the file declares no device with an app that shows alerts.
    let sample: LocalStage.Sample?

    /// - Parameter file: path of a file; nil for the sample, which is written into the stage's directory.
    init(file: String?, files: LocalFiles) throws(CommandFailure) {
        path = file ?? files.path("apps.yaml")
        // An edited sample of an earlier start is used again.
        if file == nil, !FileManager.default.fileExists(atPath: path) {
            try files.write(Self.sampleFile, to: "apps.yaml")
        }
        let declared: AppsFile
        do {
            declared = try AppsFile.load(path)
        } catch {
            throw CommandFailure(.configuration, "\(error)")
        }
        guard !declared.apps.isEmpty else {
            throw CommandFailure(
                .configuration, "\(path): apps: declare at least one app, because the worker needs its topic")
        }
        var names: Set<String> = []
        apps = declared.apps.map { app in
            // Names of a worker's apps are letters, digits and hyphens.
            let plain = app.bundle.map { $0.isASCII && ($0.isLetter || $0.isNumber) ? $0 : "-" }
            var name = String(plain.suffix(32))
            while !names.insert(name).inserted { name += "-2" }
            return LocalStage.Plan.App(name: name, bundle: app.bundle, isSandbox: app.environment == .sandbox)
        }
        sample = Self.sample(declared, apps)
    }

    private static func sample(
        _ declared: AppsFile, _ apps: [LocalStage.Plan.App]
    ) -> LocalStage.Sample? {
        guard let group = declared.devices.first,
            let app = declared.apps.first(where: { app in
                (app.purposes ?? [.alert]).contains(.alert) && group.apps?.contains(app.bundle) ?? true
            })
        else { return nil }
        let name = TokenName(
            seed: declared.settings.seed, device: 0, bundle: app.bundle, purpose: .alert,
            environment: app.environment ?? .production)
        let device = group.name.map { group.count == 1 ? $0 : "\($0) 1" } ?? "device 0"
        let worker = apps.first { $0.bundle == app.bundle }?.name ?? app.bundle
        return LocalStage.Sample(device: device, app: worker, bundle: app.bundle, token: name.text)
    }

    private static let sampleFile = """
        # Apps and devices of the simulator. Deploy/simulator.md explains each member.
        apps:
          - bundle: com.example.news
            name: News
            icon: 📰
            purposes: [alert, activity-start]
            background-modes: [remote-notification]
            entitlements: [time-sensitive]
            foreground: [banner, list, sound, badge]
            strings:
              en: {GOAL: "Goal! %@ against %@"}
              de: {GOAL: "Tor! %@ gegen %@"}
            categories:
              - identifier: story
                options: [custom-dismiss]
                actions:
                  - {identifier: later, title: Read later}
                  - {identifier: comment, title: Comment, input: {button: Send, placeholder: Your comment}}
                  - {identifier: mute, title: Mute, options: [destructive]}
            service-extension:
              key: 00112233445566778899aabbccddeeff00112233445566778899aabbccddeeff
              encrypted-member: encrypted-content
              attachment-member: attachment-url
            silent:
              - {member: remove, removes-delivered: remove}
            activities:
              - type: Match
                title: "{home} – {away}"
                lines: ["{score}"]
                leading: "{home}"
                trailing: "{score}"
        devices:
          - {name: Anna}
          - {name: Ben, state: {lock: true, language: de}}
          - {name: Cleo, state: {airplane: true}}
        settings:
          unknown-tokens: adopt

        """
}
