import DeliveryCore
import Gateway
import Metrics

/// Metrics of operators' switches.
extension WorkerMetrics {
    static func addSwitches(
        _ switches: SwitchStatus, _ totals: ShardCounters, to metrics: inout MetricFamilies
    ) {
        var paused: [PauseScope] = switches.pauses.map(\.scope)
        let isAllPaused = paused.contains(.all)
        paused.removeAll { $0 == .all }
        metrics.gauge(
            "paused", "1 while an operator has paused the scope; `all` is always there.",
            [.init(["scope": "all", "name": ""], .integer(isAllPaused ? 1 : 0))]
                + paused.map { .init(["scope": $0.kind.rawValue, "name": $0.name ?? ""], .integer(1)) })
        metrics.gauge(
            "paused_topics",
            "Topics whose pushes wait because of an operator's pause, where jobs named them.",
            totals.pausedTopics)
        metrics.gauge(
            "switches_known",
            "1 once the switches' topic is read; nothing is sent before. Always 1 without such a topic.",
            switches.areKnown ? 1 : 0)
        metrics.gauge(
            "switches_topic_away",
            "1 while the worker goes on with the last known pauses, because the switches' topic can't be read.",
            switches.isTopicAway ? 1 : 0)
        metrics.gauge(
            "switches_unkept", "Changes in force on this worker alone, because they aren't kept yet.",
            switches.unkept)
        metrics.counter("switch_changes", "Pauses and resumes that took effect.", switches.changes)
        metrics.counter(
            "switches_unreadable", "Records of the switches' topic that could not be read.",
            switches.unreadable)
    }
}
