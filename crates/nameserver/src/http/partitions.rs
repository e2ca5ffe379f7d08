//! `/v1/partitions`: prefixes and their regions, in and out, and look-ups.

use axum::Json;
use axum::extract::rejection::QueryRejection;
use axum::extract::{Query, Request, State};
use axum::http::{HeaderMap, StatusCode};
use axum::response::{IntoResponse, Response};
use serde::Deserialize;
use utoipa::IntoParams;
use web::path::Segments;

use api::{Changed, Lookup, PartitionPut, PartitionSummary, Problem};

use super::document::{IfAbsent, IfMatch, IfNoneMatch, PartitionName};
use super::path;
use super::reply::{Failure, aside, changed, status};
use super::{Http, body, precondition};
use crate::book::{Condition, check_name};

/// The type of a partition: `prefix,region` lines (RFC 4180).
const CSV: &str = "text/csv";

/// The most partitions that are named where another was asked for.
const SHOWN_MAX: usize = 10;

/// Whom to look up.
#[derive(Deserialize, IntoParams)]
#[serde(deny_unknown_fields)]
#[into_params(parameter_in = Query)]
pub(super) struct Whom {
    /// The client's address.
    #[param(required = true, schema_with = api::server::address)]
    address: String,
}

/// Lists the partitions.
#[utoipa::path(
    get, path = "/v1/partitions", operation_id = "list_partitions", tag = "partitions",
    responses((status = 200, description = "All partitions.", body = Vec<PartitionSummary>)),
)]
pub(super) async fn list(State(http): State<Http>) -> Json<Vec<PartitionSummary>> {
    Json(http.editor.partitions())
}

/// Returns a partition as it was put.
#[utoipa::path(
    get, path = "/v1/partitions/{name}", operation_id = "get_partition", tag = "partitions",
    params(PartitionName, IfNoneMatch),
    responses(
        (status = 200, description = "Its prefixes and regions.", body = String, content_type = "text/csv"),
        (status = 404, description = "There is no such partition.", body = Problem),
    ),
)]
pub(super) async fn get(
    State(http): State<Http>,
    Segments(name): Segments<String>,
    headers: HeaderMap,
) -> Result<Response, Failure> {
    let missing = missing(&http, &name);
    let place = http.admission.sending().await?;
    // Hashing a million prefixes takes long.
    let made = move || http.editor.partition(&name).map(|(text, etag)| (place.carry(text), etag));
    let (text, etag) = aside(made).await?.ok_or(missing)?;
    precondition::tagged(&headers, &etag, CSV, text)
}

/// Puts a partition, new or in the place of the one there is.
///
/// Each line is a prefix and the name of a region; of two prefixes that cover an address the longer one
/// decides. A text without a prefix is refused (422): an emptied file would take all clients' regions away.
#[utoipa::path(
    put, path = "/v1/partitions/{name}", operation_id = "put_partition", tag = "partitions",
    params(PartitionName, IfMatch, IfAbsent),
    request_body(
        description = "Lines of `prefix,region`, at most 64 MiB; at least one of them has a prefix.",
        content((String = "text/csv"), (String = "text/plain")),
    ),
    responses((status = 200, description = "Every worker serves it.", body = PartitionPut)),
)]
pub(super) async fn put(
    State(http): State<Http>,
    Segments(name): Segments<String>,
    request: Request,
) -> Result<Response, Failure> {
    check_name(&name).map_err(|fault| Failure::new(StatusCode::BAD_REQUEST, fault.what, fault.expected))?;
    let condition = condition(&http, &name, request.headers()).await?;
    let place = http.admission.text().await?;
    let text = body::read(request, &[CSV, body::PLAIN], body::TEXT_MAX).await?;
    let put = place.hold(async move { http.editor.put_partition(&name, text, condition).await });
    let (prefixes, applied) = put.await?;
    Ok((status(applied), Json(PartitionPut { prefixes, generation: applied.generation })).into_response())
}

/// Deletes a partition.
#[utoipa::path(
    delete, path = "/v1/partitions/{name}", operation_id = "delete_partition", tag = "partitions",
    params(PartitionName, IfMatch),
    responses(
        (status = 200, description = "No worker uses it any more.", body = Changed),
        (status = 404, description = "There is no such partition.", body = Problem),
        (status = 409, description = "Policies use it.", body = Problem),
    ),
)]
pub(super) async fn delete(
    State(http): State<Http>,
    Segments(name): Segments<String>,
    headers: HeaderMap,
) -> Result<Response, Failure> {
    let condition = condition(&http, &name, &headers).await?;
    let _place = http.admission.change()?;
    changed(http.editor.delete_partition(&name, condition).await)
}

/// Says which region a client address is in.
#[utoipa::path(
    get, path = "/v1/partitions/{name}/lookup", operation_id = "lookup", tag = "partitions",
    params(PartitionName, Whom),
    responses(
        (status = 200, description = "The region, and the largest block in it.", body = Lookup),
        (status = 404, description = "There is no such partition.", body = Problem),
    ),
)]
pub(super) async fn lookup(
    State(http): State<Http>,
    Segments(name): Segments<String>,
    whom: Result<Query<Whom>, QueryRejection>,
) -> Result<Json<Lookup>, Failure> {
    let Query(whom) = whom.map_err(|_| {
        Failure::new(
            StatusCode::BAD_REQUEST,
            "the query asks for no address",
            "?address=ADDRESS and nothing else",
        )
    })?;
    let address = path::address(&whom.address)?;
    http.editor.lookup(&name, address, &http.metrics.fast).map(Json).ok_or_else(|| missing(&http, &name))
}

/// What a change of a partition depends on.
async fn condition(http: &Http, name: &str, headers: &HeaderMap) -> Result<Condition, Failure> {
    let (http, name) = (http.clone(), name.to_owned());
    let current = async || {
        let place = http.admission.sending().await?;
        let made = move || (http.editor.partition(&name).map(|(_, etag)| etag), place);
        aside(made).await.map(|(etag, _)| etag)
    };
    precondition::condition(headers, current).await
}

/// Says that there is no such partition, and which there are.
fn missing(http: &Http, name: &str) -> Failure {
    let book = http.editor.book();
    let mut there: Vec<&str> = book.partitions.keys().map(String::as_str).take(SHOWN_MAX + 1).collect();
    if there.len() > SHOWN_MAX {
        there[SHOWN_MAX] = "others";
    }
    let expected = match there.len() {
        0 => "one to be put first; there is none yet".into(),
        _ => format!("one of those there are: {}", there.join(", ")),
    };
    Failure::new(StatusCode::NOT_FOUND, format!("there is no partition {name}"), expected)
}
