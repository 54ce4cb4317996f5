/// Scenarios that `sluice bench` has built in.
enum BenchScenarios {
    /// All scenarios, in the order in which they are listed.
    static let all: [BenchSource] = [
        steady, campaign, flashCrowd, massReturn, outage, oneAppDown, wrongEnvironment, tokenExpiry,
        rollingRestart, rebalanceStorm, millionHeld,
    ].map { text in
        let name = text.prefix { $0 != "\n" }.dropFirst("name: ".count)
        return BenchSource(name: String(name), text: text, directory: ".")
    }

    private static let steady = """
        name: steady
        description: An even load of one app, far below the limit
        simulator: {delay: 20ms, delay-spread: 20ms}
        devices: {count: 100000, popularity: zipf(1.1)}
        loads:
          - name: alerts
            arrivals: {kind: poisson, rate: 1000/s}
            payload: {bytes: 150..600}
        phases:
          - {name: warm-up, kind: warm-up, duration: 5s}
          - {name: main, duration: 30s}
          - {name: drain, kind: drain, duration: 30s}
        thresholds:
          lost: 0
          duplicated: 0
          accepted-share: ≥ 1
          latency-p99: ≤ 250ms
          rate: ≥ 900/s

        """

    private static let campaign = """
        name: campaign-and-alerts
        description: A campaign of low priority must not delay the alerts beside it
        simulator: {delay: 20ms, delay-spread: 20ms}
        devices: {count: 200000, popularity: uniform}
        apps:
          - {name: shop, bundle: com.example.shop}
          - {name: bank, bundle: com.example.bank}
        loads:
          - name: alerts
            arrivals: {kind: constant, rate: 100/s}
            apps: {bank: 1}
            priority: 10
          - name: campaign
            arrivals: {kind: poisson, rate: 3000/s}
            phases: [evening]
            apps: {shop: 1}
            priority: 5
            payload: {bytes: 250..900}
            collapse: {share: 0.3, identifiers: 20}
            ttl: 1h
        phases:
          - {name: warm-up, kind: warm-up, duration: 5s}
          - {name: quiet, duration: 5s}
          - {name: evening, duration: 20s}
          - {name: after, duration: 5s}
          - {name: drain, kind: drain, duration: 60s}
        thresholds:
          lost: 0
          duplicated: 0
          alerts.accepted-share: ≥ 1
          alerts.latency-p99: ≤ 500ms
          campaign.latency-p99: ≤ 2s

        """

    private static let flashCrowd = """
        name: flash-crowd
        description: A crowd multiplies the rate by eight for a while; latency recovers after it
        simulator: {delay: 20ms, delay-spread: 20ms}
        devices: {count: 200000, popularity: zipf(1.05)}
        loads:
          - name: scores
            arrivals: {kind: bursts, rate: 400/s, every: 1s, length: 500ms}
            collapse: {share: 0.5, identifiers: 5}
        phases:
          - {name: warm-up, kind: warm-up, duration: 5s}
          - {name: before, duration: 10s}
          - {name: crowd, duration: 10s, rate-factor: 8}
          - {name: after, duration: 10s}
          - {name: drain, kind: drain, duration: 60s}
        thresholds:
          lost: 0
          duplicated: 0
          rejected-share: 0
          crowd.latency-p99: ≤ 5s
          after.latency-p99: ≤ 1s

        """

    private static let massReturn = """
        name: mass-return
        description: Half of the devices are offline, and all are back within seconds
        workers: {store: without-changelog, settings: {delivery: {known-devices: 65536, return-rate: 5000}}}
        simulator: {delay: 20ms, delay-spread: 20ms}
        devices: {count: 20000, offline-share: 0.5, return-at: 25s, return-over: 5s}
        loads:
          - name: chat
            arrivals: {kind: poisson, rate: 500/s}
            delivery: hold-while-offline
            ttl: 1h
        phases:
          - {name: outage, duration: 25s}
          - {name: return, duration: 10s}
          - {name: drain, kind: drain, duration: 60s}
        thresholds:
          lost: 0
          duplicated: 0
          rejected-share: 0
          latency-p99: ≤ 10s

        """

    private static let outage = """
        name: apns-outage
        description: APNs is gone for a while; each push is delivered once it is back
        workers: {settings: {delivery: {retry: {initial: 200ms, maximum: 2s}}}}
        simulator: {delay: 20ms, delay-spread: 20ms}
        loads:
          - name: alerts
            arrivals: {kind: poisson, rate: 400/s}
            ttl: 1h
        phases:
          - {name: warm-up, kind: warm-up, duration: 5s}
          - {name: before, duration: 5s}
          - {name: outage, duration: 10s}
          - {name: recovery, duration: 10s}
          - {name: after, duration: 10s}
          - {name: drain, kind: drain, duration: 60s}
        actions:
          - {at: 10s, do: outage, for: 10s}
        thresholds:
          lost: 0
          duplicated: 0
          rejected-share: 0
          undeliverable-share: 0
          expired-share: 0
          after.latency-p99: ≤ 1s

        """

