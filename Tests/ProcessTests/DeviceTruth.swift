import Foundation
import TestSupport

/// State of the simulator's devices at the end of a test: the truth that the workers' outcomes are compared with.
struct DeviceTruth {
    private struct Notification: Decodable {
        var identifier: String
        var apnsID: String?
    }

    private struct Token: Decodable { var token: String }

    private struct App: Decodable {
        var tokens: [Token]
        var delivered: [Notification]
    }

    private struct Device: Decodable { var apps: [App] }

    private struct Push: Decodable {
        var apnsID: String
        var token: String
        var status: Int
        var fate: String
        var collapseID: String?
    }

    private struct Line<Value: Decodable>: Decodable { var value: Value }
    private struct Kind: Decodable { var kind: String }

    private var pushes: [Push] = []
    /// Delivered notifications by device token.
    private var delivered: [String: [Notification]] = [:]

    /// Reads the export of a simulator.
    /// - Parameter page: address of the page, `http://host:port/`.
    init(page: String) throws {
        let result = try ChildProcess.run(
            "curl", ["--silent", "--show-error", "--fail", "--max-time", "60", "\(page)api/export"])
        guard result.exit == .status(0) else {
            throw Unreadable(description: "export: \(result.standardError)")
        }
        let decoder = JSONDecoder()
        for text in result.standardOutput.split(separator: "\n") {
            let line = Data(text.utf8)
            switch try decoder.decode(Kind.self, from: line).kind {
            case "push": pushes.append(try decoder.decode(Line<Push>.self, from: line).value)
            case "device":
                for app in try decoder.decode(Line<Device>.self, from: line).value.apps {
                    for token in app.tokens { delivered[token.token] = app.delivered }
                }
            default: break
            }
        }
        // The export begins with the newest push.
        pushes.reverse()
    }

    struct Unreadable: Error, CustomStringConvertible {
        var description: String
    }

    /// Differences between the devices and the pushes that the simulator's log has as accepted.
    func violations(_ arrivals: [AuditedArrival]) -> [String] {
        var found: [String] = []
        let accepted = arrivals.filter { $0.status == 200 }.map { "\($0.deviceToken) \($0.apnsID)" }.sorted()
        let received = pushes.filter { $0.status == 200 }
        let known = received.map { "\($0.token) \($0.apnsID)" }.sorted()
        if accepted != known {
            found.append(
                "APNs accepted \(accepted.count) pushes, but the devices know \(known.count), or others")
        }
        var newest: [String: [String: String]] = [:]
        for push in received {
            guard let identifier = push.collapseID else {
                // Nobody removes notifications in these tests.
                if push.fate != "shown" { found.append("push \(push.apnsID) is \(push.fate), not shown") }
                continue
            }
            newest[push.token, default: [:]][identifier] = push.apnsID
        }
        for (token, identifiers) in newest {
            for (identifier, push) in identifiers {
                let shown = (delivered[token] ?? []).filter { $0.identifier == identifier }
                if shown.count != 1 || shown[0].apnsID != push {
                    found.append(
                        "`\(identifier)` shows \(shown.map { $0.apnsID ?? "none" }), not the newest, \(push)")
                }
            }
        }
        return found
    }
}
