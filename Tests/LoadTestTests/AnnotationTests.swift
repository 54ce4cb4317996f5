import Testing

@testable import LoadTest

@Suite("Load test: number of annotations")
struct AnnotationTests {
    private typealias Annotation = RunResult.Annotation

    private func faults(_ count: Int) -> [Annotation] {
        (0..<count).map { .init(at: Double($0), kind: .fault, text: "fault \($0)") }
    }

    private let others: [Annotation] = [
        .init(at: 900, kind: .note, text: "last"), .init(at: 700.5, kind: .action, text: "late"),
        .init(at: 0.5, kind: .action, text: "early"),
    ]

    @Test func annotationsWithinTheLimitStayInOrderOfTime() {
        let all = (faults(497) + others).bounded()
        #expect(all.count == 500 && all.map(\.at) == all.map(\.at).sorted())
        #expect(!all.contains { $0.text.hasPrefix("left out") })
        #expect([Annotation]().bounded() == [])
        // Annotations of the same time keep their order.
        let same: [Annotation] = [
            .init(at: 1, kind: .note, text: "b"), .init(at: 1, kind: .fault, text: "a"),
        ]
        #expect(same.bounded() == same)
    }

    @Test func lateFaultsAreLeftOutAndCountedBeforeAnyActionOrNote() throws {
        let all = (faults(600) + others).bounded()
        #expect(all.count == 500 && all.map(\.at) == all.map(\.at).sorted())
        #expect(others.allSatisfy(all.contains))
        let note = try #require(all.first { $0.text.hasPrefix("left out") })
        // 499 stay beside the note.
        #expect(note == .init(at: 496, kind: .note, text: "left out from here on: 104 faults"))
        #expect(all.count { $0.kind == .fault } == 496)
        // Faults that never became annotations are counted as well.
        let more = (faults(600) + others).bounded(leftOut: 1_000)
        #expect(more.contains { $0.text == "left out from here on: 1,104 faults" })
        #expect(faults(3).bounded(leftOut: 1).last?.text == "left out from here on: 1 fault")
    }

    @Test func actionsAreLeftOutBeforeNotes() {
        let notes = (0..<400).map { Annotation(at: Double($0), kind: .note, text: "n") }
        let actions = (0..<200).map { Annotation(at: Double($0), kind: .action, text: "a") }
        let all = (faults(1) + actions + notes).bounded()
        #expect(all.count { $0.kind == .note } == 401 && all.count { $0.kind == .action } == 99)
        #expect(all.contains { $0.text == "left out from here on: 1 fault, 101 actions" })
    }

    @Test func pageAndMergeAreBounded() throws {
        var one = SampleResults.run(seed: 1)
        one.annotations = faults(9_000)
        #expect(one.fault == nil)
        let page = RunReport(one).page()
        #expect(page.contains("left out from here on: 8,501 faults"))
        #expect(page.contains("fault 498<") && !page.contains("fault 499<"))
        var two = SampleResults.run(seed: 2)
        two.annotations = faults(300).map { .init(at: $0.at + 0.25, kind: .fault, text: "other") }
        one.annotations = faults(300)
        let whole = try RunResult.merged([one, two]) { _ in [] }
        #expect(whole.annotations.count == 500)
        #expect(whole.annotations.contains { $0.text == "left out from here on: 101 faults" })
        one.annotations = faults(10_001)
        #expect(one.fault?.contains("annotations has 10001 members") == true)
    }
}
