import Synchronization

/// Part of a large value that is read where it is. Without it, the compiler copies a machine of a kilobyte to the stack
/// for each call that doesn't change it.
struct InPlace: ~Copyable {
    private let cell = Atomic<Bool>(false)
}
