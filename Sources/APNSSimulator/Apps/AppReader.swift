import Configuration
import DeviceModel

/// Reads the declaration of an app.
struct AppReader {
    let section: SectionReader

    init(_ section: SectionReader) { self.section = section }

    func read() -> AppDeclaration? {
        let bundle = section.text(
            "bundle", required: true, help: "bundle identifier",
            check: { text in
                let isBundle =
                    text.utf8.count <= 155
                    && text.utf8.allSatisfy { byte in
                        switch byte {
                        case UInt8(ascii: "a")...UInt8(ascii: "z"), UInt8(ascii: "A")...UInt8(ascii: "Z"),
                            UInt8(ascii: "0")...UInt8(ascii: "9"), UInt8(ascii: "."), UInt8(ascii: "-"),
                            UInt8(ascii: "_"):
                            true
                        default: false
                        }
                    }
                return isBundle ? nil : "`\(text)` is not a bundle identifier (letters, digits, . - and _)"
            })
        var app = AppDeclaration(bundle: bundle ?? "")
        app.name = section.text("name", help: "name under the icon", check: Self.short)
        app.icon = section.text("icon", help: "emoji that stands for the icon", check: Self.short)
        app.environment = section.choice(
            "environment", of: PushEnvironment.self, default: nil, required: false,
            help: "environment of the app's tokens")
        // A running activity has a token of its own, which no app registers.
        let purposes = TokenPurpose.allCases.filter { $0 != .activity }.map(\.rawValue)
        app.purposes = section.words("purposes", of: purposes, help: "purposes of the app's tokens")?
            .compactMap(TokenPurpose.init)
        app.backgroundModes = section.words(
            "background-modes", of: ["remote-notification", "voip", "location"],
            help: "members of UIBackgroundModes")
        app.entitlements = section.words(
            "entitlements", of: Entitlement.allCases.map(\.rawValue), help: "granted entitlements")?
            .compactMap(Entitlement.init)
        app.permission = section.sectionIfPresent("permission", permission)
        app.foreground = section.words(
            "foreground", of: PresentationOption.allCases.map(\.rawValue),
            help: "presentation in the foreground; an empty list shows nothing")?
            .compactMap(PresentationOption.init)
        app.strings = strings()
        app.sounds = section.textsIfPresent("sounds", mayBeEmpty: true, help: "sound files of the app")
        app.categories = section.sectionsIfPresent("categories", CategoryReader.read)
        app.serviceExtension = section.sectionIfPresent("service-extension", ExtensionReader.service)
        app.contentExtensions = section.sectionsIfPresent("content-extensions", ExtensionReader.content)
        app.silent = section.sectionsIfPresent("silent", LocalReader.silent)
        app.activities = section.sectionsIfPresent("activities", activity)
        app.local = section.sectionsIfPresent("local", LocalReader.request)
        checkNames(app)
        return bundle == nil ? nil : app
    }

    static func short(_ text: String) -> String? {
        text.utf8.count <= 100 ? nil : "must not have more than 100 bytes"
    }

    private func permission(_ section: SectionReader) -> PermissionRequest {
        var request = PermissionRequest()
        request.ask = section.word("ask", of: ["launch", "never"], help: "moment of the prompt")
            .flatMap(PermissionRequest.Moment.init)
        request.options = section.words(
            "options",
            of: ["alert", "badge", "sound", "critical", "provisional", "car-play", "settings"],
            help: "requested options")
        request.answer = section.word("answer", of: ["allow", "deny", "wait"], help: "answer of the user")
            .flatMap(PermissionRequest.Answer.init)
        return request
    }

    private func strings() -> [String: [String: String]]? {
        section.sectionIfPresent("strings") { languages in
            var strings: [String: [String: String]] = [:]
            for language in languages.keys {
                strings[language] = languages.textMap(language, help: "format by key")
            }
            return strings
        }
    }

    private func activity(_ section: SectionReader) -> ActivityDeclaration? {
        guard let type = section.text("type", required: true, help: "type name of the attributes") else {
            section.acceptAll()
            return nil
        }
        var activity = ActivityDeclaration(type: type)
        activity.requires = section.textsIfPresent(
            "requires", mayBeEmpty: true, help: "members that the content state must have")
        activity.title = section.text("title", help: "title, with {member} for members")
        activity.lines = section.textsIfPresent("lines", mayBeEmpty: true, help: "lines below the title")
        activity.leading = section.text("leading", help: "left half of the compact Dynamic Island")
        activity.trailing = section.text("trailing", help: "right half of the compact Dynamic Island")
        activity.progress = section.text("progress", help: "member with a number from 0 to 1")
        return activity
    }

    /// Checks names that must be unique.
    private func checkNames(_ app: AppDeclaration) {
        func check(_ names: [String], _ key: String, _ what: String) {
            var known: Set<String> = []
            for name in names where !known.insert(name).inserted {
                section.problem(key, "\(what) `\(name)` appears twice")
            }
        }
        check((app.categories ?? []).map(\.identifier), "categories", "the category")
        check((app.activities ?? []).map(\.type), "activities", "the type")
        check((app.local ?? []).map(\.identifier), "local", "the identifier")
        check(
            (app.contentExtensions ?? []).flatMap(\.categories), "content-extensions", "the category")
    }
}

/// Reads categories and their actions.
enum CategoryReader {
    static func read(_ section: SectionReader) -> CategoryDeclaration? {
        guard let identifier = section.text("identifier", required: true, help: "name in the payload") else {
            section.acceptAll()
            return nil
        }
        var category = CategoryDeclaration(identifier: identifier)
        category.actions = section.sectionsIfPresent("actions", action)
        category.options = section.words(
            "options",
            of: [
                "custom-dismiss", "hidden-previews-show-title", "hidden-previews-show-subtitle", "car-play",
            ],
            help: "options of the category")
        category.hiddenBody = section.text("hidden-body", help: "body while previews are hidden")
        category.summary = section.text("summary", help: "summary of a group")
        if let count = category.actions?.count, count > 10 {
            section.problem("actions", "has \(count) actions, but a category may have 10")
        }
        return category
    }

    private static func action(_ section: SectionReader) -> ActionDeclaration? {
        let identifier = section.text("identifier", required: true, help: "name of the action")
        let title = section.text("title", required: true, help: "title of the button")
        let options = section.words(
            "options", of: ["foreground", "destructive", "authentication"], help: "options of the action")
        let input = section.sectionIfPresent("input") { input in
            ActionDeclaration.TextInput(
                button: input.text("button", default: "Send", help: "title of the send button") ?? "Send",
                placeholder: input.text("placeholder", help: "text of the empty field"))
        }
        let shows = section.text("shows", help: "text that the custom view shows after the action")
        let then = section.word(
            "then", of: ["stay", "dismiss", "forward"], help: "end of a custom view after the action")
        guard let identifier, let title else { return nil }
        var action = ActionDeclaration(identifier: identifier, title: title)
        action.options = options
        action.input = input
        action.shows = shows
        action.then = then
        return action
    }
}
