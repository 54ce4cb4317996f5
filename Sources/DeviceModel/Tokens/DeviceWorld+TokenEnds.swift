import SluiceModel

/// Ends of tokens that wait for the network.
struct TokenEnds: Sendable {
    /// Tokens that ended while the device was unreachable. APNs doesn't know of their end.
    var unreported: [UInt32] = []
    /// Tokens from before a restored backup. The next registration names them.
    var former: [UInt32] = []

    var isEmpty: Bool { unreported.isEmpty && former.isEmpty }
}

/// Ends of tokens that a device reports when APNs is reachable.
extension DeviceWorld {
    mutating func changeEnds(of device: UInt32, _ body: (inout TokenEnds) -> Void) {
        guard Int(device) < devices.count, devices[Int(device)] != nil else { return }
        var ends = devices[Int(device)]!.ends?.value ?? TokenEnds()
        body(&ends)
        devices[Int(device)]!.ends = ends.isEmpty ? nil : Boxed(ends)
    }

    /// Tells APNs of the tokens that ended meanwhile.
    mutating func reportEnds(_ device: UInt32, now: Int64) {
        guard let ends = devices[Int(device)]?.ends?.value, !ends.unreported.isEmpty else { return }
        changeEnds(of: device) { $0.unreported = [] }
        // A token may be forgotten meanwhile, and its index may stand for another token.
        for token in ends.unreported
        where tokens[token].device == device && tokens[token].invalidSince != nil
            && tokens[token].goneAt == nil
        {
            scheduleGone(token, now: now)
        }
    }

    /// Chooses the time from which a token answers 410.
    mutating func scheduleGone(_ token: UInt32, now: Int64) {
        let delay = settings.goneDelay > 0 ? Int64(random.next() % UInt64(settings.goneDelay)) : 0
        tokens[token].goneAt = now + delay
    }

    /// Takes the tokens that an app had before a restored backup.
    mutating func takeFormer(_ app: UInt16, on device: UInt32) -> [UInt32] {
        guard let ends = devices[Int(device)]?.ends?.value, !ends.former.isEmpty else { return [] }
        let former = ends.former.filter {
            tokens[$0].device == device && tokens[$0].app == app && tokens[$0].invalidSince != nil
        }
        changeEnds(of: device) { $0.former.removeAll { former.contains($0) } }
        return former
    }

    /// Environment of an app's tokens on a device.
    func environment(of installation: Installation) -> PushEnvironment {
        installation.environment ?? appTable[installation.app].environment ?? .production
    }
}
