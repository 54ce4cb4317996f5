import Configuration
import Foundation
import SluiceModel

/// Kind of the records that a redrive begins with.
enum RedriveOrigin: String, Sendable {
    case deadLetters = "dead-letters"
    case outcomes
}

/// A property by which `--where` selects dead letters or outcomes.
enum RedriveField: String, CaseIterable, Sendable {
    case app, topic
    case pushType = "push-type"
    case apnsID = "apns-id"
    case partition
    case sourceTopic = "source-topic"
    case rule, field
    case outcome, reason, cause, status, environment

    /// Fields of dead letters or of outcomes, in the order of the help.
    static func fields(of origin: RedriveOrigin) -> [RedriveField] {
        let shared: [RedriveField] = [.app, .topic, .pushType, .apnsID, .partition, .sourceTopic]
        switch origin {
        case .deadLetters: return shared + [.rule, .field]
        case .outcomes: return shared + [.outcome, .reason, .cause, .status, .environment]
        }
    }
}

/// Finds the app of a topic by the bundle identifiers of a configuration.
struct RedriveApps: Sendable {
    /// Names of apps by bundle identifier.
    private let names: [String: String]
    /// Names of all apps, in the configuration's order.
    let all: [String]

    /// - Parameter apps: empty without a configuration; no topic has an app then.
    init(_ apps: [Configuration.App]) {
        var names: [String: String] = [:]
        for app in apps { for topic in app.topics { names[topic] = app.name } }
        self.names = names
        all = apps.map(\.name)
    }

    /// Returns the app of a value of `apns-topic`; nil where no app has the topic.
    func app(of topic: String) -> String? {
        if let name = names[topic] { return name }
        for type in PushType.allCases {
            let suffix = type.topicSuffix.description
            guard !suffix.isEmpty, topic.hasSuffix(suffix) else { continue }
            if let name = names[String(topic.dropLast(suffix.count))] { return name }
        }
        return nil
    }
}

/// A dead letter or an outcome, as far as a redrive has to know it. Never has a device token or a payload.
struct RedriveFacts: Sendable {
    /// Place of the dead letter or outcome itself.
    var place: RecordAddress
    /// Timestamp of the dead letter or outcome, in milliseconds since the epoch; -1 where it has none.
    var timestampMilliseconds: Int64
    /// Place of the job's record: the identity of the job.
    var source: RecordAddress
    /// Identifier that the job at the source must have; nil for dead letters.
    var apnsID: APNSID?
    /// Creation that the job at the source must have, in milliseconds since the epoch; nil where it can't be compared.
    var createdMilliseconds: Int64?
    /// Timestamp that the record at the source must have, in milliseconds since the epoch; nil where unknown.
    var sourceTimestampMilliseconds: Int64?
    /// Whether the job's record must be read at its source, and not at the dead letter's place.
    var needsSource: Bool
    /// Identity of the push; nil where it has none, or where it isn't known.
    var push: PushIdentity?
    /// Whether it isn't known if a newer push replaces this one.
    var isPushHidden = false
    /// Creation of the job at its first production, in milliseconds since the epoch; nil: unknown.
    var firstMilliseconds: Int64?
    /// Values by field; a missing value is unknown or absent.
    var values: [RedriveField: String]

    /// Cause in one word, for counts: the rule of a dead letter, else reason, cause or kind of an outcome.
    var cause: String {
        values[.rule] ?? values[.reason] ?? values[.cause] ?? values[.outcome] ?? "-"
    }

    /// Properties that tell the job apart from others of its place.
    var identity: RedriveIdentity {
        RedriveIdentity(
            apnsID: apnsID, createdMilliseconds: createdMilliseconds,
            timestampMilliseconds: sourceTimestampMilliseconds)
    }

    /// Place at which the job is read.
    var readAt: RecordAddress { needsSource ? source : place }

    /// App for counts, else the topic.
    var app: String { values[.app] ?? values[.topic] ?? "-" }

    /// Creates the facts of an outcome.
    init(_ outcome: OutcomeSummary, place: RecordAddress, timestampMilliseconds: Int64, apps: RedriveApps) {
        self.place = place
        self.timestampMilliseconds = timestampMilliseconds
        source = RecordAddress(
            topic: outcome.sourceTopic, partition: outcome.partition, offset: outcome.offset)
        apnsID = outcome.apnsID
        createdMilliseconds = outcome.adjusted.isEmpty ? outcome.createdMilliseconds : nil
        needsSource = true
        firstMilliseconds = outcome.createdMilliseconds
        if outcome.job == JobKind.push.name.description, let topic = outcome.topic {
            push = PushIdentity(
                device: outcome.deviceToken, topic: topic, pushType: outcome.pushType,
                collapseIdentifier: outcome.collapseIdentifier)
            isPushHidden = PushIdentity.isHidden(
                pushType: outcome.pushType, collapseIdentifier: outcome.collapseIdentifier)
        }
        values = [
            .apnsID: outcome.apnsID.description, .partition: "\(outcome.partition)",
            .sourceTopic: outcome.sourceTopic, .outcome: outcome.kind.name.description,
        ]
        values[.topic] = outcome.topic
        values[.app] = outcome.topic.flatMap(apps.app)
        values[.pushType] = outcome.pushType
        values[.reason] = outcome.reason
        values[.cause] = outcome.cause
        values[.status] = outcome.status.map { "\($0)" }
        values[.environment] = outcome.environment
    }

