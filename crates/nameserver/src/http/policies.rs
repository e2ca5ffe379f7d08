//! `/v1/policies`: MyXDNS's matrix, in and out.

use axum::Json;
use axum::extract::{Request, State};
use axum::http::HeaderMap;
use axum::response::Response;

use api::{Changed, Policy, Problem};

use super::document::{IfAbsent, IfMatch, IfNoneMatch, Owner};
use super::path::Domain;
use super::reply::{Failure, changed};
use super::{Http, body, precondition};
use crate::edit::READ_AT_ONCE_MAX;

/// Lists the policies.
#[utoipa::path(
    get, path = "/v1/policies", operation_id = "list_policies", tag = "policies",
    responses((status = 200, description = "All policies.", body = Vec<Policy>)),
)]
pub(super) async fn list(State(http): State<Http>) -> Json<Vec<Policy>> {
    Json(http.editor.policies())
}

/// Returns a policy.
#[utoipa::path(
    get, path = "/v1/policies/{owner}", operation_id = "get_policy", tag = "policies",
    params(Owner, IfNoneMatch),
    responses(
        (status = 200, description = "The policy.", body = Policy),
        (status = 404, description = "There is no policy with this first name.", body = Problem),
    ),
)]
pub(super) async fn get(
    State(http): State<Http>,
    Domain(owner): Domain,
    headers: HeaderMap,
) -> Result<Response, Failure> {
    let policy = http.editor.policy(&owner);
    let (policy, etag) = policy.ok_or_else(|| Failure::missing(&format!("policy {owner}")))?;
    let text = serde_json::to_string(&policy).expect("a policy has a JSON form");
    precondition::tagged(&headers, &etag, body::JSON, http.admission.carry(text)?)
}

/// Puts a policy, new or in the place of the one there is.
///
/// The name in the path is the key; the names in the body add to it, and it may be listed among them.
#[utoipa::path(
    put, path = "/v1/policies/{owner}", operation_id = "put_policy", tag = "policies", params(Owner, IfMatch, IfAbsent),
    request_body(description = "The policy, at most 16 MiB.", content = Policy),
    responses((status = 200, description = "Every worker serves it.", body = Changed)),
)]
pub(super) async fn put(
    State(http): State<Http>,
    Domain(owner): Domain,
    request: Request,
) -> Result<Response, Failure> {
    let current = async || Ok(http.editor.policy(&owner).map(|(_, etag)| etag));
    let condition = precondition::condition(request.headers(), current).await?;
    let place = http.admission.change()?;
    let text = body::read(request, &[body::JSON], body::POLICY_MAX).await?;
    let is_long = text.len() > READ_AT_ONCE_MAX;
    let put = async move { http.editor.put_policy(&owner, text, condition).await };
    // Short ones need no place once their clients have gone: the queue bounds them.
    changed(if is_long { place.hold(put).await } else { put.await })
}

/// Deletes a policy; its names answer what their zones say.
#[utoipa::path(
    delete, path = "/v1/policies/{owner}", operation_id = "delete_policy", tag = "policies",
    params(Owner, IfMatch),
    responses(
        (status = 200, description = "No worker follows it any more.", body = Changed),
        (status = 404, description = "There is no policy with this first name.", body = Problem),
    ),
)]
pub(super) async fn delete(
    State(http): State<Http>,
    Domain(owner): Domain,
    headers: HeaderMap,
) -> Result<Response, Failure> {
    let current = async || Ok(http.editor.policy(&owner).map(|(_, etag)| etag));
    let condition = precondition::condition(&headers, current).await?;
    let _place = http.admission.change()?;
    changed(http.editor.delete_policy(&owner, condition).await)
}
