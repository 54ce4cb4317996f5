import SluiceModel
import Testing

@Suite struct ReasonTests {
    /// Status and class of every documented reason, copied a second time from Apple's tables.
    static let documented: [(String, UInt16, ReasonClass)] = [
        ("BadCollapseId", 400, .job), ("BadDeviceToken", 400, .token), ("BadExpirationDate", 400, .job),
        ("BadMessageId", 400, .job), ("BadPriority", 400, .job), ("BadTopic", 400, .job),
        ("DeviceTokenNotForTopic", 400, .token), ("DuplicateHeaders", 400, .job),
        ("IdleTimeout", 400, .connection),
        ("InvalidPushType", 400, .job), ("MissingDeviceToken", 400, .job), ("MissingTopic", 400, .job),
        ("PayloadEmpty", 400, .job), ("TopicDisallowed", 400, .configuration),
        ("BadCertificate", 403, .configuration), ("BadCertificateEnvironment", 403, .configuration),
        ("ExpiredProviderToken", 403, .authentication), ("Forbidden", 403, .configuration),
        ("InvalidProviderToken", 403, .configuration), ("MissingProviderToken", 403, .configuration),
        ("UnrelatedKeyIdInToken", 403, .connection), ("BadEnvironmentKeyIdInToken", 403, .configuration),
        ("BadPath", 404, .job), ("MethodNotAllowed", 405, .job), ("ExpiredToken", 410, .token),
        ("Unregistered", 410, .token), ("PayloadTooLarge", 413, .job),
        ("TooManyProviderTokenUpdates", 429, .later),
        ("TooManyRequests", 429, .later), ("InternalServerError", 500, .later),
        ("ServiceUnavailable", 503, .later),
        ("Shutdown", 503, .connection), ("FeatureNotEnabled", 400, .configuration),
        ("MissingChannelId", 400, .job),
        ("BadChannelId", 400, .job), ("ChannelNotRegistered", 400, .job), ("BadRequestParams", 400, .job),
        ("BadRequestPayload", 400, .job), ("MissingPushType", 400, .job),
        ("CannotCreateChannelConfig", 400, .job),
        ("TopicMismatch", 403, .configuration), ("MissingChannelQueueSize", 400, .job),
    ]

    @Test(arguments: documented)
    func everyDocumentedReasonIsInTheTable(_ name: String, _ status: UInt16, _ reasonClass: ReasonClass) {
        let reason = name.withBytes { Reason.parse(name: $0) }
        #expect(reason.name.text == name)
        #expect(reason.status == status)
        #expect(reason.class == reasonClass)
        #expect(!reason.action.text.isEmpty)
        let body = #"{"reason":"\#(name)"}"#
        let verdict = body.withBytes { ResponseVerdict.classify(status: status, body: $0) }
        #expect(verdict.reason == reason)
        #expect(verdict.class == reasonClass)
        #expect(verdict.unknownReason.count == 0)
    }

    /// Reasons of broadcasts and channels, with the reaction to each (APNs: BER).
    @Test(
        arguments: [
            (
                .configuration,
                [
                    "FeatureNotEnabled", "TopicDisallowed", "TopicMismatch", "BadCertificate",
                    "BadCertificateEnvironment", "MissingProviderToken", "InvalidProviderToken",
                ]
            ),
            (.authentication, ["ExpiredProviderToken"]),
            (
                .job,
                [
                    "MissingChannelId", "BadChannelId", "ChannelNotRegistered", "BadRequestParams",
                    "BadRequestPayload", "PayloadEmpty", "BadMessageId", "BadPriority", "MissingPushType",
                    "InvalidPushType", "CannotCreateChannelConfig", "BadExpirationDate", "BadPath",
                    "MethodNotAllowed", "PayloadTooLarge", "MissingChannelQueueSize",
                ]
            ),
            (
                .later,
                [
                    "TooManyRequests", "TooManyProviderTokenUpdates", "InternalServerError",
                    "Service Unavailable",
                ]
            ),
            (.connection, ["Shutdown"]),
        ] as [(ReasonClass, [String])])
    func broadcastReasonsHaveTheirClass(_ reasonClass: ReasonClass, names: [String]) {
        for name in names {
            let reason = name.withBytes { Reason.parse(name: $0) }
            #expect(reason.class == reasonClass, "\(name)")
            #expect(reason.isFinal == (reasonClass == .job), "\(name)")
            #expect(!reason.suspectsConfigurationInBursts, "\(name)")
        }
    }

