import Configuration
import DeviceModel

/// Apps, devices and settings of the simulator, as a YAML or JSON document declares them.
public struct AppsFile: Sendable, Equatable {
    public var apps: [AppDeclaration] = []
    public var devices: [DeviceGroup] = []
    public var settings = DeviceSettings()

    /// Devices that are alike.
    public struct DeviceGroup: Sendable, Equatable {
        /// Number of devices; at least 1.
        public var count: Int
        /// Name; with a number behind it when there are several devices. Nil: names of the model.
        public var name: String?
        /// Bundle identifiers of the installed apps; nil: all declared apps.
        public var apps: [String]?
        /// Switches that each device is set to, in this order.
        public var actions: [DeviceAction] = []

        public init(count: Int = 1, name: String? = nil, apps: [String]? = nil) {
            self.count = count
            self.name = name
            self.apps = apps
        }
    }

    public init() {}

    /// Loads a file. The error has all of its mistakes, each with key, line and column.
    public static func load(_ path: String) throws(ConfigurationError) -> AppsFile {
        try SettingsDocument.read(path: path, read)
    }

    /// Reads a document.
    /// - Parameter name: name of the document in messages.
    public static func parse(_ text: String, name: String) throws(ConfigurationError) -> AppsFile {
        try SettingsDocument.read(text, name: name, read)
    }

    private static func read(_ root: SectionReader) -> AppsFile {
        var file = AppsFile()
        file.apps = root.sectionsIfPresent("apps") { AppReader($0).read() } ?? []
        file.settings = root.section("settings") { SettingsReader($0).read() }
        file.devices = root.sectionsIfPresent("devices") { DeviceGroupReader($0).read(file.apps) } ?? []
        file.check(root)
        return file
    }

    /// Reads a single app.
    /// - Parameter bundle: bundle identifier, which the value may repeat.
    static func app(_ value: JSONValue, bundle: String) throws(ConfigurationError) -> AppDeclaration {
        var members = value.members ?? [:]
        members["bundle"] = members["bundle"] ?? .string(bundle)
        let name = "app"
        let app = try SettingsDocument.read(
            ConfigurationValue(.object(members), name: name), name: name
        ) { section in
            let app = AppReader(section).read()
            if let app, app.bundle != bundle {
                section.problem(
                    "bundle", "`\(app.bundle)` is not the bundle identifier of the path, `\(bundle)`")
            }
            return app
        }
        // Without an app there is a mistake.
        return app ?? AppDeclaration(bundle: bundle)
    }

    /// Checks what concerns several entries.
    private func check(_ root: SectionReader) {
        var bundles: Set<String> = []
        for (index, app) in apps.enumerated() where !bundles.insert(app.bundle).inserted {
            root.problem("apps", "`\(app.bundle)` is declared twice, at last in apps[\(index)]")
        }
        let total = devices.reduce(0) { $0 + $1.count }
        if total > settings.maximumDevices {
            root.problem(
                "devices",
                "\(total) devices are more than settings.maximum-devices, \(settings.maximumDevices)")
        }
    }
}

extension DeviceRegistry {
    /// Adds the devices of a file.
    public func add(_ groups: [AppsFile.DeviceGroup]) throws(DeviceFault) {
        for group in groups {
            for index in 0..<group.count {
                let name = group.name.map { group.count == 1 ? $0 : "\($0) \(index + 1)" }
                try change { (world, now) throws(DeviceFault) in
                    let id = try world.addDevice(name: name, apps: group.apps, now: now)
                    for action in group.actions { try world.perform(action, on: id, now: now) }
                }
            }
        }
    }
}
