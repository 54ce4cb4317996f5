/// A setting as the reference prints it: `sluice config reference`, the table in `Deploy/configuration.md`.
public struct ConfigurationSetting: Sendable, Equatable {
    /// Path with `[]` for an element of a list and `<name>` for a freely chosen key: `apps[].name`.
    public var key: String
    /// Form of the value, e.g. `duration`, `integer 1…65535`, `text|json`.
    public var kind: String
    /// Default as it would be written; nil when the setting is required or simply absent by default.
    public var defaultValue: String?
    /// Whether the configuration must have the setting.
    public var isRequired: Bool
    /// Meaning of the setting, for the reference.
    public var help: String

    /// Environment variable that overrides the setting.
    public var environmentVariable: String { EnvironmentOverrides.variable(forPath: key) }
}

/// Findings while a document is read: mistakes, and the settings that were asked for.
package final class ConfigurationCollector {
    package var problems: [ConfigurationProblem] = []
    var places: SettingPlaces
    let files: FileNames
    private(set) var settings: [ConfigurationSetting] = []
    private var settingKeys: Set<String> = []

    /// Number of mistakes after which reading ends, because nobody reads more of them.
    static let mostProblems = 1_000

    package var isFull: Bool { problems.count >= Self.mostProblems }

    init(name: String, files: FileNames) {
        places = SettingPlaces(name: name)
        self.files = files
    }

    func record(_ setting: ConfigurationSetting) {
        if settingKeys.insert(setting.key).inserted { settings.append(setting) }
    }
}

