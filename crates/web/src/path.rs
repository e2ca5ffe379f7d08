//! What a request's path says where its route leaves it open.

use axum::extract::{FromRequestParts, Path};
use axum::http::StatusCode;
use axum::http::request::Parts;
use serde::de::DeserializeOwned;

use crate::reply::Failure;

/// What stands for the name `.` in a path, since clients take a segment of a single dot away even where it is
/// written as `%2E` (RFC 3986 §5.2.4, §6.2.2.3). No other name is read differently for it: `=2E` is no
/// escape.
pub const ROOT: &str = "=2E";

/// The segments that the route leaves open, decoded: a `String`, or a tuple of as many as there are.
#[derive(Debug)]
pub struct Segments<T>(pub T);

impl<S: Send + Sync, T: DeserializeOwned + Send> FromRequestParts<S> for Segments<T> {
    type Rejection = Failure;

    async fn from_request_parts(parts: &mut Parts, state: &S) -> Result<Self, Failure> {
        let segments = Path::<T>::from_request_parts(parts, state).await;
        segments.map(|Path(segments)| Segments(segments)).map_err(|_| {
            let what = format!("the path {} is not UTF-8 when decoded", parts.uri.path());
            Failure::new(StatusCode::BAD_REQUEST, what, "percent-encoded UTF-8")
        })
    }
}
