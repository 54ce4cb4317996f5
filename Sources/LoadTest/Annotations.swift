extension RunResult {
    /// Most annotations of a result, and of its page.
    public static let mostAnnotations = 500
    /// Most annotations of a result that is read.
    static let mostReadAnnotations = 10_000
}

extension [RunResult.Annotation] {
    /// Returns the annotations in order of time, at most ``RunResult/mostAnnotations``.
    ///
    /// When there are more, notes stay before actions, and actions before faults. The earliest of a kind stay. A note has
    /// the numbers of the others.
    /// - Parameter faults: faults that were left out already.
    public func bounded(leftOut faults: Int = 0) -> [RunResult.Annotation] {
        let kinds: [RunResult.AnnotationKind] = [.note, .action, .fault]
        func rank(_ index: Int, _ ordered: Self) -> Int { kinds.firstIndex(of: ordered[index].kind) ?? 0 }
        // A stable sort: annotations of the same time keep their order.
        let ordered = enumerated().sorted { ($0.element.at, $0.offset) < ($1.element.at, $1.offset) }
            .map(\.element)
        guard ordered.count > RunResult.mostAnnotations || faults > 0 else { return ordered }
        let kept = Set(
            ordered.indices.sorted { (rank($0, ordered), $0) < (rank($1, ordered), $1) }
                .prefix(RunResult.mostAnnotations - 1))
        let dropped = ordered.indices.filter { !kept.contains($0) }
        var result = kept.sorted().map { ordered[$0] }
        let counts = [
            ("fault", dropped.count { ordered[$0].kind == .fault } + faults),
            ("action", dropped.count { ordered[$0].kind == .action }),
            ("note", dropped.count { ordered[$0].kind == .note }),
        ]
        let words = counts.filter { $0.1 > 0 }.map { name, count in
            "\(FigureText.count(count)) \(count == 1 ? name : name + "s")"
        }
        let at = dropped.first.map { ordered[$0].at } ?? ordered.last { $0.kind == .fault }?.at ?? 0
        let place = result.firstIndex { $0.at > at } ?? result.count
        result.insert(
            .init(at: at, kind: .note, text: "left out from here on: \(words.joined(separator: ", "))"),
            at: place)
        return result
    }
}
