/// A value on the heap that copies share until one changes. Saves memory where most owners have equal values.
indirect enum Boxed<Value: Sendable>: Sendable {
    case value(Value)

    init(_ value: Value) { self = .value(value) }

    var value: Value {
        get {
            switch self {
            case .value(let value): value
            }
        }
        set { self = .value(newValue) }
    }
}