    @Test func tableHoldsOnlyDocumentedReasons() {
        let names = Reason.allCases.filter { $0 != .absent && $0 != .unknown }.map(\.name.text)
        #expect(Set(names) == Set(Self.documented.map(\.0)))
        #expect(names.count == Set(names).count)
    }

    @Test(arguments: [
        ("BadEnvironmentKeyInToken", Reason.badEnvironmentKeyIdInToken),
        ("Service Unavailable", .serviceUnavailable),
        ("badDeviceToken", .badDeviceToken), ("UNREGISTERED", .unregistered), ("", .absent),
        ("Unregistere", .unknown),
        ("Unregisteredd", .unknown), ("Unknown", .unknown), ("     ", .unknown),
    ])
    func reasonNamesAreParsedTolerantly(_ name: String, _ reason: Reason) {
        #expect(name.withBytes { Reason.parse(name: $0) } == reason)
    }

    @Test(
        arguments: [
            (400, .job), (401, .authentication), (403, .configuration), (404, .job), (405, .job),
            (408, .later),
            (410, .token), (413, .job), (418, .job), (421, .connection), (429, .later), (500, .later),
            (502, .later),
            (503, .later), (599, .later), (302, .later), (100, .later), (0, .later), (999, .later),
        ] as [(UInt16, ReasonClass)])
    func unknownReasonsFollowTheStatus(_ status: UInt16, _ reasonClass: ReasonClass) {
        for body in ["", #"{"reason":"BadDate"}"#, "<html>", #"{"reason":7}"#, "{}"] {
            let verdict = body.withBytes { ResponseVerdict.classify(status: status, body: $0) }
            #expect(verdict.class == reasonClass)
            #expect(verdict.reason == (body.contains("BadDate") ? .unknown : .absent))
            #expect(verdict.unknownReason.description == (body.contains("BadDate") ? "BadDate" : ""))
        }
    }

