import Foundation

/// Draws a view on a terminal until a key or a signal ends it.
struct TopScreen {
    let pollers: [WorkerPoller]
    let terminal: TopTerminal
    let signals: TopSignals

    /// Returns when the person quits. The terminal is as before.
    func run() {
        terminal.enter()
        defer { terminal.leave() }
        var choices = TopChoices()
        var drawn = choices
        var workers = pollers.map(\.worker)
        var scrapes = -1
        var size = (columns: 0, rows: 0)
        var clock = Self.clock()
        var isWhole = true
        while true {
            let count = pollers.reduce(0) { $0 + $1.scrapes }
            let isNew = count != scrapes && !choices.isPaused
            if isNew {
                scrapes = count
                workers = pollers.map(\.worker)
                clock = Self.clock()
            }
            let current = terminal.size
            if current != size {
                size = current
                isWhole = true
            }
            if isNew || isWhole || choices != drawn {
                var view = TopView(
                    workers: workers, choices: choices, now: Date().timeIntervalSince1970, clock: clock)
                choices.scroll = min(choices.scroll, view.maximumScroll(rows: size.rows))
                view.choices = choices
                let frame = view.frame(columns: size.columns, rows: size.rows)
                guard terminal.draw(frame, isWhole: isWhole) else { return }
                drawn = choices
                isWhole = false
            }
            guard let keys = terminal.keys(within: 50) else { return }
            for key in keys {
                guard Self.apply(key, to: &choices, rows: size.rows, workers: workers.count) else { return }
            }
            switch signals.next() {
            case nil: break
            case SIGTSTP:
                terminal.leave()
                kill(getpid(), SIGSTOP)
                terminal.enter()
                isWhole = true
            default: return
            }
        }
    }

    /// Applies a key. Returns false when the key ends the view.
    static func apply(_ key: TopTerminal.Key, to choices: inout TopChoices, rows: Int, workers: Int) -> Bool {
        let page = max(1, rows - 3)
        switch key {
        case .character("q"), .character("Q"): return false
        case .character("p"), .character(" "): choices.isPaused.toggle()
        case .character("s"): choices.nextOrder()
        case .tab: choices.selectNext(of: workers)
        case .backTab: choices.selectPrevious(of: workers)
        case .up, .character("k"): choices.scroll = max(0, choices.scroll - 1)
        case .down, .character("j"): choices.scroll += 1
        case .pageUp: choices.scroll = max(0, choices.scroll - page)
        case .pageDown: choices.scroll += page
        case .home: choices.scroll = 0
        // The frame limits the position.
        case .end: choices.scroll = Int(Int32.max)
        case .character: break
        }
        return true
    }

    /// Local time of day.
    static func clock() -> String {
        var seconds = time(nil)
        var parts = tm()
        localtime_r(&seconds, &parts)
        return String(format: "%02d:%02d:%02d", parts.tm_hour, parts.tm_min, parts.tm_sec)
    }
}
