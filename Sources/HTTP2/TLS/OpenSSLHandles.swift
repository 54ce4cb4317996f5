import COpenSSL
import Glibc

// Owners of OpenSSL's handles: each frees its handle once, when it goes out of scope.

package struct CertificateHandle: ~Copyable {
    package let pointer: OpaquePointer
    deinit { X509_free(pointer) }
}

package struct KeyHandle: ~Copyable {
    package let pointer: OpaquePointer
    deinit { EVP_PKEY_free(pointer) }
}

/// A BIO to read PEM from, or a growing BIO in memory to write PEM to.
package struct BIOHandle: ~Copyable {
    package let pointer: OpaquePointer
    deinit { BIO_free_all(pointer) }

    /// Opens a PEM source for reading.
    package init(reading source: PEMSource) throws(TLSError) {
        ERR_clear_error()
        let bio: OpaquePointer?
        switch source {
        case .file(let path):
            bio = BIO_new_file(path, "r")
        case .text(let text):
            // Copied by BIO_write, because a read-only memory BIO would borrow the string's storage.
            bio = BIO_new(BIO_s_mem())
            if let bio {
                var text = text
                text.withUTF8 { bytes in _ = BIO_write(bio, bytes.baseAddress, Int32(bytes.count)) }
            }
        }
        guard let bio else {
            throw .configuration(
                "reading \(source.label)", hint: "the file must exist and be readable by this process")
        }
        pointer = bio
    }

    package init() {
        guard let bio = BIO_new(BIO_s_mem()) else { fatalError("out of memory") }
        pointer = bio
    }

    /// Text that has been written to a memory BIO.
    package var text: String {
        var data: UnsafeMutablePointer<CChar>?
        let count = sluice_BIO_get_mem_data(pointer, &data)
        guard let data, count > 0 else { return "" }
        return String(decoding: UnsafeRawBufferPointer(start: data, count: count), as: UTF8.self)
    }
}

package enum PEM {
    /// Calls `body` with each certificate of the source, in order.
    package static func certificates(
        in source: PEMSource, _ body: (borrowing CertificateHandle) throws(TLSError) -> Void
    ) throws(TLSError) {
        let bio = try BIOHandle(reading: source)
        var count = 0
        while let pointer = PEM_read_bio_X509(bio.pointer, nil, nil, nil) {
            count += 1
            try body(CertificateHandle(pointer: pointer))
        }
        // The end of the input is reported as “no start line”; after a good certificate that is no error.
        let code = ERR_peek_last_error()
        let atEnd =
            code == 0
            || (sluice_ERR_library(code) == ERR_LIB_PEM && sluice_ERR_reason(code) == PEM_R_NO_START_LINE)
        guard count > 0, atEnd else {
            throw .configuration(
                "reading certificates of \(source.label)",
                hint: "PEM blocks “BEGIN CERTIFICATE” are expected")
        }
        ERR_clear_error()
    }

    /// Returns the first private key of the source.
    package static func privateKey(in source: PEMSource) throws(TLSError) -> KeyHandle {
        let bio = try BIOHandle(reading: source)
        // An encrypted key is an error here; without this callback OpenSSL would ask on the terminal.
        guard let key = PEM_read_bio_PrivateKey(bio.pointer, nil, { _, _, _, _ in -1 }, nil) else {
            throw .configuration(
                "reading the private key of \(source.label)",
                hint: "an unencrypted PEM block “BEGIN PRIVATE KEY” is expected")
        }
        return KeyHandle(pointer: key)
    }
}
