//! `/v1/check`: may a client of a web server go on? For nginx's `auth_request`, forward auth of Traefik and Caddy, and
//! Envoy's `ext_authz`.
//!
//! | client | without a claim | with `claim=CRAWLER` |
//! |---|---|---|
//! | that crawler | 200 | 200 |
//! | another crawler | 200 | 403 |
//! | one whose name lies about being a crawler | 403 | 403 |
//! | nobody that is known as a crawler | 200 | 403 |
//! | not known yet, or not to be learned now | as configured | as configured |

use std::net::IpAddr;

use api::Problem;
use axum::extract::{Extension, Query, State};
use axum::http::header::{CACHE_CONTROL, HeaderName, HeaderValue};
use axum::http::{HeaderMap, StatusCode};
use axum::response::{IntoResponse, Response};
use routing::Acl;
use utoipa::IntoParams;
use web::{Failure, Peer};

use super::Http;
use crate::backend::seconds;
use crate::crawlers::Identity;
use crate::known::Known;
use crate::name::NameText;

/// How clients of web servers are judged.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Check {
    /// The header that says who the client is: its last address.
    pub header: HeaderName,
    /// From whom that header is believed, beside loopback; everybody else is a client itself.
    pub believed: Acl,
    /// What becomes of a client that is not known yet, unless the request says it.
    pub not_yet: NotYet,
}

/// What becomes of a client that is not known yet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum NotYet {
    /// The client goes on: 200.
    Allow,
    /// The client is turned away: 403.
    Deny,
}

impl NotYet {
    /// Reads the word for it.
    pub fn from_word(word: &str) -> Option<NotYet> {
        match word {
            "allow" => Some(NotYet::Allow),
            "deny" => Some(NotYet::Deny),
            _ => None,
        }
    }
}

/// Whether a client may go on.
pub fn decide(identity: &Identity<'_>, claim: Option<&str>, not_yet: NotYet) -> bool {
    match (identity, claim) {
        (Identity::Spoofed(_), _) => false,
        (Identity::NotYet, _) => not_yet == NotYet::Allow,
        (Identity::Verified(crawler), Some(claim)) => *crawler == claim,
        (Identity::None, Some(_)) => false,
        (Identity::Verified(_) | Identity::None, None) => true,
    }
}

impl Check {
    /// The client that a request speaks of.
    ///
    /// # Errors
    /// The refusal of a request of somebody who is believed, and does not say it.
    pub fn client(&self, peer: IpAddr, headers: &HeaderMap) -> Result<IpAddr, Failure> {
        if !self.believed.allows(peer) {
            return Ok(peer.to_canonical());
        }
        let bad = |what: String| {
            let expected = "the client's address, as the web server sees it";
            Failure::new(StatusCode::BAD_REQUEST, what, expected)
        };
        // What a proxy adds comes last; what was before it is its client's own word.
        let last = headers.get_all(&self.header).iter().next_back();
        let last = last.ok_or_else(|| bad(format!("there is no header {}", self.header)))?;
        let last = last.to_str().unwrap_or_default().rsplit(',').next().unwrap_or_default().trim();
        let address: Result<IpAddr, _> = last.parse();
        let address =
            address.map_err(|_| bad(format!("the header {} does not end in an address", self.header)))?;
        Ok(address.to_canonical())
    }
}

/// What a request says.
#[derive(IntoParams)]
#[into_params(parameter_in = Query)]
#[expect(dead_code, reason = "declares the parameters; `check` reads them")]
struct CheckQuery {
    /// The crawler that the client says it is; one of those that the service knows. Empty is none.
    #[param(required = false)]
    claim: Option<String>,
    /// What becomes of a client that is not known yet: `allow` or `deny`.
    #[param(required = false, pattern = "^(allow|deny)$")]
    not_yet: Option<String>,
}

/// Answers 200 or 403, without a body: may a client go on?
///
/// Any method does, and any path below this one, where the query is the client's own and says nothing. The client is
/// the last address of the header that the service is configured with, `x-real-ip` by default, where whoever asks is
/// believed, and otherwise whoever asks.
#[utoipa::path(
    get, path = "/v1/check", operation_id = "check", tag = "check",
    params(CheckQuery),
    responses(
        (
            status = 200, description = "It goes on.",
            headers(
                ("x-client-state", description = "`name`, `no_name`, `failed` or `not_yet`."),
                ("x-client-identity", description = "`none`, `not_yet`, `verified` or `spoofed`."),
                ("x-client-name", description = "Its name, where it has one."),
                ("x-client-verdict", description = "Whether the name leads back; with a name."),
                ("x-client-verified", description = "The crawler that it is."),
            ),
        ),
        (status = 400, description = "The request does not say who the client is, or says something else wrong.",
            body = Problem),
        (status = 403, description = "It does not; the same headers."),
    ),
)]
pub(super) async fn check(
    State(http): State<Http>,
    Extension(Peer(peer)): Extension<Peer>,
    Query(options): Query<Vec<(String, String)>>,
    headers: HeaderMap,
) -> Result<Response, Failure> {
    let bad = |what: String, expected: &str| Failure::new(StatusCode::BAD_REQUEST, what, expected);
    let (mut claim, mut not_yet) = (None, http.check.not_yet);
    for (option, word) in &options {
        match option.as_str() {
            // An empty one comes from a map of the web server that found none.
            "claim" if word.is_empty() => {}
            "claim" if http.crawlers.has(word) => claim = Some(word.as_str()),
            "claim" => {
                let what = format!("'{word}' is none of the crawlers that are known");
                return Err(bad(what, "a name from the file that --crawlers names"));
            }
            "not_yet" => {
                let read = NotYet::from_word(word);
                not_yet =
                    read.ok_or_else(|| bad(format!("not_yet={word}"), "not_yet=allow or not_yet=deny"))?;
            }
            _ => {}
        }
    }
    judge(&http, peer.ip(), &headers, claim, not_yet)
}