    /// Creates the facts of a dead letter; nil when its headers name no source.
    ///
    /// - Parameters:
    ///   - headers: all headers of the record, in order. The last header of a name counts, because Sluice appends its own.
    ///   - glimpse: readable fields of the record.
    ///   - job: the record as a job; nil for one that isn't valid, or lacks its value.
    init?(
        deadLetter headers: [(name: String, value: [UInt8]?)], glimpse: JobGlimpse,
        job: JobCheck.Identity? = nil,
        place: RecordAddress,
        timestampMilliseconds: Int64, apps: RedriveApps
    ) {
        func text(_ name: String) -> String? {
            headers.last { $0.name == name }?.value.map { String(decoding: $0, as: UTF8.self) }
        }
        func text(_ header: DeadLetter.Header) -> String? { text(header.rawValue) }
        guard let topic = text(.sourceTopic), !topic.isEmpty,
            let partition = text(.sourcePartition).flatMap({ Int32($0) }), partition >= 0,
            let offset = text(.sourceOffset).flatMap({ Int64($0) }), offset >= 0
        else { return nil }
        self.place = place
        self.timestampMilliseconds = timestampMilliseconds
        source = RecordAddress(topic: topic, partition: partition, offset: offset)
        sourceTimestampMilliseconds = text(.sourceTimestamp).flatMap { Int64($0) }.flatMap {
            $0 < 0 ? nil : $0
        }
        needsSource =
            text(DeadLetter.valueOmittedHeader) != nil
            || DeadLetter.Omission.allCases.contains { text($0.rawValue) != nil }
        push = job?.push
        isPushHidden =
            needsSource
            || PushIdentity.isHidden(
                pushType: glimpse.pushType, collapseIdentifier: job?.push?.collapseIdentifier)
        firstMilliseconds = job?.createdMilliseconds
        values = [.partition: "\(partition)", .sourceTopic: topic]
        values[.rule] = text(.rule)
        values[.field] = text(.field)
        values[.topic] = glimpse.topic
        values[.app] = glimpse.topic.flatMap(apps.app)
        values[.pushType] = glimpse.pushType
        values[.apnsID] = glimpse.apnsID?.lowercased()
    }
}

/// Conditions of `--where`: every named field must have one of its values.
struct RedriveFilter: Sendable {
    private var accepted: [RedriveField: Set<String>] = [:]

    /// Mistake in a condition, as a sentence without a subject's name.
    struct Mistake: Error, Equatable {
        var text: String
    }

    var isEmpty: Bool { accepted.isEmpty }

    /// - Parameter terms: conditions `FIELD=VALUE`; an empty value selects records that lack the field.
    /// - Throws: for a term without a value, an unknown field, or an app that isn't in the configuration.
    init(_ terms: [String], origin: RedriveOrigin, apps: RedriveApps) throws(Mistake) {
        let fields = RedriveField.fields(of: origin)
        for term in terms {
            guard let sign = term.firstIndex(of: "=") else {
                throw Mistake(text: "--where \(term): expected FIELD=VALUE")
            }
            let name = String(term[..<sign])
            var value = String(term[term.index(after: sign)...])
            guard let field = fields.first(where: { $0.rawValue == name }) else {
                let kind = origin == .deadLetters ? "dead letters" : "outcomes"
                throw Mistake(
                    text:
                        "--where \(term): there is no field `\(name)` of \(kind); the fields are "
                        + fields.map(\.rawValue).joined(separator: ", "))
            }
            if field == .apnsID { value = value.lowercased() }
            if field == .app, !value.isEmpty, !apps.all.contains(value) {
                throw Mistake(
                    text: apps.all.isEmpty
                        ? "--where \(term): apps are names of the worker's configuration; add --config"
                        : "--where \(term): the configuration has no such app; it has "
                            + apps.all.joined(separator: ", "))
            }
            accepted[field, default: []].insert(value)
        }
    }

    func matches(_ facts: RedriveFacts) -> Bool {
        accepted.allSatisfy { field, values in values.contains(facts.values[field] ?? "") }
    }
}
