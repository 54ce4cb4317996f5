import CEpoll
import Glibc

/// Controls access to this process's memory, which contains keys.
public enum ProcessMemory {
    /// Whether core dumps are written, and other processes of the same user may attach or read the memory.
    public static var isDumpable: Bool { sluice_is_dumpable() == 1 }

    /// Allows or forbids dumps and access, for all threads and at once.
    /// - Returns: whether the change succeeded.
    @discardableResult
    public static func setDumpable(_ isDumpable: Bool) -> Bool {
        sluice_set_dumpable(isDumpable ? 1 : 0) == 0
    }
}
