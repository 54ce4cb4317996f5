import APNS
import DeliveryCore
import Kafka
import SluiceModel

/// An outcome or dead letter that Kafka may find too large, and its smaller forms (``ProduceOrder/Kind/mostCuts``).
///
/// Headers of the smaller forms say what was left out (``DeadLetter/Omission``). With the last cut a record has a few
/// kilobytes, whatever it was made from. Key and value are borrowed.
struct CutRecord {
    let kind: ProduceOrder.Kind
    private(set) var key: UnsafeRawBufferPointer?
    private(set) var value: UnsafeRawBufferPointer?
    private(set) var headers: [(name: String, value: [UInt8]?)]

    /// Most bytes that the last forms have of the key, and of the value of each of Sluice's own headers.
    static let longestPart = 512

    init(
        _ kind: ProduceOrder.Kind, key: UnsafeRawBufferPointer?, value: UnsafeRawBufferPointer?,
        headers: [(name: String, value: [UInt8]?)]
    ) {
        self.kind = kind
        self.key = key
        self.value = value
        self.headers = headers
    }

    /// Cuts that leave nothing more out: the number of the record's own form.
    var cuts: UInt8 {
        if headers.contains(where: { Self.isCuttable($0) }) {
            return kind == .deadLetter && value == nil ? 1 : 0
        }
        if kind == .outcome { return 1 }
        if value != nil { return 0 }
        return (key?.count ?? 0) > Self.longestPart ? 2 : 3
    }

    /// Bytes of a batch with this record alone, at most.
    var bytes: Int {
        // A header's lengths take ten bytes at most.
        headers.reduce(KafkaTopic.batchOverhead + (key?.count ?? 0) + (value?.count ?? 0)) {
            $0 + 10 + $1.name.utf8.count + ($1.value?.count ?? 0)
        }
    }

    /// Makes so many cuts. `reason`: Kafka's name of the error.
    mutating func cut(to cuts: UInt8, reason: String) {
        guard cuts > 0 else { return }
        guard kind == .deadLetter else { return cutHeaders() }
        if let value {
            headers.append((DeadLetter.valueOmittedHeader, Array(reason.utf8)))
            note(.value, value)
        }
        value = nil
        if cuts > 1 { cutHeaders() }
        if cuts > 2, let key, key.count > Self.longestPart {
            note(.key, key)
            self.key = UnsafeRawBufferPointer(rebasing: key[..<Self.longestPart])
        }
    }

    private mutating func cutHeaders() {
        var foreign: [UInt8] = []
        for header in headers where !Self.isOwn(header.name) {
            foreign += header.name.utf8
            foreign.append(0)
            foreign += header.value ?? []
            foreign.append(0)
        }
        headers.removeAll { !Self.isOwn($0.name) }
        for index in headers.indices {
            headers[index].value = headers[index].value.map { Array($0.prefix(Self.longestPart)) }
        }
        if !foreign.isEmpty { foreign.withUnsafeBytes { note(.headers, $0) } }
    }

    private mutating func note(_ omission: DeadLetter.Omission, _ bytes: UnsafeRawBufferPointer) {
        headers.append(
            (omission.rawValue, Array("\(bytes.count) \(ContentHash.text(of: bytes))".utf8)))
    }

    private static func isCuttable(_ header: (name: String, value: [UInt8]?)) -> Bool {
        !isOwn(header.name) || (header.value?.count ?? 0) > longestPart
    }

    private static func isOwn(_ name: String) -> Bool {
        var name = name
        return name.withUTF8 { DeadLetter.isOwnHeader(UnsafeRawBufferPointer($0)) }
    }
}
