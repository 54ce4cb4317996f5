import SluiceModel

/// The worker's rules, applied before a job is produced.
final class JobCheck {
    private var decoder = JobDecoder()

    init() {}

    /// Returns the error that the worker would report; nil when the job is valid.
    func error(in job: EncodedJob) -> JobError? {
        job.key.withUnsafeBytes { key in
            job.value.withUnsafeBytes { value in
                withHeaders(job.headers) { headers in
                    let record = JobRecord(
                        key: key, value: value, headers: headers,
                        topic: UnsafeRawBufferPointer(start: nil, count: 0),
                        partition: 0, offset: 0, timestampMilliseconds: -1)
                    do throws(JobError) {
                        switch try decoder.decode(record, nowMilliseconds: 0) {
                        case .push(let push): push.release()
                        case .control(let control): control.release()
                        }
                        return nil
                    } catch {
                        return error
                    }
                }
            }
        }
    }

    private func withHeaders(
        _ headers: [(name: String, value: [UInt8])],
        _ body: (UnsafeBufferPointer<RecordHeader>) -> JobError?
    ) -> JobError? {
        // A single buffer has all names and values, so that one pointer's scope covers them.
        var bytes: [UInt8] = []
        var ranges: [(name: Range<Int>, value: Range<Int>)] = []
        for header in headers {
            let name = bytes.count..<bytes.count + header.name.utf8.count
            bytes += header.name.utf8
            let value = bytes.count..<bytes.count + header.value.count
            bytes += header.value
            ranges.append((name, value))
        }
        return bytes.withUnsafeBytes { buffer in
            let views = ranges.map { range in
                RecordHeader(
                    name: UnsafeRawBufferPointer(rebasing: buffer[range.name]),
                    value: UnsafeRawBufferPointer(rebasing: buffer[range.value]))
            }
            return views.withUnsafeBufferPointer { body($0) }
        }
    }
}
