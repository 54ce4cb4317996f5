import Foundation
import Testing

@testable import SluiceModel

/// Names, enumerations and limits of the schemas equal those of the code's tables.
@Suite struct SchemaTableTests {
    static func members(_ fields: JobFieldSet) -> Set<String> {
        Set(JobField.allCases.filter { fields.contains($0) }.map(\.memberName.text))
    }

    static func headers(_ fields: JobFieldSet) -> Set<String> {
        Set(JobField.allCases.filter { fields.contains($0) }.compactMap(\.headerName?.text))
    }

    @Test func fieldCountMatchesTheCases() { #expect(JobField.count == JobField.allCases.count) }

    @Test(arguments: JobKind.allCases)
    func kindsHaveTheirSchemaMembers(_ kind: JobKind) throws {
        let schema = try Schemas.load("job")["$defs", kind.name.text]
        #expect(schema["properties"].names == Self.members(kind.allowed))
        let required = Self.members(kind.required)
        #expect(schema["required"].strings == (kind == .push ? required : required.union(["kind"])))
        // A push needs no kind.
        let names =
            kind == .push
            ? schema["properties", "kind", "enum"].strings
            : [schema["properties", "kind", "const"].text ?? ""]
        #expect(names == [kind.name.text])
        #expect(
            try Schemas.load("job")["propertyNames", "enum"].strings
                == Set(JobField.allCases.map(\.memberName.text)))
        let listed = try Schemas.load("job")["oneOf"].elements.compactMap(\.["$ref"].text)
        #expect(Set(listed) == Set(JobKind.allCases.map { "#/$defs/\($0.name)" }))
    }

