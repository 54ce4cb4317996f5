import SluiceModel

/// Part of a topic behind the bundle identifier.
enum TopicSuffix {
    /// Bundle identifier and purpose of a topic.
    typealias Parts = (bundle: Slice<UnsafeRawBufferPointer>, purpose: TokenPurpose)

    static func split(_ topic: UnsafeRawBufferPointer) -> Parts {
        for (suffix, purpose) in suffixes where ends(topic, suffix) {
            return (topic[..<(topic.count - suffix.utf8CodeUnitCount)], purpose)
        }
        return (topic[...], .alert)
    }

    /// Topic of an app's tokens with a purpose.
    static func topic(_ bundle: String, _ purpose: TokenPurpose) -> String {
        bundle
            + (suffixes.first { $0.1 == purpose }.map { "\($0.0)" }
                ?? (purpose == .activity ? ".push-type.liveactivity" : ""))
    }

    /// The start token of Live Activities has the topic of their update tokens.
    private static let suffixes: [(StaticString, TokenPurpose)] = [
        (".voip", .voip), (".complication", .complication), (".pushkit.fileprovider", .fileprovider),
        (".location-query", .location), (".push-type.liveactivity", .activityStart),
        (".voip-ptt", .pushtotalk),
        (".push-type.widgets", .widgets), (".push-type.controls", .controls),
    ]

    private static func ends(_ topic: UnsafeRawBufferPointer, _ suffix: StaticString) -> Bool {
        let length = suffix.utf8CodeUnitCount
        guard topic.count > length else { return false }
        for index in 0..<length where topic[topic.count - length + index] != suffix.utf8Start[index] {
            return false
        }
        return true
    }
}

extension TokenPurpose {
    /// Whether pushes of another token's topic reach this token: start and update of Live Activities share a topic.
    func shares(_ other: TokenPurpose) -> Bool {
        self == other || (self == .activity && other == .activityStart)
    }
}
