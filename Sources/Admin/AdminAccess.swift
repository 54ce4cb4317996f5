import Configuration
import HTTP1

/// Decides who may give the worker commands. Everybody who reaches the endpoint may read.
public enum AdminAccess: Sendable, Equatable {
    /// The client has connected to a socket that only the worker's user may open.
    case socket
    /// The client must present the token of this file. The file is read for each command, so that a new token takes
    /// effect at once.
    case token(file: String)
    /// No commands are taken.
    case none

    /// Returns the refusal of a command; nil when the client may give it.
    func refusal(authorization: String?) -> AdminResponse? {
        switch self {
        case .socket: return nil
        case .none:
            return .error(
                403,
                "commands are taken at the socket of admin.socket, or with the token of admin.token-file; neither is for this address"
            )
        case .token(let file):
            let token: String
            switch SecretFile.read(file) {
            case .success(let text): token = text
            case .failure(let fault): return .error(500, "admin.token-file: \(fault.text)")
            }
            let least = Configuration.Admin.leastTokenBytes
            guard token.utf8.count >= least else {
                return .error(500, "admin.token-file: the token has fewer than \(least) bytes")
            }
            let prefix = "bearer "
            let fault: String
            if let authorization, authorization.lowercased().hasPrefix(prefix) {
                if Self.isEqual(authorization.dropFirst(prefix.count), token) { return nil }
                fault = "the token is not that of this worker's admin.token-file"
            } else {
                fault =
                    "the command needs the token of admin.token-file: the field `Authorization: Bearer TOKEN`, or --token-file of `sluice ctl`"
            }
            var refusal = AdminResponse.error(401, fault)
            refusal.fields = [("WWW-Authenticate", "Bearer")]
            return refusal
        }
    }

    /// Compares in a time that doesn't depend on the place of the first difference.
    private static func isEqual(_ presented: Substring, _ token: String) -> Bool {
        let (left, right) = (Array(presented.utf8), Array(token.utf8))
        guard left.count == right.count else { return false }
        return zip(left, right).reduce(0) { $0 | ($1.0 ^ $1.1) } == 0
    }
}
