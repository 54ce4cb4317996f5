/// Encoding of a job, as a producer chooses it.
public enum JobMode: String, CaseIterable, Sendable {
    /// The record's value is the payload, everything else is headers.
    case binary
    /// The record's value is all fields, a line each, and the payload, which costs workers less.
    case packed
    /// The record's value is one JSON document.
    case structured

    /// Encodes a job, which is described for binary and for structured mode.
    ///
    /// - Throws: the rule that keeps the job from being written in packed mode; never for a valid job.
    public func encode(
        _ binary: @autoclosure () -> EncodedJob, _ structured: @autoclosure () -> EncodedJob
    ) throws(JobError) -> EncodedJob {
        switch self {
        case .binary: binary()
        case .packed: try JobEncoder.packed(binary())
        case .structured: structured()
        }
    }
}

extension APNSID {
    /// Finds the `apns-id` in the value of a jobs topic's record. A line of packed mode has it, or a member of structured
    /// mode. The record needn't be a valid job. Nil where the value has none, as always in binary mode.
    public init?(jobValue value: UnsafeRawBufferPointer) {
        var found: UnsafeRawBufferPointer?
        if var lines = PackedFields.Lines(value) {
            while found == nil, let line = try? lines.line() {
                if JobField(headerName: line.name) == .apnsID { found = line.value }
            }
        } else {
            var members = JSONMembers(value)
            while found == nil, let member = members.next() {
                guard JobField(memberName: member.name) == .apnsID, member.value.count >= 2 else { continue }
                found = member.value.slice(1..<member.value.count - 1)
            }
        }
        guard let found else { return nil }
        self.init(anyCase: found)
    }
}