    private static let oneAppDown = """
        name: one-app-down
        description: APNs refuses the key of one app of many; the other apps notice nothing
        simulator: {delay: 20ms, delay-spread: 20ms}
        apps:
          - {name: news, credential: own}
          - {name: chat, credential: own}
          - {name: shop, credential: own}
          - {name: maps, credential: own}
          - {name: broken, credential: refused}
        loads:
          - name: healthy
            arrivals: {kind: poisson, rate: 500/s}
            apps: {news: 1, chat: 1, shop: 1, maps: 1}
          - name: failing
            arrivals: {kind: poisson, rate: 50/s}
            apps: {broken: 1}
            ttl: 3s
        phases:
          - {name: warm-up, kind: warm-up, duration: 5s}
          - {name: main, duration: 30s}
          - {name: drain, kind: drain, duration: 60s}
        thresholds:
          lost: 0
          duplicated: 0
          healthy.accepted-share: ≥ 1
          healthy.latency-p99: ≤ 500ms
          failing.accepted-share: ≤ 0

        """

    private static let wrongEnvironment = """
        name: wrong-environment
        description: A tenth of the tokens are of the other environment; their pushes are rejected, once each
        simulator:
          delay: 20ms
          delay-spread: 20ms
          error-budget: off
          faults:
            - {at: 12s, environment: {of: device-tokens, share: 0.1}}
        loads:
          - name: alerts
            arrivals: {kind: poisson, rate: 500/s}
        phases:
          - {name: warm-up, kind: warm-up, duration: 5s}
          - {name: before, duration: 5s}
          - {name: mixed, duration: 20s}
          - {name: drain, kind: drain, duration: 30s}
        thresholds:
          lost: 0
          duplicated: 0
          before.rejected-share: ≤ 0.01
          rejected-share: ≤ 0.15
          attempts-per-job: ≤ 1.01
          latency-p99: ≤ 500ms

        """

    private static let tokenExpiry = """
        name: token-expiry-storm
        description: Many device tokens end at once while APNs calls provider tokens expired
        workers: {settings: {delivery: {retry: {initial: 200ms, maximum: 2s}}}}
        simulator:
          delay: 20ms
          delay-spread: 20ms
          error-budget: off
          faults:
            - {at: 10s, for: 5s, answers: {ExpiredProviderToken: 0.2}}
            - {at: 10s, for: 10s, answers: {Unregistered: 0.3}}
        devices: {count: 50000, popularity: zipf(1.1), churn-per-minute: 6000}
        loads:
          - name: alerts
            arrivals: {kind: poisson, rate: 500/s}
        phases:
          - {name: warm-up, kind: warm-up, duration: 5s}
          - {name: before, duration: 5s}
          - {name: storm, duration: 10s}
          - {name: after, duration: 10s}
          - {name: drain, kind: drain, duration: 60s}
        thresholds:
          lost: 0
          duplicated: 0
          undeliverable-share: 0
          rejected-share: ≤ 0.4
          after.latency-p99: ≤ 2s

        """

    private static let rollingRestart = """
        name: rolling-restart
        description: Each worker is restarted in order, in place, with its held pushes
        workers: {count: 1, store: without-changelog, instance-ids: true}
        simulator: {delay: 20ms, delay-spread: 20ms}
        loads:
          - name: alerts
            arrivals: {kind: poisson, rate: 300/s}
          - name: scheduled
            arrivals: {kind: poisson, rate: 50/s}
            deliver-after: 2s..10s
        phases:
          - {name: warm-up, kind: warm-up, duration: 5s}
          - {name: main, duration: 40s}
          - {name: drain, kind: drain, duration: 60s}
        actions:
          - {at: 10s, do: rolling-restart}
          - {at: 25s, do: rolling-restart}
        thresholds:
          lost: 0
          duplicated: 0
          accepted-share: ≥ 1
          latency-p99: ≤ 20s

        """

    private static let rebalanceStorm = """
        name: rebalance-storm
        description: Workers are killed again and again; with kind kafka, other workers take over
        workers: {count: 1, store: without-changelog, instance-ids: true}
        simulator: {delay: 20ms, delay-spread: 20ms}
        loads:
          - name: alerts
            arrivals: {kind: poisson, rate: 200/s}
        phases:
          - {name: warm-up, kind: warm-up, duration: 5s}
          - {name: main, duration: 50s}
          - {name: drain, kind: drain, duration: 90s}
        actions:
          - {at: 10s, do: kill-worker, for: 2s}
          - {at: 25s, do: restart-worker}
          - {at: 40s, do: kill-worker, for: 2s}
        thresholds:
          lost: 0
          duplicated-share: ≤ 0.15
          rejected-share: 0

        """

    private static let millionHeld = """
        name: million-held
        description: A million pushes wait in the store for their time, and are delivered on time
        workers: {store: without-changelog, settings: {store: {after: 1s}}}
        simulator: {delay: 5ms, delay-spread: 5ms}
        devices: {count: 1000000}
        producers: 2
        loads:
          - name: scheduled
            arrivals: {kind: constant, rate: 10000/s}
            deliver-after: 2m..4m
            phases: [fill]
        phases:
          - {name: fill, duration: 100s}
          - {name: wait, duration: 20s}
          - {name: deliver, duration: 120s}
          - {name: drain, kind: drain, duration: 120s}
        thresholds:
          lost: 0
          duplicated: 0
          accepted-share: ≥ 1
          latency-p99: ≤ 10s

        """
}
