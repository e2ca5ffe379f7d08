//! `/v1/probes`: what probes say of servers.

use axum::Json;
use axum::extract::State;

use api::ProbeState;

use super::Http;

/// Lists the servers under probes, those that fail first. It is fast state: no generation tells of its changes.
#[utoipa::path(
    get, path = "/v1/probes", operation_id = "list_probes", tag = "servers",
    responses((status = 200, description = "Every server with every probe that it is under.", body = Vec<ProbeState>)),
)]
pub(super) async fn list(State(http): State<Http>) -> Json<Vec<ProbeState>> {
    Json(http.editor.probes())
}
