/// Scenarios that `sluice bench` has built in.
enum BenchScenarios {
    /// All scenarios, in the order in which they are listed.
    static let all: [BenchSource] = texts.map { BenchSource(name: $0.name, text: $0.text, directory: ".") }

    private static let texts: [(name: String, text: String)] = [
        ("steady", steady)
    ]

    private static let steady = """
        name: steady
        description: An even load of one app, far below the limit
        seed: 1
        simulator: {delay: 20ms, delay-spread: 20ms}
        devices: {count: 100000, popularity: zipf(1.1)}
        loads:
          - name: alerts
            arrivals: {kind: poisson, rate: 1000/s}
            payload: {bytes: 150..600}
        phases:
          - {name: warm-up, kind: warm-up, duration: 5s}
          - {name: main, kind: main, duration: 30s}
          - {name: drain, kind: drain, duration: 30s}
        thresholds:
          lost: 0
          duplicated: 0
          accepted-share: ≥ 1
          latency-p99: ≤ 250ms
          rate: ≥ 900/s

        """
}
