//! `/v1/zones`: master files in and out.

use axum::Json;
use axum::extract::{Request, State};
use axum::http::HeaderMap;
use axum::response::Response;

use api::{Changed, Problem, ZoneSummary};
use net::clock::Clock;

use super::document::{IfAbsent, IfMatch, IfNoneMatch, Origin};
use super::path::Domain;
use super::reply::{Failure, aside, changed};
use super::{Http, body, precondition};
use crate::book::Condition;

/// The type of a master file (RFC 4027).
const MASTER_FILE: &str = "text/dns";

/// Lists the zones.
#[utoipa::path(
    get, path = "/v1/zones", operation_id = "list_zones", tag = "zones",
    responses((status = 200, description = "All zones.", body = Vec<ZoneSummary>)),
)]
pub(super) async fn list(State(http): State<Http>) -> Json<Vec<ZoneSummary>> {
    Json(http.editor.zones(Clock::new().now().unix.as_secs()))
}

/// Returns a zone as a canonical master file.
#[utoipa::path(
    get, path = "/v1/zones/{origin}", operation_id = "get_zone", tag = "zones", params(Origin, IfNoneMatch),
    responses(
        (status = 200, description = "The master file.", body = String, content_type = "text/dns"),
        (status = 404, description = "There is no such zone.", body = Problem),
    ),
)]
pub(super) async fn get(
    State(http): State<Http>,
    Domain(origin): Domain,
    headers: HeaderMap,
) -> Result<Response, Failure> {
    let missing = Failure::missing(&format!("zone {origin}"));
    let place = http.admission.sending().await?;
    // Writing and hashing a million records takes long.
    let made = move || http.editor.zone(&origin).map(|(text, etag)| (place.carry(text), etag));
    let (text, etag) = aside(made).await?.ok_or(missing)?;
    precondition::tagged(&headers, &etag, MASTER_FILE, text)
}

/// Puts a zone, new or in the place of the one there is.
///
/// The master file may set `$ORIGIN` and `$TTL`, but may include no files. Its SOA record must be that of the
/// zone that is put.
#[utoipa::path(
    put, path = "/v1/zones/{origin}", operation_id = "put_zone", tag = "zones", params(Origin, IfMatch, IfAbsent),
    request_body(
        description = "A master file (RFC 1035 §5), at most 64 MiB.",
        content((String = "text/dns"), (String = "text/plain")),
    ),
    responses((status = 200, description = "Every worker serves it.", body = Changed)),
)]
pub(super) async fn put(
    State(http): State<Http>,
    Domain(origin): Domain,
    request: Request,
) -> Result<Response, Failure> {
    let condition = condition(&http, &origin, request.headers()).await?;
    let place = http.admission.text().await?;
    let text = body::read(request, &[MASTER_FILE, body::PLAIN], body::TEXT_MAX).await?;
    changed(place.hold(async move { http.editor.put_zone(&origin, text, condition).await }).await)
}

/// Deletes a zone.
#[utoipa::path(
    delete, path = "/v1/zones/{origin}", operation_id = "delete_zone", tag = "zones", params(Origin, IfMatch),
    responses(
        (status = 200, description = "No worker serves it any more.", body = Changed),
        (status = 404, description = "There is no such zone.", body = Problem),
        (status = 409, description = "Policies have names in it.", body = Problem),
    ),
)]
pub(super) async fn delete(
    State(http): State<Http>,
    Domain(origin): Domain,
    headers: HeaderMap,
) -> Result<Response, Failure> {
    let condition = condition(&http, &origin, &headers).await?;
    let _place = http.admission.change()?;
    changed(http.editor.delete_zone(&origin, condition).await)
}

/// What a change of a zone depends on.
async fn condition(http: &Http, origin: &str, headers: &HeaderMap) -> Result<Condition, Failure> {
    let (http, origin) = (http.clone(), origin.to_owned());
    let current = async || {
        let place = http.admission.sending().await?;
        let made = move || (http.editor.zone(&origin).map(|(_, etag)| etag), place);
        aside(made).await.map(|(etag, _)| etag)
    };
    precondition::condition(headers, current).await
}
