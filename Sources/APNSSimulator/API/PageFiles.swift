/// Files of the page, by their paths.
public struct PageFiles: Sendable {
    public struct File: Sendable {
        /// MIME type.
        public var type: String
        public var bytes: [UInt8]

        public init(type: String, bytes: [UInt8]) {
            self.type = type
            self.bytes = bytes
        }
    }

    /// Files by path without the leading slash; `index.html` is served at `/`.
    public var files: [String: File]

    public init(files: [String: File]) { self.files = files }

    /// Page that names the API, for a simulator without a page.
    public static let placeholder = PageFiles(files: [
        "index.html": File(
            type: "text/html; charset=utf-8",
            bytes: Array(
                """
                <!doctype html><html lang="en"><meta charset="utf-8"><title>Sluice simulator</title>
                <h1>Sluice simulator</h1><p>The API is at <a href="/api/status">/api/status</a>.</p></html>

                """.utf8))
    ])

    /// Scripts, styles and pictures of the simulator itself, and nothing else.
    static let policy =
        "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' data: blob:; connect-src 'self'; "
        + "font-src 'self'; manifest-src 'self'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'"

    /// Returns the answer for a path; nil when no file has it.
    func response(_ path: String) -> HTTPResponse? {
        let name = path == "/" ? "index.html" : String(path.dropFirst())
        guard let file = files[name] else { return nil }
        return HTTPResponse(status: 200, type: file.type, body: file.bytes)
            .with("Content-Security-Policy", Self.policy)
            .with("Cache-Control", "no-cache")
            .with("X-Content-Type-Options", "nosniff")
            .with("Referrer-Policy", "no-referrer")
            .with("Cross-Origin-Opener-Policy", "same-origin")
            .with("Cross-Origin-Resource-Policy", "same-origin")
            .with("X-Frame-Options", "DENY")
    }
}
