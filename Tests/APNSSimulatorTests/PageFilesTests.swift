import Foundation
import Testing

@testable import APNSSimulator

/// The embedded page is the one in the sources, and needs nothing else.
@Suite("Simulator: page files")
struct PageFilesTests {
    private static let directory = URL(filePath: #filePath).deletingLastPathComponent()
        .appending(path: "../../Sources/APNSSimulator/Page").standardized

    @Test("the program has each file of the page, byte for byte, and no other")
    func embeddedFilesAreTheSources() throws {
        let names = try FileManager.default.contentsOfDirectory(atPath: Self.directory.path).sorted()
        let embedded = PageFiles.all
        #expect(
            embedded.map { $0.path == "/" ? "index.html" : String($0.path.dropFirst()) }.sorted() == names)
        for file in embedded {
            let name = file.path == "/" ? "index.html" : String(file.path.dropFirst())
            #expect(try Data(contentsOf: Self.directory.appending(path: name)) == Data(file.bytes), "\(name)")
        }
    }

    @Test("each file has the type that browsers need under nosniff")
    func typesFitTheNames() {
        let types = ["css": "text/css", "js": "text/javascript", "svg": "image/svg+xml"]
        for file in PageFiles.all {
            let ending = file.path.split(separator: ".").last.map(String.init) ?? ""
            #expect(
                file.type.hasPrefix(file.path == "/" ? "text/html" : types[ending] ?? "none"), "\(file.path)")
        }
        #expect(PageFiles.response("/page.js")?.status == 200)
        #expect(PageFiles.response("/../page.js") == nil)
    }

    @Test(
        "scripts import only files of the page, and no file has an inline script, an inline style or a foreign address"
    )
    func pageNeedsNoOtherOrigin() throws {
        let paths = Set(PageFiles.all.map(\.path))
        for file in PageFiles.all {
            let text = String(decoding: file.bytes, as: UTF8.self)
            for found in text.matches(of: #/from "\.(/[^"]+)"/#) {
                #expect(paths.contains(String(found.1)), "\(file.path) imports \(found.1)")
            }
            // Relative addresses keep the scheme, host and folder of a proxy before the simulator.
            let absolute = text.matches(of: #/["'`(]\/[a-z]+/#).map { String($0.0) }
            #expect(absolute.isEmpty, "\(file.path): \(absolute)")
            // Namespaces and the hint's address of the simulator are no requests.
            let addresses = text.matches(of: #/(?:http|ws)s?:\/\/[^\s"`'}<$]+/#).map { String($0.0) }
            #expect(
                addresses.allSatisfy {
                    $0.hasPrefix("http://www.w3.org/") || $0.hasPrefix("https://127.0.0.1:")
                },
                "\(file.path): \(addresses)")
            for forbidden in [
                " style=\"", "onclick=", "innerHTML", "outerHTML", "insertAdjacentHTML", "eval(",
            ] {
                #expect(!text.contains(forbidden), "\(file.path) has \(forbidden)")
            }
        }
    }
}
