//! `/v1/health`, `/v1/status` and the document itself.

use axum::Json;
use axum::extract::State;
use axum::http::header::CONTENT_TYPE;
use axum::response::IntoResponse;

use api::{Health, Status};

use super::{Http, body};

/// Says that the name server is alive; needs no token.
#[utoipa::path(
    get, path = "/v1/health", operation_id = "health", tag = "server",
    responses((status = 200, description = "It is alive.", body = Health)),
)]
pub(super) async fn health(State(http): State<Http>) -> Json<Health> {
    Json(Health { generation: http.editor.published().load().number })
}

/// Says how the name server is doing; asks the store whether it would take a change.
#[utoipa::path(
    get, path = "/v1/status", operation_id = "status", tag = "server",
    responses((status = 200, description = "How it is doing.", body = Status)),
)]
pub(super) async fn status(State(http): State<Http>) -> Json<Status> {
    Json(http.status().await)
}

/// Returns this document.
#[utoipa::path(
    get, path = "/v1/openapi.json", operation_id = "openapi", tag = "server",
    responses((status = 200, description = "The OpenAPI 3.1 document.", body = Object)),
)]
pub(super) async fn openapi(State(http): State<Http>) -> impl IntoResponse {
    ([(CONTENT_TYPE, body::JSON)], http.document.to_string())
}

impl Http {
    /// The status with what the workers counted; the store is asked first.
    pub(super) async fn status(&self) -> Status {
        self.editor.check_store().await;
        let mut status = self.editor.status();
        self.metrics.fill_in(&mut status, self.editor.published().load().zones.all());
        status
    }
}
