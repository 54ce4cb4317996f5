import SluiceModel
import Testing

@Suite struct JobEncoderTests {
    /// Every field that a cancel or device event can have, in both modes.
    @Test func controlJobsRoundTripInBothModes() throws {
        func control(_ kind: JobKind, _ change: (inout ControlDescription) -> Void) -> ControlDescription {
            var control = ControlDescription(kind, deviceToken: TestRecord.token)
            control.createdAtMilliseconds = 1_690_000_000_000
            change(&control)
            return control
        }
        let uuid = "00112233-4455-6677-8899-aabbccddeeff"
        let other = String(repeating: "cd", count: 32)
        let cases: [(ControlDescription, topic: String, detail: String)] = [
            (
                control(.cancel) {
                    $0.collapseIdentifier = #"a "b" \c"#
                    $0.topic = "com.example.app"
                }, "com.example.app", #"collapse a "b" \c"#
            ),
            (control(.cancel) { $0.apnsID = uuid }, "", "cancel \(uuid)"),
            (
                control(.device) {
                    $0.event = "online"
                    $0.occurredAtMilliseconds = 1_700_000_000_000
                }, "", "online"
            ),
            (
                control(.device) {
                    $0.event = "receipt"
                    $0.apnsID = uuid
                }, "", "receipt \(uuid)"
            ),
            (
                control(.device) {
                    $0.event = "token-changed"
                    $0.newDeviceToken = other
                }, "", "token \(other)"
            ),
        ]
        let decoder = TestDecoder()
        for (description, topic, detail) in cases {
            for job in [JobEncoder.binary(description), JobEncoder.structured(description)] {
                let decoded = try decoder.decode(TestRecord(job)).get()
                #expect(
                    decoded
                        == .control(
                            kind: description.kind, address: TestRecord.token, topic: topic, detail: detail))
            }
        }
    }

    /// Every field that a broadcast can have, in both modes.
    @Test func broadcastsRoundTripInBothModes() throws {
        var once = BroadcastDescription(
            channelIdentifier: "dHN0LXNyY2gtY2hubA==", topic: "com.example.app", payload: Array("{}".utf8))
        once.ttl = 0
        var full = once
        full.ttl = nil
        full.expiration = 1_900_000_000
        full.priority = 5
        full.apnsID = "00112233-4455-6677-8899-aabbccddeeff"
        full.deliverAtMilliseconds = 1_700_000_000_000
        full.duplicates = "avoid"
        full.environment = "development"
        full.createdAtMilliseconds = 1_699_999_990_000
        let decoder = TestDecoder()
        for (description, priority, expiration) in [
            (once, Priority.immediate, Expiration.once), (full, .powerAware, .at(1_900_000_000)),
        ] {
            for job in [JobEncoder.binary(description), JobEncoder.structured(description)] {
                let push = try #require(try decoder.decode(TestRecord(job)).get().push)
                #expect(push.isBroadcast)
                #expect(push.deviceToken == description.channelIdentifier)
                #expect(push.topic == "com.example.app")
                #expect(push.payload == "{}")
                #expect(push.priority == priority)
                #expect(push.expiration == expiration)
                #expect(push.deliverAt == description.deliverAtMilliseconds)
                #expect(push.environment == (description.environment == nil ? nil : .development))
                #expect(push.duplicates == (description.duplicates == nil ? .allow : .avoid))
            }
        }
        let headers = JobEncoder.binary(full).headers.map {
            "\($0.name): \(String(decoding: $0.value, as: UTF8.self))"
        }
        #expect(
            headers == [
                "kind: broadcast", "apns-topic: com.example.app", "apns-priority: 5",
                "apns-expiration: 1900000000", "apns-id: 00112233-4455-6677-8899-aabbccddeeff",
                "deliver-at: 1700000000000", "duplicates: avoid", "environment: development",
                "created-at: 1699999990000",
            ])
    }

    @Test func eventInstantsAreEncoded() throws {
        var event = ControlDescription(.device, deviceToken: TestRecord.token)
        event.event = "offline"
        event.occurredAtMilliseconds = 1_700_000_000_001
        event.createdAtMilliseconds = 1_700_000_000_002
        let document = String(decoding: JobEncoder.structured(event).value, as: UTF8.self)
        #expect(
            document == """
                {"kind":"device","device-token":"\(TestRecord.token)","event":"offline",\
                "occurred-at":1700000000001,"created-at":1700000000002}
                """)
        let headers = JobEncoder.binary(event).headers.map {
            "\($0.name): \(String(decoding: $0.value, as: UTF8.self))"
        }
        #expect(
            headers == [
                "kind: device", "event: offline", "occurred-at: 1700000000001", "created-at: 1700000000002",
            ])
    }
}
