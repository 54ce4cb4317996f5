import Foundation

extension Configuration {
    /// Reads a configuration file and the environment's overrides, and checks that the files it names can be read.
    ///
    /// - Parameters:
    ///   - path: A YAML or JSON file; nil when everything comes from the environment. Relative names in the file are
    ///     relative to the file's directory.
    ///   - environment: The process's environment.
    /// - Throws: `ConfigurationError` with every mistake.
    public static func load(
        path: String?, environment: [String: String] = ProcessInfo.processInfo.environment
    ) throws(ConfigurationError) -> Configuration {
        var text = ""
        var directory = FileManager.default.currentDirectoryPath
        if let path {
            text = try readText(path)
            directory = URL(filePath: path).deletingLastPathComponent().path(percentEncoded: false)
        }
        return try interpret(
            text, name: path ?? "environment", files: FileNames(directory: directory, mustExist: true),
            environment: environment)
    }

    /// Interprets a document without touching a file.
    ///
    /// - Parameters:
    ///   - name: The document's name in messages.
    ///   - directory: The directory that relative file names are relative to.
    public static func parse(
        _ text: String, name: String, directory: String = "/", environment: [String: String] = [:]
    ) throws(ConfigurationError) -> Configuration {
        try interpret(
            text, name: name, files: FileNames(directory: directory, mustExist: false),
            environment: environment)
    }

    private static func interpret(
        _ text: String, name: String, files: FileNames, environment: [String: String]
    ) throws(ConfigurationError) -> Configuration {
        let collector = ConfigurationCollector()
        let file = try ConfigurationValue.parse(text, name: name)
        let (document, unknown) = EnvironmentOverrides.apply(
            environment, to: file, problems: &collector.problems)
        var configuration = read(document, files: files, collector: collector)
        if configuration.kafka.instanceID == nil, let pod = environment["POD_NAME"], !pod.isEmpty {
            configuration.kafka.instanceID = pod
        }
        let variables = collector.settings.map(\.environmentVariable)
        for variable in unknown {
            let hint = Suggestion.hint(for: variable, among: variables)
            collector.problems.append(
                ConfigurationProblem(
                    key: "", location: .environment(variable: variable),
                    message: "names no setting\(hint); a name has the form SLUICE_<SECTION>__<SETTING>"))
        }
        guard collector.problems.isEmpty else {
            throw ConfigurationError(problems: inOrder(collector.problems))
        }
        return configuration
    }

    /// Returns all settings with type, default and help text, in the order of the example.
    public static func reference() -> [ConfigurationSetting] {
        let specimen = """
            credentials: {a: {type: token}, b: {type: certificate}}
            apps: [{}]
            """
        let collector = ConfigurationCollector()
        guard let document = try? ConfigurationValue.parse(specimen, name: "reference") else { return [] }
        _ = read(document, files: FileNames(directory: "/", mustExist: false), collector: collector)
        return collector.settings
    }

    private static func readText(_ path: String) throws(ConfigurationError) -> String {
        func failure(_ message: String) -> ConfigurationError {
            let location = ConfigurationProblem.Location.file(name: path, line: 0, column: 0)
            return ConfigurationError(problems: [
                ConfigurationProblem(key: "", location: location, message: message)
            ])
        }
        guard let data = FileManager.default.contents(atPath: path) else {
            throw failure(FileNames.unreadable(path) ?? "cannot be read")
        }
        guard let text = String(data: data, encoding: .utf8) else { throw failure("is not UTF-8 text") }
        return text
    }

    private static func inOrder(_ problems: [ConfigurationProblem]) -> [ConfigurationProblem] {
        func position(_ problem: ConfigurationProblem) -> (Int, Int) {
            switch problem.location {
            case .file(_, let line, let column): (line, column)
            case .environment: (Int.max, 0)
            }
        }
        return problems.enumerated().sorted { first, second in
            let a = position(first.element)
            let b = position(second.element)
            return a == b ? first.offset < second.offset : a < b
        }.map(\.element)
    }
}

/// Meaning of the file names in a configuration.
struct FileNames {
    /// Directory that relative names are relative to.
    var directory: String
    /// Whether each named file must exist and be readable, so that mistakes show before the first push.
    var mustExist: Bool

    func resolve(_ path: String) -> String {
        if path.isEmpty || path.hasPrefix("/") { return path }
        return URL(filePath: path, relativeTo: URL(filePath: directory, directoryHint: .isDirectory))
            .standardizedFileURL.path(percentEncoded: false)
    }

    /// Returns the fault of a file name, or nil.
    func check(_ path: String) -> String? {
        guard mustExist else { return nil }
        let resolved = resolve(path)
        return FileNames.unreadable(resolved).map { "\(resolved) \($0)" }
    }

    /// Returns the reason for which a file can't be read; nil when it can be read.
    static func unreadable(_ path: String) -> String? {
        var isDirectory: ObjCBool = false
        guard FileManager.default.fileExists(atPath: path, isDirectory: &isDirectory) else {
            return "does not exist"
        }
        if isDirectory.boolValue { return "is a directory, not a file" }
        return FileManager.default.isReadableFile(atPath: path) ? nil : "cannot be read: permission denied"
    }
}
