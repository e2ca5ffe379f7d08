//! What goes back where something is refused.

use axum::Json;
use axum::http::StatusCode;
use axum::response::{IntoResponse, Response};

use api::{Faults, Problem};

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
        (self.status, Json(self.problem)).into_response()
    }
}
