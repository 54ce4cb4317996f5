import SluiceModel
import Testing

@testable import sluice

/// The view of `sluice top` from recorded texts: what is read, what is computed, what is shown.
struct TopViewTests {
    // MARK: Reader of the text format

    @Test func samplesAreReadWithLabelsEscapesAndTimes() {
        let document = MetricsDocument(
            Array(
                #"""
                # HELP a A help.
                # TYPE a counter
                a 1
                a{x="1",b="q\"\\\n}"} 2.5e3 1700000000000
                  b { c = "d" , } +Inf
                b{} NaN
                """#.utf8))
        #expect(document.faults == [])
        #expect(document["a"].count == 2)
        #expect(document["a"][1].labels.map(\.name) == ["b", "x"])
        #expect(document["a"][1]["b"] == "q\"\\\n}")
        #expect(document["a"][1].value == 2_500)
        #expect(document["b"][0]["c"] == "d")
        #expect(document["b"][0].value == .infinity)
        #expect(document["b"][1].value.isNaN)
        #expect(document.contains("a") && !document.contains("c"))
    }

    @Test(arguments: [
        "a", "a{", "a{} ", "{} 1", "a{b} 1", "a{b=} 1", "a{b=\"} 1", "a{b=\"\\", "a{b=\"c\"d} 1", "a x",
        "a 1 x",
        "a 1 2 3", "1a 2", "a{1=\"\"} 1", "\u{0}", "a\u{e4} 1",
    ])
    func lineThatIsNoSampleIsReportedAndTheOthersAreRead(_ line: String) {
        let document = MetricsDocument(Array("good 1\n\(line)\ngood 2\n".utf8))
        #expect(document.faultCount == 1)
        #expect(document.faults.count == 1 && document.faults[0].hasPrefix("line 2: "))
        #expect(document["good"].map(\.value) == [1, 2])
    }

    @Test func randomBytesAreNeverATrap() {
        var random = SeededGenerator(seed: 21)
        let alphabet = Array("a{}=\",\\n 01.+-e#\n\r\t\u{fe}".utf8) + [0xFF, 0]
        for _ in 0..<2_000 {
            let text = (0..<Int.random(in: 0..<60, using: &random)).map { _ in
                alphabet.randomElement(using: &random)!
            }
            let document = MetricsDocument(text)
            _ = WorkerFigures(MetricsWindow(before: document, now: document, seconds: 1), worker: "w")
        }
    }

    @Test func samplesBeyondTheLimitAreLeftOutWithAWord() {
        let document = MetricsDocument(Array("a 1\na 2\na 3\n".utf8), mostSamples: 2)
        #expect(document["a"].count == 2)
        #expect(document.isTruncated)
        #expect(document.faultTexts.count == 1)
        let faulty = MetricsDocument(Array("x\nx\nx\nx\nx\n".utf8))
        #expect(faulty.faultTexts.count == 4)
        #expect(faulty.faultTexts[3] == "2 further lines can't be read")
    }

    // MARK: Figures between two scrapes

    private func window(_ before: String?, _ now: String, seconds: Double = 2) -> MetricsWindow {
        MetricsWindow(
            before: before.map { MetricsDocument(Array($0.utf8)) }, now: MetricsDocument(Array(now.utf8)),
            seconds: seconds)
    }

    @Test func ratesAreIncreasesByTime() {
        let window = window("a 10\nb{k=\"x\"} 5\n", "a 30\nb{k=\"x\"} 6\nb{k=\"y\"} 4\n")
        #expect(window.rate("a") == 10)
        #expect(window.rates("b", by: "k") == ["x": 0.5, "y": 2])
        #expect(window.rate("c") == nil)
    }

    @Test func counterThatFellAfterARestartCountsFromZero() {
        #expect(window("a 1000\n", "a 6\n").rate("a") == 3)
        let histogram = window(
            "h_bucket{le=\"1\"} 90\nh_bucket{le=\"+Inf\"} 100\n",
            "h_bucket{le=\"1\"} 2\nh_bucket{le=\"+Inf\"} 2\n"
        ).histogram("h")
        #expect(histogram?.total == 2)
    }

    @Test func oneScrapeHasGaugesAndNoRates() {
        let window = window(nil, "a 10\nh_bucket{le=\"+Inf\"} 1\n")
        #expect(window.rate("a") == nil)
        #expect(window.histogram("h") == nil)
        #expect(window.sum("a") == 10)
        #expect(self.window("a 1\n", "a 2\n", seconds: 0).rate("a") == nil)
    }

    @Test func quantilesAreInterpolatedOverTheObservationsBetweenTheScrapes() throws {
        let before =
            "h_bucket{x=\"1\",le=\"1\"} 50\nh_bucket{x=\"1\",le=\"2\"} 50\nh_bucket{x=\"1\",le=\"+Inf\"} 50\n"
        let now =
            "h_bucket{x=\"1\",le=\"1\"} 60\nh_bucket{x=\"1\",le=\"2\"} 150\nh_bucket{x=\"1\",le=\"+Inf\"} 150\n"
            + "h_bucket{x=\"2\",le=\"4\"} 0\nh_bucket{x=\"2\",le=\"+Inf\"} 0\n"
        let histogram = try #require(window(before, now).histogram("h"))
        #expect(histogram.total == 100)
        #expect(histogram.quantile(0.1) == 1)
        #expect(histogram.quantile(0.55) == 1.5)
        #expect(histogram.quantile(1) == 2)
        #expect(HistogramIncrease().quantile(0.5) == nil)
        let endless = try #require(
            window(
                "h_bucket{le=\"1\"} 0\nh_bucket{le=\"+Inf\"} 0\n",
                "h_bucket{le=\"1\"} 0\nh_bucket{le=\"+Inf\"} 5\n"
            ).histogram("h"))
        #expect(endless.quantile(0.5) == 1)
    }

    @Test func sumOfWorkersAddsRatesAndMergesPools() {
        func figures(_ jobs: Int, oldest: Double, expiry: Int) -> WorkerFigures {
            let text = """
                sluice_jobs_total \(jobs)
                sluice_topics_stopped \(jobs / 10)
                sluice_apns_connections{credential="team",environment="production",state="active"} 2
                sluice_queue_depth{credential="team",environment="production",priority="10"} 3
                sluice_queue_oldest_age_seconds{credential="team",environment="production",priority="10"} \(oldest)
                sluice_credential_expiry_timestamp_seconds{credential="team",environment="production"} \(expiry)
                """
            return WorkerFigures(window("sluice_jobs_total 0\n", text), worker: "w")
        }
        var sum = WorkerFigures()
        sum.add(figures(10, oldest: 4, expiry: 100), worker: "a")
        sum.add(figures(30, oldest: 2, expiry: 50), worker: "b")
        #expect(sum.jobs == 20)
        #expect(sum.topicsStopped == 3)
        #expect(sum.pools.count == 1)
        let pool = sum.pools[.init(credential: "team", environment: "production")]
        #expect(pool?.connections == ["active": 4])
        #expect(pool?.waiting == 6)
        #expect(pool?.oldest == 4)
        #expect(pool?.expiry == 50)
        #expect(sum.priorities["10"]?.oldest == 4)
    }

    // MARK: View

    private static let before = """
        sluice_jobs_total 100
        sluice_outcomes_total{app="news",kind="accepted"} 100
        sluice_job_latency_seconds_bucket{app="news",le="0.5"} 0
        sluice_job_latency_seconds_bucket{app="news",le="+Inf"} 0
        sluice_loop_busy_seconds_total{loop="shard-0"} 10
        sluice_apns_errors_total{credential="team",environment="production",reason="Unregistered"} 0
        """
    private static let now = """
        sluice_jobs_total 2568
        sluice_outcomes_total{app="news",kind="accepted"} 2500
        sluice_outcomes_total{app="news",kind="rejected"} 68
        sluice_job_latency_seconds_bucket{app="news",le="0.5"} 100
        sluice_job_latency_seconds_bucket{app="news",le="+Inf"} 100
        sluice_jobs_outstanding 42
        sluice_jobs_outstanding_limit 20000
        sluice_loop_busy_seconds_total{loop="shard-0"} 11.8
        sluice_apns_connections{credential="team",environment="production",state="active"} 3
        sluice_apns_connections{credential="team",environment="production",state="suspected"} 1
        sluice_apns_connections_target{credential="team",environment="production"} 4
        sluice_apns_circuit_open{credential="team",environment="production"} 1
        sluice_credential_expiry_timestamp_seconds{credential="team",environment="production"} 1000864000
        sluice_apns_errors_total{credential="team",environment="production",reason="Unregistered"} 20
        sluice_kafka_lag_records{topic="sluice.jobs",partition="7"} 1234
        sluice_kafka_lag_seconds{topic="sluice.jobs",partition="7"} 12
        sluice_head_of_line_seconds{topic="sluice.jobs",partition="7"} 75
        sluice_partitions_assigned 1
        sluice_partitions_paused{cause="limit"} 1
        sluice_store_items{partition="7"} 5
        sluice_store_failing 1
        """

    private func worker(_ name: String, _ state: TopWorker.State = .ready) -> TopWorker {
        TopWorker(
            name: name, state: state, figures: WorkerFigures(window(Self.before, Self.now), worker: name))
    }

    private func text(_ view: TopView) -> String { view.lines().map(\.text).joined(separator: "\n") }

    @Test func recordedTextsShowRatesPoolsPartitionsStoreAndErrors() {
        let text = text(TopView(workers: [worker("w:1")], now: 1_000_000_000))
        for part in [
            "1 worker, 1 ready", "1,234", "accepted 1,200  confirmed 0  rejected 34", "42/20,000", "250 ms",
            "495 ms",
            "4/4 active 3 suspected 1", "1 open", "in 10 d", "sluice.jobs[7]", "75 s", "1 paused (limit)",
            "5 items", "FAILING", "shard-0 90%", "APNs answered  Unregistered",
        ] {
            #expect(text.contains(part), "\(part) in\n\(text)")
        }
    }

    /// Whoever sees pushes wait must see that somebody has told them to.
    @Test func pausesByOperatorsAreNamedOnce() {
        func worker(_ name: String, _ pauses: String) -> TopWorker {
            TopWorker(
                name: name, state: .ready, figures: WorkerFigures(window("", pauses), worker: name))
        }
        let first = worker(
            "a:1",
            """
            sluice_paused{scope="all",name=""} 1
            sluice_paused{scope="app",name="news"} 1
            sluice_partitions_assigned 2
            sluice_partitions_paused{cause="paused"} 2

            """)
        let second = worker("b:2", "sluice_paused{scope=\"all\",name=\"\"} 1\nx 1\n")
        let both = text(TopView(workers: [first, second], now: 0))
        #expect(both.contains("PAUSED BY AN OPERATOR  all sending, app news\n"), "\(both)")
        #expect(both.contains("2 paused (operator)"))
        let none = worker("c:3", "sluice_paused{scope=\"all\",name=\"\"} 0\n")
        #expect(!text(TopView(workers: [none], now: 0)).contains("OPERATOR"))
    }

    @Test func workersThatCannotCommitAreCounted() {
        func worker(_ name: String, _ isHeld: Int) -> TopWorker {
            TopWorker(
                name: name, state: .ready,
                figures: WorkerFigures(window("", "sluice_pushes_held \(isHeld)\n"), worker: name))
        }
        let text = text(TopView(workers: [worker("a:1", 1), worker("b:2", 1), worker("c:3", 0)], now: 0))
        #expect(text.contains("PUSHES HELD  2 workers can't commit"), "\(text)")
        #expect(!self.text(TopView(workers: [worker("c:3", 0)], now: 0)).contains("HELD"))
    }

    @Test func missingFamiliesShowADash() {
        let empty = TopWorker(
            name: "w:1", state: .ready, figures: WorkerFigures(window("", "x 1\n"), worker: "w:1"))
        let text = text(TopView(workers: [empty], now: 0))
        #expect(text.contains("accepted –"))
        #expect(text.contains("pushes –"))
        #expect(!text.contains("PARTITIONS") && !text.contains("STORE") && !text.contains("CREDENTIAL"))
    }

    @Test func workerThatIsDownShowsItsReasonAndTheOthersStay() {
        let workers = [
            worker("a:1"), TopWorker(name: "b:2", state: .down("no connection: Connection refused")),
            worker("c:3", .notReady(["the worker is stopping"])),
        ]
        var view = TopView(workers: workers, now: 0)
        let text = text(view)
        #expect(text.contains("3 workers, 1 ready, 1 down"))
        #expect(text.contains("b:2: no connection: Connection refused"))
        #expect(text.contains("c:3: the worker is stopping"))
        #expect(text.contains("accepted 2,400"))
        view.choices.selected = 0
        #expect(self.text(view).contains("accepted 1,200"))
        view.choices.selected = 1
        #expect(!self.text(view).contains("OUTCOMES"))
    }

    @Test func orderPutsTheGreatestFirst() {
        var slow = worker("slow")
        slow.figures?.jobs = 1
        let view = TopView(
            workers: [TopWorker(name: "gone", state: .down("x")), slow, worker("fast")],
            choices: TopChoices(order: .jobs), now: 0)
        let names = view.lines().dropFirst(2).prefix(3).map { $0.text.split(separator: " ")[0] }
        #expect(names == ["fast", "slow", "gone"])
    }

    @Test(arguments: [(1, 1), (1, 50), (3, 2), (10, 3), (40, 4), (80, 10), (200, 100), (0, 0), (0, 9)])
    func frameNeverExceedsItsTerminal(_ columns: Int, _ rows: Int) {
        for scroll in [0, 3, 1_000] {
            let view = TopView(
                workers: [worker("a:1"), worker("b:2")], choices: TopChoices(scroll: scroll), now: 0)
            let frame = view.frame(columns: columns, rows: rows)
            #expect(frame.count <= rows)
            #expect(frame.allSatisfy { $0.width <= columns })
        }
    }

    @Test func scrollShowsTheLastLineAndTheHeadingStays() {
        let view = TopView(workers: [worker("a:1")], choices: TopChoices(scroll: 1_000), now: 0)
        let frame = view.frame(columns: 200, rows: 10)
        #expect(frame.count == 10)
        #expect(frame[0].text.hasPrefix("sluice top"))
        #expect(frame[8].text == view.lines().last?.text)
        #expect(frame[9].text.contains("0 below"))
    }

    @Test func controlCharactersOfLabelsReachNoTerminal() {
        let text = "sluice_apns_errors_total{reason=\"\u{1B}[2Jevil\u{7}\u{9B}\"} 5\n"
        let figures = WorkerFigures(window("", text), worker: "w")
        let lines = TopView(workers: [TopWorker(name: "w", state: .ready, figures: figures)], now: 0).lines()
        #expect(lines.contains { $0.text.contains(#"\u001b[2Jevil\u0007\u009b"#) })
        for line in lines {
            #expect(line.text.unicodeScalars.allSatisfy { $0.properties.generalCategory != .control })
        }
    }

    @Test func wideCharactersTakeTwoColumns() {
        let line = TopLine("日本語a")
        #expect(line.width == 7)
        #expect(line.clipped(to: 5).text == "日本")
    }

    @Test func numbersHaveShortForms() {
        #expect(TopNumbers.count(nil) == "–")
        #expect(TopNumbers.count(.nan) == "–")
        #expect(TopNumbers.count(0) == "0")
        #expect(TopNumbers.count(7.25) == "7.2")
        #expect(TopNumbers.count(99_999) == "99,999")
        #expect(TopNumbers.count(123_456) == "123k")
        #expect(TopNumbers.count(12_345_678) == "12.35M")
        #expect(TopNumbers.count(1e300) == ">1000T")
        #expect(TopNumbers.bytes(1_500) == "1.5 kB")
        #expect(TopNumbers.seconds(0.0004) == "0.4 ms")
        #expect(TopNumbers.seconds(320) == "5 m 20 s")
        #expect(TopNumbers.seconds(1e12) == "∞")
        #expect(TopNumbers.seconds(-5) == "-5.00 s")
    }
}
