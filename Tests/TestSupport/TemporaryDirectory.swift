import Foundation

/// A new directory that is removed with its contents when the last reference is released.
public final class TemporaryDirectory: Sendable {
    public let path: String

    public init(_ label: String = "test") throws {
        var template = Array(
            "\(URL.temporaryDirectory.path(percentEncoded: false))sluice-\(label)-XXXXXX".utf8CString)
        guard let created = mkdtemp(&template) else {
            throw POSIXError(POSIXErrorCode(rawValue: errno) ?? .EIO)
        }
        path = String(cString: created)
    }

    deinit {
        try? FileManager.default.removeItem(atPath: path)
    }

    /// Path of an entry.
    public func file(_ name: String) -> String { "\(path)/\(name)" }

    /// Writes a file and returns its path.
    @discardableResult
    public func write(_ text: String, to name: String) throws -> String {
        let path = file(name)
        try text.write(toFile: path, atomically: true, encoding: .utf8)
        return path
    }

    /// The text of a file; nil when the file can't be read.
    public func read(_ name: String) -> String? {
        try? String(contentsOfFile: file(name), encoding: .utf8)
    }
}

/// The sources of this package, for tests that read files of the repository.
public enum Repository {
    public static let root: String = {
        // Tests/TestSupport/TemporaryDirectory.swift
        URL(filePath: #filePath).deletingLastPathComponent().deletingLastPathComponent()
            .deletingLastPathComponent().path(percentEncoded: false)
    }()

    public static func read(_ path: String) throws -> String {
        try String(contentsOfFile: "\(root)/\(path)", encoding: .utf8)
    }
}
