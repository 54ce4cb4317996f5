import Foundation
import SluiceModel
import TestSupport
import Testing

/// A worker and a simulator with a link between them that drops packets.
@Suite(
    "Link that drops packets",
    .enabled(if: NetworkLink.isPermitted, "network namespaces need root and `ip` of iproute2"))
struct LinkTests {
    enum End: Int, CaseIterable {
        /// The worker gives the connection up, and ends the pushes.
        case givenUp
        /// The worker is killed.
        case killed
    }

    /// Pushes that have ended, or whose worker has, never arrive afterwards.
    @Test(arguments: End.allCases) func nothingArrivesAfterItsEnd(_ end: End) throws {
        let link = try NetworkLink(end.rawValue)
        try withBed { bed in
            let ready = bed.directory.file("far.ready")
            let log = bed.directory.file("far.jsonl")
            let simulator = try ChildProcess(
                "ip",
                [
                    "netns", "exec", link.namespace, Executables.sluice, "simulator", "--address", link.far,
                    "--port", "8443", "--directory", bed.directory.path, "--stop-with-input",
                    "--ready-file", ready, "--log", log, "--log-tokens", "--key",
                    "\(Bed.keyID):\(Bed.teamID):\(bed.directory.file("team.p8"))",
                ])
            try simulator.waits(for: "the simulator is ready") {
                FileManager.default.fileExists(atPath: ready)
            }
            var options = WorkerOptions()
            options.environment = [
                "SLUICE_APNS__HOST": link.far, "SLUICE_APNS__PORT": "8443", "SLUICE_APNS__CONNECTIONS": "1",
            ]
            let worker = try bed.start(options)
            func arrivals() -> Set<String> {
                Set(
                    ((try? String(contentsOfFile: log, encoding: .utf8)) ?? "").split(separator: "\n")
                        .compactMap { AuditedArrival(line: Data($0.utf8))?.apnsID })
            }
            var random = SeededGenerator(seed: 5)
            func push(_ token: String, life: Int64? = nil) -> (id: String, job: EncodedJob) {
                var push = PushDescription(
                    deviceToken: token, topic: "com.example.news",
                    payload: Array(#"{"aps":{"alert":"x"}}"#.utf8))
                push.apnsID = random.identifier()
                push.collapseIdentifier = "score"
                push.expiration = life.map { bed.now / 1_000 + $0 }
                return (push.apnsID ?? "", JobEncoder.binary(push))
            }
            func number(_ state: String) -> Int { bed.outcomes.outcomes.count { $0.headline == state } }

            let tokens = (0..<40).map { _ in random.hexadecimal(bytes: 32) }
            try bed.produce([push(random.hexadecimal(bytes: 32)).job])
            try bed.outcomes.wait(for: 1, of: worker)
            try link.cut()
            let old = tokens.enumerated().map { push($1, life: $0 < 20 ? 10 : nil) }
            try bed.produce(old.map(\.job))
            try worker.waits(for: "the pushes are on their way") { try link.waitingBytes() > 40 * 100 }
            switch end {
            case .givenUp:
                let new = tokens[20...].map { push($0) }
                try bed.produce(new.map(\.job))
                try worker.waits(for: "the pushes have ended") {
                    bed.outcomes.poll()
                    return number("expired") == 20 && number("superseded") == 20
                }
                try link.mend()
                try worker.waits(for: "the newer pushes arrive") { arrivals().isSuperset(of: new.map(\.id)) }
            case .killed:
                try worker.end(by: SIGKILL, with: .signal(SIGKILL))
                try link.mend()
            }
            try eventually("the system has sent everything") { try link.waitingBytes() == 0 }
            #expect(arrivals().isDisjoint(with: old.map(\.id)))
        }
    }
}
