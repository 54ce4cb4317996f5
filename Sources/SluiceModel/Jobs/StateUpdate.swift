/// Meaning of a push that carries a whole state: a later one makes it useless.
public enum StateUpdate: Sendable {
    /// A new state: a Live Activity's update, a reload of widgets or controls.
    case update
    /// The last state: a Live Activity's end.
    case end
}

extension PushJob {
    /// Meaning of the push as a state; nil for a push that carries none, such as the start of a Live Activity. Reads the
    /// payload's `aps.event`.
    public var stateUpdate: StateUpdate? {
        switch pushType {
        case .widgets, .controls: return .update
        case .liveActivity: break
        default: return nil
        }
        guard !isBroadcast, let aps = Self.member("aps", of: payload), aps.first == UInt8(ascii: "{"),
            let event = Self.member("event", of: aps)
        else { return nil }
        if event.elementsEqual(bytesOf: "\"update\"") { return .update }
        return event.elementsEqual(bytesOf: "\"end\"") ? .end : nil
    }

    /// Returns the value of an object's member as written; nil without the member. The last of several counts.
    private static func member(
        _ name: StaticString, of object: UnsafeRawBufferPointer
    ) -> UnsafeRawBufferPointer? {
        var members = JSONMembers(object)
        var value: UnsafeRawBufferPointer?
        while let member = members.next() {
            if member.name.elementsEqual(bytesOf: name) { value = member.value }
        }
        return value
    }
}
