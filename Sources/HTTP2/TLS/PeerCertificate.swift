import COpenSSL

/// Facts from a peer's certificate.
public struct PeerCertificate: Sendable, Equatable {
    /// The subject in the form of RFC 2253.
    public let subject: String
    /// CN of the subject; nil when absent.
    public let commonName: String?
    /// UID of the subject, the topic of a push certificate; nil when absent.
    public let userID: String?
    /// Topics of a push certificate (extension 1.2.840.113635.100.6.3.6), beginning with the bundle identifier; empty
    /// when absent.
    public let topics: [String]

    /// The extension that lists the topics of a push certificate.
    static let topicsIdentifier = "1.2.840.113635.100.6.3.6"

    init(_ certificate: borrowing CertificateHandle) {
        let name = X509_get_subject_name(certificate.pointer)
        let bio = BIOHandle()
        X509_NAME_print_ex(bio.pointer, name, 0, sluice_XN_FLAG_RFC2253)
        subject = bio.text
        commonName = Self.entry(NID_commonName, of: name)
        userID = Self.entry(NID_userId, of: name)
        topics = Self.topics(of: certificate)
    }

    private static func entry(_ identifier: Int32, of name: OpaquePointer?) -> String? {
        let index = X509_NAME_get_index_by_NID(name, identifier, -1)
        guard index >= 0, let entry = X509_NAME_get_entry(name, index),
            let value = X509_NAME_ENTRY_get_data(entry)
        else { return nil }
        var utf8: UnsafeMutablePointer<UInt8>?
        let count = ASN1_STRING_to_UTF8(&utf8, value)
        guard count >= 0, let utf8 else { return nil }
        defer { CRYPTO_free(utf8, #file, #line) }
        return String(decoding: UnsafeBufferPointer(start: utf8, count: Int(count)), as: UTF8.self)
    }

    /// Returns the topics. The extension holds a sequence in which a sequence of kinds follows each topic (a
    /// UTF8String).
    private static func topics(of certificate: borrowing CertificateHandle) -> [String] {
        guard let identifier = OBJ_txt2obj(topicsIdentifier, 1) else { return [] }
        defer { ASN1_OBJECT_free(identifier) }
        let index = X509_get_ext_by_OBJ(certificate.pointer, identifier, -1)
        guard index >= 0, let found = X509_get_ext(certificate.pointer, index),
            let value = X509_EXTENSION_get_data(found)
        else { return [] }
        let bytes = UnsafeBufferPointer(
            start: ASN1_STRING_get0_data(value), count: Int(ASN1_STRING_length(value)))
        var topics: [String] = []
        guard var content = DER.element(in: bytes[...], tag: 0x30)?.content else { return [] }
        while !content.isEmpty {
            guard let tag = content.first, let element = DER.element(in: content, tag: tag) else {
                return topics
            }
            if tag == 0x0C { topics.append(String(decoding: element.content, as: UTF8.self)) }
            content = element.rest
        }
        return topics
    }
}

/// The few forms of DER that the topics extension uses.
enum DER {
    static func element(
        in bytes: Slice<UnsafeBufferPointer<UInt8>>, tag: UInt8
    ) -> (content: Slice<UnsafeBufferPointer<UInt8>>, rest: Slice<UnsafeBufferPointer<UInt8>>)? {
        guard bytes.count >= 2, bytes[bytes.startIndex] == tag else { return nil }
        var index = bytes.startIndex + 1
        var length = Int(bytes[index])
        index += 1
        if length >= 0x80 {
            let octets = length - 0x80
            guard octets >= 1, octets <= 3, bytes.endIndex - index >= octets else { return nil }
            length = 0
            for _ in 0..<octets {
                length = length << 8 | Int(bytes[index])
                index += 1
            }
        }
        guard bytes.endIndex - index >= length else { return nil }
        return (bytes[index..<index + length], bytes[(index + length)...])
    }

    static func encode(tag: UInt8, _ content: [UInt8]) -> [UInt8] {
        var bytes: [UInt8] = [tag]
        switch content.count {
        case ..<0x80: bytes.append(UInt8(content.count))
        case ..<0x100: bytes += [0x81, UInt8(content.count)]
        default: bytes += [0x82, UInt8(content.count >> 8 & 0xFF), UInt8(content.count & 0xFF)]
        }
        return bytes + content
    }
}
