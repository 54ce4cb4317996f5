extension Configuration {
    /// Section `switches`.
    public struct Switches: Sendable, Equatable {
        /// Whether a worker that never knew the switches' topic sends nothing before it has read the topic.
        public var required: Store.Switch

        public init(required: Store.Switch = .off) { self.required = required }
    }

    static func readSwitches(_ section: SectionReader) -> Switches {
        Switches(
            required: section.choice(
                "required", default: Switches().required,
                help:
                    "`on`: a worker that can't read the topic of switches, and never could, sends nothing before it can; `off`: it sends everything, and reports this. Last known pauses stay in force either way"
            ))
    }
}