    @Test func successStatusIgnoresTheBody() {
        for status: UInt16 in [200, 201, 204] {
            let verdict = #"{"reason":"BadDeviceToken"}"#.withBytes {
                ResponseVerdict.classify(status: status, body: $0)
            }
            #expect(verdict.class == .accepted)
            #expect(verdict.reason == .absent)
        }
    }

    @Test(
        arguments: [
            (#"{"reason":"Unregistered","timestamp":1700000000123}"#, 1_700_000_000_123),
            (
                #" { "timestamp" : 1.700000000123e12 , "other":[{}], "reason" : "Unregistered" } "#,
                1_700_000_000_123
            ),
            (#"{"reason":"Unregistered","timestamp":"soon"}"#, nil),
            (#"{"reason":"Unregistered","timestamp":1.5}"#, nil),
            (#"{"reason":"Unregistered""#, nil), (#"{"reason":"Unregistered"} trailing"#, nil),
        ] as [(String, Int64?)])
    func timestampIsReadWherePresent(_ body: String, _ timestamp: Int64?) {
        let verdict = body.withBytes { ResponseVerdict.classify(status: 410, body: $0) }
        #expect(verdict.reason == .unregistered)
        #expect(verdict.timestampMilliseconds == timestamp)
    }

    @Test func tokenIsRetiredUnlessRegisteredSince() {
        func retires(_ status: UInt16, _ body: String, _ registered: Int64?) -> Bool {
            body.withBytes { ResponseVerdict.classify(status: status, body: $0) }
                .retiresToken(registeredAtMilliseconds: registered)
        }
        let gone = #"{"reason":"Unregistered","timestamp":1000}"#
        #expect(retires(410, gone, nil))
        #expect(retires(410, gone, 999))
        #expect(!retires(410, gone, 1000), "registered again at that instant")
        #expect(!retires(410, gone, 1001))
        let undated = #"{"reason":"Unregistered"}"#
        #expect(retires(410, undated, nil))
        #expect(!retires(410, undated, 999), "the invalidation has no date to compare with")
        #expect(!retires(400, #"{"reason":"BadDeviceToken"}"#, 5))
        #expect(!retires(400, #"{"reason":"BadTopic"}"#, nil))
        #expect(!retires(200, "", nil))
    }

    /// A wrong environment or topic produces these answers for every good token.
    @Test func tokenIsSuspectWithoutA410() {
        func suspects(_ status: UInt16, _ reason: String) -> Bool {
            #"{"reason":"\#(reason)"}"#.withBytes {
                ResponseVerdict.classify(status: status, body: $0).suspectsToken
            }
        }
        #expect(suspects(400, "BadDeviceToken"))
        #expect(suspects(400, "DeviceTokenNotForTopic"))
        #expect(!suspects(410, "Unregistered"))
        #expect(!suspects(400, "BadTopic"))
        #expect(!suspects(200, ""))
    }

    /// A server may repeat what it was sent, also in parts that are shorter than a token.
    @Test func unknownReasonsAreLettersOrUnknown() {
        let token = String(repeating: "0a1b", count: 16)
        for text in [
            token, String(token.prefix(8)), "0a1b 0a1b", "eyJhbGciOiJFUzI1NiJ9.a", "Odd one", "Odd-one", "é",
            #"a\"b"#, #"\u001b[2J"#, String(repeating: "z", count: 49),
        ] {
            let verdict = "{\"reason\":\"\(text)\"}".withBytes {
                ResponseVerdict.classify(status: 400, body: $0)
            }
            #expect(verdict.reason == .unknown && verdict.reasonText == "unknown", "\(text)")
        }
        for text in ["SomethingNew", "z", String(repeating: "z", count: 48)] {
            #expect(text.withBytes { ReasonText($0) }.description == text)
        }
        #expect(ReasonText().description == "")
        let long = #"{"reason":"\#(String(repeating: "z", count: 5000))"}"#
        #expect(long.withBytes { ReasonBody($0) }.reason == .absent, "longer than any answer of APNs")
    }

    @Test func reasonPropertiesMatchTheirLists() {
        let replaced = Reason.allCases.filter(\.replacesConnection)
        #expect(
            Set(replaced) == [
                .unrelatedKeyIdInToken, .idleTimeout, .shutdown, .internalServerError,
                .tooManyProviderTokenUpdates,
            ])
        #expect(
            Reason.allCases.filter(\.suspectsConfigurationInBursts) == [
                .badDeviceToken, .deviceTokenNotForTopic,
            ])
        #expect(ReasonClass.allCases.filter(\.isRetriable) == [.authentication, .connection, .later])
    }

    /// Only reasons that speak against the connection replace it. The only connection stays until it has a successor,
    /// unless the reason is about the credential.
    @Test func remedyOfEachReason() {
        func remedy(_ reason: Reason, isOpen: Bool = true, isOnly: Bool = false) -> String {
            let verdict = #"{"reason":"\#(reason.name)"}"#.withBytes {
                ResponseVerdict.classify(status: reason.status, body: $0)
            }
            let remedy = verdict.remedy(isOpen: isOpen, isOnly: isOnly)
            return (remedy.replacement.map { "\($0)" } ?? "keep") + (remedy.pushWaits ? ", waits" : "")
        }
        #expect(remedy(.internalServerError) == "whenSuccessorIsOpen")
        #expect(remedy(.internalServerError, isOpen: false, isOnly: true) == "whenSuccessorIsOpen")
        #expect(remedy(.shutdown) == "ifOpeningsAreAllowed")
        #expect(remedy(.shutdown, isOnly: true) == "ifOpeningsAreAllowed, waits")
        for isOnly in [false, true] {
            for reason in [Reason.idleTimeout, .unrelatedKeyIdInToken] {
                #expect(remedy(reason, isOnly: isOnly) == (isOnly ? "whenSuccessorIsOpen, waits" : "now"))
            }
            #expect(remedy(.tooManyProviderTokenUpdates, isOnly: isOnly) == "now")
            #expect(remedy(.expiredProviderToken, isOnly: isOnly) == "keep")
        }
        for reason in Reason.allCases where reason.status != 0 && reason != .internalServerError {
            #expect(remedy(reason, isOpen: false, isOnly: true) == "keep")
            if !reason.replacesConnection { #expect(remedy(reason) == "keep") }
        }
    }
}
