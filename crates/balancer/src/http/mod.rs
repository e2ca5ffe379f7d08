//! HTTP: how the balancer is doing, and back ends that come, go and rest.
//!
//! | request | answer |
//! |---|---|
//! | `GET /v1/status`, `/metrics` | how it is doing |
//! | `POST /v1/backends` | adds a back end: `{"address": "192.0.2.1:53", "weight": 1}` |
//! | `DELETE /v1/backends/{address}` | drains it, and takes it out when nothing is in flight, unless it is resumed before |
//! | `POST /v1/backends/{address}/drain`, `.../resume` | gives it no more queries; gives it some again, unless its agent says that it drains |
//!
//! There is no token: it is served to this machine alone.

pub mod back_ends;
pub mod metrics;
pub mod status;

use std::sync::Arc;

use axum::Router;
use axum::routing::{delete, get, post};

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

/// All paths. None may be asked by a page in somebody's browser.
pub fn router(http: Http) -> Router {
    let routes = Router::new()
        .route("/v1/status", get(status::status))
        .route("/v1/backends", post(back_ends::add))
        .route("/v1/backends/{address}", delete(back_ends::remove))
        .route("/v1/backends/{address}/drain", post(back_ends::drain))
        .route("/v1/backends/{address}/resume", post(back_ends::resume))
        .route("/metrics", get(metrics::metrics));
    let paths = "/v1/status, /v1/backends, /v1/backends/ADDRESS or /metrics";
    web::reply::refuse_others(web::host::local(routes, None), paths).with_state(http)
}
