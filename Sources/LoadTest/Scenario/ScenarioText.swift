import Configuration

extension ConfigurationValue {
    /// Sets a value of the document: "path=value", with a path such as `workers.shards` or `loads[0].arrivals.rate`.
    /// An element of a list may be named by its `name`: `loads.campaign.ttl`. Brackets hold a name with points:
    /// `thresholds[alerts.latency-p99]`. The value is YAML.
    /// - Throws: an error that names the override.
    mutating func apply(override: String) throws(ConfigurationError) {
        let location = ConfigurationProblem.Location.file(name: "--set \(override)", line: 0, column: 0)
        func failure(_ message: String) -> ConfigurationError {
            ConfigurationError(problems: [ConfigurationProblem(key: "", location: location, message: message)]
            )
        }
        guard let sign = override.firstIndex(of: "="), sign > override.startIndex else {
            throw failure("expected path=value, such as workers.shards=2")
        }
        let names = Self.names(override[..<sign])
        guard !names.isEmpty else { throw failure("the path is empty") }
        var value = try ConfigurationValue.parse(
            String(override[override.index(after: sign)...]), name: "--set \(override)")
        value.locate(at: location)
        if let fault = set(value, at: names[...], location) { throw failure(fault) }
    }

    /// Splits a path at its points, except those in brackets.
    private static func names(_ path: Substring) -> [String] {
        var names: [String] = []
        var name = ""
        var isInBrackets = false
        func finish() {
            if !name.isEmpty { names.append(name) }
            name = ""
        }
        for character in path {
            switch character {
            case ".", "[":
                if isInBrackets {
                    name.append(character)
                } else {
                    finish()
                    isInBrackets = character == "["
                }
            case "]":
                finish()
                isInBrackets = false
            default: name.append(character)
            }
        }
        finish()
        return names
    }

    /// Gives the value and all values in it one location.
    private mutating func locate(at place: ConfigurationProblem.Location) {
        location = place
        switch content {
        case .map(var entries):
            for index in entries.indices {
                entries[index].keyLocation = place
                entries[index].value.locate(at: place)
            }
            content = .map(entries)
        case .list(var elements):
            for index in elements.indices { elements[index].locate(at: place) }
            content = .list(elements)
        case .scalar, .empty: break
        }
    }

    /// Returns the fault of the path, or nil.
    private mutating func set(
        _ value: ConfigurationValue, at names: ArraySlice<String>, _ place: ConfigurationProblem.Location
    ) -> String? {
        guard let name = names.first else {
            self = value
            return nil
        }
        switch content {
        case .list(var elements):
            let found =
                Int(name).flatMap { elements.indices.contains($0) ? $0 : nil }
                ?? elements.firstIndex { $0.member("name") == name }
            guard let found else {
                let known = elements.compactMap { $0.member("name") }.joined(separator: ", ")
                return "the list has no element `\(name)`; it has \(elements.count)"
                    + (known.isEmpty ? "" : ": \(known)")
            }
            let fault = elements[found].set(value, at: names.dropFirst(), place)
            content = .list(elements)
            return fault
        case .map(var entries):
            // A key may have points of its own.
            for count in (2...max(2, names.count)).reversed() where count <= names.count {
                let key = names.prefix(count).joined(separator: ".")
                guard let index = entries.firstIndex(where: { $0.key == key }) else { continue }
                let fault = entries[index].value.set(value, at: names.dropFirst(count), place)
                content = .map(entries)
                return fault
            }
            var index = entries.firstIndex { $0.key == name }
            if index == nil {
                entries.append(
                    Entry(key: name, keyLocation: place, value: .init(content: .empty, location: place)))
                index = entries.count - 1
            }
            let fault = entries[index!].value.set(value, at: names.dropFirst(), place)
            content = .map(entries)
            return fault
        case .empty:
            content = .map([])
            return set(value, at: names, place)
        case .scalar(let text, _):
            return "`\(text)` is a single value, and has no member `\(name)`"
        }
    }

