/// Live Activities as the API and the page see them.
extension DeviceWorld {
    /// Live Activities with the declared layout: highest relevance first, then in the order of their start. Dismissed
    /// ones are last.
    func activityViews(_ installation: Installation, on device: UInt32) -> [ActivityView] {
        guard let list = installation.activities?.value else { return [] }
        let app = appTable[installation.app]
        return list.activities
            .sorted {
                ($0.phase == .dismissed ? 1 : 0, -$0.relevance, $0.number)
                    < ($1.phase == .dismissed ? 1 : 0, -$1.relevance, $1.number)
            }
            .map { view($0, of: app) }
    }

    /// Live Activities that are not dismissed.
    func activityCount(_ installation: Installation) -> Int { installation.activities?.value.visible ?? 0 }

    /// Update token; nil: none, or it is forgotten since the activity's end.
    private func token(of activity: Activity) -> String? {
        guard activity.token != TokenTable.none, tokens[activity.token].activity == activity.number,
            !tokens[activity.token].bytes.isEmpty
        else { return nil }
        return tokens.text(activity.token)
    }

    private func view(_ activity: Activity, of app: AppDeclaration) -> ActivityView {
        let layout = ActivityLayout(activity, app)
        return ActivityView(
            id: activity.number, type: activity.type, state: activity.phase.rawValue,
            startedAt: activity.startedAt, updatedAt: activity.updatedAt, staleAt: activity.staleAt,
            dismissAt: activity.dismissAt, relevance: activity.relevance, channel: activity.channel,
            token: token(of: activity),
            attributes: activity.attributes, contentState: activity.content, title: layout.title,
            lines: layout.lines, leading: layout.leading, trailing: layout.trailing,
            progress: layout.progress, alerted: activity.alerted)
    }
}

/// Texts of a Live Activity on lock screen and Dynamic Island.
struct ActivityLayout {
    var title: String
    var lines: [String]
    /// Halves of the compact Dynamic Island.
    var leading: String
    var trailing: String
    /// From 0 to 1; nil for no bar.
    var progress: Double?

    /// Lines of an activity whose app declares no layout.
    static let mostLines = 8

    init(_ activity: Activity, _ app: AppDeclaration) {
        let name = app.name ?? app.bundle
        let content = activity.content
        let declared = app.activities?.first { $0.type == activity.type }
        func fill(_ template: String) -> String {
            Template.fill(template) {
                (content.value(at: $0) ?? activity.attributes.value(at: $0))?.plainText
            }
        }
        title = declared?.title.map(fill) ?? name
        guard let declared else {
            let members = (content.members ?? [:]).sorted { $0.key < $1.key }.filter {
                !$0.value.plainText.isEmpty
            }
            lines = members.prefix(Self.mostLines).map { "\($0.key): \($0.value.plainText)" }
            leading = members.first?.value.plainText ?? ""
            trailing = members.dropFirst().first?.value.plainText ?? ""
            progress = nil
            return
        }
        lines = (declared.lines ?? []).map(fill)
        leading = declared.leading.map(fill) ?? ""
        trailing = declared.trailing.map(fill) ?? ""
        progress = declared.progress.flatMap { content.value(at: $0)?.double }.map { min(max($0, 0), 1) }
    }
}