/// Reads one section. Every `read…` call makes its key known; `finish()` reports the unknown keys. A mistake is
/// recorded and a stand-in returned, so that one run reports all mistakes.
package final class SectionReader {
    /// Path as it is in the document: `apps[0]`.
    package let path: String
    /// Path as the reference shows it: `apps[]`.
    let pattern: String
    package let location: ConfigurationProblem.Location
    package let collector: ConfigurationCollector
    let entries: [ConfigurationValue.Entry]
    var known: [String] = []

    package init(
        _ value: ConfigurationValue, path: String, pattern: String, collector: ConfigurationCollector
    ) {
        self.path = path
        self.pattern = pattern
        self.location = value.location
        self.collector = collector
        switch value.content {
        case .map(let entries): self.entries = entries
        case .empty: self.entries = []
        case .scalar, .list:
            self.entries = []
            collector.problems.append(
                ConfigurationProblem(
                    key: path, location: value.location,
                    message: "must be a map of settings, but is \(value.kind)"))
        }
    }

    // MARK: Lookup

    package func contains(_ key: String) -> Bool { entry(key) != nil }

    func entry(_ key: String) -> ConfigurationValue.Entry? { entries.first { $0.key == key } }

    package func path(_ key: String) -> String { path.isEmpty ? key : "\(path).\(key)" }
    func pattern(_ key: String) -> String { pattern.isEmpty ? key : "\(pattern).\(key)" }

    /// Records a mistake of a setting.
    ///
    /// - Parameter others: Paths of further settings that the mistake depends on. If a variable of the environment gave
    ///   such a setting, and the file gave this setting, the mistake is the variable's.
    package func problem(_ key: String, _ message: String, with others: [String] = []) {
        let own = entry(key)?.value.location ?? location
        let foreign = others.lazy.compactMap { self.collector.places.locations[$0] }.first(
            where: \.isEnvironment)
        collector.problems.append(
            ConfigurationProblem(
                key: path(key), location: own.isEnvironment ? own : foreign ?? own, message: message))
    }

    /// Records a setting and returns its value; nil when the setting is absent, or has no value, which is a mistake.
    func look(
        _ key: String, kind: String, default defaultText: String?, required: Bool, help: String
    ) -> ConfigurationValue? {
        known.append(key)
        collector.record(
            ConfigurationSetting(
                key: pattern(key), kind: kind, defaultValue: defaultText, isRequired: required, help: help))
        guard let entry = entry(key) else {
            if required { problem(key, "is required: \(help)") }
            return nil
        }
        if case .empty = entry.value.content {
            problem(key, "has no value; expected \(kind)")
            return nil
        }
        collector.places.note(path(key), entry.value.location)
        if kind == "file", case .scalar(let text, _) = entry.value.content {
            collector.places.note(
                file: collector.files.resolve(text), key: path(key), entry.value.location)
        }
        return entry.value
    }

    // MARK: Scalars

    /// Reads any single value: `parse` returns nil for text it can't read.
    package func scalar<Value>(
        _ key: String, kind: String, default defaultText: String?, required: Bool, help: String,
        parse: (String) -> Value?
    ) -> Value? {
        guard let value = look(key, kind: kind, default: defaultText, required: required, help: help) else {
            return nil
        }
        guard case .scalar(let text, _) = value.content else {
            problem(key, "must be a single value (\(kind)), but is \(value.kind)")
            return nil
        }
        if text.isEmpty {
            problem(key, "must not be empty; expected \(kind)")
            return nil
        }
        guard let parsed = parse(text) else {
            problem(key, "`\(text)` is not allowed; expected \(kind)")
            return nil
        }
        return parsed
    }

    /// Reads a non-empty text. `check` returns the text's fault, or nil.
    package func text(
        _ key: String, kind: String = "text", default defaultValue: String? = nil, required: Bool = false,
        help: String, check: (String) -> String? = { _ in nil }
    ) -> String? {
        let text = scalar(key, kind: kind, default: defaultValue, required: required, help: help) { $0 }
        guard let text else { return defaultValue }
        if let wrong = check(text) {
            problem(key, wrong)
            return defaultValue
        }
        return text
    }

    package func integer(
        _ key: String, _ range: ClosedRange<Int>, default defaultValue: Int? = nil, help: String
    ) -> Int? {
        let kind = "integer \(range.lowerBound)…\(range.upperBound)"
        let value = scalar(
            key, kind: kind, default: defaultValue.map { "\($0)" }, required: false, help: help
        ) { (text: String) -> Int? in
            guard let number = Int(text), range.contains(number) else { return nil }
            return number
        }
        return value ?? defaultValue
    }

    package func number(
        _ key: String, _ range: ClosedRange<Double>, default defaultValue: Double? = nil, help: String
    ) -> Double? {
        let kind = "number \(range.lowerBound)…\(range.upperBound)"
        let value = scalar(
            key, kind: kind, default: defaultValue.map { "\($0)" }, required: false, help: help
        ) {
            (text: String) -> Double? in
            guard let number = Double(text), range.contains(number) else { return nil }
            return number
        }
        return value ?? defaultValue
    }

    package func duration(
        _ key: String, _ range: ClosedRange<Duration>, default defaultValue: Duration, help: String
    ) -> Duration {
        let bounds = "\(DurationText.format(range.lowerBound))…\(DurationText.format(range.upperBound))"
        let value = scalar(
            key, kind: "duration \(bounds)", default: DurationText.format(defaultValue), required: false,
            help: help
        ) { Optional($0) }
        guard let value else { return defaultValue }
        guard let duration = DurationText.parse(value) else {
            problem(key, "`\(value)` is not \(DurationText.grammar)")
            return defaultValue
        }
        guard range.contains(duration) else {
            problem(key, "`\(value)` is out of range; allowed is \(bounds)")
            return defaultValue
        }
        return duration
    }

    func size(_ key: String, _ range: ClosedRange<Int>, default defaultValue: Int, help: String) -> Int {
        let bounds = "\(SizeText.format(range.lowerBound))…\(SizeText.format(range.upperBound))"
        let value = scalar(
            key, kind: "size \(bounds)", default: SizeText.format(defaultValue), required: false, help: help
        ) { Optional($0) }
        guard let value else { return defaultValue }
        guard let size = SizeText.parse(value) else {
            problem(key, "`\(value)` is not \(SizeText.grammar)")
            return defaultValue
        }
        guard range.contains(size) else {
            problem(key, "`\(value)` is out of range; allowed is \(bounds)")
            return defaultValue
        }
        return size
    }

    /// Reads a raw value of an enumeration.
    package func choice<Value: RawRepresentable & CaseIterable>(
        _ key: String, default defaultValue: Value, help: String
    ) -> Value where Value.RawValue == String {
        choice(key, of: Value.self, default: defaultValue, required: false, help: help) ?? defaultValue
    }

    package func choice<Value: RawRepresentable & CaseIterable>(
        _ key: String, of type: Value.Type, default defaultValue: Value?, required: Bool, help: String
    ) -> Value? where Value.RawValue == String {
        let names = Value.allCases.map(\.rawValue)
        let kind = names.joined(separator: "|")
        let text = scalar(
            key, kind: kind, default: defaultValue?.rawValue, required: required, help: help
        ) { Optional($0) }
        guard let text else { return defaultValue }
        guard let value = Value(rawValue: text) else {
            let hint = Suggestion.hint(for: text, among: names)
            problem(key, "`\(text)` is not one of \(names.joined(separator: ", "))\(hint)")
            return defaultValue
        }
        return value
    }

    // MARK: Lists and maps

    /// Reads a list of texts. A single comma-separated text is read as a list when it comes from the environment, and
    /// from a file where `commaSeparated` allows it.
    package func texts(
        _ key: String, kind: String, default defaultValue: [String] = [], required: Bool,
        commaSeparated: Bool = false, mayBeEmpty: Bool = false, help: String, check: (String) -> String?
    ) -> [String] {
        let defaultText = defaultValue.isEmpty ? nil : defaultValue.joined(separator: ", ")
        guard let value = look(key, kind: kind, default: defaultText, required: required, help: help) else {
            return defaultValue
        }
        var texts: [(text: String, location: ConfigurationProblem.Location)] = []
        switch value.content {
        case .list(let elements):
            for (index, element) in elements.enumerated() {
                guard case .scalar(let text, _) = element.content else {
                    collector.problems.append(
                        ConfigurationProblem(
                            key: "\(path(key))[\(index)]", location: element.location,
                            message: "must be a single value, but is \(element.kind)"))
                    continue
                }
                texts.append((text, element.location))
            }
            if elements.isEmpty, !mayBeEmpty { problem(key, "must not be empty") }
        case .scalar(let text, _) where commaSeparated || value.location.isEnvironment:
            texts = text.split(separator: ",", omittingEmptySubsequences: false).map {
                (String($0.drop { $0 == " " }.reversed().drop { $0 == " " }.reversed()), value.location)
            }
        case .scalar(let text, _):
            problem(key, "must be a list, but is a single value; write [\(text)]")
        case .map, .empty:
            problem(key, "must be a list, but is \(value.kind)")
        }
        return texts.enumerated().compactMap { index, element in
            if collector.isFull { return nil }
            let wrong = element.text.isEmpty ? "must not be empty" : check(element.text)
            guard let wrong else { return element.text }
            let isList = texts.count > 1
            collector.problems.append(
                ConfigurationProblem(
                    key: isList ? "\(path(key))[\(index)]" : path(key), location: element.location,
                    message: wrong))
            return nil
        }
    }

    /// Reads a map of freely chosen names to single values, in the order written. The value of `name-file` is the file
    /// that holds the value of `name`.
    func properties(
        _ key: String, help: String, check: (String) -> String?
    ) -> [Configuration.Kafka.Property] {
        guard let value = look(key, kind: "map", default: nil, required: false, help: help) else { return [] }
        guard case .map(let entries) = value.content else {
            problem(key, "must be a map of librdkafka properties, but is \(value.kind)")
            return []
        }
        var names: Set<String> = []
        return entries.compactMap { entry in
            if collector.isFull { return nil }
            let place = "\(path(key)).\(entry.key)"
            var wrong: String?
            switch entry.value.content {
            case .scalar(let text, _):
                let isFile = entry.key.hasSuffix("-file")
                let name = isFile ? String(entry.key.dropLast(5)) : entry.key
                wrong = check(name)
                if wrong == nil, !names.insert(name).inserted {
                    wrong = "`\(name)` and `\(name)-file` exclude each other; remove either"
                }
                guard wrong == nil else { break }
                collector.places.note(place, entry.value.location)
                guard isFile else { return Configuration.Kafka.Property(name: name, value: text) }
                switch collector.files.secret(in: text) {
                case .success(let secret):
                    return .init(name: name, value: secret, file: collector.files.resolve(text))
                case .failure(let fault): wrong = fault.text
                }
            case .empty: wrong = "has no value"
            case .list, .map: wrong = "must be a single value, but is \(entry.value.kind)"
            }
            collector.problems.append(
                ConfigurationProblem(key: place, location: entry.keyLocation, message: wrong ?? ""))
            return nil
        }
    }

    /// Reads a section below this one; an absent section reads like an empty one.
    package func section<Value>(_ key: String, _ body: (SectionReader) -> Value) -> Value {
        known.append(key)
        if let location = entry(key)?.value.location { collector.places.note(path(key), location) }
        let value = entry(key)?.value ?? ConfigurationValue(content: .empty, location: location)
        let reader = SectionReader(
            value, path: path(key), pattern: pattern(key), collector: collector)
        let result = body(reader)
        reader.finish()
        return result
    }

    /// Reads sections under freely chosen names.
    package func namedSections<Value>(_ key: String, _ body: (String, SectionReader) -> Value?) -> [Value] {
        known.append(key)
        guard let entry = entry(key) else { return [] }
        switch entry.value.content {
        case .empty: return []
        case .map(let entries):
            return entries.compactMap { child in
                if collector.isFull { return nil }
                collector.places.note("\(path(key)).\(child.key)", child.value.location)
                let reader = SectionReader(
                    child.value, path: "\(path(key)).\(child.key)", pattern: "\(pattern(key)).<name>",
                    collector: collector)
                let result = body(child.key, reader)
                reader.finish()
                return result
            }
        case .list, .scalar:
            problem(key, "must be a map from names to settings, but is \(entry.value.kind)")
            return []
        }
    }

    /// Reads a list of sections.
    package func sections<Value>(_ key: String, help: String, _ body: (SectionReader) -> Value?) -> [Value] {
        known.append(key)
        guard let entry = entry(key) else {
            problem(key, "is required: \(help)")
            return []
        }
        switch entry.value.content {
        case .list(let elements) where !elements.isEmpty: return read(elements, of: key, body)
        case .list, .empty:
            problem(key, "must not be empty: \(help)")
        case .map, .scalar:
            problem(key, "must be a list (each element begins with `- `), but is \(entry.value.kind)")
        }
        return []
    }

    /// Reads each element of a list as a section.
    func read<Value>(
        _ elements: [ConfigurationValue], of key: String, _ body: (SectionReader) -> Value?
    ) -> [Value] {
        elements.enumerated().compactMap { index, element in
            if collector.isFull { return nil }
            let path = "\(path(key))[\(index)]"
            collector.places.note(path, element.location)
            let reader = SectionReader(
                element, path: path, pattern: "\(pattern(key))[]", collector: collector)
            let result = body(reader)
            reader.finish()
            return result
        }
    }

    /// Returns whether a key holds a map (and not a single value).
    package func isMap(_ key: String) -> Bool {
        if case .map = entry(key)?.value.content { return true }
        return false
    }

    /// Returns whether a key holds a list.
    package func isList(_ key: String) -> Bool {
        if case .list = entry(key)?.value.content { return true }
        return false
    }

    /// Returns whether a key holds a text with commas, as a variable gives a list.
    func isCommaSeparated(_ key: String) -> Bool {
        if case .scalar(let text, _) = entry(key)?.value.content { return text.contains(",") }
        return false
    }

    /// Returns whether a key holds exactly this text.
    func isText(_ key: String, _ text: String) -> Bool {
        if case .scalar(text, _) = entry(key)?.value.content { return true }
        return false
    }

    // MARK: Unknown keys

    /// Marks all keys of the section as known: used when it isn't clear which keys belong to it.
    func acceptRest() { known += entries.map(\.key) }

    package func finish() {
        for entry in entries where !known.contains(entry.key) && !collector.isFull {
            let message: String
            if case .environment = entry.keyLocation {
                let variable = EnvironmentOverrides.variable(forPath: path(entry.key))
                let variables = known.map { EnvironmentOverrides.variable(forPath: path($0)) }
                let hint = Suggestion.hint(for: variable, among: variables)
                message = "there is no such setting\(hint)"
            } else {
                let hint = Suggestion.hint(for: entry.key, among: known)
                let place = path.isEmpty ? "" : " in `\(path)`"
                let list = hint.isEmpty ? "; known settings are: \(known.joined(separator: ", "))" : ""
                message = "there is no such setting\(place)\(hint)\(list)"
            }
            collector.problems.append(
                ConfigurationProblem(key: path(entry.key), location: entry.keyLocation, message: message))
        }
    }
}

extension ConfigurationProblem.Location {
    var isEnvironment: Bool {
        if case .environment = self { return true }
        return false
    }
}
