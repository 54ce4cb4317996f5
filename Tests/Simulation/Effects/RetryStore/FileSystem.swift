import CRocksDB
import EventLoop
import Glibc

// System calls of the sources, over the simulation's disks. A function of this module precedes an imported
// function of the same name and type.

/// The simulated disk of a store's directory.
public typealias SimulatedDisk = CRocksDB.SimulatedDisk

func mkdir(_ path: UnsafePointer<CChar>, _: mode_t) -> Int32 {
    let disk = SimulatedDisk.at(String(cString: path))
    if let code = disk.directoryError { return failed(code) }
    if disk.exists { return failed(EEXIST) }
    disk.exists = true
    return 0
}

func stat(_ path: UnsafePointer<CChar>, _ status: UnsafeMutablePointer<stat>) -> Int32 {
    guard let disk = SimulatedDisk.existing(String(cString: path)) else { return failed(ENOENT) }
    if let code = disk.directoryError { return failed(code) }
    status.pointee = Glibc.stat()
    status.pointee.st_mode = S_IFDIR | 0o700
    return 0
}

func lstat(_: UnsafePointer<CChar>, _ status: UnsafeMutablePointer<stat>) -> Int32 {
    status.pointee = Glibc.stat()
    status.pointee.st_mode = S_IFREG | 0o600
    return 0
}

func access(_ path: UnsafePointer<CChar>, _: Int32) -> Int32 {
    SimulatedDisk.existing(String(cString: path)) == nil ? failed(ENOENT) : 0
}

func chmod(_: UnsafePointer<CChar>, _: mode_t) -> Int32 { 0 }

func statvfs(_ path: UnsafePointer<CChar>, _ status: UnsafeMutablePointer<statvfs>) -> Int32 {
    guard let disk = SimulatedDisk.existing(String(cString: path)) else { return failed(ENOENT) }
    status.pointee = Glibc.statvfs()
    status.pointee.f_frsize = 1
    status.pointee.f_bavail = UInt(disk.freeBytes)
    return 0
}

// MARK: Directories

private final class Listing {
    var names: ArraySlice<String>
    let entry = UnsafeMutablePointer<dirent>.allocate(capacity: 1)

    init(_ names: [String]) { self.names = names[...] }
    deinit { entry.deallocate() }
}

func opendir(_ path: UnsafePointer<CChar>) -> OpaquePointer! {
    guard let disk = SimulatedDisk.existing(String(cString: path)) else {
        errno = ENOENT
        return nil
    }
    if let code = disk.directoryError {
        errno = code
        return nil
    }
    // A directory has no order.
    let names = Scheduler.current.below(2) == 0 ? disk.files.names : disk.files.names.reversed()
    return OpaquePointer(Unmanaged.passRetained(Listing(names)).toOpaque())
}

func readdir(_ listing: OpaquePointer) -> UnsafeMutablePointer<dirent>! {
    let listing: Listing = object(listing)
    guard let name = listing.names.popFirst() else { return nil }
    withUnsafeMutableBytes(of: &listing.entry.pointee.d_name) {
        $0.copyBytes(from: name.utf8)
        $0[name.utf8.count] = 0
    }
    return listing.entry
}

@discardableResult
func closedir(_ listing: OpaquePointer) -> Int32 {
    Unmanaged<Listing>.fromOpaque(UnsafeRawPointer(listing)).release()
    return 0
}

// MARK: Files

/// Files of a directory that are open, by descriptor.
private final class OpenFiles {
    /// Without a log: the directory itself, or another file.
    var all: [Int32: (disk: SimulatedDisk, log: LogFile?)] = [:]
    var next: Int32 = 2_000_000

    static var current: OpenFiles {
        let scheduler = Scheduler.current
        if let files = scheduler.parts[ObjectIdentifier(Self.self)] as? OpenFiles { return files }
        let files = OpenFiles()
        scheduler.parts[ObjectIdentifier(Self.self)] = files
        return files
    }
}

func open(_ path: UnsafePointer<CChar>, _: Int32) -> Int32 {
    let path = String(cString: path)
    guard let slash = path.lastIndex(of: "/"), let disk = SimulatedDisk.existing(String(path[..<slash]))
    else {
        return failed(ENOENT)
    }
    if let code = disk.directoryError { return failed(code) }
    let name = String(path[path.index(after: slash)...])
    let log = disk.files.log(name)
    guard log != nil || name.isEmpty || disk.files.names.contains(name) else { return failed(ENOENT) }
    let files = OpenFiles.current
    files.next += 1
    files.all[files.next] = (disk, log)
    return files.next
}

@discardableResult
func close(_ file: Int32) -> Int32 {
    OpenFiles.current.all[file] = nil
    return 0
}

func fstat(_ file: Int32, _ status: UnsafeMutablePointer<stat>) -> Int32 {
    status.pointee = Glibc.stat()
    status.pointee.st_size = Int(OpenFiles.current.all[file]?.log?.size ?? 0)
    return 0
}

func fdatasync(_ file: Int32) -> Int32 {
    guard let (disk, log) = OpenFiles.current.all[file] else { return failed(EBADF) }
    let (scheduler, files, end) = (Scheduler.current, disk.files, log?.end ?? 0)
    let logs = files.logs
    let process = scheduler.process
    scheduler.sleep(disk.draw(disk.durations.sync))
    // A process that was killed doesn't learn of the end.
    guard process?.isAlive != false, files === disk.files else { return failed(EIO) }
    if disk.faults.failsSyncs {
        if disk.faults.dropsUnsynced { log?.dropUnsynced() }
        return failed(EIO)
    }
    if let log { log.wasSynced(end) } else { for log in logs { log.isNamed = true } }
    return 0
}

/// Tells who has the lock of a database.
func fcntl(_ file: Int32, _: Int32, _ lock: UnsafeMutableRawPointer) -> Int32 {
    guard let (disk, _) = OpenFiles.current.all[file] else { return failed(EBADF) }
    lock.assumingMemoryBound(to: flock.self).pointee.l_type = Int16(disk.isInUse ? F_WRLCK : F_UNLCK)
    return 0
}

private func failed(_ code: Int32) -> Int32 {
    errno = code
    return -1
}

// MARK: Threads

@discardableResult
func usleep(_ microseconds: UInt32) -> Int32 {
    Scheduler.current.sleep(UInt64(microseconds) * 1_000)
    return 0
}

/// Starts no thread: RocksDB's threads are events of the scheduler.
// swift-format-ignore: AlwaysUseLowerCamelCase
func pthread_create(
    _: UnsafeMutablePointer<pthread_t>, _: UnsafePointer<pthread_attr_t>?,
    _: @convention(c) (UnsafeMutableRawPointer?) -> UnsafeMutableRawPointer?, _: UnsafeMutableRawPointer?
) -> Int32 { EAGAIN }
