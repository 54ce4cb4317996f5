import Foundation
import TestSupport
import Testing

/// `--ready-file` of the commands that have one.
@Suite("Ready file")
struct ReadyFileTests {
    @Test func pathThatCannotBeWrittenIsAnErrorOfTheStart() throws {
        let directory = try TemporaryDirectory("ready")
        let pipe = directory.file("pipe")
        try #require(mkfifo(pipe, 0o600) == 0)
        try FileManager.default.createSymbolicLink(
            atPath: directory.file("link"), withDestinationPath: directory.file("elsewhere"))
        for path in [directory.file("none/ready"), pipe, directory.path, directory.file("link"), "/dev/null"]
        {
            for command in [["kafka"], ["simulator", "--port", "0"]] {
                let process = try ChildProcess(
                    Executables.sluice, command + ["--stop-with-input", "--ready-file", path])
                #expect(try process.wait() == .status(69), "\(command) \(path)")
                #expect(
                    process.standardError.contains("--ready-file: can't write \(path): "),
                    "\(process.standardError)")
            }
        }
        #expect(FileManager.default.fileExists(atPath: pipe))
        var status = stat()
        #expect(stat("/dev/null", &status) == 0 && status.st_mode & S_IFMT == S_IFCHR)
    }

    @Test(arguments: [false, true]) func onlyTheFileThatWasMadeIsRemoved(isReplaced: Bool) throws {
        let directory = try TemporaryDirectory("ready")
        let path = directory.file("ready")
        let process = try ChildProcess(
            Executables.sluice, ["kafka", "--stop-with-input", "--ready-file", path])
        try process.waits(for: "the file appears") { directory.read("ready") != nil }
        if isReplaced {
            try directory.write("another's", to: "other")
            try #require(rename(directory.file("other"), path) == 0)
        }
        process.closeInput()
        #expect(try process.wait() == .status(0))
        #expect(directory.read("ready") == (isReplaced ? "another's" : nil))
    }
}
