import CSimulatorPage
import HTTP1

/// Files of the page that shows the devices. They are part of the program, so none is read at run time.
enum PageFiles {
    /// A file and its head.
    struct File {
        /// Path of the request, as `/page.js`.
        let path: String
        /// MIME type with its character set.
        let type: String
        let bytes: [UInt8]
    }

    /// Value of `Content-Security-Policy` for all files. Scripts, styles, pictures and requests are the own ones only.
    private static let contentSecurityPolicy =
        "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' data:; connect-src 'self'; "
        + "base-uri 'none'; form-action 'none'; frame-ancestors 'none'"

    /// All files, in the order of their names.
    static let all: [File] = (0..<sluice_page_file_count()).compactMap { index in
        guard let file = sluice_page_file_at(index) else { return nil }
        return File(
            path: String(cString: file.pointee.path), type: String(cString: file.pointee.type),
            bytes: Array(UnsafeBufferPointer(start: file.pointee.bytes, count: file.pointee.count)))
    }

    /// Returns the answer for a path without its query; nil when no file has the path.
    static func response(_ path: String) -> HTTPResponse? {
        guard let file = all.first(where: { $0.path == path }) else { return nil }
        return HTTPResponse(status: 200, type: file.type, body: file.bytes)
            .with("Content-Security-Policy", contentSecurityPolicy)
            .with("Cache-Control", "no-cache")
            .with("X-Content-Type-Options", "nosniff")
            .with("Referrer-Policy", "no-referrer")
            .with("Cross-Origin-Opener-Policy", "same-origin")
            .with("Cross-Origin-Resource-Policy", "same-origin")
            .with("X-Frame-Options", "DENY")
    }
}
