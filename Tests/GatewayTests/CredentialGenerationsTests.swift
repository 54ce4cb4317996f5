import SluiceModel
import Testing

@testable import Gateway

@Suite struct CredentialGenerationsTests {
    /// Generations of a certificate, whose access is its name.
    private func certificates(_ names: String...) -> CredentialGenerations<String> {
        var generations = CredentialGenerations(hasKeys: false, names[0])
        for name in names.dropFirst() { generations.replace(hasKeys: false, by: name) }
        return generations
    }

    @Test func connectionsKeepTheirGeneration() {
        var generations = certificates("a", "b", "c")
        #expect(generations.serving.access == "c")
        #expect(generations.generation(0)?.access == "a")
        #expect(generations.generation(1)?.access == "b")
        #expect(generations.generation(3) == nil)
        generations.update { number, access in access += "\(number)" }
        #expect(generations.serving.access == "c2")
        #expect(generations.earlier.map(\.access) == ["b1", "a0"])
    }

    @Test func generationsWithoutConnectionsAreForgottenButTheLastCertificate() {
        var generations = certificates("a", "b", "c")
        generations.forget { _ in false }
        #expect(generations.earlier.map(\.access) == ["b"])
        var keys = CredentialGenerations(hasKeys: true, "a")
        keys.replace(hasKeys: true, by: "b")
        keys.replace(hasKeys: true, by: "c")
        keys.forget { $0 == 0 }
        #expect(keys.earlier.map(\.access) == ["a"])
    }

    @Test func onlyAnUnprovenRenewalIsUndone() {
        var generations = certificates("a", "b")
        #expect(generations.judge(.badCertificate, on: 1, isProven: true) == .none)
        #expect(generations.judge(.badCertificate, on: 1, isProven: false) == .undoesRenewal)
        generations.undoRenewal()
        #expect(generations.serving.access == "a")
        #expect(generations.serving.number == 0)
        // The renewed certificate's connections are refused as well. A later generation has a number of its own.
        #expect(generations.judge(.badCertificate, on: 1, isProven: false) == .isReplaced)
        generations.replace(hasKeys: false, by: "c")
        #expect(generations.serving.number == 2)
        #expect(certificates("a").judge(.badCertificate, on: 0, isProven: false) == .none)
    }

    @Test func aRefusedKeyGivesWayOnceAndOtherReasonsChangeNothing() {
        var generations = CredentialGenerations(hasKeys: true, "a")
        #expect(generations.judge(.badCertificate, on: 0, isProven: false) == .none)
        #expect(generations.judge(.badDeviceToken, on: 0, isProven: false) == .none)
        #expect(generations.judge(.invalidProviderToken, on: 0, isProven: true) == .refusesKey)
        generations.replace(hasKeys: true, by: "b")
        #expect(generations.judge(.invalidProviderToken, on: 0, isProven: false) == .isReplaced)
        generations.forget { _ in false }
        #expect(generations.judge(.invalidProviderToken, on: 0, isProven: false) == .none)
    }

    /// Single pushes try refused keys in turn, and a refused certificate can't be that of a credential with keys.
    @Test func refusedKeysAndForeignCertificatesStopNoPool() {
        let keys = CredentialGenerations(hasKeys: true, "a")
        for reason in Reason.allCases {
            let isSpared = reason.refusesKey || reason.refusesCertificate
            #expect(keys.stopsPool(after: reason) != isSpared, "\(reason)")
        }
        let certificate = CredentialGenerations(hasKeys: false, "a")
        #expect(Reason.allCases.allSatisfy { certificate.stopsPool(after: $0) })
    }

    /// A certificate in the place of keys can't be undone by a reason that refuses keys.
    @Test func theKindOfTheServingGenerationCounts() {
        var generations = CredentialGenerations(hasKeys: true, "key")
        generations.replace(hasKeys: false, by: "certificate")
        #expect(generations.judge(.invalidProviderToken, on: 1, isProven: false) == .none)
        #expect(generations.judge(.badCertificate, on: 1, isProven: false) == .undoesRenewal)
    }
}
