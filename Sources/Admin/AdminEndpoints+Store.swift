import Foundation
import RetryStore
import SluiceModel
import Synchronization

extension AdminEndpoints {
    // MARK: Summary

    /// Answers `/store/summary?partition=` with the document that `sluice inspect store --json` prints of a closed
    /// store. Serves a single summary at a time.
    func summary(_ request: AdminRequest) async -> AdminResponse {
        guard let worker else { return Self.starting }
        guard let store = worker.source.store else { return Self.noStore }
        var wanted: Int32?
        for (name, value) in request.query {
            guard name == "partition", let number = Int32(value), number >= 0 else {
                return .error(400, "the only parameter is `partition`, a number")
            }
            wanted = number
        }
        guard isSummarizing.compareExchange(expected: false, desired: true, ordering: .relaxed).exchanged
        else {
            var response = AdminResponse.error(429, "another summary is in progress; retry when it has ended")
            response.fields = [("Retry-After", "5")]
            return response
        }
        defer { isSummarizing.store(false, ordering: .relaxed) }
        do {
            return try await summarize(store, wanted, counted: try await counted(worker, store))
        } catch {
            return Self.failure(error)
        }
    }

    /// Entries read before the scan thread serves other readers.
    static let chunk = 4096

    /// Returns ``WorkerSnapshot/counted(in:)``. Asks the loops only where copies may be among the store's partitions.
    func counted(_ worker: SnapshotCache, _ store: RetryStore) async throws -> Set<Int32>? {
        guard store.isChangelogBacked else { return nil }
        let snapshot = await worker.snapshot()
        guard snapshot.intake != nil else {
            throw NoAnswer(text: snapshot.missing(of: worker.source.loops).joined(separator: "; "))
        }
        return snapshot.counted(in: store)
    }

    /// Failure of a worker that doesn't report its partitions.
    private struct NoAnswer: Error, CustomStringConvertible {
        var text: String
        var description: String { text }
    }

    private func summarize(
        _ store: RetryStore, _ wanted: Int32?, counted: Set<Int32>?
    ) async throws -> AdminResponse {
        let (topic, present) = try await store.reading { ($0.sourceTopic, $0.partitions) }
        let partitions = present.filter { counted?.contains($0) != false }
        if let wanted, !partitions.contains(wanted) {
            return .json(
                404,
                ["error": "the worker has no partition \(wanted)", "partitions": partitions.map { Int($0) }])
        }
        let chosen = wanted.map { [$0] } ?? partitions
        var summary = StoreSummary(now: Int64(Date().timeIntervalSince1970 * 1000))
        for partition in chosen {
            try await summary.readItems(of: partition, from: store, chunk: Self.chunk)
            try await summary.readMarks(of: partition, from: store)
            try await summary.readDevices(of: partition, from: store, chunk: Self.chunk)
        }
        return .json(200, summary.document(topic: topic, partitions: chosen))
    }

    // MARK: One device

    /// Answers `/store/device?token=` with the document that `sluice inspect store --device --json` prints. No answer
    /// has the token.
    func device(_ request: AdminRequest) async -> AdminResponse {
        guard let worker else { return Self.starting }
        guard let store = worker.source.store else { return Self.noStore }
        guard request.query.count == 1, let token = request.query["token"], DeviceToken.isValid(token) else {
            return .error(400, "the only parameter is `token`, a device token: \(DeviceToken.grammar)")
        }
        do {
            let counted = try await counted(worker, store)
            let device = try await store.reading { reader throws(RetryStoreError) in
                var device = StoredDevice()
                try device.read(token, from: reader, partitions: counted)
                return device
            }
            return .json(200, device.document)
        } catch {
            return Self.failure(error)
        }
    }

    static func failure(_ error: any Error) -> AdminResponse {
        switch error {
        case is CancellationError: .error(503, "cancelled")
        case RetryStoreError.closed: .error(503, "the worker is ending, and its store is closed")
        default: .error(503, "\(error)")
        }
    }
}

extension RetryStore {
    /// Returns the value that `body` reads on the scan thread. Throws ``RetryStoreError``, or `CancellationError` at
    /// once when the task is cancelled.
    func reading<Value: Sendable>(
        _ body: @escaping @Sendable (StoreReader) throws(RetryStoreError) -> Value
    ) async throws -> Value {
        try Task.checkCancellation()
        let reply = Reply<Result<Value, RetryStoreError>>()
        read(body) { reply.give($0) }
        guard let result = await reply.waitUnlessCancelled() else { throw CancellationError() }
        return try result.get()
    }
}

extension StoreSummary {
    /// Adds all items of a partition, `chunk` items at once.
    fileprivate mutating func readItems(of partition: Int32, from store: RetryStore, chunk: Int) async throws
    {
        var cursor: ItemKey?
        repeat {
            let (after, now) = (cursor, now)
            let (part, last) = try await store.reading { reader throws(RetryStoreError) in
                var part = StoreSummary(now: now)
                var last: ItemKey?
                try reader.visitItems(of: partition, after: after) { item in
                    part.add(item)
                    last = item.key
                    return part.items < chunk
                }
                return (part, part.items < chunk ? nil : last)
            }
            add(part)
            cursor = last
        } while cursor != nil
    }

    /// Reads a partition's marks at once. Marks are few, because they are removed when their records are committed.
    fileprivate mutating func readMarks(of partition: Int32, from store: RetryStore) async throws {
        marks += try await store.reading { reader throws(RetryStoreError) in
            var count = 0
            try reader.visitMarks(of: partition) { _ in
                count += 1
                return true
            }
            return count
        }
    }

    fileprivate mutating func readDevices(
        of partition: Int32, from store: RetryStore, chunk: Int
    ) async throws {
        var cursor: DeviceKey?
        repeat {
            let (after, now) = (cursor, now)
            let (part, last) = try await store.reading { reader throws(RetryStoreError) in
                var part = StoreSummary(now: now)
                var (last, count) = (DeviceKey?.none, 0)
                try reader.visitDevices(of: partition, after: after) { device in
                    part.add(device)
                    last = device.key
                    count += 1
                    return count < chunk
                }
                return (part, count < chunk ? nil : last)
            }
            add(part)
            cursor = last
        } while cursor != nil
    }
}
