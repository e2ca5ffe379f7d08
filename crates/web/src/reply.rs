//! What goes back where something is refused.

use axum::http::header::{HeaderValue, RETRY_AFTER};
use axum::http::{Method, StatusCode, Uri};
use axum::response::{IntoResponse, Response};
use axum::{Json, Router};

use api::{Faults, Problem};

/// After how many seconds what could not be had for the moment (503) may be asked for again.
const RETRY_SECONDS: HeaderValue = HeaderValue::from_static("1");

/// A request that was refused.
#[derive(Debug)]
pub struct Failure {
    /// The status of the answer, from 400 on.
    pub status: StatusCode,
    /// The body of the answer: what is wrong, and what was expected.
    pub problem: Problem,
}

impl Failure {
    /// Says what is wrong and what was expected, which may be empty.
    pub fn new(status: StatusCode, what: impl Into<String>, expected: impl Into<String>) -> Self {
        Failure { status, problem: Problem::new(what, expected) }
    }

    /// Says with 404 that there is no `what`.
    pub fn missing(what: &str) -> Self {
        Failure::new(StatusCode::NOT_FOUND, format!("there is no {what}"), "")
    }
}

impl From<Faults> for Failure {
    fn from(faults: Faults) -> Self {
        Failure { status: StatusCode::UNPROCESSABLE_ENTITY, problem: faults.into() }
    }
}

impl IntoResponse for Failure {
    fn into_response(self) -> Response {
        let mut response = (self.status, Json(self.problem)).into_response();
        if self.status == StatusCode::SERVICE_UNAVAILABLE {
            response.headers_mut().insert(RETRY_AFTER, RETRY_SECONDS);
        }
        response
    }
}

/// The same routes, which tell whoever asks for another path that there are `paths`, and with another method that the
/// header has those that there are.
pub fn refuse_others<S: Clone + Send + Sync + 'static>(routes: Router<S>, paths: &'static str) -> Router<S> {
    let no_such_path = async move |uri: Uri| {
        Failure::new(StatusCode::NOT_FOUND, format!("there is no {}", uri.path()), paths)
    };
    routes.fallback(no_such_path).method_not_allowed_fallback(no_such_method)
}

async fn no_such_method(method: Method, uri: Uri) -> Failure {
    let what = format!("{} has no method {method}", uri.path());
    Failure::new(StatusCode::METHOD_NOT_ALLOWED, what, "a method of the Allow header")
}
