//! HTTP: how the balancer is doing, and back ends that come, go and rest.
//!
//! | request | answer |
//! |---|---|
//! | `GET /v1/health` | that it is alive; needs no token |
//! | `GET /v1/status`, `/metrics` | how it is doing |
//! | `GET /v1/openapi.json` | all this for programs |
//! | `POST /v1/backends` | adds a back end: `{"address": "192.0.2.1:53", "weight": 1}` |
//! | `DELETE /v1/backends/{address}` | drains it, and takes it out when nothing is in flight, unless it is resumed before |
//! | `POST /v1/backends/{address}/drain`, `.../resume` | gives it no more queries; gives it some again, unless its agent says that it drains |
//! | `DELETE /v1/cache`, `/v1/cache/{name}` | forgets all answers that are kept; those about a name and what is below it |
//!
//! Whoever carries the token may ask; where there is none, this machine alone.

pub mod back_ends;
mod cache;
mod document;
pub mod metrics;
pub mod status;

use std::sync::Arc;

use axum::Router;
use utoipa_axum::router::OpenApiRouter;
use utoipa_axum::routes;

use crate::numbers::Numbers;
use back_ends::Editing;

/// What every handler can reach.
#[derive(Clone, Debug)]
pub struct Http {
    /// What is counted.
    pub numbers: Arc<Numbers>,
    /// Where back ends come and go.
    pub editing: Arc<Editing>,
}

/// All paths.
///
/// With a `token`, every request but that for `/v1/health` must carry it. Without one, none may be asked by a page in
/// somebody's browser.
pub fn router(http: Http, token: Option<String>) -> Router {
    let routes = documented().split_for_parts().0;
    let routes = web::reply::refuse_others(routes, "a path of /v1/openapi.json").with_state(http);
    web::token::guarded(routes, token)
}

/// The OpenAPI 3.1 document, as `/v1/openapi.json` serves it and `docs/reference/balance-openapi.json` keeps it.
pub fn openapi() -> String {
    let document = documented().split_for_parts().1;
    let mut text = document.to_pretty_json().expect("the document has only text keys");
    text.push('\n');
    text
}

/// The routes with their own documentation.
fn documented() -> OpenApiRouter<Http> {
    OpenApiRouter::with_openapi(document::opening())
        .routes(routes!(status::health))
        .routes(routes!(status::status))
        .routes(routes!(status::openapi))
        .routes(routes!(metrics::metrics))
        .routes(routes!(back_ends::add))
        .routes(routes!(back_ends::remove))
        .routes(routes!(back_ends::drain))
        .routes(routes!(back_ends::resume))
        .routes(routes!(cache::forget_all))
        .routes(routes!(cache::forget_name))
}
