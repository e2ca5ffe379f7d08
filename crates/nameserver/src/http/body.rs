//! Reading a request's body: of a known type, not too long, not too slowly.

use std::time::Duration;

use axum::extract::Request;
use axum::http::StatusCode;
use axum::http::header::CONTENT_TYPE;
use http_body_util::{BodyExt, LengthLimitError, Limited};
use serde::de::DeserializeOwned;

use api::{Fault, Faults};

use super::reply::Failure;

/// The longest zone or partition that is taken over HTTP, in octets: a million records, or all routed
/// prefixes of the Internet several times over. Longer ones come from files.
pub const TEXT_MAX: usize = 64 << 20;

/// The longest policy in octets: some 70,000 entries of 60 octets, a hundred servers in every country twice
/// over.
pub const POLICY_MAX: usize = 4 << 20;

/// The longest other body in octets: each holds a name and an address at most.
pub const JSON_MAX: usize = 16 << 10;

/// How long a body may be under way from its first octet to its last: the longest one at 10 Mbit/s.
pub const BODY_WAIT: Duration = Duration::from_secs(60);

/// What any text may be sent as.
pub(super) const PLAIN: &str = "text/plain";

/// The type of all that is neither a master file nor CSV.
pub(super) const JSON: &str = "application/json";

/// Reads a body of one of `types` and at most `max` octets.
///
/// A body without a type is refused too: a web page of anybody's can make a browser send one here.
pub(super) async fn read(request: Request, types: &[&str], max: usize) -> Result<Vec<u8>, Failure> {
    let sent = request.headers().get(CONTENT_TYPE).map(|value| value.to_str().unwrap_or("?"));
    let essence = sent.and_then(|sent| sent.split(';').next()).unwrap_or_default().trim();
    if !types.iter().any(|known| essence.eq_ignore_ascii_case(known)) {
        let what = sent.map_or("the body has no type".into(), |sent| format!("the body's type is '{sent}'"));
        let expected = format!("Content-Type: {}", types.join(" or "));
        return Err(Failure::new(StatusCode::UNSUPPORTED_MEDIA_TYPE, what, expected));
    }
    let collected = Limited::new(request.into_body(), max).collect();
    match tokio::time::timeout(BODY_WAIT, collected).await {
        Ok(Ok(body)) => Ok(body.to_bytes().into()),
        Ok(Err(cause)) if cause.is::<LengthLimitError>() => {
            let expected = format!("at most {max} octets");
            Err(Failure::new(StatusCode::PAYLOAD_TOO_LARGE, "the body is too long", expected))
        }
        Ok(Err(cause)) => {
            Err(Failure::new(StatusCode::BAD_REQUEST, format!("the body broke off: {cause}"), ""))
        }
        Err(_) => {
            let expected = format!("all of it within {} seconds", BODY_WAIT.as_secs());
            Err(Failure::new(StatusCode::REQUEST_TIMEOUT, "the body is too slow", expected))
        }
    }
}

/// Reads a JSON object of at most [`JSON_MAX`] octets.
pub(super) async fn object<T: DeserializeOwned>(request: Request) -> Result<T, Failure> {
    let text = read(request, &[JSON], JSON_MAX).await?;
    parse(&text).map_err(|fault| Faults::from(fault).into())
}

fn parse<T: DeserializeOwned>(text: &[u8]) -> Result<T, Fault> {
    // Serde would also take a list of the members' values in their order.
    if text.trim_ascii_start().first() != Some(&b'{') {
        return Err(Fault::at("body", 1, 1, "no JSON object", "'{'"));
    }
    serde_json::from_slice(text).map_err(|cause| {
        let said = cause.to_string();
        let what = said.split(" at line ").next().unwrap_or_default();
        let place = |n: usize| u32::try_from(n).unwrap_or(u32::MAX).max(1);
        Fault::at("body", place(cause.line()), place(cause.column()), what, "")
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use api::{Explain, NewRegion};
    use axum::body::Body;
    use std::convert::Infallible;
    use std::pin::Pin;
    use std::task::{Context, Poll};

    use hyper::body::Frame;

    fn post(content_type: Option<&str>, body: Body) -> Request {
        let request = Request::post("/");
        let request =
            content_type.into_iter().fold(request, |request, value| request.header(CONTENT_TYPE, value));
        request.body(body).expect("a request")
    }

    #[tokio::test]
    async fn only_known_types_are_read() {
        let types = ["text/dns", "text/plain"];
        for (sent, known) in [
            (Some("text/dns"), true),
            (Some("Text/Plain; charset=utf-8"), true),
            (Some("text/dnsx"), false),
            (Some("application/json"), false),
            (Some(""), false),
            (None, false),
        ] {
            let read = read(post(sent, Body::from("abc")), &types, 3).await;
            match read {
                Ok(text) => assert!(known && text == b"abc", "{sent:?}"),
                Err(failure) => {
                    assert!(!known && failure.status == StatusCode::UNSUPPORTED_MEDIA_TYPE, "{sent:?}");
                }
            }
        }
    }

    #[tokio::test]
    async fn a_long_body_is_refused() {
        let failure = read(post(Some("text/dns"), Body::from("abcd")), &["text/dns"], 3).await.unwrap_err();
        assert_eq!(failure.status, StatusCode::PAYLOAD_TOO_LARGE);
        assert_eq!(failure.problem.expected, "at most 3 octets");
    }

    #[tokio::test(start_paused = true)]
    async fn a_slow_body_is_refused() {
        struct Never;
        impl axum::body::HttpBody for Never {
            type Data = bytes::Bytes;
            type Error = Infallible;
            fn poll_frame(
                self: Pin<&mut Self>,
                _: &mut Context<'_>,
            ) -> Poll<Option<Result<Frame<bytes::Bytes>, Infallible>>> {
                Poll::Pending
            }
        }
        let failure = read(post(Some("text/dns"), Body::new(Never)), &["text/dns"], 3).await.unwrap_err();
        assert_eq!(failure.status, StatusCode::REQUEST_TIMEOUT);
    }

    #[test]
    fn faults_of_json_have_their_place() {
        let region = |text: &str| parse::<NewRegion>(text.as_bytes()).map_err(|fault| fault.to_string());
        assert_eq!(region(" {\"name\":\"a\"}"), Ok(NewRegion { name: "a".into() }));
        for (text, fault) in [
            ("", "body:1:1: no JSON object; expected '{'"),
            ("[\"a\"]", "body:1:1: no JSON object; expected '{'"),
            ("{}", "body:1:2: missing field `name`"),
            ("{\n\"name\":3}", "body:2:8: invalid type: integer `3`, expected a string"),
            ("{\"name\":\"a\"} x", "body:1:14: trailing characters"),
            ("{\"name\":\"a\",\"x\":1}", "body:1:15: unknown field `x`, expected `name`"),
        ] {
            assert_eq!(region(text), Err(fault.into()), "{text}");
        }
        assert!(parse::<Explain>(br#"{"name":"a","type":"MX","client":"::1"}"#).is_err());
    }
}
