import Foundation
import Testing

@testable import SluiceModel

/// The schemas of the repository, and the script that validates documents against them.
enum Schemas {
    static let directory = URL(fileURLWithPath: #filePath)
        .deletingLastPathComponent().deletingLastPathComponent().deletingLastPathComponent()
        .appendingPathComponent("Schemas")

    struct Failure: Error, CustomStringConvertible {
        var description: String
    }

    /// The first Python with the modules that the script needs.
    static let python = Result<String, Failure> {
        var last = "no python3 was found"
        for candidate in ["python3", "/usr/bin/python3"] {
            let result = run(candidate, ["check"], input: Data())
            if result.status == 0 { return candidate }
            if result.status == 1 { throw Failure(description: result.output) }
            if result.status == 3 { last = result.errors }
        }
        throw Failure(
            description: "the schema tests need python3 with jsonschema and PyYAML; on Debian: "
                + "apt-get install python3 python3-jsonschema python3-yaml (\(last))")
    }

    /// A verdict per document: "valid", or the reason for its refusal.
    static func verdicts(_ documents: [[UInt8]], schema: String) throws -> [String] {
        let lines = documents.map { $0.map { byte in hexByte(byte) }.joined() + "\n" }.joined()
        let output = try script(["documents", schema], input: Data(lines.utf8))
        let verdicts = output.split(separator: "\n", omittingEmptySubsequences: false).dropLast().map(
            String.init)
        guard verdicts.count == documents.count else {
            throw Failure(description: "\(verdicts.count) verdicts for \(documents.count) documents")
        }
        return verdicts
    }

    /// The parsed asyncapi.yaml.
    static func asyncAPI() throws -> JSON { try JSON(Data(script(["asyncapi"], input: Data()).utf8)) }

    static func load(_ name: String) throws -> JSON {
        try JSON(Data(contentsOf: directory.appendingPathComponent("\(name).schema.json")))
    }

    private static func script(_ arguments: [String], input: Data) throws -> String {
        let result = run(try python.get(), arguments, input: input)
        guard result.status == 0 else { throw Failure(description: result.errors) }
        return result.output
    }

    private static func run(
        _ python: String, _ arguments: [String], input: Data
    ) -> (status: Int32, output: String, errors: String) {
        let files = FileManager.default.temporaryDirectory.appendingPathComponent(
            "sluice-schema-\(UUID().uuidString)")
        let names = ["in", "out", "err"].map { files.appendingPathComponent($0) }
        do {
            // Files rather than pipes, so that no amount of output blocks.
            try FileManager.default.createDirectory(at: files, withIntermediateDirectories: true)
            defer { try? FileManager.default.removeItem(at: files) }
            try input.write(to: names[0])
            try Data().write(to: names[1])
            try Data().write(to: names[2])
            let process = Process()
            process.executableURL = URL(fileURLWithPath: "/usr/bin/env")
            process.arguments = [python, directory.appendingPathComponent("validate.py").path] + arguments
            process.standardInput = try FileHandle(forReadingFrom: names[0])
            process.standardOutput = try FileHandle(forWritingTo: names[1])
            process.standardError = try FileHandle(forWritingTo: names[2])
            try process.run()
            process.waitUntilExit()
            return (
                process.terminationStatus, String(decoding: try Data(contentsOf: names[1]), as: UTF8.self),
                String(decoding: try Data(contentsOf: names[2]), as: UTF8.self)
            )
        } catch {
            return (127, "", "\(error)")
        }
    }

    private static func hexByte(_ byte: UInt8) -> String {
        String(decoding: [hexDigit(byte >> 4), hexDigit(byte & 15)], as: UTF8.self)
    }
}

extension Result where Failure == Schemas.Failure {
    fileprivate init(_ body: () throws -> Success) {
        do {
            self = .success(try body())
        } catch let failure as Schemas.Failure {
            self = .failure(failure)
        } catch {
            self = .failure(Schemas.Failure(description: "\(error)"))
        }
    }
}

/// A JSON tree for look-ups, immutable after its creation.
struct JSON {
    let value: Any

    init(_ data: Data) throws {
        value = try JSONSerialization.jsonObject(with: data, options: .fragmentsAllowed)
    }
    private init(value: Any) { self.value = value }

    subscript(path: String...) -> JSON {
        JSON(value: path.reduce(value) { ($0 as? [String: Any])?[$1] ?? NSNull() })
    }

    var names: Set<String> { Set((value as? [String: Any] ?? [:]).keys) }
    var elements: [JSON] { (value as? [Any] ?? []).map { JSON(value: $0) } }
    var strings: Set<String> { Set(elements.compactMap { $0.value as? String }) }
    var text: String? { value as? String }
    var integer: Int64? { (value as? NSNumber)?.int64Value }
    var exists: Bool { !(value is NSNull) }
    var data: Data {
        get throws { try JSONSerialization.data(withJSONObject: value, options: .fragmentsAllowed) }
    }
}
