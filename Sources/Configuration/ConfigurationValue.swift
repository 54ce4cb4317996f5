/// A configuration document as a tree in which every value knows where it was written. YAML, JSON (which is read as
/// YAML) and environment variables all become such a tree before anything is interpreted.
package struct ConfigurationValue: Equatable, Sendable {
    package enum Content: Equatable, Sendable {
        /// The text as written, without quotes. `plain` is false when it was quoted.
        case scalar(String, plain: Bool)
        case list([ConfigurationValue])
        case map([Entry])
        /// Nothing was written after the key.
        case empty
    }

    package struct Entry: Equatable, Sendable {
        package var key: String
        package var keyLocation: ConfigurationProblem.Location
        package var value: ConfigurationValue

        package init(
            key: String, keyLocation: ConfigurationProblem.Location, value: ConfigurationValue
        ) {
            self.key = key
            self.keyLocation = keyLocation
            self.value = value
        }
    }

    package var content: Content
    package var location: ConfigurationProblem.Location

    package init(content: Content, location: ConfigurationProblem.Location) {
        self.content = content
        self.location = location
    }

    /// Kind of the value, for messages.
    package var kind: String {
        switch content {
        case .scalar: "a single value"
        case .list: "a list"
        case .map: "a map"
        case .empty: "nothing"
        }
    }
}
