import Configuration
import DeviceModel

/// Reads service and content extensions.
enum ExtensionReader {
    static func service(_ section: SectionReader) -> ServiceExtensionDeclaration {
        var declaration = ServiceExtensionDeclaration()
        declaration.key = section.text(
            "key", help: "AES-GCM key as hexadecimal text",
            check: { text in
                let isKey = [32, 48, 64].contains(text.utf8.count) && text.utf8.allSatisfy(hexDigit)
                // The text may be a key with a typing error, so that it isn't repeated.
                return isKey ? nil : "must be 32, 48 or 64 hexadecimal digits: a key of 16, 24 or 32 bytes"
            })
        declaration.encryptedMember = section.text(
            "encrypted-member", help: "member of the payload with nonce, cipher text and tag in base64")
        declaration.attachmentMember = section.text(
            "attachment-member", help: "member of the payload with an attachment's URL")
        declaration.allowedHosts = section.textsIfPresent(
            "allowed-hosts", mayBeEmpty: true, help: "hosts that attachments may be fetched from",
            check: { AttachmentURL.isHost($0) ? nil : "`\($0)` is not HOST or HOST:PORT" })
        declaration.set = section.textMap("set", help: "texts that replace members of the notification")
        let members = [
            "title", "subtitle", "body", "category", "thread", "sound", "badge", "level", "relevance",
        ]
        for name in (declaration.set ?? [:]).keys.sorted() where !members.contains(name) {
            section.problem("set", "`\(name)` is not one of \(members.joined(separator: ", "))")
        }
        declaration.takes = section.number("takes", 0...3_600, help: "seconds of the extension's work")
        declaration.ends = section.word(
            "ends", of: ["done", "crash", "empty", "best-attempt"], help: "end of the extension")
        if declaration.encryptedMember != nil, declaration.key == nil {
            section.problem("encrypted-member", "has an effect only with `key`")
        }
        return declaration
    }

    static func content(_ section: SectionReader) -> ContentExtensionDeclaration? {
        let categories = section.textsIfPresent("categories", help: "categories that the extension draws")
        if categories == nil { section.problem("categories", "is required: categories that are drawn") }
        let fields = section.sectionsIfPresent("fields", field)
        var declaration = ContentExtensionDeclaration(categories: categories ?? [], fields: fields ?? [])
        declaration.sizeRatio = section.number(
            "size-ratio", 0.01...10, help: "height by width at the opening")
        declaration.hidesDefaultContent = section.boolean(
            "hides-default-content", help: "whether title, subtitle and body are hidden")
        declaration.title = section.text("title", help: "title in place of the app's name")
        declaration.isInteractive = section.boolean(
            "interactive", help: "whether controls inside of the view work")
        return categories == nil ? nil : declaration
    }

    private static func field(_ section: SectionReader) -> ContentExtensionDeclaration.Field? {
        let kind = section.word(
            "kind", of: ["text", "image", "progress", "input", "button"], help: "kind of the field")
        if !section.contains("kind") { section.problem("kind", "is required: kind of the field") }
        let label = section.text("label", help: "text before the value")
        let value = section.text("value", help: "text with {member} for members of the payload")
        return kind.map { ContentExtensionDeclaration.Field(kind: $0, label: label, value: value) }
    }
}

/// Reads local notifications and the reactions to silent pushes.
enum LocalReader {
    static func request(_ section: SectionReader) -> LocalRequest? {
        let identifier = section.text("identifier", required: true, help: "identifier of the request")
        var request = LocalRequest(identifier: identifier ?? "")
        if let payload = section.value("payload", kind: "map", help: "payload in the form of a push") {
            if case .map = payload.content {
                request.payload = payload.json
            } else {
                section.problem("payload", "must be a map, but is \(payload.kind)")
            }
        }
        request.trigger = section.sectionIfPresent("trigger", trigger)
        return identifier == nil ? nil : request
    }

    private static func trigger(_ section: SectionReader) -> LocalTrigger {
        var trigger = LocalTrigger()
        trigger.interval = section.number("interval", 0.001...31_536_000, help: "seconds from scheduling")
        trigger.minuteOfDay = section.integer("minute-of-day", 0...1_439, help: "minutes since midnight")
        trigger.region = section.text("region", help: "region whose border the device passes")
        trigger.on = section.word("on", of: ["enter", "exit", "both"], help: "direction at the border")
        trigger.repeats = section.boolean("repeats", help: "whether the request stays")
        let kinds = ["interval", "minute-of-day", "region"].filter { section.contains($0) }
        if kinds.count > 1 {
            section.problem(kinds[1], "excludes `\(kinds[0])`; a trigger has one of them")
        }
        if let interval = trigger.interval, interval < 60, trigger.repeats == true {
            section.problem("interval", "must be at least 60 seconds to repeat")
        }
        return trigger
    }

    static func silent(_ section: SectionReader) -> SilentRule? {
        var rule = SilentRule()
        rule.member = section.text("member", help: "member of the payload that must exist")
        rule.equals = section.text("equals", help: "text that the member must equal")
        rule.removesDelivered = section.text(
            "removes-delivered", help: "member with identifiers to remove from the delivered list")
        rule.removesPending = section.text(
            "removes-pending", help: "member with identifiers to remove from the pending list")
        rule.setsBadge = section.text("sets-badge", help: "member with the badge's number")
        rule.posts = section.sectionIfPresent("posts") { request($0) } ?? nil
        rule.result = section.word(
            "result", of: ["new-data", "no-data", "failed", "never"], help: "result of the handler")
        if rule.equals != nil, rule.member == nil {
            section.problem("equals", "has an effect only with `member`")
        }
        return rule
    }
}
