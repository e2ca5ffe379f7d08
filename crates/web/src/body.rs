//! Reading a request's body: of a known type, not too long, not too slowly.

use std::time::Duration;

use axum::extract::Request;
use axum::http::StatusCode;
use axum::http::header::CONTENT_TYPE;
use http_body_util::{BodyExt, LengthLimitError, Limited};

use crate::reply::Failure;

/// How long a body may be under way from its first octet to its last: the longest one at 10 Mbit/s.
pub const BODY_WAIT: Duration = Duration::from_secs(60);

/// Reads a body of one of `types` and at most `max` octets.
///
/// A body without a type is refused too: a web page of anybody's can make a browser send one here.
///
/// # Errors
/// The refusal.
pub async fn read(request: Request, types: &[&str], max: usize) -> Result<Vec<u8>, Failure> {
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

#[cfg(test)]
mod tests {
    use super::*;
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
}
