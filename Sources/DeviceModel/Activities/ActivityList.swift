/// Live Activities of an app on a device.
struct ActivityList: Sendable {
}
