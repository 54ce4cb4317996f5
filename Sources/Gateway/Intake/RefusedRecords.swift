import DeliveryCore
import Kafka
import Logging

/// Outcomes and dead letters that a broker has refused, until they are produced again. Only without transactions.
struct RefusedRecords {
    /// Result of handing a record to the producer again.
    enum Fate {
        /// The producer has the record, or the record isn't kept any more.
        case done
        /// The producer takes the record in no form.
        case neverFits(topic: String, KafkaError)
        /// The producer takes no records.
        case failed(KafkaError)
    }

    private var kept: [OutcomePlace: LostRecord] = [:]
    /// Records for which the producer had no room.
    private var waiting: [RefusedRecord] = []

    /// Number of kept records.
    var count: Int { kept.count }

    mutating func keep(_ record: CutRecord, _ topic: KafkaTopic, _ source: OutcomeSource) {
        kept[source.outcome] = LostRecord(record, topic, source)
    }

    mutating func forget(_ outcome: OutcomePlace) { kept[outcome] = nil }

    /// Forgets the records of partitions that have ended.
    mutating func end(_ slots: [UInt16]) {
        guard !kept.isEmpty else { return }
        kept = kept.filter { !slots.contains($0.key.place.partitionSlot) }
    }

    /// Returns the records for which the producer had no room. They are to be produced again.
    mutating func takeWaiting() -> [RefusedRecord] {
        defer { waiting = [] }
        return waiting
    }

    /// Hands a record to the producer, in the next form that the producer takes.
    mutating func produce(_ record: RefusedRecord, by producer: KafkaProducer, _ notices: NoticeLog) -> Fate {
        guard let lost = kept[record.outcome] else { return .done }
        var cuts = record.cuts
        while true {
            switch lost.produce(by: producer, cuts: cuts, reason: record.reason) {
            case .queued:
                kept[record.outcome] = nil
                notices.log(
                    .warning, .recordRefused, of: Int(lost.kind.rawValue),
                    "Kafka refuses a record; the record is produced again, in a smaller form where it may be the cause",
                    metadata: [
                        "topic": "\(lost.topic.name)", "offset": "\(record.outcome.place.offset)",
                        "cuts": "\(cuts)", "error": "\(record.reason)",
                    ])
                return .done
            case .queueFull, .noTransaction:
                waiting.append(record)
                return .done
            case .failed(let error) where error.isRetriable:
                waiting.append(record)
                return .done
            case .failed(let error) where !error.isOfRecord: return .failed(error)
            case .failed(let error) where cuts >= lost.kind.mostCuts:
                kept[record.outcome] = nil
                return .neverFits(topic: lost.topic.name, error)
            case .failed: cuts += 1
            }
        }
    }
}

/// A record that a broker has refused, copied from its report.
private struct LostRecord {
    let kind: ProduceOrder.Kind
    let key: [UInt8]?
    let value: [UInt8]?
    let headers: [(name: String, value: [UInt8]?)]
    let topic: KafkaTopic
    let source: OutcomeSource

    init(_ record: CutRecord, _ topic: KafkaTopic, _ source: OutcomeSource) {
        kind = record.kind
        key = record.key.map { Array($0) }
        value = record.value.map { Array($0) }
        headers = record.headers
        self.topic = topic
        self.source = source
    }

    /// Hands the record to the producer with so many cuts.
    func produce(by producer: KafkaProducer, cuts: UInt8, reason: String) -> ProduceResult {
        func produce(_ key: UnsafeRawBufferPointer?, _ value: UnsafeRawBufferPointer?) -> ProduceResult {
            var record = CutRecord(kind, key: key, value: value, headers: headers)
            record.cut(to: cuts, reason: reason)
            return producer.produce(
                topic, key: record.key, value: record.value, headers: record.headers, opaque: source.opaque)
        }
        // Nil is no empty array.
        return (key ?? []).withUnsafeBytes { key in
            (value ?? []).withUnsafeBytes { value in
                produce(self.key == nil ? nil : key, self.value == nil ? nil : value)
            }
        }
    }
}
