/// Reading of other documents than the worker's configuration.
extension SectionReader {
    /// Reads a truth value; nil when it is absent.
    package func boolean(_ key: String, help: String) -> Bool? {
        scalar(key, kind: "true|false", default: nil, required: false, help: help) { text in
            switch text {
            case "true", "on", "yes": true
            case "false", "off", "no": false
            default: nil
            }
        }
    }

    /// Reads a text that is one of a list; nil when it is absent.
    package func word(_ key: String, of words: [String], help: String) -> String? {
        text(
            key, kind: words.joined(separator: "|"), help: help,
            check: { text in
                words.contains(text)
                    ? nil
                    : "`\(text)` is not one of \(words.joined(separator: ", "))\(Suggestion.hint(for: text, among: words))"
            })
    }

    /// Reads a list of texts that each are one of a list; nil when it is absent.
    package func words(_ key: String, of words: [String], help: String) -> [String]? {
        textsIfPresent(key, kind: "list of \(words.joined(separator: ", "))", mayBeEmpty: true, help: help) {
            text in
            words.contains(text)
                ? nil
                : "`\(text)` is not one of \(words.joined(separator: ", "))\(Suggestion.hint(for: text, among: words))"
        }
    }

    /// Reads a list of texts; nil when it is absent.
    package func textsIfPresent(
        _ key: String, kind: String = "list of text", mayBeEmpty: Bool = false, help: String,
        check: (String) -> String? = { _ in nil }
    ) -> [String]? {
        let texts = texts(
            key, kind: kind, required: false, mayBeEmpty: mayBeEmpty, help: help, check: check)
        return contains(key) ? texts : nil
    }

    /// Reads a list of sections; nil when it is absent.
    package func sectionsIfPresent<Value>(_ key: String, _ body: (SectionReader) -> Value?) -> [Value]? {
        guard contains(key) else {
            known.append(key)
            return nil
        }
        return sections(key, help: "each element is a map of settings", body)
    }

    /// Reads a section; nil when it is absent.
    package func sectionIfPresent<Value>(_ key: String, _ body: (SectionReader) -> Value) -> Value? {
        guard contains(key) else {
            known.append(key)
            return nil
        }
        return section(key, body)
    }

    /// Reads a map from freely chosen names to texts; nil when it is absent. Texts may be empty.
    package func textMap(_ key: String, help: String) -> [String: String]? {
        guard let value = look(key, kind: "map of text", default: nil, required: false, help: help) else {
            return nil
        }
        guard case .map(let entries) = value.content else {
            problem(key, "must be a map from names to texts, but is \(value.kind)")
            return nil
        }
        var texts: [String: String] = [:]
        for entry in entries {
            guard case .scalar(let text, _) = entry.value.content else {
                collector.problems.append(
                    ConfigurationProblem(
                        key: "\(path(key)).\(entry.key)", location: entry.value.location,
                        message: "must be a text, but is \(entry.value.kind)"))
                continue
            }
            texts[entry.key] = text
        }
        return texts
    }

    /// Marks all keys of the section as known, because its kind is not known.
    package func acceptAll() { acceptRest() }

    /// Returns a value without any judgement; nil when it is absent.
    package func value(_ key: String, kind: String, help: String) -> ConfigurationValue? {
        look(key, kind: kind, default: nil, required: false, help: help)
    }
}
