import Foundation
import Testing

/// Comments below `Sources` keep the first rule of CONTRIBUTING's Words.
@Suite("Repository: comments")
struct CommentTests {
    @Test("no comment begins with What, Who, One, Those or Of")
    func noCommentBeginsWithABannedWord() throws {
        let files = FileManager.default.enumerator(
            at: Repository.root.appending(path: "Sources"), includingPropertiesForKeys: nil)
        var checked = 0
        while let file = files?.nextObject() as? URL {
            guard ["swift", "h", "c", "cpp"].contains(file.pathExtension) else { continue }
            checked += 1
            var isInComment = false
            let lines = try String(contentsOf: file, encoding: .utf8).components(separatedBy: "\n")
            for (number, line) in lines.enumerated() {
                let text = line.drop { $0 == " " }
                guard text.hasPrefix("//") else {
                    isInComment = false
                    continue
                }
                let words = text.drop { "/ ".contains($0) }
                if !isInComment {
                    let first = words.prefix { $0.isLetter }
                    #expect(
                        !["What", "Who", "One", "Those", "Of"].contains(first),
                        "\(file.lastPathComponent):\(number + 1): \(words)")
                }
                isInComment = true
            }
        }
        #expect(checked > 300)
    }
}
