import Foundation
import Synchronization

/// Asks one worker at intervals, on a thread of its own, so that a slow endpoint delays no other.
final class WorkerPoller: Sendable {
    let address: AdminAddress
    private let interval: Duration
    private let limit: Duration
    private let state = Mutex(State())

    private struct State {
        var worker: TopWorker?
        var scrapes = 0
        var isEnded = false
    }

    /// Scrape before the present one.
    private struct Scrape {
        var document: MetricsDocument
        var time: ContinuousClock.Instant
    }

    /// - Parameters:
    ///   - interval: time between the starts of two scrapes.
    ///   - limit: longest wait for an answer.
    init(_ address: AdminAddress, interval: Duration, limit: Duration) {
        self.address = address
        self.interval = interval
        self.limit = limit
    }

    /// Begins to ask, until ``end()``.
    func start() {
        let thread = Thread { [self] in
            var before: Scrape?
            var next = ContinuousClock.now
            while !state.withLock({ $0.isEnded }) {
                let worker = ask(&before)
                state.withLock {
                    $0.worker = worker
                    $0.scrapes += 1
                }
                next = max(.now, next + interval)
                Thread.sleep(forTimeInterval: max(0, (next - .now) / .seconds(1)))
            }
        }
        thread.name = "poller"
        thread.start()
    }

    /// Ends the asking after the request under way.
    func end() { state.withLock { $0.isEnded = true } }

    /// The worker as of the last scrape.
    var worker: TopWorker {
        state.withLock { $0.worker } ?? TopWorker(name: "\(address)", state: .asking)
    }

    /// Number of scrapes so far, failed ones included.
    var scrapes: Int { state.withLock { $0.scrapes } }

    private func ask(_ before: inout Scrape?) -> TopWorker {
        let name = "\(address)"
        let time = ContinuousClock.now
        let document: MetricsDocument
        let ready: AdminCall.Answer
        do throws(AdminCall.Failure) {
            ready = try AdminCall.get("/readyz", from: address, limit: limit, mostBytes: 1 << 20)
            let answer = try AdminCall.get("/metrics", from: address, limit: limit)
            guard answer.status == 200 else {
                let state: TopWorker.State =
                    ready.status == 503
                    ? .notReady(HealthVerdict.reasons(ready, place: "/readyz"))
                    : .down(HealthVerdict.refusal(answer, place: "/metrics"))
                return TopWorker(name: name, state: state)
            }
            document = MetricsDocument(answer.body)
        } catch {
            return TopWorker(name: name, state: .down("\(error)"))
        }
        let seconds = before.map { (time - $0.time) / .seconds(1) } ?? 0
        let window = MetricsWindow(before: before?.document, now: document, seconds: seconds)
        before = Scrape(document: document, time: time)
        var worker = TopWorker(
            name: name, state: .notReady(HealthVerdict.reasons(ready, place: "/readyz")),
            figures: WorkerFigures(window, worker: name), faults: document.faultTexts)
        if ready.status == 200 { worker.state = .ready }
        return worker
    }
}
