//! `/v1/servers`: which of them may be drawn.

use axum::Json;
use axum::extract::{Request, State};
use axum::response::Response;

use api::{Changed, NewServerState, Problem, ServerState};

use super::document::ServerPath;
use super::path::Server;
use super::reply::{Failure, changed};
use super::{Http, body, precondition};

/// Lists the servers of all policies, and whether they are up.
#[utoipa::path(
    get, path = "/v1/servers", operation_id = "list_servers", tag = "servers",
    responses((status = 200, description = "All servers.", body = Vec<ServerState>)),
)]
pub(super) async fn list(State(http): State<Http>) -> Json<Vec<ServerState>> {
    Json(http.editor.servers())
}

/// Takes a server out, or lets it be drawn again; this survives a restart.
#[utoipa::path(
    put, path = "/v1/servers/{server}/state", operation_id = "set_server", tag = "servers",
    params(ServerPath), request_body = NewServerState,
    responses(
        (status = 200, description = "Every worker heeds it.", body = Changed),
        (status = 404, description = "No policy has this server.", body = Problem),
    ),
)]
pub(super) async fn set_state(
    State(http): State<Http>,
    Server(server): Server,
    request: Request,
) -> Result<Response, Failure> {
    precondition::none(request.headers())?;
    let _place = http.admission.change()?;
    let NewServerState { up } = body::object(request).await?;
    changed(http.editor.set_server(server, up).await)
}
