import EventLoop
import Glibc
import Synchronization

/// Watches the files of credentials, and calls its owner when one may have changed. Runs a thread of its own.
///
/// The directories are watched with inotify, because files are replaced by renaming, and Kubernetes replaces a link
/// beside them. Where inotify doesn't work, such as on network file systems, the files are looked at every half minute.
final class CredentialWatcher: Sendable {
    /// Steps after a change. A file that is being written is not judged yet.
    enum Step: Sendable {
        /// Something changed a moment ago, or a regular look is due.
        case look
        /// The files have been quiet for a while.
        case settled
    }

    /// Time without a further change before the first look, and before the look that reports faults, in milliseconds.
    private static let quietMilliseconds: Int32 = 300
    private static let settledMilliseconds: Int32 = 2000
    /// Longest time for which further changes postpone a look, in milliseconds.
    private static let longestPostponement: Int64 = 5000
    /// Time between two regular looks, in milliseconds.
    private static let regularMilliseconds: Int32 = 30_000

    /// Pipe that wakes the thread: its ends for reading and writing.
    private let wake: (reading: Int32, writing: Int32)
    private let isStopping = Atomic<Bool>(false)
    private let thread = Mutex<pthread_t?>(nil)

    init() {
        var ends: [Int32] = [-1, -1]
        if pipe(&ends) == 0 {
            for end in ends {
                _ = fcntl(end, F_SETFD, FD_CLOEXEC)
                _ = fcntl(end, F_SETFL, O_NONBLOCK)
            }
        }
        wake = (ends[0], ends[1])
    }

    deinit {
        for end in [wake.reading, wake.writing] where end >= 0 { close(end) }
    }

    /// Starts the thread. Call it once.
    ///
    /// - Parameters:
    ///   - files: returns the names of the files to watch; called before each wait.
    ///   - act: called on the thread.
    func start(files: @escaping @Sendable () -> Set<String>, act: @escaping @Sendable (Step) -> Void) {
        final class Box: Sendable {
            let body: @Sendable () -> Void
            init(_ body: @escaping @Sendable () -> Void) { self.body = body }
        }
        let box = Unmanaged.passRetained(Box { [self] in run(files, act) })
        var all = sigset_t()
        var previous = sigset_t()
        sigfillset(&all)
        // The thread inherits the mask, because signals are handled elsewhere.
        pthread_sigmask(SIG_SETMASK, &all, &previous)
        defer { pthread_sigmask(SIG_SETMASK, &previous, nil) }
        var new = pthread_t()
        let code = pthread_create(
            &new, nil,
            { argument in
                guard let argument else { return nil }
                Unmanaged<Box>.fromOpaque(argument).takeRetainedValue().body()
                return nil
            }, box.toOpaque())
        guard code == 0 else { return box.release() }
        thread.withLock { $0 = new }
    }

    /// Ends the thread and waits for it. Any thread but this one.
    func stop() {
        isStopping.store(true, ordering: .releasing)
        signal()
        let running = thread.withLock { thread in
            defer { thread = nil }
            return thread
        }
        if let running { pthread_join(running, nil) }
    }

    private func signal() {
        var byte: UInt8 = 1
        // A full pipe wakes the thread as well.
        _ = write(wake.writing, &byte, 1)
    }

    private func run(_ files: () -> Set<String>, _ act: (Step) -> Void) {
        let watch = DirectoryWatch()
        var wait = Self.regularMilliseconds
        var next = Step.look
        /// Time of the first change that no look has followed, in milliseconds; nil without such a change.
        var changedAt: Int64?
        while !isStopping.load(ordering: .acquiring) {
            watch.update(files())
            let isChanged = watch.wait(milliseconds: wait, wake: wake.reading)
            if isStopping.load(ordering: .acquiring) { return }
            let now = Int64(MonotonicTime.read().nanoseconds / 1_000_000)
            if isChanged, now < (changedAt ?? now) + Self.longestPostponement {
                // Further changes postpone the look, for a while.
                changedAt = changedAt ?? now
                (wait, next) = (Self.quietMilliseconds, .look)
                continue
            }
            changedAt = nil
            act(next)
            switch next {
            case .look where wait == Self.quietMilliseconds:
                (wait, next) = (Self.settledMilliseconds, .settled)
            case .look, .settled: (wait, next) = (Self.regularMilliseconds, .settled)
            }
        }
    }
}

/// The directories of some files, watched with inotify. Owned by one thread.
final class DirectoryWatch {
    private let descriptor = inotify_init1(Int32(IN_CLOEXEC | IN_NONBLOCK))
    /// Watched directories with their watch's number.
    private var watches: [String: Int32] = [:]

    deinit { if descriptor >= 0 { close(descriptor) } }

    /// Watches the directories of these files, and no others.
    func update(_ files: Set<String>) {
        guard descriptor >= 0 else { return }
        let directories = Set(files.map(Self.directory))
        for (directory, watch) in watches where !directories.contains(directory) {
            inotify_rm_watch(descriptor, watch)
            watches[directory] = nil
        }
        let events = UInt32(IN_CLOSE_WRITE | IN_MOVED_TO | IN_MOVED_FROM | IN_CREATE | IN_DELETE | IN_ATTRIB)
        for directory in directories where watches[directory] == nil {
            let watch = inotify_add_watch(descriptor, directory, events)
            if watch >= 0 { watches[directory] = watch }
        }
    }

    /// Waits for a change of a directory, for the wake or for the time. Returns whether a directory changed.
    func wait(milliseconds: Int32, wake: Int32) -> Bool {
        var polled = [
            pollfd(fd: wake, events: Int16(POLLIN), revents: 0),
            pollfd(fd: descriptor, events: Int16(POLLIN), revents: 0),
        ]
        let ready = poll(&polled, descriptor >= 0 ? 2 : 1, milliseconds)
        guard ready > 0 else { return false }
        if polled[0].revents != 0 {
            var bytes = [UInt8](repeating: 0, count: 64)
            while read(wake, &bytes, bytes.count) > 0 {}
        }
        guard polled[1].revents != 0 else { return false }
        var buffer = [UInt8](repeating: 0, count: 16 << 10)
        var isChanged = false
        while read(descriptor, &buffer, buffer.count) > 0 { isChanged = true }
        return isChanged
    }

    private static func directory(_ file: String) -> String {
        guard let slash = file.lastIndex(of: "/") else { return "." }
        return slash == file.startIndex ? "/" : String(file[..<slash])
    }
}
