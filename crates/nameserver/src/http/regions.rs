//! `/v1/regions`: MyXDNS's add_region and remove_region.

use axum::Json;
use axum::extract::{Request, State};
use axum::http::HeaderMap;
use axum::response::{IntoResponse, Response};

use api::{Changed, NewRegion, Problem, Region, RegionAdded};

use super::document::RegionId;
use super::path::Id;
use super::reply::{Failure, changed, status};
use super::{Http, body, precondition};

/// Lists the regions; region 0, unclassified, is not among them.
#[utoipa::path(
    get, path = "/v1/regions", operation_id = "list_regions", tag = "regions",
    responses((status = 200, description = "All regions.", body = Vec<Region>)),
)]
pub(super) async fn list(State(http): State<Http>) -> Json<Vec<Region>> {
    Json(http.editor.regions())
}

/// Adds a region, under a number that no region ever had.
#[utoipa::path(
    post, path = "/v1/regions", operation_id = "add_region", tag = "regions", request_body = NewRegion,
    responses((status = 200, description = "Every worker knows it.", body = RegionAdded)),
)]
pub(super) async fn add(State(http): State<Http>, request: Request) -> Result<Response, Failure> {
    precondition::none(request.headers())?;
    let _place = http.admission.change()?;
    let NewRegion { name } = body::object(request).await?;
    let (id, applied) = http.editor.add_region(&name).await?;
    Ok((status(applied), Json(RegionAdded { id, generation: applied.generation })).into_response())
}

/// Removes a region: its rows go, its prefixes become region 0.
#[utoipa::path(
    delete, path = "/v1/regions/{id}", operation_id = "remove_region", tag = "regions", params(RegionId),
    responses(
        (status = 200, description = "No worker knows it any more.", body = Changed),
        (status = 404, description = "There is no such region.", body = Problem),
    ),
)]
pub(super) async fn remove(
    State(http): State<Http>,
    Id(id): Id,
    headers: HeaderMap,
) -> Result<Response, Failure> {
    precondition::none(&headers)?;
    let _place = http.admission.change()?;
    changed(http.editor.remove_region(id).await)
}
