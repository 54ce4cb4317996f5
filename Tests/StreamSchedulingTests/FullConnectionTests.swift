import SluiceModel
import StreamScheduling
import Testing

@Suite struct FullConnectionTests {
    /// HTTP/2 never queues, so the run ends with the last free stream.
    @Test func connectionReportedFullDuringItsRunTakesNothing() {
        var scheduler = StreamScheduler(
            .init(connections: 1), notifications: NotificationTable(capacity: 10))
        for slot in UInt32(0)..<2 {
            scheduler.enqueue(slot: slot, app: 0, priority: .immediate, bytes: 1, now: 0)
        }
        scheduler.connectionChanged(0, inFlight: 0, streamsFree: 10, windowFree: 1 << 20, state: .ready)
        #expect(drain(&scheduler, limit: 1).map(\.slot) == [0])
        scheduler.connectionChanged(0, inFlight: 1, streamsFree: 0, windowFree: 1 << 20, state: .ready)
        #expect(drain(&scheduler) == [])
    }
}
