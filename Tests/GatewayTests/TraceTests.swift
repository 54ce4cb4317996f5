import APNSSimulator
import Configuration
import DeliveryCore
import EventLoop
import Foundation
import KafkaTestSupport
import SluiceModel
import Synchronization
import TestSupport
import Testing

@testable import Admin
@testable import Gateway

/// `/trace` of a running worker, with pushes in each state.
struct TraceTests {
    private final class Endpoint: Sendable {
        let endpoints: AdminEndpoints
        let server: AdminTestServer

        init(_ worker: Worker) throws {
            endpoints = AdminEndpoints(patience: .seconds(60), freshness: .zero)
            server = try AdminTestServer(endpoints.routes)
            endpoints.attach(AdminSource(worker))
        }

        /// Returns the answer, which never has anything of the token or the payload.
        func get(_ query: String) throws -> AdminClient.Answer {
            let answer = try server.get("/trace?\(query)")
            #expect(!answer.body.contains("alert\":") && !answer.body.contains(secret))
            #expect(!answer.body.lowercased().contains(tokenPart))
            return answer
        }

        /// Waits for a push in a state and returns its members.
        func push(_ id: String, in state: String) throws -> [String: Any] {
            var found: [String: Any] = [:]
            try eventually("push \(id) is \(state)") {
                let answer = try get("apns-id=\(id)")
                guard let pushes = answer.json["pushes"] as? [[String: Any]], pushes.count == 1 else {
                    return false
                }
                found = pushes[0]
                return found["state"] as? String == state
            }
            #expect(found["apns-id"] as? String == id)
            return found
        }
    }

    private func device(_ prefix: String, _ number: Int) -> String {
        let digits = String(format: "%04x", number)
        return prefix + tokenPart + digits
            + String(repeating: "0", count: 64 - prefix.count - tokenPart.count - digits.count)
    }

    private func id(_ number: Int) -> String {
        "00000000-0000-4000-8000-" + String(format: "%012x", number)
    }

    private func job(
        _ number: Int, to device: String, _ change: (inout PushDescription) -> Void = { _ in }
    ) -> EncodedJob {
        push(secret, to: device) {
            $0.apnsID = id(number)
            $0.ttl = 3_600
            change(&$0)
        }
    }

