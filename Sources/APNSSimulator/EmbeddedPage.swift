import CSimulatorPage

/// Files of the page that shows the devices. They are part of the program, so none is read at run time.
enum EmbeddedPage {
    /// A file and its head.
    struct File {
        /// Path of the request, as `/page.js`.
        let path: String
        /// MIME type with its character set.
        let type: String
        /// Content. The memory is constant and lasts as long as the program.
        let bytes: UnsafeRawBufferPointer
    }

    /// Value of `Content-Security-Policy` for all files. Scripts, styles, pictures and requests are the own ones only.
    static let contentSecurityPolicy =
        "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' data:; connect-src 'self'; "
        + "base-uri 'none'; form-action 'none'; frame-ancestors 'none'"

    /// All files, in the order of their names.
    static var all: [File] {
        (0..<sluice_page_file_count()).compactMap { index in
            guard let file = sluice_page_file_at(index) else { return nil }
            return File(
                path: String(cString: file.pointee.path), type: String(cString: file.pointee.type),
                bytes: UnsafeRawBufferPointer(start: file.pointee.bytes, count: file.pointee.count))
        }
    }

    /// File for the path of a request, without its query; nil for paths that the page lacks.
    static func file(_ path: String) -> File? { all.first { $0.path == path } }
}
