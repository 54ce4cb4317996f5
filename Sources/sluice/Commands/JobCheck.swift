import Foundation
import SluiceModel

/// The worker's rules, applied before a job is produced. One thread at a time.
final class JobCheck {
    private var decoder: JobDecoder

    init(_ settings: JobDecoder.Settings = JobDecoder.Settings()) {
        decoder = JobDecoder(settings)
    }

    /// Returns the error that the worker would report; nil when the job is valid.
    func error(in job: EncodedJob) -> JobError? {
        error(key: job.key, value: job.value, headers: job.headers.map { ($0.name, $0.value) })
    }

    private func error(
        key: [UInt8]?, value: [UInt8]?, headers: [(name: String, value: [UInt8]?)]
    ) -> JobError? {
        switch identity(key: key, value: value, headers: headers, nowMilliseconds: Self.now) {
        case .success: nil
        case .failure(let error): error
        }
    }

    /// The clock, in milliseconds since the epoch.
    private static var now: Int64 { Int64(Date.now.timeIntervalSince1970 * 1_000) }

    /// Properties by which a tool recognizes a job.
    struct Identity {
        var apnsID: APNSID
        /// Creation in milliseconds since the epoch.
        var createdMilliseconds: Int64
        /// Expiration of a push; nil for other jobs.
        var expiration: Expiration?
        /// Identity by which a newer push replaces this one; nil: none does.
        var push: PushIdentity?

        init(_ job: DecodedJob) {
            switch job {
            case .push(let push):
                apnsID = push.apnsID
                createdMilliseconds = push.createdMilliseconds
                expiration = push.expiration
                if !push.isBroadcast {
                    self.push = PushIdentity(
                        device: String(decoding: push.deviceToken, as: UTF8.self),
                        topic: String(decoding: push.topic, as: UTF8.self), pushType: push.pushType.name,
                        collapseIdentifier: push.collapseIdentifier.map {
                            String(decoding: $0, as: UTF8.self)
                        })
                }
                push.release()
            case .control(let control):
                apnsID = control.apnsID
                createdMilliseconds = control.createdMilliseconds
                control.release()
            }
        }
    }

    /// Returns the job of a dead letter; nil when it isn't valid. Its creation is exact where the record names it.
    func identity(ofDeadLetter record: RecordCopy) -> Identity? {
        let timestamp = record.headers.last { $0.name == DeadLetter.Header.sourceTimestamp.rawValue }?.value
            .flatMap { Int64(String(decoding: $0, as: UTF8.self)) }
        return try? identity(
            key: record.key, value: record.value, headers: record.namedHeaders,
            timestampMilliseconds: timestamp ?? record.timestampMilliseconds, nowMilliseconds: Self.now
        ).get()
    }

    /// Returns why a record, read at its source or at its dead letter's place, isn't sent again; nil: it is sent. A job's
    /// life counts from its first production.
    ///
    /// - Parameters:
    ///   - skipsExpired: whether expired pushes are skipped.
    ///   - skipsInvalid: whether records that are no valid jobs are skipped.
    func verdict(
        of record: RecordCopy, _ facts: RedriveFacts, nowMilliseconds now: Int64, skipsExpired: Bool,
        skipsInvalid: Bool
    ) -> RedriveEnd? {
        if facts.needsSource, let timestamp = facts.sourceTimestampMilliseconds,
            record.timestampMilliseconds != timestamp
        {
            return .differs
        }
        let timestamp =
            facts.needsSource ? record.timestampMilliseconds : facts.sourceTimestampMilliseconds
        let found = try? identity(
            key: record.key, value: record.value, headers: record.namedHeaders, place: facts.source,
            timestampMilliseconds: timestamp ?? record.timestampMilliseconds, nowMilliseconds: now
        ).get()
        if let apnsID = facts.apnsID {
            guard found?.apnsID == apnsID else { return .differs }
            if let created = facts.createdMilliseconds, record.timestampMilliseconds >= 0,
                found?.createdMilliseconds != created
            {
                return .differs
            }
        }
        guard let found else { return skipsInvalid ? .invalid : nil }
        return skipsExpired && found.expiration?.isPast(atMilliseconds: now) == true ? .expired : nil
    }

    /// Returns the fields of a record that can be read.
    func glimpse(of record: RecordCopy) -> JobGlimpse {
        withRecord(
            key: record.key, value: record.value, headers: record.namedHeaders, place: nil,
            timestampMilliseconds: record.timestampMilliseconds
        ) { JobGlimpse($0) }
    }

    private func identity(
        key: [UInt8]?, value: [UInt8]?, headers: [(name: String, value: [UInt8]?)],
        place: RecordAddress? = nil, timestampMilliseconds: Int64 = -1, nowMilliseconds: Int64
    ) -> Result<Identity, JobError> {
        withRecord(
            key: key, value: value, headers: headers, place: place,
            timestampMilliseconds: timestampMilliseconds
        ) { record in
            do throws(JobError) {
                return .success(Identity(try decoder.decode(record, nowMilliseconds: nowMilliseconds)))
            } catch {
                return .failure(error)
            }
        }
    }

    private func withRecord<Answer>(
        key: [UInt8]?, value: [UInt8]?, headers: [(name: String, value: [UInt8]?)], place: RecordAddress?,
        timestampMilliseconds: Int64, _ body: (JobRecord) -> Answer
    ) -> Answer {
        // A single buffer has all bytes, so that one pointer's scope covers them.
        var bytes: [UInt8] = []
        func add(_ more: some Sequence<UInt8>) -> Range<Int> {
            let start = bytes.count
            bytes += more
            return start..<bytes.count
        }
        let keyRange = key.map { add($0) }
        let valueRange = value.map { add($0) }
        let topicRange = add((place?.topic ?? "").utf8)
        let ranges = headers.map { header in
            (name: add(header.name.utf8), value: header.value.map { add($0) })
        }
        return bytes.withUnsafeBytes { buffer in
            let views = ranges.map { range in
                RecordHeader(
                    name: UnsafeRawBufferPointer(rebasing: buffer[range.name]),
                    value: range.value.map { UnsafeRawBufferPointer(rebasing: buffer[$0]) })
            }
            return views.withUnsafeBufferPointer { views in
                body(
                    JobRecord(
                        key: keyRange.map { UnsafeRawBufferPointer(rebasing: buffer[$0]) },
                        value: valueRange.map { UnsafeRawBufferPointer(rebasing: buffer[$0]) },
                        headers: views, topic: UnsafeRawBufferPointer(rebasing: buffer[topicRange]),
                        partition: place?.partition ?? 0, offset: place?.offset ?? 0,
                        timestampMilliseconds: timestampMilliseconds))
            }
        }
    }
}