    @Test func pushesInMemoryHaveTheirStates() throws {
        try withBed(simulator: {
            $0.streamsBeforeToken = 1_000
            $0.deviceRules = [.init(prefix: "beef", reason: .tooManyRequests)]
            $0.latency = .milliseconds(0)
        }) { bed in
            let worker = try bed.worker { configuration in
                configuration.delivery.shards = 2
                configuration.delivery.drainDeadline = .seconds(1)
                var app = Configuration.App(name: "slow", topics: ["com.example.slow"], credentials: ["team"])
                app.ratePerSecond = 0.001
                app.burst = 1
                app.coalesceWindow = .seconds(900)
                configuration.apps.append(app)
                configuration.delivery.retry = .init(
                    initial: .seconds(600), maximum: .seconds(600), maxAttempts: 20)
            }
            let endpoint = try Endpoint(worker)
            let tomorrow = Int64(Date().timeIntervalSince1970) * 1000 + 1_800_000
            try bed.produce([
                event("offline", of: device("0f", 1)),
                job(1, to: device("0f", 1)) { $0.delivery = "hold-while-offline" },
                job(2, to: device("aa", 2)) { $0.deliverAtMilliseconds = tomorrow },
                job(3, to: device("aa", 3)) {
                    $0.topic = "com.example.slow"
                    $0.collapseIdentifier = secret
                },
                job(4, to: device("beef", 4)),
                job(5, to: device("aa", 5)) { $0.delivery = "confirm" },
            ])
            let heldPush = try endpoint.push(id(1), in: "held")
            #expect(heldPush["app"] as? String == "news" && heldPush["credential"] as? String == "team")
            #expect(heldPush["environment"] as? String == "custom")
            #expect(heldPush["topic"] as? String == newsTopic && heldPush["push-type"] as? String == "alert")
            #expect(heldPush["attempts"] as? Int == 0 && heldPush["in"] as? String == "memory")
            #expect(heldPush["has-collapse-id"] as? Bool == false)
            #expect(heldPush["created-at"] is Int && heldPush["polled-at"] is Int)
            #expect(heldPush["expires-at"] is Int && heldPush["first-sent-at"] == nil)
            let source = try #require(heldPush["source"] as? [String: Any])
            #expect(source["topic"] as? String == bed.kafka.topic("jobs"))
            #expect(try endpoint.push(id(2), in: "scheduled")["until"] as? Int == Int(tomorrow))
            let coalescing = try endpoint.push(id(3), in: "coalescing")
            #expect(coalescing["has-collapse-id"] as? Bool == true && coalescing["until"] is Int)
            #expect(coalescing["app"] as? String == "slow")
            let retrying = try endpoint.push(id(4), in: "retrying")
            #expect(retrying["attempts"] as? Int == 1 && retrying["failures"] as? Int == 1)
            #expect(retrying["last-status"] as? Int == 429)
            #expect(retrying["last-reason"] as? String == "TooManyRequests")
            #expect(retrying["first-sent-at"] is Int && retrying["last-sent-at"] is Int)
            let confirming = try endpoint.push(id(5), in: "confirming")
            #expect(confirming["last-status"] as? Int == 200)

            // The record of a push that is still pending, and records elsewhere.
            let (partition, offset) = (source["partition"] as! Int, source["offset"] as! Int)
            func record(_ partition: Int, _ offset: Int) throws -> [String: Any] {
                try #require(
                    try endpoint.get("apns-id=\(id(1))&partition=\(partition)&offset=\(offset)").json[
                        "record"]
                        as? [String: Any])
            }
            #expect(try record(partition, offset)["state"] as? String == "outstanding")
            #expect(try record(partition, 1_000_000)["state"] as? String == "unread")
            #expect(try record(77, 0)["state"] as? String == "elsewhere")
            #expect(
                try endpoint.get("apns-id=\(id(1))&partition=\(partition)&offset=1000000").status == 404,
                "the place is not the push's")

            // All pushes of a device, and a device without any.
            let answer = try endpoint.get("token=\(device("0f", 1).uppercased())")
            #expect((answer.json["pushes"] as? [[String: Any]])?.map { $0["apns-id"] as? String } == [id(1)])
            #expect(try endpoint.get("token=\(device("0f", 99))").status == 404)

