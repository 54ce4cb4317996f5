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
        try parse(Configuration.readText(path), name: path)
    }

    /// Reads a document.
    /// - Parameter name: name of the document in messages.
    public static func parse(_ text: String, name: String) throws(ConfigurationError) -> AppsFile {
        let document = try ConfigurationValue.parse(text, name: name)
        let collector = ConfigurationCollector(document: name)
        let root = SectionReader(document, path: "", pattern: "", collector: collector)
        var file = AppsFile()
        file.apps = root.sectionsIfPresent("apps") { AppReader($0).read() } ?? []
        file.settings = root.section("settings") { SettingsReader($0).read() }
        file.devices = root.sectionsIfPresent("devices") { DeviceGroupReader($0).read(file.apps) } ?? []
        root.finish()
        file.check(root)
        guard collector.problems.isEmpty else {
            throw ConfigurationError(problems: Configuration.inOrder(collector.problems))
        }
        return file
    }

    /// Reads a single app.
    /// - Parameter bundle: bundle identifier, which the value may repeat.
    static func app(_ value: JSONValue, bundle: String) throws(ConfigurationError) -> AppDeclaration {
        let name = "app"
        var members = value.members ?? [:]
        let own = members["bundle"]
        members["bundle"] = own ?? .string(bundle)
        let collector = ConfigurationCollector(document: name)
        let document = ConfigurationValue(.object(members), name: name)
        let section = SectionReader(document, path: "", pattern: "", collector: collector)
        let app = AppReader(section).read()
        section.finish()
        if let app, app.bundle != bundle {
            section.problem("bundle", "`\(app.bundle)` is not the bundle identifier of the path, `\(bundle)`")
        }
        guard collector.problems.isEmpty, let app else {
            throw ConfigurationError(problems: collector.problems)
        }
        return app
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
