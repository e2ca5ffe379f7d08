//! The bearer token (RFC 6750 §2.1): who may ask at all.

use std::hint::black_box;
use std::sync::Arc;

use axum::extract::{Request, State};
use axum::http::StatusCode;
use axum::http::header::{AUTHORIZATION, HeaderValue, WWW_AUTHENTICATE};
use axum::middleware::Next;
use axum::response::{IntoResponse, Response};

use crate::reply::Failure;

/// The token that is asked for. It has no `Debug`, so that no log line can show it.
#[derive(Clone)]
pub struct Token {
    token: Arc<[u8]>,
    /// The path that needs none.
    open: &'static str,
}

impl Token {
    /// A token that every request must carry, but those for the path `open`.
    pub fn new(token: String, open: &'static str) -> Self {
        Token { token: token.into_bytes().into(), open }
    }

    /// Compares in a time that depends on the presented length only, so that nobody can guess octet by octet.
    fn is(&self, presented: &[u8]) -> bool {
        let differs = |(i, byte): (usize, &u8)| byte ^ self.token.get(i).unwrap_or(&0);
        let difference = presented.iter().enumerate().map(differs).fold(0, |all, one| black_box(all | one));
        difference == 0 && presented.len() == self.token.len() && !presented.is_empty()
    }
}

/// Lets a request pass that carries the token, or asks for the open path.
pub async fn require(State(token): State<Token>, request: Request, next: Next) -> Response {
    if request.uri().path() == token.open {
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
        let token = Token::new("secret".into(), "/");
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
        assert!(!Token::new(String::new(), "/").is(b""), "an empty token opens nothing");
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