            // Ended and unknown pushes.
            try bed.produce([job(6, to: device("aa", 6))])
            try bed.waitForOutcomes(2)
            for number in [6, 99] {
                let unknown = try endpoint.get("apns-id=\(id(number))")
                #expect(unknown.status == 404)
                #expect((unknown.json["error"] as? String)?.contains("no push with this apns-id") == true)
                #expect(unknown.json["complete"] as? Bool == true)
                let searched = try #require(unknown.json["searched"] as? [String: [String: Any]])
                #expect(searched["memory"]?["shards"] as? Int == 2)
                #expect((searched["memory"]?["slots"] as? Int ?? 0) > 0)
                #expect(searched["store"]?["text"] as? String == "the worker has no store")
            }
        }
    }

    @Test func pushesInFlightAndBehindThem() throws {
        try withBed(simulator: {
            $0.streamsBeforeToken = 1_000
            $0.unansweredShare = 1
        }) { bed in
            let worker = try bed.worker { configuration in
                configuration.apns.requestTimeout = .seconds(600)
                configuration.delivery.drainDeadline = .seconds(1)
                configuration.delivery.maxInFlightPerDevice = 1
            }
            let endpoint = try Endpoint(worker)
            try bed.produce([job(1, to: device("aa", 1)) { $0.collapseIdentifier = secret }])
            let flying = try endpoint.push(id(1), in: "in-flight")
            #expect(flying["attempts"] as? Int == 1 && flying["last-sent-at"] is Int)
            #expect(flying["last-status"] == nil)
            try bed.produce([
                job(2, to: device("aa", 1)) { $0.collapseIdentifier = secret },
                job(3, to: device("aa", 1)),
            ])
            let blocked = try endpoint.push(id(2), in: "blocked")
            #expect(blocked["blocked-behind"] as? String == id(1))
            _ = try endpoint.push(id(3), in: "device-limited")
            let all = try endpoint.get("token=\(device("aa", 1))")
            #expect((all.json["pushes"] as? [[String: Any]])?.count == 3)
            worker.requestStop()
            bed.waitUntilStopped(worker)
            #expect(try endpoint.get("apns-id=\(id(1))").status == 503)
        }
    }

    /// The search of a shard takes several turns of its loop.
    @Test func pushAmongManyIsFound() throws {
        try withBed { bed in
            let worker = try bed.worker { $0.delivery.shards = 1 }
            let endpoint = try Endpoint(worker)
            let later = Int64(Date().timeIntervalSince1970) * 1000 + 3_000_000
            let count = 2 * Shard.slotsTraced + 100
            try bed.produce(
                (1...count).map { number in
                    job(number, to: device("aa", number)) { $0.deliverAtMilliseconds = later }
                })
            try eventually("all pushes wait", timeout: .seconds(60)) {
                worker.snapshot().totals.count(in: .scheduled) == count
            }
            for number in [1, Shard.slotsTraced + 7, count] {
                #expect(try endpoint.push(id(number), in: "scheduled")["shard"] as? Int == 0)
            }
            let unknown = try endpoint.get("apns-id=\(id(count + 1))")
            #expect(unknown.status == 404)
            let memory = (unknown.json["searched"] as? [String: [String: Any]])?["memory"]
            #expect(memory?["slots"] as? Int == count)
        }
    }

    @Test func pausedPushesNameTheOperator() throws {
        try withBed { bed in
            let worker = try bed.worker { configuration in
                configuration.store = .init(
                    directory: bed.directory.file("store"), after: .seconds(1), changelog: .off)
            }
            let endpoint = try Endpoint(worker)
            worker.switches.change(.app("news"), isPaused: true, by: "test", note: "why") { _ in }
            try bed.produce([job(1, to: device("aa", 1))])
            let paused = try endpoint.push(id(1), in: "paused")
            #expect((paused["text"] as? String)?.contains("operator") == true)
            try worker.waitUntilEvicted(devices: 1)
            #expect(try endpoint.push(id(1), in: "paused")["in"] as? String == "store")
            worker.switches.change(.app("news"), isPaused: false, by: "test", note: "why") { _ in }
            #expect(try bed.waitForOutcomes(1).first?.kind == .accepted)
        }
    }

    @Test func pushesWithoutAStreamAndRecordsBehindAPause() throws {
        try withBed(simulator: {
            $0.streamsBeforeToken = 1
            $0.maximumStreams = 1
            $0.unansweredShare = 1
        }) { bed in
            let worker = try bed.worker { configuration in
                configuration.apns.connections = 1
                configuration.apns.maxConnections = 1
                configuration.apns.requestTimeout = .seconds(600)
                configuration.delivery.shards = 1
                configuration.delivery.drainDeadline = .seconds(1)
            }
            let endpoint = try Endpoint(worker)
            try bed.produce([job(1, to: device("aa", 1))])
            _ = try endpoint.push(id(1), in: "in-flight")
            try bed.produce([job(2, to: device("aa", 2))])
            let waiting = try endpoint.push(id(2), in: "waiting-for-stream")
            #expect(waiting["attempts"] as? Int == 0 && waiting["until"] == nil)

            worker.switches.change(.all, isPaused: true, by: "test", note: "why") { _ in }
            let paused = try endpoint.push(id(2), in: "sending-paused")
            #expect((paused["text"] as? String)?.contains("operator") == true)
            _ = try endpoint.push(id(1), in: "in-flight")
            let place = "apns-id=\(id(3))&partition=2&offset="
            // The next record of the partition has the first offset that isn't read.
            let offset = try eventually("the intake pauses") {
                try (0..<4).first {
                    try stage(endpoint.get(place + "\($0)"))?["state"] as? String == "intake-paused"
                }
            }
            try bed.produce([job(3, to: device("aa", 3))], in: 2)
            let stopped = try #require(try stage(endpoint.get(place + "\(offset)")))
            #expect((stopped["text"] as? String)?.contains("operator") == true)
            worker.switches.change(.all, isPaused: false, by: "test", note: "why") { _ in }
            _ = try endpoint.push(id(3), in: "waiting-for-stream")
            #expect(
                try stage(endpoint.get(place + "\(offset)"))?["state"] as? String == "outstanding")
        }
    }

    private func stage(_ answer: AdminClient.Answer) -> [String: Any]? {
        answer.json["record"] as? [String: Any]
    }

    /// Devices that are back together get their pushes at the rate of returns.
    @Test func pushesThatAwaitTheirTurnAfterAReturn() throws {
        try withBed { bed in
            let worker = try bed.worker { configuration in
                configuration.delivery.shards = 1
                configuration.delivery.returnRate = 1
                configuration.delivery.drainDeadline = .seconds(1)
            }
            let endpoint = try Endpoint(worker)
            let count = 60
            try bed.produce(
                (1...count).flatMap { number in
                    try [
                        event("offline", of: device("0f", number)),
                        job(number, to: device("0f", number)) { $0.delivery = "hold-while-offline" },
                    ]
                })
            try eventually("all are held") { worker.snapshot().totals.count(in: .held) == count }
            try bed.produce((1...count).map { try event("online", of: device("0f", $0)) })
            try eventually("few have been sent") {
                worker.snapshot().totals.count(in: .held) == 0
            }
            let returning = try (1...count).first {
                let answer = try endpoint.get("apns-id=\(id($0))")
                let pushes = answer.json["pushes"] as? [[String: Any]]
                return pushes?.first?["state"] as? String == "returning"
            }
            #expect(returning != nil)
        }
    }

    /// A credential without a connection, while another has one.
    @Test func pushesOfACredentialWithoutConnection() throws {
        try withBed { bed in
            let (other, caFile) = try bed.anotherSimulator()
            let worker = try bed.worker { configuration in
                configuration.store = .init(
                    directory: bed.directory.file("store"), after: .seconds(1), changelog: .off)
                var credential = configuration.credentials[0]
                credential.name = "away"
                credential.endpoint = .init(
                    environment: .custom, host: "localhost", port: Int(other.port), caFile: caFile)
                configuration.credentials.append(credential)
                configuration.apps.append(
                    Configuration.App(name: "other", topics: ["com.example.other"], credentials: ["away"]))
            }
            other.stop()
            let endpoint = try Endpoint(worker)
            try bed.produce([
                job(1, to: device("aa", 1)) { $0.topic = "com.example.other" }, job(2, to: device("aa", 2)),
            ])
            let waiting = try endpoint.push(id(1), in: "credential-unavailable")
            #expect(waiting["credential"] as? String == "away")
        }
    }

    @Test func pushesInTheStoreAreFound() throws {
        try withBed(simulator: {
            $0.deviceRules = [.init(prefix: "dead", reason: .topicDisallowed)]
        }) { bed in
            let worker = try bed.worker { configuration in
                configuration.store = .init(
                    directory: bed.directory.file("store"), after: .seconds(1), changelog: .off)
                configuration.delivery.shards = 2
                configuration.apps.append(
                    Configuration.App(name: "other", topics: ["com.example.other"], credentials: ["team"]))
            }
            let endpoint = try Endpoint(worker)
            let later = Int64(Date().timeIntervalSince1970) * 1000 + 3_000_000
            try bed.produce(
                [
                    event("offline", of: device("0f", 1)),
                    job(1, to: device("0f", 1)) { $0.delivery = "hold-while-offline" },
                    job(2, to: device("aa", 2)) {
                        $0.deliverAtMilliseconds = later
                        $0.ttl = 7_200
                    },
                ]
                    + (10..<30).map { number in
                        job(number, to: device("dead", number)) { $0.topic = "com.example.other" }
                    })
            try worker.waitUntilEvicted(devices: 22)
            let held = try endpoint.push(id(1), in: "held")
            #expect(held["in"] as? String == "store" && held["stored"] as? Bool == true)
            #expect(held["stored-until"] is Int && held["shard"] == nil)
            #expect(held["app"] as? String == "news" && held["credential"] as? String == "team")
            let scheduled = try endpoint.push(id(2), in: "scheduled")
            #expect(scheduled["until"] as? Int == Int(later))
            #expect((scheduled["stored-until"] as? Int ?? 0) <= Int(later))
            let stopped = try endpoint.push(id(20), in: "topic-stopped")
            #expect(stopped["in"] as? String == "store")
            #expect(
                (stopped["text"] as? String)?.contains("APNs refuses the credential or the topic") == true)

            let source = try #require(held["source"] as? [String: Any])
            let (partition, offset) = (source["partition"] as! Int, source["offset"] as! Int)
            let placed = try endpoint.get("apns-id=\(id(1))&partition=\(partition)&offset=\(offset)")
            #expect(placed.status == 200)
            #expect((placed.json["record"] as? [String: Any])?["state"] as? String == "complete")
            let searched = try #require(placed.json["searched"] as? [String: [String: Any]])
            #expect(searched["store"]?["partitions"] as? [Int] == [partition])
            let byToken = try endpoint.get("token=\(device("0f", 1))")
            #expect((byToken.json["pushes"] as? [Any])?.count == 1)
            #expect(try endpoint.get("token=\(device("0f", 1))&apns-id=\(id(2))").status == 404)
            let unknown = try endpoint.get("apns-id=\(id(99))")
            #expect(unknown.status == 404)
            let store = (unknown.json["searched"] as? [String: [String: Any]])?["store"]
            #expect(store?["items"] as? Int == 22 && store?["complete"] as? Bool == true)
        }
    }

    /// A push waits for its device's stored pushes while the store's thread is busy.
    @Test func pushBehindALoadIsFound() throws {
        try withBed { bed in
            let worker = try bed.worker { configuration in
                configuration.store = .init(
                    directory: bed.directory.file("store"), after: .seconds(1), changelog: .off)
            }
            let endpoint = try Endpoint(worker)
            let gone = device("0f", 1)
            try bed.produce([
                event("offline", of: gone), job(1, to: gone) { $0.delivery = "hold-while-offline" },
            ])
            try worker.waitUntilEvicted(devices: 1)
            let store = try #require(worker.store)
            let release = BlockingFlag()
            defer { release.set() }
            store.submit(store.makeBatch()) { _ in _ = release.wait(seconds: 300) }
            try bed.produce([job(2, to: gone) { $0.delivery = "hold-while-offline" }])
            let loading = try endpoint.push(id(2), in: "loading")
            #expect(loading["in"] as? String == "memory" && loading["app"] as? String == "news")
            let both = try endpoint.get("token=\(gone)")
            #expect((both.json["pushes"] as? [Any])?.count == 2)
            release.set()
            _ = try endpoint.push(id(2), in: "held")
        }
    }

    @Test(arguments: [
        "", "apns-id=x", "token=zz", "apns-id=00000000-0000-4000-8000-000000000001&partition=-1",
        "apns-id=00000000-0000-4000-8000-000000000001&offset=5", "token=ab",
        "token=ababababababababababababababababa",
        "token=abababababababababababababababab&seconds=301", "token=abababababababababababababababab&foo=1",
    ])
    func wrongQueriesAreRefused(_ query: String) throws {
        let endpoints = AdminEndpoints()
        let server = try AdminTestServer(endpoints.routes)
        #expect(try server.get("/trace?\(query)").status == 503, "there is no worker")
        endpoints.attach(stand { _, _ in })
        let answer = try server.get("/trace?\(query)")
        #expect(answer.status == 400)
        #expect((answer.json["error"] as? String)?.isEmpty == false)
    }

    private func stand(
        _ ask: @escaping @Sendable (TraceQuery, @escaping @Sendable (TraceAnswer) -> Void) -> Void
    ) -> AdminSource {
        AdminSource(
            loops: ["kafka", "shard-0"],
            tracing: TraceSource(group: "g", jobsTopic: "jobs", routes: TraceRoutes(), ask: ask)
        ) { _, _ in }
    }

    @Test func silentThreadMakesTheAnswerPartial() throws {
        let endpoints = AdminEndpoints(patience: .milliseconds(50))
        let server = try AdminTestServer(endpoints.routes)
        endpoints.attach(stand { _, answer in answer(.intake(nil)) })
        let answer = try server.get("/trace?apns-id=\(id(1))&seconds=1")
        #expect(answer.status == 503)
        #expect(answer.fields["retry-after"] == "2")
        #expect(answer.json["complete"] as? Bool == false)
        let memory = (answer.json["searched"] as? [String: [String: Any]])?["memory"]
        #expect(memory?["silent-threads"] as? [String] == ["shard-0"])
    }

    @Test func aSecondSearchIsRefusedWhileOneIsUnderWay() throws {
        let endpoints = AdminEndpoints(patience: .seconds(60))
        let server = try AdminTestServer(endpoints.routes)
        let begun = BlockingNote()
        endpoints.attach(
            stand { _, answer in
                begun.note {
                    answer(.intake(nil))
                    answer(.shard(0, ShardTrace()))
                }
            })
        let first = try server.client()
        first.send(AdminClient.request("GET", "/trace?apns-id=\(id(1))"))
        try eventually("the first search has begun") { begun.count == 1 }
        let second = try server.get("/trace?apns-id=\(id(2))")
        #expect(second.status == 503)
        #expect(second.fields["retry-after"] == "2")
        begun.release()
        #expect(first.answer()?.status == 404)
        let third = try server.client()
        third.send(AdminClient.request("GET", "/trace?apns-id=\(id(2))"))
        try eventually("a later search begins") { begun.count == 1 }
        begun.release()
        #expect(third.answer()?.status == 404)
    }

    @Test func unreadableItemsOfTheStoreAreReported() {
        var findings = TraceFindings()
        findings.take([.intake(nil), .shard(0, ShardTrace())], loops: ["kafka", "shard-0"])
        func answer() -> (status: Int, document: [String: Any]) {
            TraceDocument.answer(
                findings, of: TraceQuery(notification: APNSID(high: 1, low: 2)), jobsTopic: "jobs",
                worker: [:], now: 0)
        }
        findings.store = .read(StoreExtent(partitions: [0], items: 9))
        #expect(answer().status == 404)
        findings.store = .read(StoreExtent(partitions: [0], items: 9, unreadable: 2))
        #expect((answer().document["error"] as? String)?.contains("2 of 9 items") == true)
        findings.store = .read(StoreExtent(partitions: [0], items: 9, isComplete: false))
        #expect(answer().status == 503)
        findings.store = .failed("the disk is gone")
        #expect(answer().status == 503)
    }

    /// The store suspends pushes for two causes, of which the shards know the present ones.
    @Test func suspendedPushesHaveTheStateOfTheirTopic() {
        func state(_ change: (inout ShardTrace) -> Void) -> TracedPush.State? {
            var findings = TraceFindings()
            var trace = ShardTrace()
            change(&trace)
            findings.take([.intake(nil), .shard(0, trace)], loops: ["kafka", "shard-0"])
            var push = draft(.stored(.suspended))
            push.topic = "com.example.news"
            push.route = TracedRoute(app: "news", credential: "team", environment: "production")
            findings.add(push)
            findings.add(push)
            findings.explainSuspended()
            #expect(findings.pushes.count == 1, "a record counts once")
            return findings.pushes.first?.state
        }
        #expect(state { _ in } == .stored(.suspended))
        #expect(state { $0.unavailable = ["other"] } == .stored(.suspended))
        #expect(state { $0.unavailable = ["team"] } == .pending(.credentialUnavailable))
        let stop = TopicStop(topic: "com.example.news", cause: .topicStopped(.tokens), probeMilliseconds: 5)
        #expect(state { $0.stops = [stop] } == .pending(.topicStopped(.tokens)))
    }

    @Test func eachStateHasACodeOfItsOwn() {
        let causes: [PendingCause] = [
            .stream, .inFlight, .blocked(behind: 1), .deviceLimited, .coalescing, .catchingUp, .retrying,
            .scheduled,
            .held(.offline), .returning, .confirming, .topicStopped(.tokens), .topicPaused,
            .sendingPaused, .parked, .readAhead, .credentialUnavailable,
        ]
        let codes = causes.map { TraceDocument.words(of: draft(.pending($0))).code }
        #expect(Set(codes).count == causes.count)
        let loading = TraceDocument.words(of: draft(.awaitingDevice)).code
        #expect(!codes.contains(loading))
        for wait in StoredPush.Wait.allCases {
            #expect(!TraceDocument.words(of: draft(.stored(wait))).text.isEmpty)
        }
        let presumed = TraceDocument.words(of: draft(.pending(.held(.presumedOffline)))).text
        #expect(presumed != TraceDocument.words(of: draft(.pending(.held(.offline)))).text)
        let paused = TraceDocument.words(of: RecordStage.unread(next: 5, [.limit, .store, .allPaused]))
        #expect(
            paused.code == "intake-paused" && paused.text.contains("limit") && paused.text.contains("store")
                && paused.text.contains("operator"))
    }

    @Test func aPushThatLeavesTheWaitingRecordsIsOnePush() {
        var trace = ShardTrace()
        trace.add(draft(.awaitingDevice))
        trace.add(draft(.pending(.stream)))
        #expect(trace.pushes.map(\.state) == [.pending(.stream)])
        var other = draft(.awaitingDevice)
        other.offset = 1
        trace.add(other)
        #expect(trace.pushes.count == 2)
    }

    private func draft(_ state: TracedPush.State) -> TracedPush {
        let empty = UnsafeRawBufferPointer(start: nil, count: 0)
        return TracedPush(
            PushJob(
                deviceToken: empty, topic: empty, pushType: .alert, priority: .immediate,
                apnsID: APNSID(high: 1, low: 2), expiration: .unspecified, payload: empty,
                createdMilliseconds: 0),
            .shard(0), state, place: (0, 0), polledMilliseconds: nil, route: nil)
    }
}

/// Part of all device tokens of these tests.
private let tokenPart = "5ec7e70c"
/// Text in all payloads and collapse identifiers of these tests.
private let secret = "hush"

/// Calls that wait until the test releases them.
private final class BlockingNote: Sendable {
    private let waiting = Mutex<[@Sendable () -> Void]>([])

    /// Number of calls that wait.
    var count: Int { waiting.withLock { $0.count } }

    func note(_ call: @escaping @Sendable () -> Void) { waiting.withLock { $0.append(call) } }

    /// Makes all calls that wait.
    func release() {
        for call in waiting.withLock({ calls in
            defer { calls = [] }
            return calls
        }) { call() }
    }
}
