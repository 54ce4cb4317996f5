import EventLoop
import HTTP2

/// Faults of connections to APNs, and of what leads there.
final class ConnectionFaults {
    private let scene: FaultScene
    /// Hosts that don't reach APNs.
    private var lostHosts: Set<Int> = []

    init(_ scene: FaultScene) {
        self.scene = scene
        scene.network.whenDialled = { [weak self] link in
            guard let self, let host = scene.host(of: link), lostHosts.contains(host.number) else { return }
            link.opening = .unanswered
        }
    }

    func end() {
        lostHosts = []
        scene.network.route = SimulatedRoute()
        scene.network.names[SimulatedAPNS.host] = .addresses([SimulatedAPNS.address])
        for link in scene.network.links {
            link.isBlackHole = false
            setPath(of: link, SimulatedPath())
        }
    }

    /// Returns nil when nothing is there to be hit.
    func begin(_ fault: WorkerFault, _ host: WorkerHost) -> FaultScene.Effect? {
        switch fault {
        case .cut, .halfClose, .blackHole, .slowConnection:
            guard let link = scene.network.links.randomElement(using: &scene.scheduler.random) else {
                return nil
            }
            scene.note("connection \(link.number): \(fault)")
            return FaultScene.Effect(host: scene.host(of: link)?.number, nanoseconds: hit(link, fault))
        case .hostWithoutAPNs:
            scene.note("worker \(host.number) doesn't reach APNs")
            return FaultScene.Effect(host: host.number, nanoseconds: lose(host))
        default:
            scene.note("\(fault)")
            return FaultScene.Effect(nanoseconds: beginForAll(fault))
        }
    }

    /// Returns the nanoseconds for which the fault lasts.
    private func hit(_ link: SimulatedLink, _ fault: WorkerFault) -> UInt64 {
        switch fault {
        case .cut: link.cut(client: scene.chance(800), server: scene.chance(800))
        case .halfClose: link.end(client: scene.chance(700), server: scene.chance(300))
        case .blackHole:
            link.isBlackHole = true
            scene.auditor.delayed(link: link.number)
            return scene.after(seconds: 1...20) { [weak link] in link?.isBlackHole = false }
        default:
            var path = link.client.path
            if scene.chance(500) { path.latency = UInt64(scene.draw(100...20_000)) * 1_000_000 }
            if scene.chance(500) { path.bytesPerSecond = UInt64(scene.draw(300...20_000)) }
            if scene.chance(500) { path.sendBuffer = scene.draw(500...8000) }
            setPath(of: link, path)
            scene.auditor.slowed(link: link.number)
            return scene.after(seconds: 5...40) { [weak link, weak self] in
                if let link { self?.setPath(of: link, SimulatedPath()) }
            }
        }
        return 0
    }

    private func setPath(of link: SimulatedLink, _ path: SimulatedPath) {
        var path = path
        path.isBlackHole = link.isBlackHole
        link.client.path = path
        link.server.path = path
    }

    private func lose(_ host: WorkerHost) -> UInt64 {
        lostHosts.insert(host.number)
        for link in scene.network.links where scene.host(of: link) === host {
            link.isBlackHole = true
            scene.auditor.delayed(link: link.number)
        }
        return scene.after(seconds: 1...30) { [weak self] in
            guard let self else { return }
            lostHosts.remove(host.number)
            for link in scene.network.links where scene.host(of: link) === host { link.isBlackHole = false }
        }
    }

    private func beginForAll(_ fault: WorkerFault) -> UInt64 {
        let (network, apns) = (scene.network, scene.apns)
        switch fault {
        case .goAway:
            apns.execute { [scheduler = scene.scheduler] in
                apns.open.randomElement(using: &scheduler.random)?.goAway(
                    debugData: #"{"reason":"Shutdown"}"#)
            }
            return 0
        case .nameService:
            network.names[SimulatedAPNS.host] = scene.choose([
                .silent, .failing(isTemporary: true), .failing(isTemporary: false),
            ])
            return scene.after(seconds: 1...30) {
                network.names[SimulatedAPNS.host] = .addresses([SimulatedAPNS.address])
            }
        case .refusedDial:
            network.route.opening = scene.choose([.refused, .unanswered, .unreachable])
            return scene.after(seconds: 1...30) { network.route.opening = .accepted }
        default:
            network.route.handshake = scene.choose([
                .hanging, .failing(.certificateExpired), .failing(.unknownAuthority),
                .failing(.protocolRefused), .failing(.noCommonParameters),
            ])
            return scene.after(seconds: 1...30) { network.route.handshake = .completed }
        }
    }
}
