import Configuration
import DeliveryCore
import Glibc

/// File that keeps the switches of one worker: the records of all scopes, with an empty line between two.
struct SwitchFile: Sendable {
    let path: String

    /// Reason for which the file can't be used: the fault, its place, and the remedy.
    struct Failure: Error, CustomStringConvertible {
        var description: String
    }

    /// Largest size in bytes; all scopes fit with their longest texts.
    private static let most = 8 << 20

    /// Whether the file is there.
    var exists: Bool { access(path, F_OK) == 0 }

    /// Reads the file; a missing file has no records.
    func read() throws(Failure) -> [SwitchRecord] {
        let bytes: [UInt8]
        do throws(BoundedFile.Failure) {
            guard access(path, F_OK) == 0 || errno != ENOENT else { return [] }
            bytes = try BoundedFile.read(path, limit: Self.most)
        } catch {
            switch error {
            case .unreadable(let reason): throw Failure(description: "the switches' file \(path) \(reason)")
            case .tooLarge: throw damaged("it is larger than \(Self.most >> 20) MB")
            }
        }
        var records: [SwitchRecord] = []
        for (number, block) in Self.blocks(bytes).enumerated() {
            guard let record = block.withUnsafeBytes({ SwitchRecord($0) }) else {
                throw damaged("record \(number + 1) is not readable")
            }
            records.append(record)
        }
        return records
    }

    private func damaged(_ fault: String) -> Failure {
        Failure(
            description:
                "the switches' file \(path) is damaged: \(fault); mend it, or delete it, which resumes all that it pauses"
        )
    }

    private static func blocks(_ bytes: [UInt8]) -> [[UInt8]] {
        var blocks: [[UInt8]] = [[]]
        for line in bytes.split(separator: UInt8(ascii: "\n"), omittingEmptySubsequences: false) {
            if line.isEmpty {
                blocks.append([])
            } else {
                blocks[blocks.count - 1] += line + [UInt8(ascii: "\n")]
            }
        }
        return blocks.filter { !$0.isEmpty }
    }

    /// Replaces the file's content. The new content is on the disk when this returns. Blocks.
    func write(_ records: [SwitchRecord]) throws(Failure) {
        let text = records.map(\.text).joined(separator: "\n")
        let new = path + ".new"
        let descriptor = open(new, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0o600)
        guard descriptor >= 0 else { throw failure("open \(new)") }
        var rest = Array(text.utf8)[...]
        while !rest.isEmpty {
            let count = rest.withUnsafeBytes { Glibc.write(descriptor, $0.baseAddress, $0.count) }
            if count < 0, errno == EINTR { continue }
            guard count > 0 else {
                let failure = failure("write \(new)")
                close(descriptor)
                throw failure
            }
            rest = rest.dropFirst(count)
        }
        let isSynced = fsync(descriptor) == 0
        let failure = failure("sync \(new)")
        close(descriptor)
        guard isSynced else { throw failure }
        guard rename(new, path) == 0 else { throw self.failure("replace \(path)") }
        syncDirectory()
    }

    /// Syncs the directory, so that the renamed file outlives a crash of the system.
    private func syncDirectory() {
        let directory = path.lastIndex(of: "/").map { String(path[..<$0]) } ?? "."
        let descriptor = open(directory.isEmpty ? "/" : directory, O_RDONLY | O_DIRECTORY | O_CLOEXEC)
        guard descriptor >= 0 else { return }
        fsync(descriptor)
        close(descriptor)
    }

    /// Removes the file, because the control topic has its records.
    func remove() {
        unlink(path)
        syncDirectory()
    }

    private func failure(_ action: String) -> Failure {
        Failure(description: "can't \(action): \(String(cString: strerror(errno)))")
    }
}
