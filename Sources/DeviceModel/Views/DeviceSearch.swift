import SluiceModel

/// A search over all devices, in portions between which the owner of the world may do other things.
public struct DeviceSearch: Sendable {
    public let query: DeviceQuery
    /// Devices that match.
    fileprivate var found: [UInt32] = []
    /// Device that the next portion begins with.
    fileprivate var next = 0

    public init(_ query: DeviceQuery) { self.query = query }

    /// Whether the query chooses devices; without a condition nothing is searched.
    fileprivate var chooses: Bool {
        !(query.query?.isEmpty ?? true) || query.app != nil || query.filter != nil || query.order != .id
    }
}

/// Numbers of existing devices in blocks of consecutive numbers, so that a page of many devices is found quickly.
struct DeviceBlocks: Sendable {
    private var counts: [UInt16] = []
    private static let size = 1_024

    mutating func add(_ id: UInt32) {
        let block = Int(id) / Self.size
        while counts.count <= block { counts.append(0) }
        counts[block] += 1
    }

    mutating func remove(_ id: UInt32) { counts[Int(id) / Self.size] -= 1 }

    /// First device of the block that has the existing device with a place, and the places before the block.
    func start(of place: Int) -> (device: Int, before: Int) {
        var before = 0
        for (block, count) in counts.enumerated() {
            if before + Int(count) > place { return (block * Self.size, before) }
            before += Int(count)
        }
        return (counts.count * Self.size, before)
    }
}

extension DeviceWorld {
    /// Visits the next devices of a search. Returns whether all were visited.
    public func look(_ search: inout DeviceSearch) -> Bool {
        guard search.chooses else { return true }
        let query = search.query
        let text = (query.query?.isEmpty ?? true) ? nil : query.query?.lowercased()
        let named = text.flatMap { device(ofToken: $0) ?? deviceOfPush($0) }
        var left = Self.lookedDevices
        var texts = text == nil ? Int.max : Self.lookedTexts
        while search.next < devices.count, left > 0, texts > 0 {
            let id = UInt32(search.next)
            search.next += 1
            left -= 1
            guard let device = devices[Int(id)] else { continue }
            if query.app != nil, !device.installations.contains(where: { isApp($0.app, query.app) }) {
                continue
            }
            if let filter = query.filter, !passes(device, filter) { continue }
            if let text {
                if let named, named != id { continue }
                if named == nil {
                    for installation in device.installations { texts -= installation.centre.delivered.count }
                    if !matches(device, id, text) { continue }
                }
            }
            search.found.append(id)
        }
        return search.next >= devices.count
    }

    /// Page of a search that is done.
    public func page(of search: DeviceSearch) -> DevicePage {
        let query = search.query
        let limit = max(0, query.limit)
        let offset = max(0, query.offset)
        guard search.chooses else { return page(offset: offset, limit: limit) }
        var found = search.found
        if query.order == .recent {
            func recent(_ id: UInt32) -> Int64 {
                Int(id) < devices.count ? devices[Int(id)]?.lastPushAt ?? 0 : 0
            }
            found = found.map { (recent($0), $0) }.sorted { $0 > $1 }.map(\.1)
        }
        return DevicePage(
            total: found.count, offset: offset,
            items: found.dropFirst(offset).prefix(limit).compactMap { summary($0) })
    }

    private func page(offset: Int, limit: Int) -> DevicePage {
        var (index, place) = counts.blocks.start(of: offset)
        var items: [DeviceSummary] = []
        while index < devices.count, items.count < limit {
            if devices[index] != nil {
                if place >= offset, let item = summary(UInt32(index)) { items.append(item) }
                place += 1
            }
            index += 1
        }
        return DevicePage(total: counts.all, offset: offset, items: items)
    }

    // MARK: - All devices and tokens

    /// Views of the devices from a number on, and the number to go on with; nil at the end.
    public func devices(
        from first: UInt32, limit: Int, now: Int64
    ) -> (views: [DeviceView], next: UInt32?) {
        var views: [DeviceView] = []
        var index = Int(first)
        let end = min(devices.count, index + Self.lookedDevices)
        while index < end, views.count < limit {
            if let view = device(UInt32(index), now: now) { views.append(view) }
            index += 1
        }
        return (views, index < devices.count ? UInt32(index) : nil)
    }

    /// Views of the tokens from a position on, and the position to go on with; nil at the end.
    public func tokens(from first: UInt32, limit: Int) -> (views: [TokenView], next: UInt32?) {
        let end = min(tokens.places, Int(first) + max(1, limit))
        guard Int(first) < end else { return ([], nil) }
        let views = (first..<UInt32(end)).filter { !tokens[$0].bytes.isEmpty }.map { view(token: $0) }
        return (views, end < tokens.places ? UInt32(end) : nil)
    }
}
