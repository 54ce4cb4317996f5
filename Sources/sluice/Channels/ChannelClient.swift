import APNS
import Foundation
import SluiceModel

/// Storage of a channel's broadcasts: `message-storage-policy`.
enum ChannelStorage: Int, CaseIterable {
    /// No broadcast is stored.
    case none = 0
    /// The newest broadcast is stored for devices that are offline.
    case newest = 1
}

/// A failed request of channel management.
struct ChannelError: Error, CustomStringConvertible {
    /// Kind of the failure, for the exit status.
    enum Kind: Equatable {
        /// No answer: network, TLS, or the server.
        case unavailable
        /// APNs refused the request.
        case refused(Reason)
        /// The answer can't be understood.
        case unreadable
    }

    var kind: Kind
    /// The fault and the remedy.
    var description: String

    /// Exit status of the command.
    var status: ExitStatus {
        switch kind {
        case .unavailable: .unavailable
        case .refused, .unreadable: .failure
        }
    }
}

/// Channel management of one app (APNs: "Sending channel management requests to APNs"). Blocks during requests.
struct ChannelClient {
    var client: RequestClient
    /// Bundle identifier of the app.
    var app: String
    /// Reports a wait before the next attempt, for people.
    var report: (_ text: String) -> Void = { _ in }
    /// Waits; replaced by tests.
    var sleep: (Duration) -> Void = { Thread.sleep(forTimeInterval: $0 / .seconds(1)) }

    /// Bytes of a list that are read: 10,000 channels have less than a tenth.
    private static let maximumList = 8 << 20

    /// Creates a channel and returns its identifier.
    func create(_ storage: ChannelStorage) throws(ChannelError) -> String {
        let body = #"{"message-storage-policy":\#(storage.rawValue),"push-type":"LiveActivity"}"#
        let answer = try send(.post, "channels", isRepeatable: false, body: Array(body.utf8))
        guard let channel = answer.channelID, !channel.isEmpty else {
            throw unreadable("the answer to the creation has no apns-channel-id", answer)
        }
        return channel
    }

    /// Returns the storage of a channel and its push type.
    func read(_ channel: String) throws(ChannelError) -> (storage: ChannelStorage, pushType: String) {
        struct Document: Decodable {
            var policy: Int
            var type: String?
            enum CodingKeys: String, CodingKey {
                case policy = "message-storage-policy"
                case type = "push-type"
            }
        }
        let answer = try send(.get, "channels", channel: channel)
        guard let document = try? JSONDecoder().decode(Document.self, from: Data(answer.body)),
            let storage = ChannelStorage(rawValue: document.policy)
        else { throw unreadable("the answer has no message-storage-policy of 0 or 1", answer) }
        return (storage, document.type ?? "LiveActivity")
    }

    /// Deletes a channel for good.
    func delete(_ channel: String) throws(ChannelError) {
        _ = try send(.delete, "channels", channel: channel)
    }

    /// Returns the identifiers of all channels.
    func list() throws(ChannelError) -> [String] {
        struct Document: Decodable { var channels: [String] }
        let answer = try send(.get, "all-channels")
        guard let document = try? JSONDecoder().decode(Document.self, from: Data(answer.body)) else {
            throw unreadable("the answer has no list of channels", answer)
        }
        return document.channels
    }

    // MARK: Inside

    /// - Parameter isRepeatable: whether a request that may have been processed can be sent again.
    private func send(
        _ method: RequestClient.Method, _ resource: String, channel: String? = nil, isRepeatable: Bool = true,
        body: [UInt8] = []
    ) throws(ChannelError) -> RequestClient.Answer {
        var headers: [RequestClient.Header] = [
            .init("apns-request-id", UUID().uuidString.lowercased())
        ]
        if let channel { headers.append(.init("apns-channel-id", channel)) }
        if !body.isEmpty { headers.append(.init("content-type", "application/json")) }
        var client = client
        client.maximumBody = Self.maximumList
        let request = RequestClient.Request(
            method, "/1/apps/\(app)/\(resource)", headers: headers, body: body)
        var retry = ChannelRetry(isRepeatable: isRepeatable)
        while true {
            let answer: RequestClient.Answer
            do throws(RequestClient.Failure) {
                answer = try client.send(request).answer
            } catch {
                throw unavailable(error, isRepeatable: isRepeatable)
            }
            if (200..<300).contains(answer.status) { return answer }
            switch retry.decide(answer.status, answer.reason, retryAfterSeconds: answer.retryAfterSeconds) {
            case .wait(let pause):
                report(
                    "APNs answered \(ChannelFault.name(answer.reason, answer.status)); next attempt in "
                        + "\(Int(pause / .seconds(1))) s")
                sleep(pause)
            case .giveUp(let cause):
                throw ChannelError(
                    kind: .refused(answer.reason),
                    description: ChannelFault.describe(
                        answer.reason, status: answer.status, requestID: answer.requestID)
                        + (cause.map { "; \($0)" } ?? ""))
            }
        }
    }

    private func unavailable(_ failure: RequestClient.Failure, isRepeatable: Bool) -> ChannelError {
        var text = "\(client.host):\(client.port): \(failure.message)"
        if let goAway = failure.goAway, goAway.reason != .absent, goAway.reason != .unknown {
            text += "; \(ChannelFault.remedy(goAway.reason))"
        } else if failure.stage == .answer, !isRepeatable {
            text += "; the channel may exist: compare `sluice channels list`"
        }
        return ChannelError(kind: .unavailable, description: text)
    }

    private func unreadable(_ text: String, _ answer: RequestClient.Answer) -> ChannelError {
        ChannelError(
            kind: .unreadable,
            description:
                "\(client.host):\(client.port) answered \(answer.status), but \(text); check host and port")
    }
}
