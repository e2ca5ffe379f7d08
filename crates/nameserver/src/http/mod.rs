//! The HTTP API: JSON for people and programs, over the [`Editor`].
//!
//! ```text
//! connection ─> token ─> route ─> precondition ─> body ─> Editor ─> reply
//!  web::serve  web::token         precondition.rs body.rs           reply.rs
//! ```
//! Handlers decide nothing: what is right or wrong with a zone or a policy is the editor's to say, and every
//! refusal leaves as one shape, [`api::Problem`].
//!
//! In reading order: `zones`, `regions`, `partitions`, `policies`, `servers`, `probes`, `explain`, `status` and
//! `metrics` are the routes; `path`, `precondition`, `body`, `admission` and `reply` are what they share;
//! `web::token` and `web::host` say who may ask at all;
//! `document` is the OpenAPI document, which is made from the routes' own declarations; [`web::serve()`] is the
//! rim.
//!
//! **Rules for every route.** A change is answered with 200 and its generation, whether it created something
//! or replaced it; with 202 where the slowest worker does not serve it yet. 400 is a fault of the path, the
//! query or a header, 422 one of the body.

mod admission;
mod body;
mod document;
mod explain;
mod metrics;
mod partitions;
mod path;
mod policies;
mod precondition;
mod probes;
mod regions;
mod reply;
mod servers;
mod status;
mod zones;

#[cfg(test)]
mod tests;

use std::sync::Arc;

use axum::Router;
use utoipa_axum::router::OpenApiRouter;
use utoipa_axum::routes;

use crate::edit::Editor;
use admission::Admission;

pub use admission::{CHANGES_MAX, SHORT_MAX, TEXTS_MAX, TEXTS_SENT_MAX};
pub use body::{JSON_MAX, POLICY_MAX, TEXT_MAX};
pub use metrics::{METRICS, Metric, Metrics, Tcp};
pub use precondition::Tags;

/// What every handler can reach.
#[derive(Clone)]
struct Http {
    editor: Editor,
    metrics: Arc<Metrics>,
    admission: Admission,
    document: Arc<str>,
}

/// All routes of the API, on this editor and what is counted.
///
/// With a `token`, every request but that for `/v1/health` must carry it. Without one, a request that names a
/// host other than an address or localhost is refused.
pub fn router(editor: Editor, token: Option<String>, metrics: Metrics) -> Router {
    let (routes, document) = documented().split_for_parts();
    let http = Http {
        editor,
        admission: Admission::new(metrics.texts_unsent.clone()),
        metrics: Arc::new(metrics),
        document: text(document).into(),
    };
    let routes = web::reply::refuse_others(routes, "a path of /v1/openapi.json").with_state(http);
    web::token::guarded(routes, token)
}

/// The OpenAPI 3.1 document, as `/v1/openapi.json` serves it and `docs/reference/openapi.json` keeps it.
pub fn openapi() -> String {
    text(documented().split_for_parts().1)
}

/// The routes with their own documentation.
fn documented() -> OpenApiRouter<Http> {
    OpenApiRouter::with_openapi(document::opening())
        .routes(routes!(status::health))
        .routes(routes!(status::status))
        .routes(routes!(status::openapi))
        .routes(routes!(metrics::metrics))
        .routes(routes!(zones::list))
        .routes(routes!(zones::get, zones::put, zones::delete))
        .routes(routes!(regions::list, regions::add))
        .routes(routes!(regions::remove))
        .routes(routes!(partitions::list))
        .routes(routes!(partitions::get, partitions::put, partitions::delete))
        .routes(routes!(partitions::lookup))
        .routes(routes!(policies::list))
        .routes(routes!(policies::get, policies::put, policies::delete))
        .routes(routes!(servers::list))
        .routes(routes!(servers::set_state))
        .routes(routes!(probes::list))
        .routes(routes!(explain::explain))
}

fn text(mut document: utoipa::openapi::OpenApi) -> String {
    document::complete(&mut document);
    let mut text = document.to_pretty_json().expect("the document has only text keys");
    text.push('\n');
    text
}
