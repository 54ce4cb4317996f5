import Foundation
import SluiceModel
import Synchronization

/// Asks workers' admin endpoints for pushes, all at the same time.
struct TraceWorkers: Sendable {
    var addresses: [AdminAddress]
    /// Longest wait for an answer.
    var patience: Duration

    /// Returns an answer for each address, in their order. Blocks for the patience and a little more.
    func ask(_ identifier: APNSID?, deviceToken: String?, record: RecordAddress? = nil) -> [WorkerReply] {
        var query = ["seconds=\(max(1, min(300, Int(patience / .seconds(1)))))"]
        if let identifier { query.append("apns-id=\(identifier)") }
        if let deviceToken { query.append("token=\(deviceToken)") }
        if let record { query.append("partition=\(record.partition)&offset=\(record.offset)") }
        let path = "/trace?" + query.joined(separator: "&")
        let replies = Replies(count: addresses.count)
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
        group.wait()
        return replies.all
    }

    private func reply(of address: AdminAddress, _ path: String, _ record: RecordAddress?) -> WorkerReply {
        let deadline = ContinuousClock.now + patience
        while true {
            let reply: WorkerReply
            do throws(AdminCall.Failure) {
                // The search itself has the patience.
                let answer = try AdminCall.get(path, from: address, limit: patience + .seconds(5))
                reply = WorkerReply(worker: "\(address)", answer, record: record)
            } catch {
                return WorkerReply(worker: "\(address)", failure: "\(error)")
            }
            guard reply.isBusy, .now < deadline else { return reply }
            Thread.sleep(forTimeInterval: 0.25)
        }
    }

    private final class Replies: Sendable {
        private let list: Mutex<[WorkerReply?]>

        init(count: Int) { list = Mutex(Array(repeating: nil, count: count)) }

        func set(_ index: Int, _ reply: WorkerReply) { list.withLock { $0[index] = reply } }

        var all: [WorkerReply] { list.withLock { $0.compactMap(\.self) } }
    }
}
