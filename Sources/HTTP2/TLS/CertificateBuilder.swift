import COpenSSL
import Glibc

/// An X.509 certificate (RFC 5280) under construction.
struct CertificateBuilder: ~Copyable {
    private let certificate: CertificateHandle
    var pointer: OpaquePointer { certificate.pointer }

    init() throws(TLSError) {
        ERR_clear_error()
        guard let pointer = X509_new() else { throw Self.failure("allocating") }
        certificate = CertificateHandle(pointer: pointer)
    }

    borrowing func setSubject(
        commonName: String, userID: String? = nil, validity: CertificateValidity
    ) throws(TLSError) {
        let now = time(nil)
        guard X509_set_version(pointer, 2) == 1,
            ASN1_INTEGER_set_uint64(X509_get_serialNumber(pointer), .random(in: 1...UInt64(Int64.max))) == 1,
            ASN1_TIME_set(X509_getm_notBefore(pointer), now + validity.notBefore) != nil,
            ASN1_TIME_set(X509_getm_notAfter(pointer), now + validity.notAfter) != nil
        else { throw Self.failure("dating") }
        if let userID { try addName(NID_userId, userID) }
        try addName(NID_commonName, commonName)
    }

    private borrowing func addName(_ identifier: Int32, _ value: String) throws(TLSError) {
        let added = X509_NAME_add_entry_by_NID(
            X509_get_subject_name(pointer), identifier, sluice_MBSTRING_UTF8, Array(value.utf8),
            Int32(value.utf8.count), -1, 0)
        guard added == 1 else { throw Self.failure("naming “\(value)” in") }
    }

    borrowing func setKey(_ key: borrowing KeyHandle) throws(TLSError) {
        guard X509_set_pubkey(pointer, key.pointer) == 1 else { throw Self.failure("setting the key of") }
    }

    borrowing func setIssuer(of issuer: OpaquePointer) throws(TLSError) {
        guard X509_set_issuer_name(pointer, X509_get_subject_name(issuer)) == 1 else {
            throw Self.failure("naming the issuer of")
        }
    }

    /// Adds an extension in the syntax of `x509v3_config(5)`.
    borrowing func add(_ identifier: Int32, _ value: String, issuer: OpaquePointer) throws(TLSError) {
        var context = X509V3_CTX()
        X509V3_set_ctx(&context, issuer, pointer, nil, nil, 0)
        guard let addition = X509V3_EXT_conf_nid(nil, &context, identifier, value) else {
            throw Self.failure("adding “\(value)” to")
        }
        defer { X509_EXTENSION_free(addition) }
        guard X509_add_ext(pointer, addition, -1) == 1 else { throw Self.failure("adding “\(value)” to") }
    }

    /// Adds the topics of a push certificate: each a UTF8String, followed by a sequence with the name of its kind.
    borrowing func addTopics(_ topics: [String]) throws(TLSError) {
        var content: [UInt8] = []
        for topic in topics {
            content += DER.encode(tag: 0x0C, Array(topic.utf8))
            content += DER.encode(tag: 0x30, DER.encode(tag: 0x0C, Array("app".utf8)))
        }
        let bytes = DER.encode(tag: 0x30, content)
        let value = ASN1_OCTET_STRING_new()
        defer { ASN1_OCTET_STRING_free(value) }
        let identifier = OBJ_txt2obj(PeerCertificate.topicsIdentifier, 1)
        defer { ASN1_OBJECT_free(identifier) }
        guard ASN1_OCTET_STRING_set(value, bytes, Int32(bytes.count)) == 1,
            let addition = X509_EXTENSION_create_by_OBJ(nil, identifier, 0, value)
        else { throw Self.failure("adding topics to") }
        defer { X509_EXTENSION_free(addition) }
        guard X509_add_ext(pointer, addition, -1) == 1 else { throw Self.failure("adding topics to") }
    }

    borrowing func sign(with key: borrowing KeyHandle) throws(TLSError) {
        guard X509_sign(pointer, key.pointer, EVP_sha256()) > 0 else { throw Self.failure("signing") }
    }

    var pem: String {
        let bio = BIOHandle()
        PEM_write_bio_X509(bio.pointer, pointer)
        return bio.text
    }

    private static func failure(_ action: String) -> TLSError {
        .configuration("\(action) a certificate", hint: "check its names and dates")
    }
}
