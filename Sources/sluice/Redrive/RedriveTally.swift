import SluiceModel

/// End of a selected dead letter or outcome.
enum RedriveEnd: String, CaseIterable, Sendable {
    /// The job was produced again; in a dry run: would be.
    case redriven
    /// An earlier run redrove it.
    case before = "redriven-before"
    /// Another dead letter or outcome of the same record was redriven.
    case sameJob = "same-job"
    /// The ledger has an entry that this version can't read.
    case inDoubt = "in-doubt"
    /// The job's record has a later outcome.
    case laterOutcome = "later-outcome"
    /// The workers' group hasn't committed the job's record.
    case uncommitted
    /// A newer push of the identity was accepted, cancelled or erased.
    case superseded
    /// The record is no valid job by this version's rules.
    case invalid
    /// The job's record doesn't exist any more.
    case gone
    /// The record at the source is another job.
    case differs
    /// The job's life, which counts from its first production, is over.
    case expired
    /// Kafka didn't report whether the job was produced.
    case unanswered
    /// The job could not be produced.
    case failed

    /// Description for people, behind a number.
    func text(isDryRun: Bool) -> String {
        switch self {
        case .redriven: isDryRun ? "would be redriven" : "redriven"
        case .before: "skipped: an earlier run redrove them (--again sends them once more)"
        case .sameJob: "skipped: another dead letter or outcome of the same record came first"
        case .inDoubt: "skipped: in doubt, because the ledger's entry can't be read (--again sends them)"
        case .laterOutcome: "skipped: the job's record has a later outcome"
        case .uncommitted: "skipped: the workers' group hasn't committed them yet, so it may push them itself"
        case .superseded: "skipped: a newer push of the identity was accepted, cancelled or erased"
        case .invalid: "skipped: no valid jobs by this version's rules (--invalid sends them)"
        case .gone: "gone: retention has removed the job's record, or the topic was created anew"
        case .differs: "skipped: the record at the source is another job"
        case .expired:
            "skipped: expired since their first production (--outcomes …,expired)"
        case .unanswered:
            "unanswered: Kafka didn't acknowledge them; the next run redrives or reports them"
        case .failed: "failed: not produced"
        }
    }
}

/// Question about a selected job that could not be answered. The job is sent nevertheless.
enum RedriveDoubt: String, CaseIterable {
    case laterOutcome = "later-outcome"
    case uncommitted
    case superseded

    /// Description for people, behind a number.
    var text: String {
        switch self {
        case .laterOutcome: "not checked for later outcomes: there is no topic of outcomes (--outcomes-topic)"
        case .uncommitted: "not checked for commits: the group has none of their partitions (--group)"
        case .superseded:
            "not checked for newer pushes of their identity: its device, its payload or the topic of outcomes doesn't "
                + "show it"
        }
    }
}

/// Counts and examples of a redrive. Never has a device token or a payload.
struct RedriveTally {
    /// Jobs that are counted together.
    struct Group: Hashable {
        var app: String
        var cause: String

        init(_ facts: RedriveFacts) {
            app = facts.app
            cause = facts.cause
        }
    }

    /// Most examples of a report.
    static let mostExamples = 5
    /// Most groups that are counted apart; values of producers could name any number.
    static let mostGroups = 1_000

    let isDryRun: Bool
    /// Dead letters or outcomes that were read within the period.
    private(set) var read = 0
    /// Records that are no dead letters or outcomes.
    private(set) var unreadable = 0
    /// Dead letters or outcomes that the conditions select.
    private(set) var selected = 0
    /// Offsets behind open transactions, by topic.
    private(set) var unread: [String: Int64] = [:]
    private var doubts: [RedriveDoubt: Int] = [:]
    /// Redriven jobs that had been redriven before and failed again.
    private(set) var repeated = 0
    private var ends: [RedriveEnd: Int] = [:]
    private var groups: [Group: (selected: Int, redriven: Int)] = [:]
    private(set) var examples: [String] = []

    init(isDryRun: Bool) { self.isDryRun = isDryRun }

    subscript(end: RedriveEnd) -> Int { ends[end] ?? 0 }

    /// Selected ones without an end: the run ended before them, and a later run begins with them.
    var notReached: Int { max(0, selected - ends.values.reduce(0, +)) }

    mutating func addRead() { read += 1 }
    mutating func addUnreadable() { unreadable += 1 }
    mutating func add(_ doubt: RedriveDoubt) { doubts[doubt, default: 0] += 1 }
    mutating func setUnread(_ count: Int64, of topic: String) { unread[topic] = count }
    mutating func addRepeated() { repeated += 1 }

    mutating func addSelected(_ facts: RedriveFacts) {
        selected += 1
        count(Group(facts)) { $0.selected += 1 }
    }

