import Configuration
import HTTP1

/// Decides whether a request may use the API. Pure.
///
/// Any web page can send requests to this machine, and have its own name resolve to an address of this machine (DNS
/// rebinding). `Host`, `Origin`, `Sec-Fetch-Site` and `Content-Type` reveal such requests.
struct APIAccess: Sendable {
    /// Hosts that requests may be meant for.
    let hosts: AllowedHosts
    /// Token that each request needs; nil when none is needed.
    let token: APIToken?

    static let cookieName = "sluice-simulator"

    /// Name of the query's parameter that carries the token once.
    static let parameter = "token"

    /// Returns the refusal of a request; nil for a request that is allowed.
    /// - Parameters:
    ///   - local: address of this machine that the connection reached.
    func refuse(_ request: HTTPRequest, local: String?) -> HTTPResponse? {
        let bearer = bearer(request)
        // A page of another origin can't know the token, whatever host it names.
        let isTrusted = bearer.map { token?.matches($0) ?? false } ?? false
        guard isTrusted || hosts.allows(request.host, local: local) else {
            return .error(
                421,
                "the request is for another host; use a loopback address, the address that the simulator "
                    + "listens at, or a name of `--http-host`")
        }
        if request.isAPI, let site = request["sec-fetch-site"],
            site == "cross-site" || site == "same-site"
        {
            return .error(403, "requests of other origins are refused")
        }
        if let refusal = refuseChange(request) { return refusal }
        guard let token, !isTrusted else { return nil }
        if let cookie = request.cookie(Self.cookieName), token.matchesCookie(cookie) { return nil }
        if let text = parameter(request) { return exchange(text, token, request) }
        return .error(
            401,
            "a token is needed: send `Authorization: Bearer TOKEN`, or open the page with `?token=TOKEN` once"
        ).with("WWW-Authenticate", "Bearer realm=\"sluice simulator\"")
    }

    /// Refuses a change that another origin may have caused.
    private func refuseChange(_ request: HTTPRequest) -> HTTPResponse? {
        guard !["GET", "HEAD", "OPTIONS"].contains(request.method) else { return nil }
        if let origin = request["origin"] {
            guard let host = request.host, Self.isOwn(origin, host: host) else {
                return .error(403, "requests of other origins are refused")
            }
        }
        // Browsers send a form without asking the server, but neither this type nor DELETE.
        guard request.method != "DELETE" else { return nil }
        let type = (request["content-type"] ?? "").prefix { $0 != ";" && $0 != " " }.lowercased()
        guard type == "application/json" else {
            return .error(415, "a change needs `Content-Type: application/json`")
        }
        return nil
    }

    /// Whether an origin is that of the page at this host. A proxy may add TLS, and the scheme's own port may be
    /// absent from either.
    private static func isOwn(_ origin: String, host: String) -> Bool {
        let (origin, host) = (origin.lowercased(), host.lowercased())
        for (scheme, port) in [("http://", ":80"), ("https://", ":443")] where origin.hasPrefix(scheme) {
            return withoutPort(origin.dropFirst(scheme.count), port) == withoutPort(host[...], port)
        }
        return false
    }

    /// Removes a port such as `:443` from the end of a host.
    private static func withoutPort(_ authority: Substring, _ port: String) -> Substring {
        authority.hasSuffix(port) ? authority.dropLast(port.count) : authority
    }

    /// Exchanges a token of the query for a cookie, so that the token leaves the address bar.
    private func exchange(_ text: String, _ token: APIToken, _ request: HTTPRequest) -> HTTPResponse {
        guard token.matches(text) else { return .error(401, "the token is wrong") }
        guard request.method == "GET" else {
            return .error(401, "only GET takes a token in its query; send `Authorization: Bearer TOKEN`")
        }
        return HTTPResponse(status: 303)
            .with("Location", request.path.hasPrefix("//") ? "/" : request.path)
            .with(
                "Set-Cookie",
                "\(Self.cookieName)=\(token.cookie); Path=/; HttpOnly; SameSite=Strict"
            )
            .with("Cache-Control", "no-store")
            .with("Referrer-Policy", "no-referrer")
    }

    private func parameter(_ request: HTTPRequest) -> String? {
        request.query.first { $0.name == Self.parameter }?.value
    }

    private func bearer(_ request: HTTPRequest) -> String? {
        guard let value = request["authorization"], value.lowercased().hasPrefix("bearer ") else {
            return nil
        }
        return String(value.dropFirst(7).drop { $0 == " " })
    }
}

extension HTTPRequest {
    /// Whether the request is for the API, however its path is spelt: routes are found by the same segments.
    var isAPI: Bool { segments.first == "api" }
}
