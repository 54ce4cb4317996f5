import CEpoll
import Glibc

/// Decides who may read this process's memory, which has keys.
public enum ProcessMemory {
    /// Reports whether core dumps are written, and other processes of the same user may attach or read the memory.
    public static var isDumpable: Bool { sluice_is_dumpable() == 1 }

    /// Allows or forbids that, for all threads and at once.
    /// - Returns: whether it is so now.
    @discardableResult
    public static func setDumpable(_ isDumpable: Bool) -> Bool {
        sluice_set_dumpable(isDumpable ? 1 : 0) == 0
    }
}
