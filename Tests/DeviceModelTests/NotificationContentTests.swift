import SluiceModel
import Testing

@testable import DeviceModel

@Suite struct NotificationContentTests {
    private func content(
        _ payload: String, strings: [String: String] = [:], language: String = "en"
    ) -> NotificationContent {
        NotificationContent(Array(payload.utf8), strings: ["en": strings], language: language)
    }

    @Test func aStringAlertIsTheBody() {
        let content = content(#"{"aps":{"alert":"Hello"}}"#)
        #expect(content.body == "Hello")
        #expect(content.title == "")
        #expect(content.hasText)
    }

    @Test func aDictionaryAlertHasThreeTexts() {
        let content = content(#"{"aps":{"alert":{"title":"T","subtitle":"S","body":"B"}}}"#)
        #expect([content.title, content.subtitle, content.body] == ["T", "S", "B"])
    }

    @Test(arguments: [
        #"{"aps":{"alert":""}}"#, #"{"aps":{"alert":{}}}"#, #"{"aps":{"alert":{"title":""}}}"#,
        #"{"aps":{"alert":7}}"#, #"{"aps":{"alert":null}}"#, #"{"aps":[]}"#, "[]", "", "{", "\u{0}",
    ])
    func anAlertWithoutTextIsNoAlert(_ payload: String) {
        #expect(!content(payload).hasText)
        #expect(!AlertFacts(Array(payload.utf8), AlertExpectations()).hasText)
    }

    @Test func aLocalisedKeyWinsOverThePlainTextAndTakesItsArguments() {
        let payload =
            #"{"aps":{"alert":{"body":"plain","loc-key":"K","loc-args":["a",2,"c"],"title-loc-key":"T"}}}"#
        let strings = ["K": "%@ and %@, %2$@ %1$@ %9$@ 100 %% %d", "T": "Title"]
        let content = content(payload, strings: strings)
        #expect(content.body == "a and 2, 2 a  100 % %d")
        #expect(content.title == "Title")
        #expect(!content.lacksString)
    }

    @Test func aMissingKeyIsShownItselfAndMissingArgumentsAreEmpty() {
        let payload = #"{"aps":{"alert":{"loc-key":"K","title-loc-key":"absent"}}}"#
        let content = content(payload, strings: ["K": "<%@>"])
        #expect(content.body == "<>")
        #expect(content.title == "absent")
        #expect(content.lacksString)
    }

    @Test func theTableOfTheDevicesLanguageIsChosen() {
        let tables = ["en": ["K": "news"], "de": ["K": "Neues"], "de-CH": ["K": "Nöis"]]
        let payload = Array(#"{"aps":{"alert":{"loc-key":"K"}}}"#.utf8)
        func body(_ language: String) -> String {
            NotificationContent(payload, strings: tables, language: language).body
        }
        #expect(["de", "de-CH", "de-AT", "fr"].map(body) == ["Neues", "Nöis", "Neues", "news"])
    }

    @Test(arguments: [
        ("3", 3), ("0", 0), ("2.0", 2), ("1e2", 100), ("99999999999", Int(Int32.max)), ("-1", nil),
        ("1.5", nil), ("1e400", nil), ("\"3\"", nil), ("true", nil), ("null", nil), ("[1]", nil),
    ])
    func aBadgeIsAWholeNumberThatIsNotNegative(_ text: String, _ badge: Int?) {
        let payload = #"{"aps":{"badge":\#(text)}}"#
        // A number beyond the range of numbers is read as 0, which is a badge.
        let expected = text == "1e400" ? 0 : badge
        #expect(content(payload).badge.map { Int($0) } == expected)
        #expect(AlertFacts(Array(payload.utf8), AlertExpectations()).badge.map { Int($0) } == expected)
    }

    @Test func relevanceAndVolumeAreClamped() {
        let high = content(#"{"aps":{"relevance-score":7,"sound":{"critical":1,"volume":9}}}"#)
        #expect(high.relevance == 1)
        #expect(high.sound == NotificationContent.Sound(name: "default", isCritical: true, volume: 1))
        let low = content(#"{"aps":{"relevance-score":-7,"sound":{"name":"a.caf","volume":-1}}}"#)
        #expect(low.relevance == 0)
        #expect(low.sound == NotificationContent.Sound(name: "a.caf", isCritical: false, volume: 0))
    }

    @Test func membersBesideApsAreTheUsersInformation() {
        let content = content(#"{"aps":{"alert":"A","thread-id":"t","unknown":1},"id":7}"#)
        #expect(content.userInfo == ["id": .integer(7)])
        #expect(content.thread == "t")
    }

    @Test func valuesOfWrongTypesAreAbsent() {
        let content = content(
            #"{"aps":{"alert":"A","thread-id":1,"category":[],"interruption-level":2,"sound":1,"filter-criteria":{}}}"#
        )
        #expect(content.thread == nil)
        #expect(content.category == nil)
        #expect(content.level == .active)
        #expect(content.sound == nil)
        #expect(content.filter == nil)
    }

    @Test func onlyTheNumber1WakesAndMutates() {
        for (text, isOne) in [("1", true), ("1.0", true), ("2", false), ("true", false), ("\"1\"", false)] {
            let payload = Array(#"{"aps":{"content-available":\#(text),"mutable-content":\#(text)}}"#.utf8)
            let facts = AlertFacts(payload, AlertExpectations())
            #expect(facts.wakesApp == isOne)
            #expect(facts.asksForExtension == isOne)
        }
    }

    @Test func aNameWithAnEscapeIsThatName() {
        let payload = Array(#"{"\u0061ps":{"al\u0065rt":"A","category":"m\u0065ssage"}}"#.utf8)
        var app = AppDeclaration(bundle: "a")
        app.addMessageCategory()
        let facts = AlertFacts(payload, AlertExpectations(categories: app.categories))
        #expect(facts.hasText)
        #expect(facts.category == .known)
    }

    /// The pass over the bytes and the tree are two ways to the same facts.
    @Test func bytesAndTreeAgreeForRandomPayloads() {
        var random = SeededGenerator(seed: 20)
        var app = AppDeclaration(bundle: "a")
        app.addMessageCategory()
        let expected = AlertExpectations(
            categories: app.categories, sounds: ["bell.caf"], filter: "work")
        var withText = 0
        for _ in 0..<10_000 {
            let payload = RandomPayload.make(&random)
            let facts = AlertFacts(payload, expected)
            let isJSON = JSONValue(payload) != nil
            let tree = AlertFacts(NotificationContent(payload), expected)
            #expect(facts == (isJSON ? tree : AlertFacts()), "\(String(decoding: payload, as: UTF8.self))")
            withText += facts.hasText ? 1 : 0
        }
        #expect(withText > 500)
    }

    @Test func deepNestingIsNoJSON() {
        for depth in [90, 99, 120, 126, 127, 128, 129, 200, 5_000] {
            let nested = String(repeating: "[", count: depth) + String(repeating: "]", count: depth)
            let payload = Array(#"{"aps":{"alert":"A"},"x":\#(nested)}"#.utf8)
            let isJSON = JSONValue(payload) != nil
            #expect(AlertFacts(payload, AlertExpectations()).hasText == isJSON, "depth \(depth)")
        }
    }

    @Test func aTextIsWrittenAsJSONThatIsReadAgain() throws {
        let value = JSONValue.object([
            "a": .array([.null, .bool(true), .integer(.min), .number(0.1), .number(1e300)]),
            "b\u{0}\"\\": .string("\u{1F600}\n\u{7}"),
        ])
        let bytes = try #require(value.bytes(limit: 1_000))
        #expect(JSONValue(bytes) == value)
        #expect(value.bytes(limit: 10) == nil)
        var deep = JSONValue.null
        for _ in 0..<200 { deep = .array([deep]) }
        #expect(deep.bytes(limit: 1_000) == nil)
    }

    @Test func placesOfATextAreFilled() {
        #expect(FormattedText.count("%u of %u %", 3) == "3 of 3 %")
        #expect(FormattedText.fill("%", ["a"]) == "%")
        #expect(FormattedText.fill("%12345$@ %0$@|", ["a"]) == "%12345$@ |")
    }
}
