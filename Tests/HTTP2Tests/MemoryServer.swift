import CNghttp2
import SluiceModel
import TestSupport

/// nghttp2's server session in memory, which answers at random. Confined to one test and one thread.
final class MemoryServer {
    struct Request {
        var tag: UInt32?
        var content: [UInt8] = []
        var isComplete = false
        var answer: [UInt8] = []
        var answered = 0
    }

    private(set) var session: OpaquePointer?
    var random: SeededGenerator
    var requests: [Int32: Request] = [:]
    /// Answers by the request's tag; status 0 stands for a reset.
    var answers: [UInt32: (status: Int, body: [UInt8])] = [:]
    /// Our violations that nghttp2 has reported.
    var complaints: [String] = []
    var openNow = 0
    var mostOpen = 0

    init(seed: UInt64) {
        random = SeededGenerator(seed: seed)
        var callbacks: OpaquePointer?
        nghttp2_session_callbacks_new(&callbacks)
        nghttp2_session_callbacks_set_on_begin_headers_callback(callbacks) { _, frame, data in
            let server = MemoryServer.from(data)
            if frame!.pointee.headers.cat == NGHTTP2_HCAT_REQUEST {
                server.requests[frame!.pointee.hd.stream_id] = Request()
                server.openNow += 1
                server.mostOpen = max(server.mostOpen, server.openNow)
            }
            return 0
        }
        nghttp2_session_callbacks_set_on_header_callback(callbacks) {
            _, frame, name, nameCount, value, count, _, data in
            let name = String(decoding: UnsafeBufferPointer(start: name, count: nameCount), as: UTF8.self)
            let value = String(decoding: UnsafeBufferPointer(start: value, count: count), as: UTF8.self)
            if name == "apns-id" {
                MemoryServer.from(data).requests[frame!.pointee.hd.stream_id]?.tag = UInt32(
                    value.dropFirst(3))
            }
            return 0
        }
        nghttp2_session_callbacks_set_on_data_chunk_recv_callback(callbacks) {
            _, _, stream, bytes, count, data in
            MemoryServer.from(data).requests[stream]?.content += UnsafeBufferPointer(
                start: bytes, count: count)
            return 0
        }
        nghttp2_session_callbacks_set_on_frame_recv_callback(callbacks) { _, frame, data in
            let header = frame!.pointee.hd
            if header.type <= 1, header.flags & 1 != 0 {
                MemoryServer.from(data).requests[header.stream_id]?.isComplete = true
            }
            return 0
        }
        nghttp2_session_callbacks_set_on_stream_close_callback(callbacks) { _, stream, _, data in
            let server = MemoryServer.from(data)
            if server.requests.removeValue(forKey: stream) != nil { server.openNow -= 1 }
            return 0
        }
        nghttp2_session_callbacks_set_on_invalid_frame_recv_callback(callbacks) { _, frame, code, data in
            // A refused stream is no violation, because we haven't acknowledged its limit yet. Above an
            // acknowledged limit nghttp2 ends the connection.
            if code != NGHTTP2_ERR_REFUSED_STREAM.rawValue {
                MemoryServer.from(data).complaints.append("frame of type \(frame!.pointee.hd.type): \(code)")
            }
            return 0
        }
        // The tests' requests have no authority.
        var option: OpaquePointer?
        nghttp2_option_new(&option)
        nghttp2_option_set_no_http_messaging(option, 1)
        nghttp2_session_server_new2(
            &session, callbacks, Unmanaged.passUnretained(self).toOpaque(), option)
        nghttp2_option_del(option)
        nghttp2_session_callbacks_del(callbacks)
    }

    deinit {
        nghttp2_session_del(session)
    }

    private static func from(_ data: UnsafeMutableRawPointer?) -> MemoryServer {
        Unmanaged<MemoryServer>.fromOpaque(data!).takeUnretainedValue()
    }

    // MARK: Bytes

    func receive(_ bytes: UnsafeRawBufferPointer) {
        let used = nghttp2_session_mem_recv(
            session, bytes.bindMemory(to: UInt8.self).baseAddress, bytes.count)
        if used != bytes.count { complaints.append("mem_recv: \(used)") }
    }

    func output() -> [UInt8] {
        var result: [UInt8] = []
        while true {
            var data: UnsafePointer<UInt8>?
            let count = nghttp2_session_mem_send(session, &data)
            guard count > 0 else { return result }
            result += UnsafeBufferPointer(start: data, count: count)
        }
    }

    // MARK: Actions

    func settings(_ values: [(nghttp2_settings_id, UInt32)]) {
        let entries = values.map { nghttp2_settings_entry(settings_id: Int32($0.0.rawValue), value: $0.1) }
        nghttp2_submit_settings(session, 0, entries, entries.count)
    }

    func chance(_ of: Int) -> Bool { Int.random(in: 0..<of, using: &random) == 0 }

    /// Answers some complete requests, and rarely one whose content is still arriving.
    func answerSome() {
        for stream in requests.keys.sorted() {
            guard let request = requests[stream], let tag = request.tag, answers[tag] == nil,
                chance(request.isComplete ? 2 : 20)
            else { continue }
            switch Int.random(in: 0..<10, using: &random) {
            case 0:
                answers[tag] = (0, [])
                nghttp2_submit_rst_stream(session, 0, stream, chance(2) ? 7 : 2)
            case 1...6:
                answers[tag] = (200, [])
                respond(stream, "200", body: nil)
            default:
                let count = Int.random(in: 0..<(chance(5) ? 20_000 : 300), using: &random)
                let body = (0..<count).map { UInt8(truncatingIfNeeded: $0 &+ Int(tag)) }
                answers[tag] = (410, body)
                if chance(3) { respond(stream, "103", body: nil, isFinal: false) }
                respond(stream, "410", body: body)
            }
        }
    }

    private func respond(_ stream: Int32, _ status: String, body: [UInt8]?, isFinal: Bool = true) {
        let fields = [(":status", status), ("apns-id", "\(UInt32.random(in: 0..<9, using: &random))")]
        let copies = fields.map { (Array($0.0.utf8), Array($0.1.utf8)) }
        var pairs: [nghttp2_nv] = []
        // The arrays live until nghttp2 has copied names and values.
        let pointers = copies.map { name, value in
            let bytes = UnsafeMutableBufferPointer<UInt8>.allocate(capacity: name.count + value.count)
            _ = bytes.initialize(from: name + value)
            pairs.append(
                nghttp2_nv(
                    name: bytes.baseAddress, value: bytes.baseAddress! + name.count, namelen: name.count,
                    valuelen: value.count, flags: 0))
            return bytes
        }
        defer { pointers.forEach { $0.deallocate() } }
        guard isFinal else {
            nghttp2_submit_headers(session, 0, stream, nil, pairs, pairs.count, nil)
            return
        }
        guard let body else {
            nghttp2_submit_response(session, stream, pairs, pairs.count, nil)
            return
        }
        requests[stream]?.answer = body
        var provider = nghttp2_data_provider()
        provider.read_callback = { _, stream, buffer, length, flags, _, data in
            let server = MemoryServer.from(data)
            guard let request = server.requests[stream] else { return 0 }
            let rest = request.answer[request.answered...]
            let count = min(length, rest.count, Int.random(in: 1..<3000, using: &server.random))
            for (index, byte) in rest.prefix(count).enumerated() { buffer![index] = byte }
            server.requests[stream]!.answered += count
            if count == rest.count { flags!.pointee |= NGHTTP2_DATA_FLAG_EOF.rawValue }
            return count
        }
        nghttp2_submit_response(session, stream, pairs, pairs.count, &provider)
    }
}
