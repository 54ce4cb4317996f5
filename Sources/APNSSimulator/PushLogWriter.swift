import COpenSSL
import EventLoop
import Glibc
import HTTP2
import SluiceModel

/// The push log: one JSON object a line for each push. A line is written when its push is judged, which is before the
/// answer.
///
/// Members: `time` (ms since 1970), `apnsId`, `token` (lower-case hexadecimal) or `tokenHash` (see ``hash(ofToken:)``),
/// `topic`, `pushType`, `collapseId`, `status`, and `reason` if the status is not 200. Members without a value are left
/// out.
///
/// A broadcast's line has `requestId` and `channel` in place of `apnsId` and the token, and also `expiration` and
/// `priority`.
public enum PushLogEntry {
    /// Returns the first 16 bytes of the SHA-256 of the token's lower-case hexadecimal text, in hexadecimal.
    public static func hash(ofToken token: String) -> String {
        var writer = ByteWriter(minimumCapacity: 64)
        var token = token
        token.withUTF8 { appendHash(ofToken: UnsafeRawBufferPointer($0), to: &writer) }
        return writer.bytes.text
    }

    static func appendHash(ofToken token: UnsafeRawBufferPointer, to writer: inout ByteWriter) {
        withUnsafeTemporaryAllocation(byteCount: token.count + 32, alignment: 16) { buffer in
            for index in 0..<token.count { buffer[index] = token[index].lowerCase }
            let digest = (buffer.baseAddress! + token.count).assumingMemoryBound(to: UInt8.self)
            EVP_Digest(buffer.baseAddress, token.count, digest, nil, EVP_sha256(), nil)
            for index in 0..<16 {
                writer.append(hexDigits.utf8Start[Int(digest[index] >> 4)])
                writer.append(hexDigits.utf8Start[Int(digest[index] & 15)])
            }
        }
    }
}

private let hexDigits: StaticString = "0123456789abcdef"

extension UInt8 {
    /// The lower-case form of an ASCII letter.
    var lowerCase: UInt8 { (UInt8(ascii: "A")...UInt8(ascii: "Z")).contains(self) ? self | 0x20 : self }
}

/// Writes one shard's lines of the push log. All shards append whole lines to one file.
final class PushLogWriter: TurnEndHandler {
    private let loop: EventLoop
    /// Owned descriptor, opened for appending, so that the lines of several shards do not mix.
    private let fileDescriptor: Int32
    private let showsTokens: Bool
    private var lines = ByteWriter(minimumCapacity: 64 * 1_024)
    private var isTurnEndDue = false

    init(_ options: SimulatorOptions.PushLog, loop: EventLoop) throws {
        fileDescriptor = open(options.path, O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0o644)
        guard fileDescriptor >= 0 else {
            throw SimulatorError("push log “\(options.path)”: \(String(cString: strerror(errno)))")
        }
        showsTokens = options.showsTokens
        self.loop = loop
    }

    deinit {
        flush()
        close(fileDescriptor)
    }

    func add(_ request: PushRequest, topic: UnsafeRawBufferPointer?, reason: Reason, identifier: APNSID) {
        lines.append("{\"time\":")
        lines.append(decimal: wallClockMilliseconds())
        lines.append(",\"apnsId\":\"")
        lines.append(identifier)
        lines.append(showsTokens ? "\",\"token\":\"" : "\",\"tokenHash\":\"")
        if showsTokens {
            // The path is not checked in all cases, so a text that is no token is not copied.
            if request.checkDeviceToken() == .absent {
                for byte in request.deviceToken { lines.append(byte.lowerCase) }
            }
        } else {
            PushLogEntry.appendHash(ofToken: request.deviceToken, to: &lines)
        }
        lines.append("\"")
        add("topic", topic)
        add("pushType", request.pushTypeText)
        add("collapseId", request.collapseIdentifier)
        end(reason)
    }

    func add(_ broadcast: BroadcastRequest, reason: Reason, identifier: APNSID) {
        lines.append("{\"time\":")
        lines.append(decimal: wallClockMilliseconds())
        lines.append(",\"requestId\":\"")
        lines.append(identifier)
        lines.append("\"")
        add("channel", broadcast.channel)
        add("topic", broadcast.app)
        add("pushType", broadcast.pushTypeText)
        add("expiration", broadcast.expirationText)
        add("priority", broadcast.priorityText)
        end(reason)
    }

    /// Ends a line, and writes the lines at the latest when the loop's turn ends.
    private func end(_ reason: Reason) {
        lines.append(",\"status\":")
        lines.append(decimal: reason == .absent ? 200 : Int64(reason.status))
        if reason != .absent {
            lines.append(",\"reason\":\"")
            lines.append(reason.name)
            lines.append("\"")
        }
        lines.append("}\n")
        if lines.count >= 256 * 1_024 { flush() }
        if !isTurnEndDue {
            isTurnEndDue = true
            loop.atTurnEnd(self)
        }
    }

    private func add(_ name: StaticString, _ value: UnsafeRawBufferPointer?) {
        guard let value else { return }
        lines.append(",\"")
        lines.append(name)
        lines.append("\":")
        lines.append(jsonString: value)
    }

    func turnEnded() {
        isTurnEndDue = false
        flush()
    }

    private func flush() {
        var rest = lines.bytes
        while rest.count > 0 {
            let count = write(fileDescriptor, rest.baseAddress, rest.count)
            if count < 0, errno == EINTR { continue }
            guard count > 0 else { break }
            rest = UnsafeRawBufferPointer(rebasing: rest[count...])
        }
        lines.removeAll()
    }
}
