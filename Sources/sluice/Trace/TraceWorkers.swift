import Foundation
import SluiceModel
import Synchronization

/// Asks workers' admin endpoints for pushes, all at the same time.
struct TraceWorkers: Sendable {
    var addresses: [AdminAddress]
    /// Longest wait for an answer.
    var patience: Duration

    /// Returns an answer for each address, in their order. Workers without an answer in time count as silent. Blocks for
    /// the patience and a little more, or until a stop is requested.
    func ask(
        _ identifier: APNSID?, deviceToken: String?, record: RecordAddress? = nil,
        isStopping: () -> Bool = { false }
    ) -> [WorkerReply] {
        var query = ["seconds=\(max(1, min(300, Int(patience / .seconds(1)))))"]
        if let identifier { query.append("apns-id=\(identifier)") }
        if let deviceToken { query.append("token=\(deviceToken)") }
        if let record { query.append("partition=\(record.partition)&offset=\(record.offset)") }
        let path = "/trace?" + query.joined(separator: "&")
        let replies = Replies(addresses)
        let group = DispatchGroup()
        for (index, address) in addresses.enumerated() {
            group.enter()
            let thread = Thread {
                replies.set(index, reply(of: address, path, record))
                group.leave()
            }
            thread.name = "trace"
            thread.start()
        }
        while group.wait(timeout: .now() + .milliseconds(50)) == .timedOut, !isStopping() {}
        return replies.all
    }

    private func reply(of address: AdminAddress, _ path: String, _ record: RecordAddress?) -> WorkerReply {
        let deadline = ContinuousClock.now + patience
        // The search itself has the patience; its answer takes a moment more.
        let end = deadline + min(patience, .seconds(5))
        while true {
            let reply: WorkerReply
            do throws(AdminCall.Failure) {
                let answer = try AdminCall.get(path, from: address, limit: end - .now)
                reply = WorkerReply(worker: "\(address)", answer, record: record)
            } catch {
                return WorkerReply(worker: "\(address)", failure: "\(error)")
            }
            guard reply.isBusy, .now < deadline else { return reply }
            Thread.sleep(forTimeInterval: 0.25)
        }
    }

    private final class Replies: Sendable {
        private let list: Mutex<[WorkerReply]>

        init(_ addresses: [AdminAddress]) {
            list = Mutex(
                addresses.map { WorkerReply(worker: "\($0)", failure: "no answer before the stop") })
        }

        func set(_ index: Int, _ reply: WorkerReply) { list.withLock { $0[index] = reply } }

        var all: [WorkerReply] { list.withLock { $0 } }
    }
}
