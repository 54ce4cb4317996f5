import Configuration
import DeliveryCore
import SluiceModel

extension Worker {
    /// Returns the reason for which a scope can't be paused, because the configuration doesn't have it; nil when it can.
    /// Any thread.
    public func problem(of scope: PauseScope) -> String? {
        switch scope {
        case .all: return nil
        case .app(let name): return Self.problem("app", name, configuration.apps.map(\.name))
        case .credential(let name):
            return Self.problem("credential", name, configuration.credentials.map(\.name))
        case .topic(let name):
            let isKnown = configuration.apps.contains { app in
                app.topics.contains { topic in
                    PushType.allCases.contains { name == "\(topic)\($0.topicSuffix)" }
                }
            }
            return isKnown
                ? nil
                : "no app has the topic `\(name)`; a topic is a bundle identifier, with APNs' suffix if any"
        }
    }

    private static func problem(_ kind: String, _ name: String, _ names: [String]) -> String? {
        names.contains(name)
            ? nil : "there is no \(kind) `\(name)`; there are: \(names.sorted().joined(separator: ", "))"
    }
}
