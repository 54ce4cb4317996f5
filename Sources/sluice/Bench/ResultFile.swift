import Configuration
import Foundation
import LoadTest

/// Reads and writes results and pages of load tests.
enum ResultFile {
    /// Largest file that is read.
    private static let mostBytes = 512 << 20

    /// Reads a result. A directory stands for its `result.json`.
    static func read(_ name: String) throws(CommandFailure) -> RunResult {
        var path = name
        var isDirectory: ObjCBool = false
        if FileManager.default.fileExists(atPath: name, isDirectory: &isDirectory), isDirectory.boolValue {
            path = name.hasSuffix("/") ? "\(name)result.json" : "\(name)/result.json"
        }
        let bytes: [UInt8]
        do throws(BoundedFile.Failure) {
            bytes = try BoundedFile.read(path, limit: mostBytes)
        } catch {
            switch error {
            case .tooLarge: throw CommandFailure(.dataError, "\(path) is larger than \(mostBytes >> 20) MiB")
            case .unreadable(let reason):
                throw CommandFailure(
                    .dataError,
                    "can't read \(path): \(reason). Name a result.json of sluice bench, or its directory")
            }
        }
        let result: RunResult
        do {
            result = try JSONDecoder().decode(RunResult.self, from: Data(bytes))
        } catch {
            throw CommandFailure(.dataError, "\(path) is no result of sluice bench: \(explanation(error))")
        }
        if let fault = result.fault { throw CommandFailure(.dataError, "\(path): \(fault)") }
        return result
    }

    static func read(_ names: [String]) throws(CommandFailure) -> [RunResult] {
        var results: [RunResult] = []
        for name in names { results.append(try read(name)) }
        return results
    }

    /// Encodes a result.
    static func data(_ result: RunResult) throws -> Data {
        let encoder = JSONEncoder()
        encoder.outputFormatting = [.sortedKeys, .withoutEscapingSlashes]
        return try encoder.encode(result) + Data("\n".utf8)
    }

    static func write(_ data: Data, to path: String) throws(CommandFailure) {
        do {
            try data.write(to: URL(filePath: path), options: .atomic)
        } catch {
            throw CommandFailure(.unavailable, "can't write \(path): \(error.localizedDescription)")
        }
    }

    /// Names for results in a page: the file's, or its directory's for a `result.json`; unique.
    static func labels(_ names: [String]) -> [String] {
        var seen: [String: Int] = [:]
        return names.map { name in
            let url = URL(filePath: name).standardizedFileURL
            let file = url.lastPathComponent
            let label =
                file == "result.json"
                ? url.deletingLastPathComponent().lastPathComponent
                : file.hasSuffix(".json") ? String(file.dropLast(5)) : file
            seen[label, default: 0] += 1
            return seen[label] == 1 ? label : "\(label) (\(seen[label] ?? 0))"
        }
    }

    /// Place and kind of a mistake in JSON.
    private static func explanation(_ error: any Error) -> String {
        func place(_ context: DecodingError.Context) -> String {
            let path = context.codingPath.map { $0.intValue.map { "[\($0)]" } ?? ".\($0.stringValue)" }
                .joined()
            return path.isEmpty ? "" : "\(path.drop { $0 == "." }): "
        }
        return switch error as? DecodingError {
        case .keyNotFound(let key, let context): "\(place(context))the member \(key.stringValue) is absent"
        case .valueNotFound(_, let context): "\(place(context))the value is null"
        case .typeMismatch(let type, let context): "\(place(context))the value is no \(type)"
        case .dataCorrupted(let context): "\(place(context))\(context.debugDescription)"
        default: "\(error)"
        }
    }
}
