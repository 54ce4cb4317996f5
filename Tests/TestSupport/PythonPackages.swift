import Foundation

/// Python with the packages of `Tests/requirements.txt`, which `Deploy/install-dependencies.sh --test` installs.
public enum PythonPackages {
    /// Path of the interpreter; nil when the packages are not installed, or are others.
    public static let interpreter: String? = {
        let root = URL(filePath: #filePath).deletingLastPathComponent().deletingLastPathComponent()
            .deletingLastPathComponent()
        let directory = root.appending(path: ".build/python")
        // The script copies the requirements once all packages are there. An older copy has other packages.
        let wanted = try? Data(contentsOf: root.appending(path: "Tests/requirements.txt"))
        let installed = try? Data(contentsOf: directory.appending(path: "requirements.txt"))
        let isComplete = installed != nil && installed == wanted
        return isComplete ? directory.appending(path: "bin/python3").path(percentEncoded: false) : nil
    }()
}