    private func member(_ name: String) -> String? {
        guard case .map(let entries) = content,
            case .scalar(let text, _) = entries.first(where: { $0.key == name })?.value.content
        else { return nil }
        return text
    }

    /// Returns the value with the durations of some keys multiplied, at any depth. Other texts stay.
    func scaled(by factor: Double, keys: Set<String>) -> ConfigurationValue {
        guard factor != 1 else { return self }
        var value = self
        switch content {
        case .map(let entries):
            value.content = .map(
                entries.map { entry in
                    var entry = entry
                    if keys.contains(entry.key), case .scalar(let text, let plain) = entry.value.content,
                        let duration = DurationText.parse(text)
                    {
                        let milliseconds = Int64((duration / .milliseconds(1) * factor).rounded(.up))
                        entry.value.content = .scalar(
                            DurationText.format(.milliseconds(milliseconds)), plain: plain)
                    } else {
                        entry.value = entry.value.scaled(by: factor, keys: keys)
                    }
                    return entry
                })
        case .list(let elements): value.content = .list(elements.map { $0.scaled(by: factor, keys: keys) })
        case .scalar, .empty: break
        }
        return value
    }

    /// The value as a YAML document.
    package var yaml: String {
        switch content {
        case .map, .list: lines(indent: 0).joined(separator: "\n") + "\n"
        case .scalar, .empty: inline + "\n"
        }
    }

    private func lines(indent: Int) -> [String] {
        let space = String(repeating: " ", count: indent)
        switch content {
        case .map(let entries) where !entries.isEmpty:
            return entries.flatMap { entry -> [String] in
                let key = Self.scalar(entry.key, plain: true)
                if entry.value.isFlat { return ["\(space)\(key): \(entry.value.inline)"] }
                return ["\(space)\(key):"] + entry.value.lines(indent: indent + 2)
            }
        case .list(let elements) where !elements.isEmpty:
            return elements.flatMap { element -> [String] in
                if element.isFlat { return ["\(space)- \(element.inline)"] }
                var lines = element.lines(indent: indent + 2)
                lines[0] = "\(space)- \(lines[0].dropFirst(indent + 2))"
                return lines
            }
        case .map, .list, .scalar, .empty: return [space + inline]
        }
    }

    /// Whether the value has no map or list with maps or lists within, and fits on a line.
    private var isFlat: Bool { depth <= 1 && inline.count <= 90 }

    private var depth: Int {
        switch content {
        case .scalar, .empty: 0
        case .map(let entries): 1 + (entries.map(\.value.depth).max() ?? 0)
        case .list(let elements): 1 + (elements.map(\.depth).max() ?? 0)
        }
    }

    /// The value on one line.
    private var inline: String {
        switch content {
        case .empty: "~"
        case .scalar(let text, let plain): Self.scalar(text, plain: plain)
        case .list(let elements): "[" + elements.map(\.inline).joined(separator: ", ") + "]"
        case .map(let entries):
            "{"
                + entries.map { "\(Self.scalar($0.key, plain: true)): \($0.value.inline)" }.joined(
                    separator: ", ")
                + "}"
        }
    }

    /// Returns a text as it is where that is safe, otherwise in double quotes.
    private static func scalar(_ text: String, plain: Bool) -> String {
        let isSafe =
            plain && !text.isEmpty && text.first != " " && text.last != " "
            && text.unicodeScalars.allSatisfy {
                $0.properties.isAlphabetic || ("0"..."9").contains($0)
                    || "-_./()≤≥<=% ".unicodeScalars.contains($0)
            } && !"-.<=>%".contains(text.first!)
        if isSafe { return text }
        if plain, text.first == "." || text.first == "<",
            !text.contains(where: { ":#{}[],&*!|'\"\\`".contains($0) })
        {
            return text
        }
        return ConfigurationValue.quoted(text)
    }
}
