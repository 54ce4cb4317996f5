extension Configuration {
    /// Section `jobs`.
    public struct Jobs: Sendable, Equatable {
        /// Names of the headers that return on outcomes, or beginnings of names followed by `*`.
        public var passHeaders: [String]
        /// Time by which a producer's clock may be ahead. A later time of creation, event or registration counts as
        /// earlier.
        public var clockTolerance: Duration

        public init(
            passHeaders: [String] = ["traceparent", "tracestate", "x-*"],
            clockTolerance: Duration = .seconds(300)
        ) {
            self.passHeaders = passHeaders
            self.clockTolerance = clockTolerance
        }
    }

    static func readJobs(_ section: SectionReader) -> Jobs {
        let defaults = Jobs()
        return Jobs(
            passHeaders: section.texts(
                "pass-headers", kind: "list of text", default: defaults.passHeaders, required: false,
                commaSeparated: true, mayBeEmpty: true,
                help:
                    "headers of a job that return on its outcome, at most 1 KiB together; `x-*`: all names with this beginning; `[]`: none",
                check: checkHeader),
            clockTolerance: section.duration(
                "clock-tolerance", .zero...(.seconds(86_400)), default: defaults.clockTolerance,
                help:
                    "time by which a producer's clock may be ahead; a later `created-at`, `occurred-at` or `registered-at` counts as the record's timestamp"
            ))
    }

    /// Checks the name of a header, or the beginning of names.
    private static func checkHeader(_ text: String) -> String? {
        let name = text.hasSuffix("*") ? text.dropLast() : text[...]
        guard (1...255).contains(name.utf8.count) else { return "has 1 to 255 bytes, besides a `*`" }
        guard name.utf8.allSatisfy({ (0x21...0x7E).contains($0) && $0 != UInt8(ascii: "*") }) else {
            return "must be printable ASCII without blanks; a `*` is allowed at the end only"
        }
        return nil
    }
}
