import Glibc

/// Limit of the files and sockets that this process may have open.
public enum ProcessFiles {
    /// Most open descriptors; 256 when the system doesn't report the limit.
    public static var limit: Int {
        var limit = rlimit()
        guard getrlimit(__rlimit_resource_t(RLIMIT_NOFILE.rawValue), &limit) == 0 else { return 256 }
        return Int(clamping: limit.rlim_cur)
    }
}
