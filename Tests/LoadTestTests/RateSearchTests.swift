import SluiceModel
import Testing

@testable import LoadTest

@Suite("Load test: search for a rate")
struct RateSearchTests {
    /// Searches where a rate passes with a probability that falls from 1 to 0 around the limit.
    private func search(limit: Double, start: Double, width: Double, seed: UInt64) -> RateSearch {
        var search = RateSearch(start: start)
        var random = SeededGenerator(seed: seed)
        while let next = search.next {
            let place = (next.rate / limit - 1) / width
            let chance = width == 0 ? (next.rate <= limit ? 1 : 0) : min(1, max(0, 0.5 - place))
            search.record(isPassed: Arrivals.unit(&random) < chance)
        }
        return search
    }

    @Test(arguments: [1.0, 37, 1_000, 9_999, 250_000])
    func exactLimitIsFoundWithinThePrecision(limit: Double) throws {
        let search = search(limit: limit, start: 1_000, width: 0, seed: 1)
        let rate = try #require(search.confirmed)
        #expect(rate <= limit && rate > limit / 1.06)
        #expect(search.failed.map { $0 > limit } == true)
        #expect(search.probes.suffix(2).allSatisfy { $0.isConfirmation && $0.isPassed && $0.rate == rate })
        #expect(search.probes.count < 30)
    }

    @Test func noisyLimitIsFoundNearby() {
        var rates: [Double] = []
        for seed in UInt64(1)...200 {
            let search = search(limit: 5_000, start: 1_000, width: 0.1, seed: seed)
            if let rate = search.confirmed { rates.append(rate) }
        }
        #expect(rates.count >= 195)
        #expect(rates.allSatisfy { (3_500...5_300).contains($0) }, "\(rates.min() ?? 0) \(rates.max() ?? 0)")
        // A rate that fails every other time must not be the usual answer.
        #expect(rates.sorted()[rates.count / 2] < 5_100)
    }

    @Test func nothingPassesAndTheSearchEnds() {
        var search = RateSearch(start: 100)
        while search.next != nil { search.record(isPassed: false, generatorWasLimit: true) }
        #expect(search.confirmed == nil)
        #expect(search.probes.count <= 12)
        #expect(search.isLimitedByGenerator)
    }

    @Test func everythingPassesAndTheSearchEnds() {
        var search = RateSearch(start: 100)
        while search.next != nil { search.record(isPassed: true) }
        #expect(search.confirmed == 102_400)
    }
}
