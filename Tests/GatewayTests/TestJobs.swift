import Gateway
import SluiceModel
import TestSupport
import Testing

// Jobs of the app that all workers of these tests have.

let newsTopic = "com.example.news"

/// A push to one device, with an alert.
func push(
    _ alert: String, to device: String, _ change: (inout PushDescription) -> Void = { _ in }
) -> EncodedJob {
    var push = PushDescription(
        deviceToken: device, topic: newsTopic, payload: Array(#"{"aps":{"alert":"\#(alert)"}}"#.utf8))
    change(&push)
    return JobEncoder.binary(push)
}

/// A push that waits while its device is offline.
func held(
    _ alert: String, to device: String, _ change: (inout PushDescription) -> Void = { _ in }
) -> EncodedJob {
    push(alert, to: device) {
        $0.delivery = "hold-while-offline"
        change(&$0)
    }
}

func job(_ json: String) throws -> EncodedJob {
    try #require(JobEncoder.document(Array(json.utf8)))
}

func event(_ name: String, of device: String, _ more: String = "") throws -> EncodedJob {
    try job(#"{"kind":"device","device-token":"\#(device)","event":"\#(name)"\#(more)}"#)
}

extension Worker {
    /// Waits until all pushes have left memory and this many devices have items in the store.
    func waitUntilEvicted(devices: Int) throws {
        try eventually("the pushes of \(devices) devices have left memory") {
            let shards = snapshot().totals
            return shards.evictedDevices == devices && shards.states.allSatisfy { $0 == 0 }
        }
    }
}
