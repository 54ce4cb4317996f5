import Configuration
import Foundation
import Gateway
import RetryStore
import SluiceModel
import Synchronization

extension AdminEndpoints {
    /// Time that a search may take, in seconds, unless the request names another.
    private static let usualSeconds = 20
    private static let secondsAllowed = 1...300

    /// Answers `/trace?apns-id=` and `/trace?token=`: all that the worker has of a push, or of a device's pushes, in
    /// memory and store. Serves a single search at a time. No answer has a device token, a collapse identifier or a
    /// payload.
    func trace(_ request: AdminRequest) async -> AdminResponse {
        guard let worker, let tracing = worker.source.tracing else { return Self.starting }
        let query: TraceQuery
        let seconds: Int
        switch Self.read(request.query) {
        case .success(let read): (query, seconds) = read
        case .failure(let fault): return .error(400, fault.text)
        }
        guard isTracing.compareExchange(expected: false, desired: true, ordering: .relaxed).exchanged else {
            var response = AdminResponse.error(503, "another search is in progress; retry when it has ended")
            response.fields = [("Retry-After", "2")]
            return response
        }
        defer { isTracing.store(false, ordering: .relaxed) }
        let findings: TraceFindings
        do {
            findings = try await search(query, worker, tracing, until: .now + .seconds(seconds))
        } catch {
            return Self.failure(error)
        }
        let (status, document) = TraceDocument.answer(
            findings, of: query, jobsTopic: tracing.jobsTopic,
            worker: [
                "host": AllowedHosts.hostName, "process": Int(getpid()), "group": tracing.group,
                "version": BuildInfo.version,
            ],
            now: Int64(Date().timeIntervalSince1970 * 1000))
        var response = AdminResponse.json(status, document)
        if status == 503 { response.fields = [("Retry-After", "2")] }
        return response
    }

    /// Searches memory, then the store. A push that the store handed to memory meanwhile is found by a second look.
    private func search(
        _ query: TraceQuery, _ worker: SnapshotCache, _ tracing: TraceSource,
        until deadline: ContinuousClock.Instant
    ) async throws -> TraceFindings {
        let loops = worker.source.loops
        var findings = TraceFindings()
        func searchMemory() async {
            let patience = max(.milliseconds(1), min(deadline - .now, max(patience, .seconds(3))))
            findings.take(await tracing.search(query, loops: loops.count, for: patience), loops: loops)
        }
        await searchMemory()
        guard let store = worker.source.store else { return findings }
        guard query.deviceToken != nil || findings.pushes.isEmpty else {
            findings.store = .notNeeded
            return findings
        }
        let counted: Set<Int32>?
        do {
            counted = try await self.counted(worker, store)
        } catch is CancellationError {
            throw CancellationError()
        } catch {
            findings.store = .failed("\(error)")
            return findings
        }
        do {
            try await findings.search(
                store, query, counted: counted, chunk: Self.chunk, routes: tracing.routes, until: deadline)
        } catch let error as RetryStoreError {
            findings.store = .failed("\(error)")
        }
        if findings.pushes.isEmpty { await searchMemory() }
        findings.explainSuspended()
        return findings
    }

    /// Fault of a request, in words.
    private struct Fault: Error {
        var text: String
    }

