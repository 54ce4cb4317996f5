/// Latest state of a push.
enum Fate: UInt8, CaseIterable, Sendable {
    /// APNs accepted the push; nothing else has happened yet.
    case accepted
    /// APNs refused the push.
    case rejected
    /// APNs stores the push.
    case stored
    /// The device holds a silent push, or a notification waits for the summary or the start of its device.
    case held
    /// The service extension runs.
    case running
    /// The push reached a surface that the user can see.
    case shown
    /// The notification is in the list without light and sound.
    case silent
    /// The push woke the app, or reached the app's code.
    case woken
    /// The push changed a Live Activity, a badge, a widget or a control.
    case updated
    case replaced, removed, dropped, expired, opened, dismissed

    var name: String { "\(self)" }
}
