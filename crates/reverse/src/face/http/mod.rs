//! HTTP: JSON for people and programs, a yes or no for web servers, and numbers.
//!
//! | request | answer |
//! |---|---|
//! | `GET /v1/names/{address}` | what is known of an address |
//! | `POST /v1/names` | the same for many, a line each |
//! | any method, `/v1/check` and all below it | 200 or 403 for a client of a web server |
//! | `GET /v1/status`, `/metrics` | how the service is doing |
//! | `GET /v1/openapi.json` | all this for programs |
//!
//! It answers from the cache, as all faces do, and never waits. In reading order: [`check`] is the decision about a
//! client; [`names`] what is known; [`status`] and [`metrics`] the numbers; [`document`] what OpenAPI says of them.

pub mod check;
pub mod document;
pub mod metrics;
pub mod names;
pub mod status;

use std::net::SocketAddr;
use std::sync::Arc;

use axum::Router;
use axum::routing::{any, get};
use net::clock::Clock;
use tokio::sync::Semaphore;

use crate::crawlers::Crawlers;
use crate::front::Front;
use crate::numbers::Numbers;
use check::Check;

/// What every handler can reach.
#[derive(Clone, Debug)]
pub struct Http {
    /// Where addresses are looked up.
    pub front: Front,
    /// The clock by which entries expire.
    pub clock: Clock,
    /// The counts of all parts, which `/metrics` and `/v1/status` tell.
    pub numbers: Arc<Numbers>,
    /// How clients of web servers are judged.
    pub check: Arc<Check>,
    /// The crawlers that a claim may name.
    pub crawlers: Arc<Crawlers>,
    /// Whether nobody but loopback may ask.
    pub loopback_only: bool,
    /// The faces by name, each with an address that it answers at.
    pub listening: Arc<[(&'static str, SocketAddr)]>,
    /// Places for bulk requests, [`BULKS_MAX`](names::BULKS_MAX) of them.
    pub bulks: Arc<Semaphore>,
}

/// What there is, as whoever asks for something else is told.
const PATHS: &str = "/v1/names/ADDRESS, /v1/names, /v1/check, /v1/status, /v1/openapi.json or /metrics";

/// The router of all paths; each answers from the cache and never waits.
pub fn router(http: Http) -> Router {
    let asked = Router::new()
        .route("/v1/names", axum::routing::post(names::bulk))
        .route("/v1/names/{address}", get(names::one))
        .route("/v1/status", get(status::status))
        .route("/v1/openapi.json", get(document::served))
        .route("/metrics", get(metrics::metrics));
    // Else a page in somebody's browser could read the list of visitors.
    let asked = if http.loopback_only { web::host::local(asked, None) } else { asked };
    // Web servers that check pass their clients' host on, and Envoy puts what its client asked for behind our path.
    let all = asked
        .route("/v1/check", any(check::check))
        .route("/v1/check/", any(check::below))
        .route("/v1/check/{*path}", any(check::below));
    web::reply::refuse_others(all, PATHS).with_state(http)
}
