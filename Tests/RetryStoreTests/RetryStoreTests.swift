import RetryStore
import SluiceModel
import TestSupport
import Testing

@Suite struct RetryStoreTests {
    @Test func aPushComesBackAsItWasPut() throws {
        let directory = try TemporaryDirectory("store")
        let store = try RetryStore.make(directory)
        defer { store.close() }
        let partition = try store.partition(3)
        let push = TestPush(
            token: "0badcafe001122330badcafe00112233", payload: #"{"aps":{}}"#, partition: 3, offset: 42)
        let key = store.key(push)
        let result = try store.submitted { batch in
            push.withStored { batch.put(partition, key, due: 1000, replacingDue: nil, $0) }
            batch.load(partition, key.device)
            #expect(batch.count == 2)
        }
        #expect(result.error == nil)
        #expect(
            result.loaded == [
                Loaded(device: key.device, items: [.init(offset: 42, due: 1000, push: push.encoded())])
            ])
        #expect(try store.due(partition).entries == [DueEntry(due: 1000, key: key)])

        try store.submitted { batch in
            push.encoded().withUnsafeBytes {
                batch.put(partition, key, due: 2000, replacingDue: 1000, value: $0)
            }
        }
        #expect(try store.due(partition).entries == [DueEntry(due: 2000, key: key)])
        #expect(try store.loaded(partition, key.device).items.map(\.due) == [2000])
        try store.submitted { $0.remove(partition, key, due: 2000) }
        #expect(try store.due(partition).entries == [])
        #expect(try store.loaded(partition, key.device).items == [])
    }
}
