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
        try loadWithPlaces(path: path, environment: environment).configuration
    }

    /// Loads a configuration like ``load(path:environment:)``, with the places of its settings.
    ///
    /// - Parameter checksFiles: false for a tool beside a worker, which has neither the worker's keys nor the variables of
    ///   its service. Files whose contents are settings, such as passwords of Kafka, are read in any case.
    public static func loadWithPlaces(
        path: String?, environment: [String: String] = ProcessInfo.processInfo.environment,
        checksFiles: Bool = true
    ) throws(ConfigurationError) -> (configuration: Configuration, places: SettingPlaces) {
        let text = if let path { try readText(path) } else { "" }
        let files = FileNames(
            directory: directory(of: path), access: checksFiles ? .all : .contents,
            credentialsDirectory: environment["CREDENTIALS_DIRECTORY"].flatMap { $0.isEmpty ? nil : $0 })
        return try interpret(text, name: path ?? "environment", files: files, environment: environment)
    }

    /// Returns the directory that relative names of a configuration file are relative to.
    static func directory(of path: String?) -> String {
        guard let path else { return FileManager.default.currentDirectoryPath }
        return URL(filePath: path).deletingLastPathComponent().path(percentEncoded: false)
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
            text, name: name, files: FileNames(directory: directory, access: .none),
            environment: environment
        ).configuration
    }

    private static func interpret(
        _ text: String, name: String, files: FileNames, environment: [String: String]
    ) throws(ConfigurationError) -> (configuration: Configuration, places: SettingPlaces) {
        let collector = ConfigurationCollector(name: name, files: files)
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
        return (configuration, collector.places)
    }

    /// Returns all settings with type, default and help text, in the order of the example.
    public static func reference() -> [ConfigurationSetting] {
        let specimen = """
            credentials: {a: {type: token, keys: [{}]}, b: {type: certificate}, c: {type: token}}
            apps: [{}]
            """
        let files = FileNames(directory: "/", access: .none)
        let collector = ConfigurationCollector(name: "reference", files: files)
        guard let document = try? ConfigurationValue.parse(specimen, name: "reference") else { return [] }
        _ = read(document, files: files, collector: collector)
        return collector.settings
    }

    /// Reads a document of at most ``ConfigurationDocument/mostBytes``.
    static func readText(_ path: String) throws(ConfigurationError) -> String {
        func failure(_ message: String) -> ConfigurationError {
            let location = ConfigurationProblem.Location.file(name: path, line: 0, column: 0)
            return ConfigurationError(problems: [
                ConfigurationProblem(key: "", location: location, message: message)
            ])
        }
        let bytes: [UInt8]
        do throws(BoundedFile.Failure) {
            bytes = try BoundedFile.read(path, limit: ConfigurationDocument.mostBytes)
        } catch {
            switch error {
            case .unreadable(let reason): throw failure(reason)
            case .tooLarge: throw failure(ConfigurationDocument.tooLarge)
            }
        }
        guard let text = String(validating: bytes, as: UTF8.self) else { throw failure("is not UTF-8 text") }
        return text
    }

    /// Returns mistakes in the order of their places.
    static func inOrder(_ problems: [ConfigurationProblem]) -> [ConfigurationProblem] {
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
