/// Wakes of an app by silent pushes.
struct BackgroundBudget: Sendable {
}