    private static func read(_ query: [String: String]) -> Result<(TraceQuery, Int), Fault> {
        var wanted = TraceQuery()
        var seconds = usualSeconds
        for (name, value) in query {
            switch name {
            case "apns-id":
                guard let id = APNSID(text: value) else {
                    return .failure(Fault(text: "`apns-id` is a UUID in its canonical form"))
                }
                wanted.notification = id
            case "token":
                guard DeviceToken.isValid(value) else {
                    return .failure(Fault(text: "`token` is a device token: \(DeviceToken.grammar)"))
                }
                wanted.deviceToken = Array(value.utf8)
            case "partition":
                guard let number = Int32(value), number >= 0 else {
                    return .failure(Fault(text: "`partition` is a partition's number"))
                }
                wanted.partition = number
            case "offset":
                guard let number = Int64(value), number >= 0 else {
                    return .failure(Fault(text: "`offset` is an offset's number"))
                }
                wanted.offset = number
            case "seconds":
                guard let number = Int(value), secondsAllowed.contains(number) else {
                    return .failure(Fault(text: "`seconds` is a number from 1 to 300"))
                }
                seconds = number
            default:
                return .failure(
                    Fault(
                        text: "the parameters are `apns-id`, `token`, `partition`, `offset` and `seconds`"))
            }
        }
        guard wanted.notification != nil || wanted.deviceToken != nil else {
            return .failure(Fault(text: "`apns-id` or `token` is missing"))
        }
        guard wanted.offset == nil || wanted.partition != nil else {
            return .failure(Fault(text: "`offset` needs `partition`"))
        }
        return .success((wanted, seconds))
    }
}

extension TraceFindings {
    /// Searches the store's partitions, `chunk` items at once, until the deadline, or until an `apns-id` is found.
    /// - Parameter counted: partitions to look into; nil for all.
    fileprivate mutating func search(
        _ store: RetryStore, _ query: TraceQuery, counted: Set<Int32>?, chunk: Int, routes: TraceRoutes,
        until deadline: ContinuousClock.Instant
    ) async throws {
        let partitions = try await store.reading { $0.partitions }.filter {
            counted?.contains($0) != false && (query.partition == nil || query.partition == $0)
        }
        var extent = StoreExtent(partitions: partitions)
        for partition in partitions {
            var cursor: ItemKey?
            repeat {
                guard .now < deadline else {
                    extent.isComplete = false
                    self.store = .read(extent)
                    return
                }
                let after = cursor
                let part = try await store.reading { reader throws(RetryStoreError) in
                    try StorePart(
                        of: partition, after: after, from: reader, query, most: chunk, routes: routes)
                }
                for push in part.pushes { add(push) }
                extent.items += part.items
                extent.unreadable += part.unreadable
                if part.isCut { extent.isComplete = false }
                cursor = part.last
                if query.deviceToken == nil, !pushes.isEmpty {
                    self.store = .read(extent)
                    return
                }
            } while cursor != nil
        }
        self.store = .read(extent)
    }
}

/// A part of a partition's stored items, searched on the scan thread.
private struct StorePart: Sendable {
    var pushes: [TracedPush] = []
    /// Items read.
    var items = 0
    /// Items that could not be read as a push.
    var unreadable = 0
    /// Key to go on behind; nil at the end.
    var last: ItemKey?
    /// True when the device has more items than are read.
    var isCut = false

    init(
        of partition: Int32, after: ItemKey?, from reader: StoreReader, _ query: TraceQuery, most: Int,
        routes: TraceRoutes
    ) throws(RetryStoreError) {
        guard let token = query.deviceToken else {
            try reader.visitItems(of: partition, after: after) { item in
                take(item, query, partition, routes)
                last = item.key
                return items < most
            }
            if items < most { last = nil }
            return
        }
        let failure: RetryStoreError? = token.withUnsafeBytes { token in
            do throws(RetryStoreError) {
                try reader.visitItems(of: partition, token: token) { item in
                    isCut = items == most
                    guard !isCut else { return false }
                    take(item, query, partition, routes)
                    return true
                }
                return nil
            } catch {
                return error
            }
        }
        if let failure { throw failure }
    }

    private mutating func take(
        _ item: StoreReader.Item, _ query: TraceQuery, _ partition: Int32, _ routes: TraceRoutes
    ) {
        items += 1
        guard query.isPlace(partition, item.key.offset) else { return }
        withUnsafeTemporaryAllocation(byteCount: StoredPush.longestToken, alignment: 1) { text in
            guard let stored = try? StoredPush(decoding: item.push, tokenText: text) else {
                unreadable += 1
                return
            }
            guard query.notification.map({ $0 == stored.push.apnsID }) ?? true else { return }
            pushes.append(TracedPush(stored, due: item.due, routes: routes))
        }
    }
}
