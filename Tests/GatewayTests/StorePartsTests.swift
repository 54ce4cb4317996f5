import DeliveryCore
import EventLoop
import RetryStore
import SluiceModel
import TestSupport
import Testing

@testable import Gateway

/// Parts of the store that an intake has open.
struct StorePartsTests {
    private func opened(_ store: RetryStore, _ partition: Int32) throws -> StorePartition {
        let answer = BlockingAnswer<Result<StorePartition, RetryStoreError>>()
        store.open(partition: partition) { answer.set($0) }
        return try answer.wait().get()
    }

    @Test func reportsOfAnEarlierPartAreNotTakenForThoseOfTheNext() throws {
        let directory = try TemporaryDirectory("parts")
        let store = try RetryStore(.init(directory: directory.path, sourceTopic: "jobs"))
        defer { store.close() }
        let parts = StoreParts()
        let attempt = PartitionRestore.Attempt(partition: 1, ticket: 7)
        #expect(parts.begin([attempt]).isEmpty, "the partition isn't open")

        let (first, other) = (try opened(store, 1), try opened(store, 2))
        parts.keep(first)
        let starts = parts.begin([attempt])
        #expect(starts.map(\.handle.number) == [1] && starts.allSatisfy { $0.position == nil })
        #expect(parts.restoreEnded(1, other) == nil, "the report is of another part")
        #expect(parts.restoreEnded(1, first) == attempt)
        #expect(parts.restoreEnded(1, first) == nil, "an attempt ends once")

        _ = parts.begin([attempt])
        parts.cancelRestores([1])
        #expect(parts.restoreEnded(1, first) == nil)
        parts.keep(other)
        parts.forgetAll(except: [2])
        #expect(parts.handle(of: 1) == nil && parts.handle(of: 2) === other)
        parts.release(2)
        #expect(parts.handle(of: 2) == nil)
    }

    @Test func marksAreTakenOnce() {
        let parts = StoreParts()
        #expect(parts.takeMarks(of: 3).isEmpty)
        parts.keep([RelocationMark(offset: 5, apnsID: APNSID(high: 1, low: 2))], of: 3)
        #expect(parts.takeMarks(of: 3).count == 1 && parts.takeMarks(of: 3).isEmpty)
    }
}
