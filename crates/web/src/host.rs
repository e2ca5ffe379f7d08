//! What a page in the operator's browser cannot hide, where no token is asked for. It may reach the loopback address under a
//! name of its own (DNS rebinding), but it cannot change the Host that the browser sends. And it may send requests without a
//! body to wherever it likes, but the browser says that they come from elsewhere.

use std::net::IpAddr;

use axum::Router;
use axum::extract::{Request, State};
use axum::http::header::{HOST, ORIGIN};
use axum::http::{HeaderMap, StatusCode};
use axum::middleware::{self, Next};
use axum::response::{IntoResponse, Response};

use crate::reply::Failure;

/// The same routes, for this machine alone: no request that [`check`] refuses reaches them, unless it is for the path `open`.
pub fn local<S: Clone + Send + Sync + 'static>(routes: Router<S>, open: Option<&'static str>) -> Router<S> {
    routes.layer(middleware::from_fn_with_state(open, pass))
}

async fn pass(State(open): State<Option<&'static str>>, request: Request, next: Next) -> Response {
    if open != Some(request.uri().path())
        && let Err(failure) = check(&request)
    {
        return failure.into_response();
    }
    next.run(request).await
}

/// Lets a request pass that was sent to an address or to localhost, or that names no host; where it may change something,
/// only if no page of another origin has sent it (Fetch Metadata §2.1, RFC 6454 §7).
///
/// # Errors
/// The refusal of all others.
pub fn check(request: &Request) -> Result<(), Failure> {
    match request.headers().get(HOST) {
        Some(host) if !host.to_str().is_ok_and(is_local) => Err(Failure::new(
            StatusCode::UNAUTHORIZED,
            "what is for this machine alone is not served under a host's name",
            "an address or localhost as the host",
        )),
        _ if !request.method().is_safe() && is_from_elsewhere(request.headers()) => Err(Failure::new(
            StatusCode::FORBIDDEN,
            "what is for this machine alone is not changed for a page of another origin",
            "a request that no browser sends for another page",
        )),
        _ => Ok(()),
    }
}

/// Whether a browser says that a page from elsewhere has sent this.
fn is_from_elsewhere(headers: &HeaderMap) -> bool {
    let text = |name: &str| headers.get(name).map(|value| value.to_str().unwrap_or("null"));
    let is_own = |origin: &str| {
        let at = origin.strip_prefix("http://").or_else(|| origin.strip_prefix("https://"));
        at.is_some_and(|at| text(HOST.as_str()).is_some_and(|host| host.eq_ignore_ascii_case(at)))
    };
    text("sec-fetch-site").is_some_and(|site| !matches!(site, "same-origin" | "none"))
        || text(ORIGIN.as_str()).is_some_and(|origin| !is_own(origin))
}

/// Whether this host is an address, or localhost; a port may follow.
pub fn is_local(host: &str) -> bool {
    let name = match host.rsplit_once(':') {
        Some((name, port)) if port.bytes().all(|octet| octet.is_ascii_digit()) => name,
        _ => host,
    };
    let literal = name.strip_prefix('[').and_then(|name| name.strip_suffix(']')).unwrap_or(name);
    literal.parse::<IpAddr>().is_ok() || name.eq_ignore_ascii_case("localhost")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_what_may_change_something_is_refused_to_pages_from_elsewhere() {
        let own = ("origin", "http://127.0.0.1:8055");
        for (method, headers, expected) in [
            ("POST", &[][..], None),
            ("POST", &[("sec-fetch-site", "none")], None),
            ("POST", &[("sec-fetch-site", "same-origin"), own], None),
            ("DELETE", &[own], None),
            ("POST", &[("sec-fetch-site", "cross-site"), own], Some(403)),
            ("POST", &[("sec-fetch-site", "same-site")], Some(403)),
            ("POST", &[("origin", "http://evil.example")], Some(403)),
            ("PUT", &[("origin", "http://127.0.0.1:80")], Some(403)),
            ("PATCH", &[("origin", "null")], Some(403)),
            ("DELETE", &[("origin", "http://evil.example")], Some(403)),
            ("GET", &[("origin", "http://evil.example"), ("sec-fetch-site", "cross-site")], None),
            ("POST", &[("host", "evil.example")], Some(401)),
        ] {
            let mut request = Request::builder().method(method).uri("/v1/backends/192.0.2.1:53/drain");
            if !headers.iter().any(|(name, _)| *name == "host") {
                request = request.header(HOST, "127.0.0.1:8055");
            }
            let request =
                headers.iter().fold(request, |request, (name, value)| request.header(*name, *value));
            let request = request.body(axum::body::Body::empty()).expect("it is whole");
            let refused = check(&request).err().map(|failure| failure.status.as_u16());
            assert_eq!(refused, expected, "{method} {headers:?}");
        }
    }

    #[test]
    fn only_addresses_and_localhost_are_local() {
        for (host, local) in [
            ("127.0.0.1", true),
            ("127.0.0.1:8053", true),
            ("[::1]:8053", true),
            ("[::1]", true),
            ("localhost", true),
            ("LocalHost:8053", true),
            ("evil.example", false),
            ("evil.example:8053", false),
            ("localhost.evil.example", false),
            ("127.0.0.1.evil.example:80", false),
            ("127.0.0.1:80:80", false),
            (":8053", false),
            ("", false),
        ] {
            assert_eq!(is_local(host), local, "{host:?}");
        }
    }
}
