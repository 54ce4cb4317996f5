import DeviceModel
import Foundation
import Testing

@testable import APNSSimulator

@Suite("Devices: event stream")
struct EventStreamTests {
    private struct Event: Equatable {
        var id: Int?
        var kind: String
        var data: String
    }

    /// Reads events until as many have come.
    private static func read(_ client: HTTPClient, _ count: Int) throws -> [Event] {
        var events: [Event] = []
        var text = ""
        while events.count < count {
            text += String(decoding: try client.chunk() ?? [], as: UTF8.self)
            while let end = text.range(of: "\n\n") {
                let block = text[..<end.lowerBound]
                text = String(text[end.upperBound...])
                var event = Event(kind: "", data: "")
                for line in block.split(separator: "\n") {
                    if line.hasPrefix("id: ") { event.id = Int(line.dropFirst(4)) }
                    if line.hasPrefix("event: ") { event.kind = String(line.dropFirst(7)) }
                    if line.hasPrefix("data: ") { event.data = String(line.dropFirst(6)) }
                }
                if !event.data.isEmpty { events.append(event) }
            }
        }
        return events
    }

    private static func toggle(_ bed: DeviceBed, _ on: Bool, device: UInt32 = 0) throws {
        try bed.registry.change { (world, now) throws(DeviceFault) in
            try world.perform(DeviceAction(.airplane, on: on), on: device, now: now)
        }
    }

    @Test("a reader without a number gets the events from now on, each with its number and kind")
    func fromNowOn() throws {
        let bed = try DeviceBed()
        _ = try bed.addDevice()
        let before = bed.registry.read { world, _ in world.lastEvent }
        let client = try bed.client()
        try client.start("GET", "/api/events")
        let head = try client.head()
        #expect(head.fields["content-type"] == "text/event-stream")
        try Self.toggle(bed, true)
        let events = try Self.read(client, 2)
        #expect(events.map(\.id) == [Int(before) + 1, Int(before) + 2])
        #expect(events.map(\.kind) == ["device", "offline"])
        let object = try JSONSerialization.jsonObject(with: Data(events[1].data.utf8)) as? [String: Any]
        #expect(object?["kind"] as? String == "offline")
        #expect(object?["device"] as? Int == 0)
    }

    @Test("a reader resumes behind the last event that it names")
    func resume() throws {
        let bed = try DeviceBed()
        _ = try bed.addDevice()
        try Self.toggle(bed, true)
        let last = Int(bed.registry.read { world, _ in world.lastEvent })
        let client = try bed.client()
        try client.start("GET", "/api/events?after=0", fields: ["Last-Event-ID: \(last - 2)"])
        _ = try client.head()
        #expect(try Self.read(client, 2).map(\.id) == [last - 1, last])
    }

    @Test("a reader that asks for dropped events is told so, and goes on with the oldest")
    func lost() throws {
        let bed = try DeviceBed(settings: { $0.maximumEvents = 4 })
        _ = try bed.addDevice()
        for index in 0..<10 { try Self.toggle(bed, index % 2 == 0) }
        let last = Int(bed.registry.read { world, _ in world.lastEvent })
        let client = try bed.client()
        try client.start("GET", "/api/events?after=1")
        _ = try client.head()
        let events = try Self.read(client, 5)
        #expect(events.first?.kind == "lost")
        #expect(events.dropFirst().map(\.id) == [last - 3, last - 2, last - 1, last])
    }

    @Test("a number of an earlier life of the simulator is lost")
    func earlierLife() throws {
        let bed = try DeviceBed()
        let client = try bed.client()
        try client.start("GET", "/api/events", fields: ["Last-Event-ID: 5000"])
        _ = try client.head()
        _ = try bed.addDevice()
        let kinds = try Self.read(client, 2).prefix(2).map(\.kind)
        #expect(kinds == ["lost", "device"])
    }

    @Test("a reader of a device gets its events alone")
    func filtered() throws {
        let bed = try DeviceBed()
        _ = try bed.addDevice()
        _ = try bed.addDevice()
        let client = try bed.client()
        try client.start("GET", "/api/events?device=1")
        _ = try client.head()
        try Self.toggle(bed, true, device: 0)
        try Self.toggle(bed, true, device: 1)
        let events = try Self.read(client, 2)
        #expect(events.allSatisfy { $0.data.contains("\"device\":1") })
    }

    @Test("an idle stream is kept alive, and its number moves on")
    func heartbeat() throws {
        let bed = try DeviceBed(service: { $0.limits.heartbeat = .milliseconds(30) })
        let client = try bed.client()
        try client.start("GET", "/api/events")
        _ = try client.head()
        var text = ""
        while !text.contains(": alive") { text += String(decoding: try client.chunk() ?? [], as: UTF8.self) }
        #expect(text.contains("id: 0"))
    }
}
