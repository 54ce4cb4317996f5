/// Files that service extensions attached. Bounded: the oldest file leaves first.
struct AttachmentStore: Sendable {
    struct File: Sendable {
        /// MIME type.
        var type: String
        var bytes: [UInt8]
    }

    private var files: [UInt64: File] = [:]
    /// Identifier of the next file.
    private var next: UInt64 = 1
    /// No file with a smaller identifier is kept.
    private var oldest: UInt64 = 1
    /// Sum of the files' bytes.
    private(set) var bytes = 0

    var count: Int { files.count }

    subscript(id: UInt64) -> File? { files[id] }

    /// Adds a file and returns its identifier; nil when it has a wrong type or is empty or too large.
    /// - Parameters:
    ///   - largest: largest file in bytes.
    ///   - room: largest sum of all files in bytes.
    mutating func add(_ file: File, largest: Int, room: Int) -> UInt64? {
        guard let kind = AttachmentKind(type: file.type), !file.bytes.isEmpty,
            file.bytes.count <= min(kind.largest, largest), file.bytes.count <= room
        else { return nil }
        while bytes > room - file.bytes.count, oldest < next {
            remove(oldest)
            oldest += 1
        }
        let id = next
        next += 1
        files[id] = file
        bytes += file.bytes.count
        return id
    }

    mutating func remove(_ id: UInt64) {
        guard let file = files.removeValue(forKey: id) else { return }
        bytes -= file.bytes.count
    }

    /// Removes all files. Identifiers are not used again.
    mutating func removeAll() {
        files = [:]
        bytes = 0
        oldest = next
    }
}

/// Kind of an attachment, with the system's limit.
enum AttachmentKind: Sendable {
    case image, audio, movie

    /// - Parameter type: MIME type, with or without parameters.
    init?(type: String) {
        let name = type.prefix { $0 != ";" && $0 != " " }.lowercased()
        switch name {
        case "image/jpeg", "image/gif", "image/png": self = .image
        case "audio/aiff", "audio/x-aiff", "audio/wav", "audio/x-wav", "audio/wave", "audio/vnd.wave",
            "audio/mpeg",
            "audio/mp3", "audio/mp4", "audio/m4a", "audio/x-m4a":
            self = .audio
        case "video/mpeg", "video/mpeg2", "video/mp4", "video/avi", "video/x-msvideo", "video/msvideo":
            self = .movie
        default: return nil
        }
    }

    /// Largest file in bytes.
    var largest: Int {
        switch self {
        case .image: 10 << 20
        case .audio: 5 << 20
        case .movie: 50 << 20
        }
    }
}
