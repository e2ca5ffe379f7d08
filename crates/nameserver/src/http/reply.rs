//! What goes back: what was asked for, the generation of a change, or a problem.

use axum::Json;
use axum::http::StatusCode;
use axum::response::{IntoResponse, Response};

use api::Changed;

use crate::edit::{Applied, Refused};

pub(super) use web::Failure;

impl From<Refused> for Failure {
    fn from(refused: Refused) -> Self {
        let status = match &refused {
            Refused::Faults(_) => StatusCode::UNPROCESSABLE_ENTITY,
            Refused::NotFound(_) => StatusCode::NOT_FOUND,
            Refused::InUse(_) => StatusCode::CONFLICT,
            Refused::Precondition { .. } | Refused::Exists { .. } => StatusCode::PRECONDITION_FAILED,
            Refused::Broken => StatusCode::INTERNAL_SERVER_ERROR,
            Refused::Store(_) | Refused::Outrun | Refused::Busy => StatusCode::SERVICE_UNAVAILABLE,
        };
        match refused {
            Refused::Faults(faults) => faults.into(),
            other => Failure::new(status, other.to_string(), ""),
        }
    }
}

/// 200, or 202 where not every worker is there.
pub(super) fn status(applied: Applied) -> StatusCode {
    if applied.reached { StatusCode::OK } else { StatusCode::ACCEPTED }
}

/// The answer to a change.
pub(super) fn changed(made: Result<Applied, Refused>) -> Result<Response, Failure> {
    let applied = made?;
    Ok((status(applied), Json(Changed { generation: applied.generation })).into_response())
}

/// Does what takes long on a thread that serves nobody else.
pub(super) async fn aside<T: Send + 'static>(
    work: impl FnOnce() -> T + Send + 'static,
) -> Result<T, Failure> {
    tokio::task::spawn_blocking(work).await.map_err(|ended| Refused::from(ended).into())
}
