//! What a request's path says where its route leaves it open.

use axum::extract::{FromRequestParts, Path};
use axum::http::StatusCode;
use axum::http::request::Parts;
use serde::de::DeserializeOwned;

use crate::reply::Failure;

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
