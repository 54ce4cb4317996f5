import SluiceModel
import Testing

@Suite struct StateUpdateTests {
    private func state(_ type: PushType, _ payload: String, isBroadcast: Bool = false) -> StateUpdate? {
        payload.withBytes { bytes in
            let empty = UnsafeRawBufferPointer(start: nil, count: 0)
            return PushJob(
                deviceToken: empty, isBroadcast: isBroadcast, topic: empty, pushType: type,
                priority: .immediate, apnsID: APNSID(high: 0, low: 0), expiration: .unspecified,
                payload: bytes, createdMilliseconds: 0
            ).stateUpdate
        }
    }

    @Test func eventOfALiveActivityDecides() {
        #expect(state(.liveActivity, #"{"aps":{"timestamp":1,"event":"update"}}"#) == .update)
        #expect(state(.liveActivity, #"{ "x": {"event": "end"}, "aps" : { "event" : "end" } }"#) == .end)
        #expect(state(.liveActivity, #"{"aps":{"event":"start"}}"#) == nil)
        #expect(state(.liveActivity, #"{"aps":{"event":1}}"#) == nil)
        #expect(state(.liveActivity, #"{"aps":"update"}"#) == nil)
        #expect(state(.liveActivity, #"{"event":"update"}"#) == nil)
        #expect(state(.liveActivity, #"{"aps":{"event":"update"}}"#, isBroadcast: true) == nil)
    }

    @Test func widgetsAndControlsAlwaysHaveTheirWholeState() {
        #expect(state(.widgets, #"{"aps":{"content-changed":true}}"#) == .update)
        #expect(state(.controls, "{}") == .update)
        #expect(state(.alert, #"{"aps":{"event":"update"}}"#) == nil)
    }
}
