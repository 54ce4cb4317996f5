import DeliveryCore
import Gateway
import Metrics
import SluiceModel

/// Metrics of jobs, pushes and topics.
extension WorkerMetrics {
    static func addJobs(_ intake: IntakeSnapshot, _ totals: ShardCounters, to metrics: inout MetricFamilies) {
        let counters = intake.counters
        let apps = totals.apps.sorted { $0.key < $1.key }
        metrics.counter("jobs", "Records read from the jobs topic.", counters.records)
        metrics.counter(
            "jobs_by_app", "Valid jobs by app and kind; jobs that no app has are those of the empty app.",
            apps.flatMap { name, figures in
                JobKind.allCases.filter { figures.jobs[Int($0.rawValue)] > 0 }.map { kind in
                    .init(["app": name, "kind": "\(kind.name)"], .integer(figures.jobs[Int(kind.rawValue)]))
                }
            })
        metrics.counter(
            "jobs_finished", "Records whose outcome or dead letter Kafka has acknowledged.", counters.finished
        )
        metrics.counter(
            "jobs_already_completed", "Records that were finished before a restart.",
            counters.alreadyCompleted)
        metrics.counter(
            "jobs_abandoned",
            "Jobs that were unfinished when their partition was revoked or the worker stopped.",
            totals.abandoned)
        metrics.counter(
            "adjusted_jobs", "Jobs with a time beyond the worker's clock, which counted as earlier.",
            totals.decoding.adjustedJobs)
        metrics.gauge(
            "jobs_outstanding", "Jobs read from Kafka that have no outcome yet.", intake.outstanding)
        metrics.gauge("jobs_outstanding_limit", "Most jobs that may be outstanding.", intake.limits.jobs)
        metrics.gauge("in_flight_bytes", "Bytes of records that the worker holds.", intake.bytesInFlight)
        metrics.gauge(
            "in_flight_limit_bytes", "Most bytes of records that the worker holds.", intake.limits.bytes)
        metrics.gauge(
            "jobs_held", "Jobs in memory, by what they wait for.",
            ItemState.allCases.filter(\.isLive).map {
                .init(["state": "\($0)"], .integer(totals.count(in: $0)))
            })
        metrics.counter(
            "outcomes",
            "Outcomes by app and kind; outcomes of jobs that no app has are those of the empty app.",
            apps.flatMap { name, figures in
                OutcomeKind.allCases.filter { figures.outcomes[Int($0.rawValue)] > 0 }.map { kind in
                    .init(
                        ["app": name, "kind": "\(kind.name)"], .integer(figures.outcomes[Int(kind.rawValue)]))
                }
            })
        metrics.counter(
            "rejections",
            "Rejected and undeliverable pushes by app, by APNs' reason or Sluice's cause, and by the reason's class.",
            apps.flatMap { rejections($0, $1) })
        metrics.counter("outcomes_repeated", "Outcomes that had to be produced again.", counters.undelivered)
        metrics.counter("dead_letters", "Records that were not valid jobs.", totals.deadLetters)
        metrics.counter(
            "dead_letters_by_rule", "Records that were not valid jobs, by the rule that they broke.",
            totals.brokenRules.sorted { $0.key < $1.key }.map { .init(["rule": $0], .integer($1)) })
        metrics.counter(
            "foreign_headers", "Headers of records that are no fields of a job.",
            totals.decoding.foreignHeaders)
        metrics.counter(
            "passed_headers_dropped",
            "Headers that did not return on an outcome because they were too large together.",
            totals.decoding.droppedHeaders)
        let named = apps.filter { !$0.key.isEmpty }
        metrics.histogram(
            "job_latency_seconds",
            "Times from the moment at which a push was due to its outcome, without pushes that wait for their device.",
            -10...12, named.map { .init(["app": $0], .histogram($1.latency)) })
        metrics.histogram(
            "job_pickup_latency_seconds",
            "Times from the poll of a push, or from deliver-at, to its first sending, without pushes that wait for their device.",
            -10...12,
            named.map { .init(["app": $0], .histogram($1.pickup)) })
        metrics.gauge(
            "app_queue_depth", "Pushes of an app that wait for a stream.",
            named.map { .init(["app": $0], .integer($1.waiting)) })
        metrics.gauge(
            "app_in_flight", "Pushes of an app that are in flight to APNs.",
            named.map { .init(["app": $0], .integer($1.inFlight)) })
        metrics.gauge(
            "app_over_share",
            "1 while an app that can't send takes more than its share of the worker: the pushes beyond it wait in the store.",
            named.map { .init(["app": $0], .integer($1.isOverShare ? 1 : 0)) })
    }

    private static func rejections(_ app: String, _ figures: AppFigures) -> [MetricFamily.Sample] {
        let reasons = Reason.allCases.filter { figures.reasons[Int($0.rawValue)] > 0 }.map { reason in
            MetricFamily.Sample(
                ["app": app, "reason": "\(reason.name)", "class": "\(reason.class.name)"],
                .integer(figures.reasons[Int(reason.rawValue)]))
        }
        let causes = OutcomeCause.allCases.filter { figures.causes[Int($0.rawValue)] > 0 }.map { cause in
            MetricFamily.Sample(
                ["app": app, "reason": "\(cause.name)", "class": "sluice"],
                .integer(figures.causes[Int(cause.rawValue)]))
        }
        return reasons + causes
    }

    static func addPushes(_ totals: ShardCounters, to metrics: inout MetricFamilies) {
        metrics.counter("pushes", "Requests sent to APNs, repeats included.", totals.sent)
        metrics.counter("push_retries", "Requests sent again.", totals.retried)
        metrics.counter("pushes_unanswered", "Requests that ended without an answer.", totals.unanswered)
        metrics.gauge(
            "topics_stopped",
            "Topics whose pushes wait because APNs refuses the credential, the topic or most device tokens.",
            totals.stoppedTopics)
        metrics.gauge(
            "topics_overloaded",
            "Topics whose pushes wait because APNs asks for a pause for them (503 with Retry-After).",
            totals.overloadedTopics)
        metrics.counter(
            "topic_stops",
            "Topics stopped because APNs refused the credential, the topic or most device tokens.",
            totals.stops)
        metrics.counter(
            "app_parkings", "Times that an app began to wait in the store with its pushes beyond its share.",
            totals.parkings)
        metrics.counter(
            "app_read_aheads",
            "Times that an app's pushes of priority 5 and 1 began to wait in the store to read ahead.",
            totals.readAheads)
        metrics.counter(
            "topic_stops_for_tokens",
            "Topics stopped because APNs refused most of their device tokens: check environment and topic.",
            totals.tokenStops)
        metrics.counter(
            "apns_unknown_reasons", "Answers with an unknown reason, by its text.",
            totals.unknownReasons.sorted { $0.key < $1.key }.map { .init(["reason": $0], .integer($1)) })
        let ended = Reason.allCases.filter { totals.goAways[Int($0.rawValue)] > 0 }
        metrics.counter(
            "apns_goaways",
            "Connections that APNs ended, by APNs' reason; `other` stands for unknown reasons.",
            ended.map {
                .init(["reason": GoAwayReason.label($0)], .integer(totals.goAways[Int($0.rawValue)]))
            })
        metrics.gauge(
            "apns_last_goaway_timestamp_seconds",
            "Time at which APNs last ended a connection for a reason, in seconds since the epoch.",
            ended.map {
                .init(
                    ["reason": GoAwayReason.label($0)],
                    .integer(Int(totals.lastGoAways[Int($0.rawValue)] / 1000)))
            })
    }
}
