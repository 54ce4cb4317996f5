import Kafka
import SluiceModel

/// Order in which the records of many places are read: each partition from its first wanted offset on, with a jump where
/// the next wanted offset is far. Pure: the reader passes offsets in, and obeys the steps.
struct SourcePlan {
    /// Records between two wanted offsets from which a jump costs less than reading on.
    static let gap: Int64 = 5_000

    /// A wanted record.
    private struct Want {
        var offset: Int64
        /// Number of the candidate.
        var candidate: Int
    }

    private struct Cursor {
        var wants: [Want]
        var next = 0
    }

    /// Next step of a partition's reader.
    enum Step: Equatable {
        case readOn
        /// Reads on from this offset.
        case jump(Int64)
        /// Nothing is wanted of the partition any more.
        case finished
    }

    /// Answer to an offset that was read.
    struct Answer: Equatable {
        /// Candidates whose records don't exist any more.
        var gone: [Int] = []
        /// Candidates of the record. Jobs of a topic that was created anew may share a place.
        var candidates: [Int] = []
        var step = Step.readOn
    }

    private var cursors: [TopicPartition: Cursor] = [:]
    /// Candidates whose records lie outside of the log: removed by retention, or of a topic that was created anew.
    private(set) var gone: [Int] = []

    /// - Parameters:
    ///   - places: places of wanted records, by number of the candidate.
    ///   - watermarks: bounds of the partitions' logs; a missing partition doesn't exist.
    init(_ places: [RecordAddress], watermarks: [TopicPartition: Watermarks]) {
        for (candidate, place) in places.enumerated() {
            let partition = TopicPartition(place.topic, place.partition)
            guard let marks = watermarks[partition], place.offset >= marks.low, place.offset < marks.high
            else {
                gone.append(candidate)
                continue
            }
            cursors[partition, default: Cursor(wants: [])].wants.append(
                Want(offset: place.offset, candidate: candidate))
        }
        for partition in cursors.keys {
            cursors[partition]?.wants.sort { $0.offset < $1.offset }
        }
    }

    /// Places where reading begins.
    var starts: [TopicPartitionOffset] {
        cursors.sorted { $0.key < $1.key }.compactMap { partition, cursor in
            cursor.wants.first.map { TopicPartitionOffset(partition, .offset($0.offset)) }
        }
    }

    var isFinished: Bool { cursors.isEmpty }

    /// Takes the offset of a record that was read.
    mutating func read(_ partition: TopicPartition, offset: Int64) -> Answer {
        guard var cursor = cursors[partition] else { return Answer(step: .finished) }
        var answer = Answer()
        while cursor.next < cursor.wants.count, cursor.wants[cursor.next].offset < offset {
            answer.gone.append(cursor.wants[cursor.next].candidate)
            cursor.next += 1
        }
        while cursor.next < cursor.wants.count, cursor.wants[cursor.next].offset == offset {
            answer.candidates.append(cursor.wants[cursor.next].candidate)
            cursor.next += 1
        }
        guard cursor.next < cursor.wants.count else {
            cursors[partition] = nil
            answer.step = .finished
            return answer
        }
        cursors[partition] = cursor
        let wanted = cursor.wants[cursor.next].offset
        if wanted - offset > Self.gap { answer.step = .jump(wanted) }
        return answer
    }

    /// Takes the end of a partition's log, or a partition that can't be read.
    /// - Returns: the candidates that are still wanted of it.
    mutating func ended(_ partition: TopicPartition) -> [Int] {
        guard let cursor = cursors.removeValue(forKey: partition) else { return [] }
        return cursor.wants[cursor.next...].map(\.candidate)
    }
}
