/// Watches nothing. The world tells a worker of changed files by ``Worker/renewCredentials(_:)``.
final class CredentialWatcher: Sendable {
    enum Step: Sendable {
        case look
        case settled
    }

    func start(files: @escaping @Sendable () -> Set<String>, act: @escaping @Sendable (Step) -> Void) {}

    func stop() {}
}
