import Foundation
import Testing

/// Checks that each mutation of the list still matches a text of the sources, and can compile.
@Suite("Repository: mutation list")
struct MutationListTests {
    private struct Mutation: Decodable {
        var name: String
        var file: String
        var original: String
        var site: String?
        var mutated: String
        var kind: String

        /// Why the mutated copy can't compile; nil when its brackets and labels show no reason.
        var problem: String? {
            for code in [site ?? original, mutated] {
                for (open, close) in [("(", ")"), ("[", "]"), ("{", "}")] as [(Character, Character)]
                where code.count(where: { $0 == open }) != code.count(where: { $0 == close }) {
                    return "replaces a part of a bracketed expression: \(code)"
                }
                if kind == "expression", code.prefixMatch(of: #/\w+: /#) != nil {
                    return "replaces an argument with its label: \(code)"
                }
            }
            return nil
        }
    }

    @Test("each mutation's text occurs once in its file")
    func mutationTextOccursOnceInItsFile() throws {
        let list = try Data(contentsOf: Repository.root.appending(path: "Tests/Simulation/mutations.json"))
        let mutations = try JSONDecoder().decode([Mutation].self, from: list)
        #expect(mutations.count >= 20)
        for mutation in mutations {
            let file = Repository.root.appending(path: "Sources/\(mutation.file)")
            guard let text = try? String(contentsOf: file, encoding: .utf8) else {
                Issue.record("\"\(mutation.name)\": there is no Sources/\(mutation.file)")
                continue
            }
            let count = text.components(separatedBy: mutation.original).count - 1
            #expect(count == 1, "\"\(mutation.name)\": its text occurs \(count) times in \(mutation.file)")
            #expect(mutation.site.map(mutation.original.contains) ?? true, "\"\(mutation.name)\"")
            #expect(mutation.problem == nil, "\"\(mutation.name)\"")
        }
    }
}
