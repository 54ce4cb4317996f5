import DeviceModel
import Foundation
import Synchronization

/// Fetches attachments over plain HTTP, on a few threads of its own. Any thread.
///
/// TLS is not needed, because attachments come from this machine unless an app lists other hosts. Redirects are not
/// followed.
final class AttachmentFetcher: Sendable {
    struct Limits: Sendable {
        /// Most fetches at once; further ones wait.
        var threads = 4
        /// Most fetches that wait; further ones fail.
        var waiting = 1_000
        /// Time for a fetch in milliseconds, from the lookup of the name to the last byte.
        var milliseconds = 30_000
        /// Largest content in bytes.
        var bytes = AttachmentType.largest

        init() {}
    }

    typealias Completion = @Sendable (WorkResult) -> Void

    private struct Job {
        var url: String
        var allowedHosts: [String]
        var completion: Completion
    }

    private struct State {
        var queue: [Job] = []
        var running = 0
        var isStopped = false
    }

    private let limits: Limits
    private let state = Mutex(State())
    private let interruption: Interruption

    init(limits: Limits = Limits()) throws(SimulatorError) {
        self.limits = limits
        interruption = try Interruption()
    }

    /// Fetches a file and calls `completion` on another thread, unless the fetcher is stopped before.
    func fetch(_ url: String, allowedHosts: [String], completion: @escaping Completion) {
        let job = Job(url: url, allowedHosts: allowedHosts, completion: completion)
        enum Fate { case queued, started, refused, stopped }
        let fate = state.withLock { state -> Fate in
            if state.isStopped { return .stopped }
            guard state.queue.count < limits.waiting else { return .refused }
            state.queue.append(job)
            guard state.running < limits.threads else { return .queued }
            state.running += 1
            return .started
        }
        switch fate {
        case .queued, .stopped: break
        case .refused: completion(.failed("\(limits.waiting) attachments wait already"))
        case .started:
            let thread = Thread { self.work() }
            thread.name = "attachments"
            thread.start()
        }
    }

    /// Ends all fetches. A thread that waits for the lookup of a name ends when the lookup does.
    func stop() {
        state.withLock { state in
            state.isStopped = true
            state.queue = []
        }
        interruption.interrupt()
    }

    private func work() {
        while true {
            let job = state.withLock { state -> Job? in
                guard !state.isStopped, !state.queue.isEmpty else {
                    state.running -= 1
                    return nil
                }
                return state.queue.removeFirst()
            }
            guard let job else { return }
            let result: WorkResult
            do throws(AttachmentURL.Fault) {
                result = try fetch(job)
            } catch {
                result = .failed(error.text)
            }
            if state.withLock({ $0.isStopped }) { continue }
            job.completion(result)
        }
    }

    private func fetch(_ job: Job) throws(AttachmentURL.Fault) -> WorkResult {
        let url = try AttachmentURL(job.url)
        let isListed = url.isListed(in: job.allowedHosts)
        let deadline = ContinuousClock.now + .milliseconds(limits.milliseconds)
        let addresses = try AttachmentConnection.addresses(of: url, isListed: isListed)
        var fault = AttachmentURL.Fault(text: "\(url.host) has no address")
        for address in addresses {
            do throws(AttachmentURL.Fault) {
                let connection = try AttachmentConnection(
                    address, deadline: deadline, interruption: interruption)
                return try content(connection, url)
            } catch {
                fault = error
            }
        }
        throw fault
    }

    private func content(
        _ connection: borrowing AttachmentConnection, _ url: AttachmentURL
    ) throws(AttachmentURL.Fault) -> WorkResult {
        let request =
            "GET \(url.target) HTTP/1.0\r\nHost: \(url.field)\r\nUser-Agent: sluice-simulator\r\nAccept: */*\r\n\r\n"
        try connection.send(Array(request.utf8))
        var answer = AttachmentAnswer(limit: limits.bytes)
        while !answer.isComplete {
            guard let bytes = try connection.receive() else { break }
            try answer.append(bytes)
        }
        let bytes = try answer.finish()
        guard let type = AttachmentType(bytes) else {
            throw AttachmentURL.Fault(
                text: "the file begins like no JPEG, PNG, GIF, AIFF, WAV, MP3 or MPEG-4 file")
        }
        guard bytes.count <= type.limit else {
            throw AttachmentURL.Fault(
                text: "the file has \(bytes.count) bytes, but \(type.rawValue) may have \(type.limit)")
        }
        return .fetched(type: type.rawValue, bytes: bytes)
    }
}
