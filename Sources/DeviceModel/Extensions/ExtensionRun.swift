/// A run of a service extension, by its declaration. Pure: the run names its next need; results are handed in.
struct ExtensionRun: Sendable {
    /// Need of a run before it can go on.
    enum Need: Equatable {
        case work(DeviceWork.Kind)
        /// The extension's own work lasts until ``ExtensionRun/readyAt``.
        case time
        case end(ExtensionOutcome)
    }

    private enum Stage {
        case decrypt, change, fetch, rest
    }

    let push: TransitPush
    let declaration: ServiceExtensionDeclaration
    private let payload: JSONValue
    /// Time at which the system ends the run, in milliseconds since 1970.
    let deadline: Int64
    /// End of the extension's own work in milliseconds since 1970; nil when the time runs out before.
    let readyAt: Int64?
    private(set) var changes = ContentChanges()
    /// Members of the decrypted object; nil when nothing was decrypted, or the clear text is no object.
    private var clear: JSONValue?
    private var stage = Stage.decrypt
    /// Number of the work that the run waits for; nil: none.
    var awaited: UInt64?
    /// Longest clear text that is taken over, in bytes.
    static let longestClearText = 16_384
    /// Longest URL of an attachment in bytes.
    static let longestURL = 2_048

    /// - Parameter limit: time of an extension in milliseconds.
    init(_ push: TransitPush, _ declaration: ServiceExtensionDeclaration, limit: Int64, now: Int64) {
        self.push = push
        self.declaration = declaration
        payload = JSONValue(push.payload) ?? .null
        let limit = min(max(limit, 0), Milliseconds.largest)
        let takes = max(0, Milliseconds.clamped(seconds: declaration.takes ?? 0) ?? 0)
        deadline = now + limit
        readyAt = takes < limit ? now + takes : nil
    }

    // MARK: - Needs

    /// Goes on as far as possible and returns the need.
    /// - Parameter canReadKeys: whether the device was unlocked since it booted.
    mutating func proceed(canReadKeys: Bool, now: Int64) -> Need {
        if stage == .decrypt {
            if let name = declaration.encryptedMember, let text = payload.value(at: name)?.string {
                guard canReadKeys else { return .end(.locked) }
                guard let key = Hexadecimal.decode(Array((declaration.key ?? "").utf8)),
                    [16, 24, 32].contains(key.count), let data = Base64.decode(text.utf8), data.count >= 28
                else { return .end(.notDecrypted) }
                return .work(.decrypt(key: key, data: data))
            }
            stage = .change
        }
        if stage == .change {
            changeTexts()
            stage = .fetch
        }
        if stage == .fetch {
            if let url = attachmentURL {
                return .work(.fetch(url: url, allowedHosts: declaration.allowedHosts ?? []))
            }
            stage = .rest
        }
        guard let readyAt, readyAt <= now else { return .time }
        switch declaration.ends {
        case "crash": return .end(.crashed)
        case "empty": return .end(.empty)
        default: return .end(.done)
        }
    }

    private var attachmentURL: String? {
        guard let name = declaration.attachmentMember,
            let url = clear?.value(at: name)?.string ?? payload.value(at: name)?.string,
            !url.isEmpty, url.utf8.count <= Self.longestURL
        else { return nil }
        return url
    }

    // MARK: - Results

    /// Whether the awaited result is a clear text. Other results are files.
    var isDecrypting: Bool { stage == .decrypt }

    /// Takes the clear text: an object with texts, or the body itself. Returns false when the text is too long.
    mutating func decrypted(_ bytes: [UInt8]) -> Bool {
        guard bytes.count <= Self.longestClearText else { return false }
        if let value = JSONValue(bytes), value.members != nil {
            clear = value
            changes.title = value["title"]?.string
            changes.subtitle = value["subtitle"]?.string
            changes.body = value["body"]?.string
            changes.category = value["category"]?.string
            changes.thread = value["thread-id"]?.string ?? value["thread"]?.string
            changes.sound = value["sound"]?.string
            changes.badge = NotificationContent.badge(value["badge"])
            changes.level = Self.level((value["interruption-level"] ?? value["level"])?.string)
            changes.relevance = Self.relevance((value["relevance-score"] ?? value["relevance"])?.double)
        } else {
            changes.body = String(decoding: bytes, as: UTF8.self)
        }
        stage = .change
        return true
    }

    /// Goes on behind the attachment.
    /// - Parameter attachment: identifier of the stored file; nil: the file was refused.
    mutating func fetched(_ attachment: UInt64?) {
        if let attachment { changes.attachments.append(attachment) }
        stage = .rest
    }

    /// Outcome at the time limit.
    var outcomeAtLimit: ExtensionOutcome { declaration.ends == "best-attempt" ? .bestAttempt : .timedOut }

    // MARK: - Texts

    /// Sets the declared texts. All of them see the texts before the first change. A text that needs a member which is
    /// absent is not set.
    private mutating func changeTexts() {
        guard let set = declaration.set, !set.isEmpty else { return }
        let former = changes
        let alert = payload["aps"]?["alert"]
        func value(_ name: String) -> String? {
            switch name {
            case "title": former.title ?? alert?["title"]?.string ?? ""
            case "subtitle": former.subtitle ?? alert?["subtitle"]?.string ?? ""
            case "body": former.body ?? alert?["body"]?.string ?? alert?.string ?? ""
            default: clear?.value(at: name)?.plainText ?? payload.value(at: name)?.plainText
            }
        }
        func text(_ member: String) -> String? {
            var isComplete = true
            let text = set[member].map { template in
                Template.fill(template) { name in
                    let found = value(name)
                    isComplete = isComplete && found != nil
                    return found
                }
            }
            return isComplete ? text : nil
        }
        changes.title = text("title") ?? changes.title
        changes.subtitle = text("subtitle") ?? changes.subtitle
        changes.body = text("body") ?? changes.body
        changes.category = text("category") ?? changes.category
        changes.thread = text("thread") ?? changes.thread
        changes.sound = text("sound") ?? changes.sound
        changes.badge =
            NotificationContent.badge(text("badge").flatMap { JSONValue(Array($0.utf8)) }) ?? changes.badge
        changes.level = Self.level(text("level")) ?? changes.level
        changes.relevance = Self.relevance(text("relevance").flatMap { Double($0) }) ?? changes.relevance
    }

    private static func level(_ name: String?) -> InterruptionLevel? {
        name.flatMap { name in InterruptionLevel.allCases.first { "\($0.name)" == name } }
    }

    private static func relevance(_ score: Double?) -> Double? {
        score.flatMap { $0.isNaN ? nil : min(1, max(0, $0)) }
    }
}
