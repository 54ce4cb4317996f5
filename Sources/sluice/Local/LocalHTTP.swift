import Foundation

/// A request to the simulator's API on this machine.
enum LocalHTTP {
    /// Returns the content of a 200; nil when the server gives no such answer within ten seconds. Blocks.
    /// - Parameter address: host and port.
    static func get(_ path: String, from address: String) -> Data? {
        guard let address = AdminAddress(address),
            let answer = try? AdminCall.get(path, from: address, limit: .seconds(10), mostBytes: 64 << 20),
            answer.status == 200
        else { return nil }
        return Data(answer.body)
    }
}
