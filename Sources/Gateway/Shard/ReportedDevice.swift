import Kafka
import SluiceModel

/// Header with the worker's own hash of the device, on records whose key is the hash of a device token. The delivery report
/// finds the device by the header, to remove the job from the store. Readers ignore the header: its hash belongs to this
/// worker's store alone.
enum ReportedDevice {
    static let headerName: StaticString = "sluice-device"
    /// Hexadecimal digits of the value.
    private static let digits = 16

    /// Appends the header to a row of passed headers.
    static func append(_ device: UInt64, to row: inout ByteWriter) {
        withHeader(device) { PassedHeaders.append($0, to: &row) }
    }

    /// Appends the header to the headers of a dead letter.
    static func appendHeader(_ device: UInt64, to writer: inout ByteWriter) {
        withHeader(device) { HeaderBytes.append($0.name, $0.value, to: &writer) }
    }

    private static func withHeader(_ device: UInt64, _ body: (RecordHeader) -> Void) {
        withUnsafeTemporaryAllocation(byteCount: 8 + digits, alignment: 8) { buffer in
            let text = buffer.baseAddress! + 8
            buffer.storeBytes(of: device.bigEndian, as: UInt64.self)
            HexadecimalText.unpack(
                UnsafeRawBufferPointer(rebasing: buffer[..<8]), upperCase: false, into: text)
            let name = UnsafeRawBufferPointer(
                start: headerName.utf8Start, count: headerName.utf8CodeUnitCount)
            body(RecordHeader(name: name, value: UnsafeRawBufferPointer(start: text, count: digits)))
        }
    }

    /// Returns the device of an acknowledged record; nil when the record has no such header.
    static func device(of report: borrowing DeliveryReport) -> UInt64? {
        guard let text = report.lastHeader(headerName), text.count == digits else { return nil }
        var device: UInt64 = 0
        withUnsafeMutableBytes(of: &device) { HexadecimalText.pack(text, into: $0.baseAddress!) }
        return UInt64(bigEndian: device)
    }
}
