/// Type of an attachment by its first bytes. The limits are Apple's (`UNNotificationAttachment`).
enum AttachmentType: String, CaseIterable, Sendable {
    case jpeg = "image/jpeg"
    case png = "image/png"
    case gif = "image/gif"
    case aiff = "audio/aiff"
    case wav = "audio/wav"
    case mp3 = "audio/mpeg"
    case m4a = "audio/mp4"
    case mp4 = "video/mp4"

    /// Nil when the bytes begin like no known type.
    init?(_ bytes: some Collection<UInt8>) {
        let start = Array(bytes.prefix(12))
        func has(_ text: String, at offset: Int = 0) -> Bool {
            start.dropFirst(offset).starts(with: text.utf8)
        }
        if start.starts(with: [0xFF, 0xD8, 0xFF]) {
            self = .jpeg
        } else if start.starts(with: [0x89, 0x50, 0x4E, 0x47, 0x0D, 0x0A, 0x1A, 0x0A]) {
            self = .png
        } else if has("GIF87a") || has("GIF89a") {
            self = .gif
        } else if has("FORM"), has("AIFF", at: 8) || has("AIFC", at: 8) {
            self = .aiff
        } else if has("RIFF"), has("WAVE", at: 8) {
            self = .wav
        } else if has("ID3") || (start.count > 1 && start[0] == 0xFF && start[1] & 0xE6 == 0xE2) {
            self = .mp3
        } else if has("ftyp", at: 4) {
            self = has("M4A", at: 8) ? .m4a : .mp4
        } else {
            return nil
        }
    }

    /// Largest size in bytes.
    var limit: Int {
        switch self {
        case .jpeg, .png, .gif: 10 << 20
        case .aiff, .wav, .mp3, .m4a: 5 << 20
        case .mp4: AttachmentType.largest
        }
    }

    /// Largest size of any type, in bytes.
    static let largest = 50 << 20
}
