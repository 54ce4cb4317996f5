import DeviceModel
import HTTP1

/// Adds devices in portions. Between two portions pushes and other requests have their turn, and events reach their
/// readers before the log drops them.
final class DeviceAddition: HTTPWork {
    private let registry: DeviceRegistry
    /// Name of the devices, followed by a number when there are several; nil for none.
    private let name: String?
    /// Bundle identifiers of the apps; nil for all declared apps.
    private let apps: [String]?
    private let count: Int
    /// Numbers of the devices that were added so far.
    private var added: [UInt32] = []

    /// Most devices of a portion, for which the model is locked.
    private static let portion = 100

    private struct AddedDevices: Encodable {
        var devices: [UInt32]
    }

    init(registry: DeviceRegistry, name: String?, apps: [String]?, count: Int) {
        self.registry = registry
        self.name = name
        self.apps = apps
        self.count = count
    }

    func step() -> HTTPWorkState {
        let first = added.count
        let looked = registry.lookedAtEvent
        let (ids, fault): ([UInt32], DeviceFault?) = registry.change { world, now in
            // Half of the log is left for the events of others.
            let room = UInt64(max(world.settings.maximumEvents / 2, 1))
            var ids: [UInt32] = []
            for index in first..<min(count, first + Self.portion) {
                guard world.lastEvent < looked + room else { break }
                let name = name.map { count == 1 ? $0 : "\($0) \(index + 1)" }
                do throws(DeviceFault) {
                    ids.append(try world.addDevice(name: name, apps: apps, now: now))
                } catch {
                    return (ids, error)
                }
            }
            return (ids, nil)
        }
        added += ids
        if let fault { return .ended(self.fault(fault).response) }
        if added.count == count { return .ended(.json(201, AddedDevices(devices: added))) }
        return added.count == first ? .idle : .more
    }

    private func fault(_ error: DeviceFault) -> APIFault {
        var fault = APIFault(error)
        if !added.isEmpty {
            fault.text +=
                "; \(added.count) of \(count) devices were added, from \(added[0]) to \(added[added.count - 1])"
        }
        return fault
    }
}
