import DeviceModel

/// Searches over much of the model, in portions between which pushes have their turn.
extension DeviceRegistry {
    /// Pushes that match, newest first.
    func pushes(_ query: PushQuery) -> [PushView] {
        var found: [PushView] = []
        var rest = query
        while true {
            let choice = rest
            let (views, before) = read { world, _ in world.portion(of: choice) }
            found += views
            guard let before, found.count < query.limit else { return found }
            rest.before = before
            rest.limit = query.limit - found.count
        }
    }

    /// Devices that match, a page of them. Devices that change during the search are as they were when visited.
    func devices(_ query: DeviceQuery) -> DevicePage {
        var search = DeviceSearch(query)
        while true {
            let page: DevicePage? = read { world, _ in
                world.look(&search) ? world.page(of: search) : nil
            }
            if let page { return page }
        }
    }

    /// Looks at what a condition has not seen yet. Returns the result when the condition holds.
    func look(_ watch: inout ConditionWatch) -> WaitResult? {
        while true {
            switch read({ world, _ in world.look(&watch) }) {
            case .more: continue
            case .nothing: return nil
            case .matched(let result): return result
            }
        }
    }
}
