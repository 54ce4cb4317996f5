import Admin
import Foundation
import SluiceModel

/// Result of a trace as text for people and as a document for scripts. Pure. Never has a payload or a collapse
/// identifier; has the first characters of a device token only if the user gave it.
struct TraceReport {
    var jobs: [TracedJob]
    var searches: [TopicSearch]
    var replies: [WorkerReply]
    /// Cause for which records could not be read at their places; nil without.
    var readFailure: String?
    /// True when the limit of records ended the search.
    var isLimited: Bool
    /// True when jobs or successors were left out.
    var isTruncated: Bool
    /// True when records or workers were not asked about some of the jobs.
    var isAbridged = false
    /// True when a stop was requested before the end.
    var isStopped = false
    /// True when outcomes may have a hash in the token's place that the search didn't know, for want of a configuration.
    var mayLackHash = false
    /// Most records to read in all.
    var limit: Int
    /// Device token that the user gave; nil without.
    var deviceToken: String?
    /// Time of the report in milliseconds since the epoch.
    var now: Int64

    /// True when everything asked has answered.
    var isComplete: Bool {
        !isStopped && !isLimited && !isTruncated && !isAbridged && readFailure == nil
            && searches.allSatisfy { $0.isComplete }
            && replies.allSatisfy { $0.fault == nil && $0.isComplete }
    }

    /// True when something may be missing that another search finds.
    private var isAdvised: Bool { jobs.isEmpty || !isComplete || mayLackHash && hasOpenJobs }

    private var hasOpenJobs: Bool { jobs.contains { $0.outcome == nil && $0.deadLetter == nil } }

    /// How far the search for the ends of jobs was carried out.
    private var extent: TracedJob.Extent {
        if isStopped { return .stopped }
        return searches.allSatisfy { $0.isComplete } ? .whole : .partOfTopics
    }

    /// Fault of the first worker without an answer that can be read; nil: all have one.
    var workerFailure: String? {
        replies.lazy.compactMap { reply in reply.fault.map { "worker \(reply.worker): \($0)" } }.first
    }

    /// Fault of the first topic that could not be read; nil: all could.
    var kafkaFailure: String? { searches.first { $0.failure != nil }?.failure ?? readFailure }

    // MARK: Text

    var lines: [String] {
        var lines: [String] = []
        if let deviceToken { lines.append("device \(abbreviated(deviceToken))") }
        for job in jobs {
            if !lines.isEmpty { lines.append("") }
            lines += self.lines(of: job)
        }
        if jobs.isEmpty {
            lines.append(
                isComplete ? "nothing was found" : "nothing was found, but not everything was searched")
        }
        lines.append("")
        lines.append("searched")
        lines += searched.map { "  \($0)" }
        if isAdvised {
            lines += advice.map { "  try: \($0)" }
        }
        return lines
    }

    private func lines(of job: TracedJob) -> [String] {
        var title = job.identifier.map { "\($0)" } ?? "unknown apns-id"
        if let type = job.pushType { title += "  \(type)" }
        if let topic = job.topic { title += " to \(topic)" }
        if let push = job.pushes.first, let app = push.app, let credential = push.credential {
            title += ", app \(app), credential \(credential)"
        }
        var lines = [title, "  job \(job.source): \(job.state)"]
        if job.isGone { lines.append("  the job's record is gone: the topic's retention has removed it") }
        var last: Int64?
        for milestone in job.milestones(now: now, extent) {
            let time = milestone.atMilliseconds.map { Self.time($0) } ?? "now".padded(to: 23)
            var wait = ""
            if let at = milestone.atMilliseconds, let before = last { wait = "+" + Self.span(at - before) }
            if let at = milestone.atMilliseconds { last = at }
            lines.append("  \(time)  \(wait.padded(to: 10))  \(milestone.text)")
        }
        return lines
    }

    private var searched: [String] {
        var lines = replies.map { reply in
            if let failure = reply.failure { return "worker \(reply.worker): \(failure)" }
            let found = Numbers.counted(reply.pushes.count, "push", plural: "pushes")
            let rest = reply.fault ?? (reply.isComplete ? nil : "not all was searched")
            return "worker \(reply.worker): \(found)" + (rest.map { ", \($0)" } ?? "")
        }
        if replies.isEmpty { lines.append("no worker was asked") }
        lines += searches.map { search in
            if let failure = search.failure { return "topic \(search.topic): \(failure)" }
            var line = "topic \(search.topic): \(Numbers.counted(search.records, "record"))"
            if let since = search.period.since { line += " since \(Self.time(since))" }
            if let until = search.period.until { line += " until \(Self.time(until))" }
            return line + (search.isComplete ? "" : ", not to its end")
        }
        if let readFailure { lines.append("records of jobs: \(readFailure)") }
        if isStopped { lines.append("stopped before the end") }
        return lines
    }