    @Test func jobEnumerationsMatch() throws {
        let definitions = try Schemas.load("job")["$defs"]
        #expect(definitions["push-type", "enum"].strings == Set(PushType.allCases.map(\.headerValue.text)))
        #expect(definitions["delivery", "enum"].strings == Set(DeliveryMode.allCases.map(\.name.text)))
        #expect(definitions["duplicates", "enum"].strings == Set(DuplicatePolicy.allCases.map(\.name.text)))
        #expect(
            definitions["environment", "enum"].strings
                == Set((JobEnvironment.allCases.map(\.name) + [JobEnvironment.sandbox]).map(\.text)))
        #expect(definitions["event", "enum"].strings == Set(DeviceEvent.allCases.map(\.name.text)))
        let priorities = definitions["priority", "enum"].elements.compactMap(\.integer)
        #expect(Set(priorities) == Set(Priority.allCases.map { Int64($0.rawValue) }))
    }

    @Test func jobLimitsMatch() throws {
        let definitions = try Schemas.load("job")["$defs"]
        func range(_ name: String) -> ClosedRange<Int64>? {
            guard let low = definitions[name, "minimum"].integer,
                let high = definitions[name, "maximum"].integer
            else { return nil }
            return low...high
        }
        #expect(range("ttl") == JobLimits.timeToLive)
        #expect(range("instant") == JobLimits.instant)
        #expect(range("receipt-timeout") == JobLimits.receiptTimeout)
        #expect(definitions["receipt-timeout", "default"].integer == Int64(JobLimits.defaultReceiptTimeout))
        let expiration = definitions["expiration", "anyOf"].elements
        #expect(expiration.first?["const"].integer == 0)
        #expect(expiration.last?["minimum"].integer == JobLimits.expiration.lowerBound)
        #expect(expiration.last?["maximum"].integer == JobLimits.expiration.upperBound)
        #expect(definitions["device-token", "minLength"].integer == Int64(DeviceToken.minimumLength))
        #expect(definitions["device-token", "maxLength"].integer == Int64(DeviceToken.maximumLength))
        #expect(definitions["topic", "maxLength"].integer == Int64(Topic.maximumLength))
        #expect(
            definitions["collapse-id", "maxLength"].integer
                == Int64(JobLimits.maximumCollapseIdentifierLength))
        #expect(
            definitions["channel-id", "maxLength"].integer == Int64(JobLimits.maximumChannelIdentifierLength))
        let notes = try Schemas.load("job")["x-rules-beyond-this-schema"]
        #expect(notes["document-size"].text?.contains("\(JobLimits.maximumDocumentSize)") == true)
        #expect(notes["depth"].text?.contains("\(JobLimits.maximumDepth)") == true)
        #expect(notes["payload-size"].text?.contains("\(PushType.alert.maximumPayloadSize)") == true)
        #expect(notes["payload-size"].text?.contains("\(PushType.voip.maximumPayloadSize)") == true)
        #expect(PushType.maximumBroadcastPayloadSize == PushType.voip.maximumPayloadSize)
    }

    @Test func outcomeTablesMatch() throws {
        let schema = try Schemas.load("outcome")
        let properties = schema["properties"]
        #expect(properties.names == Set(OutcomeMember.allCases.map(\.rawValue)))
        #expect(properties["outcome", "enum"].strings == Set(OutcomeKind.allCases.map(\.name.text)))
        #expect(
            properties["job", "enum"].strings == Set(JobKind.allCases.filter { $0 != .push }.map(\.name.text))
        )
        #expect(properties["push-type", "enum"].strings == Set(PushType.allCases.map(\.headerValue.text)))
        #expect(properties["adjusted", "items", "enum"].strings == Set(JobAdjustments.names.map(\.1.text)))
        #expect(properties["environment", "enum"].strings == Set(JobEnvironment.allCases.map(\.name.text)))
        #expect(properties["cause", "enum"].strings == Set(OutcomeCause.allCases.map(\.name.text)))
        let classes = ReasonClass.allCases.filter { $0 != .accepted }.map(\.name.text)
        #expect(properties["reason-class", "enum"].strings == Set(classes))
        let reasons = Reason.allCases.filter { $0 != .absent && $0 != .unknown }.map(\.name.text)
        #expect(properties["reason", "examples"].strings == Set(reasons))
        #expect(properties["reason", "maxLength"].integer == Int64(ReasonText.capacity))
    }

    @Test func deadLetterTablesMatch() throws {
        let schema = try Schemas.load("dead-letter")
        let names = Set(DeadLetter.Header.allCases.map(\.rawValue))
        #expect(
            schema["properties"].names
                == names.union([DeadLetter.valueOmittedHeader] + DeadLetter.Omission.allCases.map(\.rawValue))
        )
        #expect(schema["required"].strings == names)
        #expect(
            schema["properties", "sluice-error-rule", "enum"].strings == Set(JobRule.allCases.map(\.rawValue))
        )
    }

    @Test(arguments: JobKind.allCases)
    func asyncAPIHeadersMatch(_ kind: JobKind) throws {
        let schema = try Schemas.asyncAPI()["components", "schemas", "\(kind.name)Headers"]
        #expect(schema["properties"].names == Self.headers(kind.allowed))
        let required = Self.headers(kind.required)
        #expect(schema["required"].strings == (kind == .push ? required : required.union(["kind"])))
        #expect(schema["propertyNames", "$ref"].text == "#/components/schemas/headerName")
        let names = try Schemas.asyncAPI()["components", "schemas", "headerName", "anyOf"].elements
        let prefixed = Self.headers(JobKind.allCases.reduce([]) { $0.union($1.allowed) })
            .filter { $0.hasPrefix(HeaderMistakes.prefix.text) }
        #expect(names.last?["enum"].strings == prefixed)
        #expect(names.first?["not", "pattern"].text == "^\(HeaderMistakes.prefix)")
    }

    @Test func structuredModeHasOnlyTheContentTypeHeader() throws {
        let schemas = try Schemas.asyncAPI()["components", "schemas"]
        #expect(schemas["structuredHeaders", "properties"].names == [ContentType.headerName.text])
        let refused = schemas["structuredHeaderName", "not", "anyOf"].elements
        #expect(refused.first?["pattern"].text == "^\(HeaderMistakes.prefix)")
        let fields = JobField.allCases.compactMap(\.headerName?.text)
            .filter { !$0.hasPrefix(HeaderMistakes.prefix.text) }
        #expect(refused.last?["enum"].strings == Set(fields))
        let values = try Regex(
            #require(schemas["structuredHeaders", "properties", "content-type", "pattern"].text))
        for value in [
            ContentType.structured.text, ContentType.cloudEvent.text, "application/json; charset=utf-8",
        ] {
            #expect(value.contains(values))
        }
    }

    /// Every example of asyncapi.yaml on the jobs topic is a valid job of the kind that it shows.
    @Test func asyncAPIExamplesDecode() throws {
        let decoder = TestDecoder()
        var kinds: [String: Int] = [:]
        for (message, definition) in try Schemas.asyncAPI()["components", "messages"].children
        where message.hasSuffix("Binary") || message == "jobStructured" || message == "jobPacked" {
            for example in definition["examples"].elements {
                var payload = example["payload"].exists ? try Array(example["payload"].data) : nil
                if message == "jobPacked" { payload = try Array(#require(example["payload"].text).utf8) }
                let isBroadcast = message.hasPrefix("broadcast")
                var key: [UInt8]? = Array((isBroadcast ? "dHN0LXNyY2gtY2hubA==" : TestRecord.token).utf8)
                if message == "jobStructured" { key = payload.flatMap { JobEncoder.document($0) }?.key }
                let record = TestRecord(
                    key: key, value: payload,
                    headers: example["headers"].children.map { ($0.0, $0.1.text.map { Array($0.utf8) }) })
                switch decoder.decode(record) {
                case .success(.push(let push)):
                    kinds[push.isBroadcast ? "broadcast" : "push", default: 0] += 1
                case .success(.control(let kind, _, _, _)): kinds[kind.name.text, default: 0] += 1
                case .failure(let error): Issue.record("\(message)/\(example["name"].text ?? ""): \(error)")
                }
            }
        }
        #expect(Set(kinds.keys) == Set(JobKind.allCases.map(\.name.text)), "an example of every kind")
        for example in try Schemas.asyncAPI()["components", "messages", "outcome", "examples"].elements {
            #expect(OutcomeSummary(json: Array(try example["payload"].data)) != nil)
        }
    }
}

extension JSON {
    var children: [(String, JSON)] { names.sorted().map { ($0, self[$0]) } }
}
