/// Reads YAML and JSON documents other than the configuration, with the same errors: key, line and remedy.
package enum SettingsDocument {
    /// Reads a document.
    ///
    /// - Parameters:
    ///   - name: the document's name in messages.
    ///   - body: reads the settings of the document. Mistakes go to the reader.
    /// - Throws: `ConfigurationError` with every mistake, in the order of the document.
    package static func read<Value>(
        _ text: String, name: String, _ body: (SectionReader) -> Value
    ) throws(ConfigurationError) -> Value {
        try read(ConfigurationValue.parse(text, name: name), name: name, body)
    }

    /// Reads a document that has been parsed.
    package static func read<Value>(
        _ document: ConfigurationValue, name: String, _ body: (SectionReader) -> Value
    ) throws(ConfigurationError) -> Value {
        // File names in the document are not resolved.
        let files = FileNames(directory: "/", access: .none)
        let collector = ConfigurationCollector(name: name, files: files)
        let reader = SectionReader(document, path: "", pattern: "", collector: collector)
        let value = body(reader)
        reader.finish()
        guard collector.problems.isEmpty else {
            throw ConfigurationError(problems: Configuration.inOrder(collector.problems))
        }
        return value
    }

    /// Reads a file of at most 1 MiB.
    package static func read<Value>(
        path: String, _ body: (SectionReader) -> Value
    ) throws(ConfigurationError) -> Value {
        try read(Configuration.readText(path), name: path, body)
    }
}

extension SectionReader {
    /// Names of the section's keys, in the order written.
    package var keys: [String] { entries.map(\.key) }

    /// Returns the value of a key as it was written, and marks the key as known; nil when the key is absent or empty.
    package func raw(_ key: String) -> ConfigurationValue? {
        known.append(key)
        guard let value = entry(key)?.value, value.content != .empty else { return nil }
        return value
    }

    /// Marks keys as known that no other call reads, so that a misspelt key is compared with them.
    package func expect(_ keys: [String]) { known += keys }

    /// Records a mistake of the section itself.
    package func problem(_ message: String) {
        collector.problems.append(ConfigurationProblem(key: path, location: location, message: message))
    }

    /// Records a mistake of a setting in a section below this section.
    /// - Parameter names: names of the sections and of the setting, with points between them. `faults[2].at` is a setting
    ///   of the third element of a list.
    package func problem(at names: String, _ message: String) {
        var place = location
        var level = entries
        for name in names.split(separator: ".") {
            let key = name.prefix { $0 != "[" }
            guard var found = level.first(where: { $0.key == key })?.value else { break }
            place = found.location
            if key.endIndex != name.endIndex {
                guard let index = Int(name[key.endIndex...].dropFirst().dropLast()),
                    case .list(let elements) = found.content, elements.indices.contains(index)
                else { break }
                found = elements[index]
                place = found.location
            }
            guard case .map(let below) = found.content else { break }
            level = below
        }
        collector.problems.append(
            ConfigurationProblem(key: path(names), location: place, message: message))
    }

    /// Reads a map of freely chosen names to single values, in the order written.
    ///
    /// - Parameters:
    ///   - kind: form of the map, for messages.
    ///   - parse: returns the value, or the fault of name or value.
    package func scalars<Value>(
        _ key: String, kind: String, parse: (_ name: String, _ text: String) -> Result<Value, SettingFault>
    ) -> [Value] {
        known.append(key)
        guard let entry = entry(key) else { return [] }
        guard case .map(let entries) = entry.value.content, !entries.isEmpty else {
            problem(key, "must be a map (\(kind)), but is \(entry.value.kind)")
            return []
        }
        return entries.compactMap { child in
            if collector.isFull { return nil }
            var fault = "must be a single value, but is \(child.value.kind)"
            if case .scalar(let text, _) = child.value.content {
                switch parse(child.key, text) {
                case .success(let value): return value
                case .failure(let found): fault = found.text
                }
            }
            collector.problems.append(
                ConfigurationProblem(
                    key: "\(path(key)).\(child.key)", location: child.value.location, message: fault))
            return nil
        }
    }

    /// Reads a list of sections that may be empty or absent.
    package func sectionList<Value>(
        _ key: String, most: Int, _ body: (SectionReader) -> Value?
    ) -> [Value] {
        known.append(key)
        guard let entry = entry(key) else { return [] }
        switch entry.value.content {
        case .empty: return []
        case .list(let elements):
            guard elements.count <= most else {
                problem(key, "has \(elements.count) elements; at most \(most) are possible")
                return []
            }
            return read(elements, of: key, body)
        case .map, .scalar:
            problem(key, "must be a list (each element begins with `- `), but is \(entry.value.kind)")
            return []
        }
    }
}

/// Fault of a setting's value, with the remedy.
package struct SettingFault: Error {
    package let text: String

    package init(_ text: String) { self.text = text }
}