    /// Next steps where something is missing.
    var advice: [String] {
        var list: [String] = []
        if isLimited {
            list.append(
                "the limit of \(Numbers.counted(limit, "record")) ended the search: a larger --limit, or a "
                    + "later --since")
        }
        if kafkaFailure != nil { list.append("again when Kafka answers: topics were not read to their ends") }
        if isTruncated { list.append("jobs were left out: name one with its apns-id") }
        if isAbridged {
            list.append("not every job was looked up at its record and its worker: name one with its apns-id")
        }
        if isStopped { list.append("the command again, because a stop ended the search") }
        if jobs.isEmpty, let since = searches.compactMap(\.period.since).min() {
            let age = max(now - since, 0)
            list.append("--since \(Self.longer(age)), if the job is older than \(Self.span(age))")
        }
        // Workers know nothing of jobs that have ended.
        if jobs.isEmpty || hasOpenJobs {
            if replies.isEmpty { list.append("--url with the admin endpoint of each worker") }
            if replies.contains(where: { $0.failure != nil }) {
                list.append("the workers that did not answer, again, or their addresses with --url")
            }
        }
        if mayLackHash, jobs.isEmpty || hasOpenJobs {
            list.append(
                "--config, if outcomes.device-token is hash: outcomes then have a hash in the token's place")
        }
        if jobs.isEmpty, deviceToken == nil {
            list.append("--device-token, if the producer names another apns-id or none")
        }
        return list
    }

    // MARK: JSON

    var document: [String: Any] {
        var document: [String: Any] = [
            "found": jobs.count, "complete": isComplete, "stopped": isStopped, "now": Int(now),
            "jobs": jobs.map(self.document),
            "searched": [
                "workers": replies.map { reply in
                    var shown: [String: Any] = [
                        "address": reply.worker, "answered": reply.failure == nil,
                        "complete": reply.isComplete, "pushes": reply.pushes.count,
                    ]
                    shown["error"] = reply.fault
                    return shown
                },
                "topics": searches.map { search in
                    var shown: [String: Any] = [
                        "topic": search.topic, "records": search.records, "complete": search.isComplete,
                    ]
                    shown["since"] = search.period.since.map { Int($0) }
                    shown["until"] = search.period.until.map { Int($0) }
                    shown["error"] = search.failure
                    return shown
                },
            ] as [String: Any],
        ]
        if isAdvised { document["advice"] = advice }
        return document
    }

    private func document(of job: TracedJob) -> [String: Any] {
        var last: Int64?
        var shown: [String: Any] = [
            "state": job.state,
            "source": [
                "topic": job.source.topic, "partition": Int(job.source.partition),
                "offset": Int(job.source.offset),
            ] as [String: Any],
            "milestones": job.milestones(now: now, extent).map { milestone in
                var step: [String: Any] = ["event": milestone.event, "text": milestone.text]
                if let at = milestone.atMilliseconds {
                    step["at"] = Int(at)
                    if let last { step["after-ms"] = Int(at - last) }
                    last = at
                }
                return step
            },
        ]
        shown["apns-id"] = job.identifier.map { "\($0)" }
        shown["topic"] = job.topic
        shown["push-type"] = job.pushType
        if job.isGone { shown["record-gone"] = true }
        if let record = job.record { shown["has-key"] = record.hasKey }
        if let outcome = job.outcome {
            var ended: [String: Any] = [
                "outcome": "\(outcome.kind.name)", "job": outcome.job, "attempts": outcome.attempts,
                "partition": Int(outcome.place.partition), "offset": Int(outcome.place.offset),
            ]
            ended["status"] = outcome.status
            ended["reason"] = outcome.reason
            ended["cause"] = outcome.cause
            ended["message"] = outcome.message
            ended["superseded-by"] = outcome.supersededBy.map { "\($0)" }
            shown["outcome"] = ended
        }
        if let letter = job.deadLetter {
            shown["dead-letter"] =
                [
                    "field": letter.field, "rule": letter.rule, "partition": Int(letter.place.partition),
                    "offset": Int(letter.place.offset),
                ] as [String: Any]
        }
        if !job.pushes.isEmpty {
            shown["workers"] = job.pushes.map { push in
                var element: [String: Any] = [
                    "address": push.worker, "state": push.state, "text": push.text,
                    "attempts": push.attempts, "stored": push.isStored,
                ]
                element["app"] = push.app
                element["credential"] = push.credential
                element["until"] = push.until.map { Int($0) }
                element["stored-until"] = push.storedUntil.map { Int($0) }
                element["last-status"] = push.lastStatus
                element["last-reason"] = push.lastReason
                return element
            }
        }
        return shown
    }

    // MARK: Times

    /// Returns date and time of day with milliseconds, in local time.
    static func time(_ milliseconds: Int64) -> String {
        var seconds = time_t(milliseconds / 1_000)
        var parts = tm()
        localtime_r(&seconds, &parts)
        return String(
            format: "%04d-%02d-%02d ", parts.tm_year + 1900, parts.tm_mon + 1, parts.tm_mday)
            + clockTime(milliseconds: milliseconds)
    }

    /// Returns a length of time with a fitting unit: `12 ms`, `1.25 s`, `3 min`, `2.5 h`, `4 d`.
    static func span(_ milliseconds: Int64) -> String {
        let value = Double(milliseconds)
        switch abs(value) {
        case ..<60_000: return Numbers.milliseconds(value)
        case ..<3_600_000: return Numbers.fixed(value / 60_000, 1) + " min"
        case ..<172_800_000: return Numbers.fixed(value / 3_600_000, 1) + " h"
        default: return Numbers.fixed(value / 86_400_000, 1) + " d"
        }
    }

    /// Returns a longer age than this one, as `--since` takes it.
    static func longer(_ age: Int64) -> String {
        [3_600_000, 21_600_000, 86_400_000, 604_800_000].first { $0 > age }.map { milliseconds in
            milliseconds >= 86_400_000 ? "\(milliseconds / 86_400_000)d" : "\(milliseconds / 3_600_000)h"
        } ?? "30d"
    }
}
