/// Places that the settings of a configuration were read from. Checks that follow the reading name them: those of keys,
/// certificates and librdkafka's properties.
public struct SettingPlaces: Sendable, Equatable {
    /// A setting and its place.
    public struct Place: Sendable, Equatable {
        /// Path of the setting, such as `apps[0].credential.key-file`.
        public var key: String
        public var location: ConfigurationProblem.Location
    }

    /// Name of the document in messages.
    let name: String
    /// Locations by the paths of settings.
    private(set) var locations: [String: ConfigurationProblem.Location] = [:]
    /// Settings that name a file, each with the file's absolute path, in the order of reading.
    private(set) var files: [(path: String, place: Place)] = []

    /// - Parameter name: the document's name in messages.
    public init(name: String) {
        self.name = name
    }

    mutating func note(_ key: String, _ location: ConfigurationProblem.Location) {
        locations[key] = location
    }

    mutating func note(file path: String, key: String, _ location: ConfigurationProblem.Location) {
        files.append((path, Place(key: key, location: location)))
    }

    /// Returns the place of a setting. A setting that isn't written is at the nearest section around it that is.
    public func place(of key: String) -> Place {
        var section = Substring(key)
        while true {
            if let location = locations[String(section)] { return Place(key: key, location: location) }
            guard let end = section.lastIndex(where: { $0 == "." || $0 == "[" }) else { break }
            section = section[..<end]
        }
        return Place(key: key, location: .file(name: name, line: 0, column: 0))
    }

    /// Returns the place of the setting that names a file; nil when no setting names it.
    /// - Parameter ending: end of the setting's path, such as `key-file`, because two settings may name one file.
    public func place(ofFile path: String, ending: String) -> Place? {
        files.first { $0.path == path && $0.place.key.hasSuffix(ending) }?.place
    }

    public static func == (left: SettingPlaces, right: SettingPlaces) -> Bool {
        left.name == right.name && left.locations == right.locations
            && left.files.elementsEqual(right.files) { $0.path == $1.path && $0.place == $1.place }
    }
}
