/// APNs environment that a job names: the `environment` field. A job without the field is sent to the environment of its
/// app's credential.
public enum JobEnvironment: UInt8, CaseIterable, BitwiseCopyable, Sendable {
    /// Apps from the App Store, TestFlight and other distribution.
    case production
    /// Apple's sandbox: apps that Xcode installed.
    case development

    /// Value of the field `environment`.
    public var name: StaticString {
        switch self {
        case .production: "production"
        case .development: "development"
        }
    }

    /// Second spelling of ``development``.
    static let sandbox: StaticString = "sandbox"

    /// Finds the environment with this name, or under its second spelling; nil for anything else.
    public init?(name: UnsafeRawBufferPointer) {
        if name.elementsEqual(bytesOf: Self.production.name) {
            self = .production
        } else if name.elementsEqual(bytesOf: Self.development.name)
            || name.elementsEqual(bytesOf: Self.sandbox)
        {
            self = .development
        } else {
            return nil
        }
    }
}
