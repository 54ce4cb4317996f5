/// Part of the sending that an operator can pause.
public enum PauseScope: Hashable, Sendable, Comparable, CustomStringConvertible {
    /// All sending of all apps.
    case all
    /// An app, by its name in the configuration.
    case app(String)
    /// A topic, by the value of `apns-topic`.
    case topic(String)
    /// A credential, by its name in the configuration.
    case credential(String)

    /// Kinds of scopes.
    public enum Kind: String, CaseIterable, Sendable {
        case all, app, topic, credential
    }

    /// Makes the scope of a kind and name; nil when the kind needs a name and has none, needs none and has one, or the
    /// name has a control character or more than 255 bytes.
    public init?(_ kind: Kind, name: String?) {
        guard kind != .all else {
            guard name == nil else { return nil }
            self = .all
            return
        }
        guard let name, !name.isEmpty, name.utf8.count <= SwitchRecord.mostTextBytes,
            name.utf8.allSatisfy({ $0 >= 0x20 && $0 != 0x7f })
        else { return nil }
        switch kind {
        case .all: return nil
        case .app: self = .app(name)
        case .topic: self = .topic(name)
        case .credential: self = .credential(name)
        }
    }

    public var kind: Kind {
        switch self {
        case .all: .all
        case .app: .app
        case .topic: .topic
        case .credential: .credential
        }
    }

    /// Name of the app, topic or credential; nil for all sending.
    public var name: String? {
        switch self {
        case .all: nil
        case .app(let name), .topic(let name), .credential(let name): name
        }
    }

    /// The scope for people, such as `app news`.
    public var description: String { name.map { "\(kind.rawValue) \($0)" } ?? "all sending" }

    public static func < (left: PauseScope, right: PauseScope) -> Bool {
        (left.kind.rank, left.name ?? "") < (right.kind.rank, right.name ?? "")
    }
}

extension PauseScope.Kind {
    fileprivate var rank: Int { Self.allCases.firstIndex(of: self) ?? 0 }
}