/// The same below the path, without options: there the query is the client's own.
pub(super) async fn below(
    State(http): State<Http>,
    Extension(Peer(peer)): Extension<Peer>,
    headers: HeaderMap,
) -> Result<Response, Failure> {
    judge(&http, peer.ip(), &headers, None, http.check.not_yet)
}

fn judge(
    http: &Http,
    peer: IpAddr,
    headers: &HeaderMap,
    claim: Option<&str>,
    not_yet: NotYet,
) -> Result<Response, Failure> {
    let address = http.check.client(peer, headers)?;
    let mut name = NameText::EMPTY;
    let now = seconds(http.clock.now());
    let known = http.front.look_up(&http.front.view(), address, peer, now, &mut name);
    let identity = http.front.identify(address, &known, &name);
    let status = if decide(&identity, claim, not_yet) { StatusCode::OK } else { StatusCode::FORBIDDEN };
    let mut answer = status.into_response();
    let headers = answer.headers_mut();
    let mut put = |header: &'static str, text: &str| {
        // Names are letters, digits and `-_/.` (`name`), so every one is a header's value.
        if let Ok(value) = HeaderValue::from_str(text) {
            headers.insert(HeaderName::from_static(header), value);
        }
    };
    put(CACHE_CONTROL.as_str(), "no-store");
    put("x-client-state", known.word());
    put("x-client-identity", identity.word());
    if let Known::Name(_, verdict) = known {
        put("x-client-name", name.as_str());
        put("x-client-verdict", verdict.word());
    }
    if let Identity::Verified(crawler) = identity {
        put("x-client-verified", crawler);
    }
    Ok(answer)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn decisions() {
        use Identity::{None as Nobody, NotYet as Unknown, Spoofed, Verified};
        for (identity, claim, expected) in [
            (Verified("a"), None, [true, true]),
            (Verified("a"), Some("a"), [true, true]),
            (Verified("a"), Some("b"), [false, false]),
            (Spoofed("a"), None, [false, false]),
            (Spoofed("a"), Some("a"), [false, false]),
            (Nobody, None, [true, true]),
            (Nobody, Some("a"), [false, false]),
            (Unknown, None, [true, false]),
            (Unknown, Some("a"), [true, false]),
        ] {
            let decided = [NotYet::Allow, NotYet::Deny].map(|not_yet| decide(&identity, claim, not_yet));
            assert_eq!(decided, expected, "{identity:?} {claim:?}");
        }
    }

    #[test]
    fn the_client_is_the_last_address_of_those_who_are_believed() {
        let check = Check {
            header: HeaderName::from_static("x-forwarded-for"),
            believed: Acl::new(vec!["10.0.0.0/8".parse().unwrap()]),
            not_yet: NotYet::Allow,
        };
        for (peer, sent, expected) in [
            ("127.0.0.1", vec!["192.0.2.1"], Some("192.0.2.1")),
            ("10.1.1.1", vec!["198.51.100.9, 192.0.2.1"], Some("192.0.2.1")),
            ("10.1.1.1", vec!["198.51.100.9", "::ffff:192.0.2.1"], Some("192.0.2.1")),
            ("10.1.1.1", vec!["2001:db8::1"], Some("2001:db8::1")),
            // Somebody who may ask, and is no proxy: itself, whatever it says.
            ("192.0.2.77", vec!["198.51.100.9"], Some("192.0.2.77")),
            ("127.0.0.1", vec![], None),
            ("127.0.0.1", vec!["unknown"], None),
            ("127.0.0.1", vec!["192.0.2.1, "], None),
        ] {
            let mut headers = HeaderMap::new();
            for value in &sent {
                headers.append("x-forwarded-for", value.parse().unwrap());
            }
            let client = check.client(peer.parse().unwrap(), &headers).ok();
            assert_eq!(client, expected.map(|client| client.parse().unwrap()), "{peer} {sent:?}");
        }
    }
}
