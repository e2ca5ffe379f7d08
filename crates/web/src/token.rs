//! The bearer token (RFC 6750 §2.1): who may ask at all.

use std::hint::black_box;
use std::sync::Arc;

use axum::Router;
use axum::extract::{Request, State};
use axum::http::StatusCode;
use axum::http::header::{AUTHORIZATION, HeaderValue, WWW_AUTHENTICATE};
use axum::middleware::{self, Next};
use axum::response::{IntoResponse, Response};

use crate::host;
use crate::reply::Failure;

/// The path that needs no token: a supervisor that asks for it has none.
pub const HEALTH: &str = "/v1/health";

/// The same routes, for whoever carries the token; without one, for this machine alone ([`host::local`]). [`HEALTH`] is for all.
pub fn guarded<S: Clone + Send + Sync + 'static>(routes: Router<S>, token: Option<String>) -> Router<S> {
    match token {
        Some(token) => routes.layer(middleware::from_fn_with_state(Token::new(token), require)),
        None => host::local(routes, Some(HEALTH)),
    }
}

/// The token that is asked for. It has no `Debug`, so that no log line can show it.
#[derive(Clone)]
struct Token(Arc<[u8]>);

impl Token {
    fn new(token: String) -> Self {
        Token(token.into_bytes().into())
    }

    /// Compares in a time that depends on the presented length only, so that nobody can guess octet by octet.
    fn is(&self, presented: &[u8]) -> bool {
        let differs = |(i, byte): (usize, &u8)| byte ^ self.0.get(i).unwrap_or(&0);
        let difference = presented.iter().enumerate().map(differs).fold(0, |all, one| black_box(all | one));
        difference == 0 && presented.len() == self.0.len() && !presented.is_empty()
    }
}

/// Lets a request pass that carries the token, or asks for the open path.
async fn require(State(token): State<Token>, request: Request, next: Next) -> Response {
    if request.uri().path() == HEALTH {
        return next.run(request).await;
    }
    let sent = request.headers().get(AUTHORIZATION);
    let (what, challenge) = match sent.and_then(presented) {
        Some(presented) if token.is(presented) => return next.run(request).await,
        Some(_) => ("the token is not the one", r#"Bearer realm="pointsman", error="invalid_token""#),
        None => ("there is no token", r#"Bearer realm="pointsman""#),
    };
    let failure = Failure::new(StatusCode::UNAUTHORIZED, what, "Authorization: Bearer TOKEN");
    ([(WWW_AUTHENTICATE, HeaderValue::from_static(challenge))], failure).into_response()
}

fn presented(header: &HeaderValue) -> Option<&[u8]> {
    let (scheme, token) = header.as_bytes().split_at_checked("Bearer ".len())?;
    scheme.eq_ignore_ascii_case(b"Bearer ").then(|| token.trim_ascii())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_the_token_itself_is_the_token() {
        let token = Token::new("secret".into());
        for (presented, is) in [
            ("secret", true),
            ("secreT", false),
            ("secre", false),
            ("secret ", false),
            ("secret\0", false),
            ("", false),
        ] {
            assert_eq!(token.is(presented.as_bytes()), is, "{presented:?}");
        }
        assert!(!Token::new(String::new()).is(b""), "an empty token opens nothing");
    }

    #[test]
    fn the_header_is_read_as_rfc_6750_has_it() {
        for (header, token) in [
            ("Bearer abc", Some("abc")),
            ("bearer  abc ", Some("abc")),
            ("Bearer ", Some("")),
            ("Bearer", None),
            ("Basic abc", None),
            ("", None),
        ] {
            let header: HeaderValue = header.parse().expect("a header");
            assert_eq!(presented(&header), token.map(str::as_bytes), "{header:?}");
        }
    }
}
