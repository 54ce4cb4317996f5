import Foundation

/// Python with the packages of `Tests/requirements.txt`, which `Deploy/install-dependencies.sh --test` installs.
public enum PythonPackages {
    /// Path of the interpreter; nil when the packages are not installed.
    public static let interpreter: String? = {
        let root = URL(filePath: #filePath).deletingLastPathComponent().deletingLastPathComponent()
            .deletingLastPathComponent()
        let directory = root.appending(path: ".build/python")
        // The script copies the requirements once all packages are there.
        let isComplete = FileManager.default.fileExists(
            atPath: directory.appending(path: "requirements.txt").path(percentEncoded: false))
        return isComplete ? directory.appending(path: "bin/python3").path(percentEncoded: false) : nil
    }()
}
