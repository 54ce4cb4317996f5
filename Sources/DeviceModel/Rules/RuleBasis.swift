/// Origin of a rule of the model.
public enum RuleBasis: String, Codable, Sendable, CaseIterable {
    /// Apple's documentation states the rule.
    case documented
    /// Developers have observed or reported the behaviour.
    case observed
    /// No source is known; the model assumes the rule.
    case assumed
}