    mutating func add(_ end: RedriveEnd, _ group: Group) {
        ends[end, default: 0] += 1
        if end == .redriven { count(group) { $0.redriven += 1 } }
    }

    mutating func addExample(_ facts: RedriveFacts) {
        guard examples.count < Self.mostExamples else { return }
        // The identifier of a malformed record may be any text.
        let id = facts.values[.apnsID].flatMap(Self.identifier).map { "  apns-id \($0)" } ?? ""
        examples.append("\(facts.place)  of \(facts.source)  \(plain(facts.app))  \(plain(facts.cause))\(id)")
    }

    private mutating func count(_ group: Group, _ change: (inout (selected: Int, redriven: Int)) -> Void) {
        var group = group
        if groups[group] == nil, groups.count >= Self.mostGroups {
            group.app = "others"
            group.cause = "others"
        }
        change(&groups[group, default: (0, 0)])
    }

    /// Groups, the largest first.
    private var sorted: [(group: Group, selected: Int, redriven: Int)] {
        groups.map { ($0.key, $0.value.selected, $0.value.redriven) }.sorted {
            ($1.selected, $0.group.app, $0.group.cause) < ($0.selected, $1.group.app, $1.group.cause)
        }
    }

    private static func identifier(_ text: String) -> String? {
        var text = text
        return text.withUTF8 { APNSID(anyCase: UnsafeRawBufferPointer($0)) }?.description
    }

    /// Returns text from a record, no longer than a line has room for. A producer may have written a device token into a
    /// wrong field.
    private func plain(_ text: String) -> String {
        if text.utf8.count >= 32, text.allSatisfy(\.isHexDigit) { return "(hidden)" }
        return ForeignText.escaped(text, limit: 80)
    }

    /// Lines of the report.
    func lines(of origin: RedriveOrigin) -> [String] {
        let noun = origin == .deadLetters ? "dead letter" : "outcome"
        var lines = [
            "\(Numbers.counted(read, noun)) read, \(Numbers.grouped(selected)) selected"
        ]
        var table = TextTable()
        table.rightAligned = [2, 3]
        table.add(
            "app", origin == .deadLetters ? "rule" : "reason", "selected",
            isDryRun ? "would be redriven" : "redriven")
        for (group, selected, redriven) in sorted.prefix(50) {
            table.add(
                plain(group.app), plain(group.cause), Numbers.grouped(selected), Numbers.grouped(redriven))
        }
        if selected > 0 { lines += table.lines(indent: 2) }
        if groups.count > 50 { lines.append("  and \(Numbers.counted(groups.count - 50, "further group"))") }
        for end in RedriveEnd.allCases where self[end] > 0 {
            lines.append("\(Numbers.grouped(self[end])) \(end.text(isDryRun: isDryRun))")
        }
        if notReached > 0 {
            lines.append(
                "\(Numbers.grouped(notReached)) not reached: the run ended before them; the next run begins with them"
            )
        }
        if repeated > 0 {
            lines.append("\(Numbers.grouped(repeated)) of them had been redriven before, and failed again")
        }
        for doubt in RedriveDoubt.allCases where doubts[doubt] != nil {
            lines.append("\(Numbers.grouped(doubts[doubt] ?? 0)) \(doubt.text)")
        }
        for (topic, count) in unread.sorted(by: { $0.key < $1.key }) where count > 0 {
            lines.append(
                "up to \(Numbers.counted(Int(count), "record")) of \(topic) unread: an open transaction holds them back; "
                    + "run the command again when it has ended")
        }
        if unreadable > 0 {
            lines.append("\(Numbers.counted(unreadable, "record")) left out, because they are no \(noun)s")
        }
        if isDryRun, !examples.isEmpty {
            lines.append("examples:")
            lines += examples.map { "  \($0)" }
        }
        return lines
    }

    /// The report as a JSON document's members.
    func document(of origin: RedriveOrigin) -> [String: Any] {
        var document: [String: Any] = [
            "origin": origin.rawValue, "dry-run": isDryRun, "read": read, "selected": selected,
            "unreadable": unreadable, "redriven-repeatedly": repeated,
            "groups": sorted.map { group, selected, redriven in
                [
                    "app": plain(group.app), "cause": plain(group.cause), "selected": selected,
                    "redriven": redriven,
                ] as [String: Any]
            },
        ]
        for end in RedriveEnd.allCases { document[end.rawValue] = self[end] }
        document["not-reached"] = notReached
        document["unread"] = unread.mapValues { Int($0) }
        document["unchecked"] = Dictionary(
            uniqueKeysWithValues: RedriveDoubt.allCases.map { ($0.rawValue, doubts[$0] ?? 0) })
        if isDryRun { document["examples"] = examples }
        return document
    }
}
