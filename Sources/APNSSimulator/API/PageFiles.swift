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

    /// Files that are part of the program.
    public static let embedded: PageFiles = {
        var files: [String: File] = [:]
        for file in EmbeddedPage.all {
            let name = file.path == "/" ? "index.html" : String(file.path.dropFirst())
            files[name] = File(type: file.type, bytes: Array(file.bytes))
        }
        return PageFiles(files: files)
    }()

    /// Returns the answer for a path; nil when no file has it.
    func response(_ path: String) -> HTTPResponse? {
        let name = path == "/" ? "index.html" : String(path.dropFirst())
        guard let file = files[name] else { return nil }
        return HTTPResponse(status: 200, type: file.type, body: file.bytes)
            .with("Content-Security-Policy", EmbeddedPage.contentSecurityPolicy)
            .with("Cache-Control", "no-cache")
            .with("X-Content-Type-Options", "nosniff")
            .with("Referrer-Policy", "no-referrer")
            .with("Cross-Origin-Opener-Policy", "same-origin")
            .with("Cross-Origin-Resource-Policy", "same-origin")
            .with("X-Frame-Options", "DENY")
    }
}
