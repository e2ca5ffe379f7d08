//! The HTTP face: reports of loads in, numbers out.
//!
//! | request | answer |
//! |---|---|
//! | `PUT /v1/loads/{source}/{server}` | takes the load that a server reports of itself |
//! | `GET /v1/status` | the last round |
//! | `GET /v1/health` | that the process answers; needs no token |
//! | `GET /metrics` | how the process is doing |

pub mod metrics;

use std::sync::Arc;

use api::target::NoTarget;
use api::{ControlRound, LoadReport, Target};
use axum::extract::{Request, State};
use axum::http::StatusCode;
use axum::response::IntoResponse;
use axum::routing::{get, put};
use axum::{Json, Router};
use net::clock::Clock;
use web::Failure;
use web::path::Segments;
use web::reply::refuse_others;
use web::token::{HEALTH, guarded};

use crate::numbers::{Numbers, Verdict};
use crate::readings::Readings;

/// The longest report in octets: one number.
const REPORT_MAX: usize = 1 << 10;

/// What every handler can reach.
#[derive(Clone, Debug)]
pub struct Face {
    /// The clock that reports are noted by.
    pub clock: Clock,
    /// The last values of all sources, to which reports are added.
    pub readings: Arc<Readings>,
    /// The counts and the last round, which `/metrics` and `/v1/status` tell.
    pub numbers: Arc<Numbers>,
    /// The servers by all of their addresses, or names.
    pub servers: Arc<Vec<Vec<Target>>>,
    /// The sources, in the order of their numbers.
    pub sources: Arc<Vec<Source>>,
}

/// A source as reports name it.
#[derive(Clone, Debug)]
pub struct Source {
    /// Its name in the path.
    pub name: String,
    /// Whether servers report to it.
    pub is_pushed: bool,
    /// Whether what is reported is a count that grows.
    pub per_second: bool,
}

/// All paths. Without a token, nothing is served under a host's name and no report is taken.
pub fn router(face: Face, token: Option<String>) -> Router {
    let routes = Router::new()
        .route("/v1/status", get(status))
        .route(HEALTH, get(health))
        .route("/metrics", get(metrics::metrics));
    let routes = match token {
        Some(_) => {
            let routes = routes.route("/v1/loads/{source}/{server}", put(report));
            refuse_others(routes, "/v1/loads/SOURCE/SERVER, /v1/status, /v1/health or /metrics")
        }
        None => refuse_others(routes, "/v1/status, /v1/health or /metrics"),
    };
    guarded(routes, token).with_state(face)
}

async fn report(
    State(face): State<Face>,
    Segments((source, server)): Segments<(String, String)>,
    request: Request,
) -> Result<StatusCode, Failure> {
    let body = web::body::read(request, &["application/json"], REPORT_MAX).await?;
    // The final dot may be left out.
    let server = server.to_ascii_lowercase();
    let target = server.parse().unwrap_or_else(|NoTarget| Target::Cname(format!("{server}.")));
    let server = face.servers.iter().position(|own| own.contains(&target));
    let server = server.ok_or_else(|| Failure::missing(&format!("server {target} in the configuration")))?;
    let number = face.sources.iter().position(|known| known.name == source);
    let number = number.ok_or_else(|| Failure::missing(&format!("source {source} in the configuration")))?;
    let Source { is_pushed, per_second, .. } = face.sources[number];
    if !is_pushed {
        let what = format!("the source {source} is asked, and takes no reports");
        return Err(Failure::new(StatusCode::CONFLICT, what, "a source of kind push"));
    }
    let report: LoadReport = serde_json::from_slice(&body).map_err(|cause| {
        let what = format!("the report cannot be read: {cause}");
        Failure::new(StatusCode::UNPROCESSABLE_ENTITY, what, "{\"value\": NUMBER}")
    })?;
    let now = face.clock.now().monotonic;
    match face.readings.note(server, number, Ok(report.value), now, per_second) {
        Verdict::Absurd => {
            face.numbers.reading(number, Verdict::Absurd);
            let what = format!("{} is no load", report.value);
            Err(Failure::new(StatusCode::UNPROCESSABLE_ENTITY, what, "a number from 0 on"))
        }
        _ => {
            face.numbers.reading(number, Verdict::Reported);
            Ok(StatusCode::NO_CONTENT)
        }
    }
}

async fn status(State(face): State<Face>) -> Result<Json<ControlRound>, Failure> {
    let round = face.numbers.last();
    round.map(Json).ok_or_else(|| Failure::missing("round that has ended yet"))
}

async fn health() -> impl IntoResponse {
    Json(serde_json::json!({}))
}
