import Configuration
import SluiceModel

extension Configuration {
    /// Returns settings with which a worker starts, but which serve nothing or may be refused by APNs.
    /// - Parameter places: places of the settings, from ``Configuration/loadWithPlaces(path:environment:)``.
    public func warnings(places: SettingPlaces) -> [ConfigurationProblem] {
        func warning(_ key: String, _ message: String) -> ConfigurationProblem {
            ConfigurationProblem(key: key, location: places.place(of: key).location, message: message)
        }
        let used = Set(apps.flatMap(\.credentials))
        let unused = credentials.filter { !used.contains($0.name) }.map {
            warning(
                "credentials.\($0.name)", "is used by no app; name it as an app's `credential`, or remove it")
        }
        let topics = apps.enumerated().flatMap { index, app in
            app.topics.compactMap { topic -> ConfigurationProblem? in
                if !Topic.isValid(topic) {
                    return warning(
                        "apps[\(index)].topics",
                        "no job can have the topic `\(topic)`: write a bundle identifier, parts joined by single periods, "
                            + "of at most \(Topic.maximumLength) bytes")
                }
                guard topic.contains("_") else { return nil }
                return warning(
                    "apps[\(index)].topics",
                    "`\(topic)` has an underscore, which Apple documents for no bundle identifier; compare it with the "
                        + "app's, because APNs refuses an unknown one")
            }
        }
        return unused + topics + sharing(warning)
    }

    /// Warns of apps that share a worker without a store.
    private func sharing(_ warning: (String, String) -> ConfigurationProblem) -> [ConfigurationProblem] {
        guard store == nil, apps.reduce(0, { $0 + $1.credentials.count }) > 1 else { return [] }
        return [
            warning(
                "apps",
                "several apps or environments share the worker without a store, so that one that can't send holds up the "
                    + "others; add `store`, or run workers for each")
        ]
    }
}
