//! HTTP: how the balancer is doing, and back ends that come, go and rest.
//!
//! | request | answer |
//! |---|---|
//! | `GET /v1/status`, `/metrics` | how it is doing |
//! | `GET /v1/openapi.json` | all this for programs |
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
use utoipa::OpenApi;
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

/// All paths. None may be asked by a page in somebody's browser.
pub fn router(http: Http) -> Router {
    let routes = documented().split_for_parts().0;
    web::reply::refuse_others(web::host::local(routes, None), "a path of /v1/openapi.json").with_state(http)
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
    OpenApiRouter::with_openapi(Opening::openapi())
        .routes(routes!(status::status))
        .routes(routes!(status::openapi))
        .routes(routes!(metrics::metrics))
        .routes(routes!(back_ends::add))
        .routes(routes!(back_ends::remove))
        .routes(routes!(back_ends::drain))
        .routes(routes!(back_ends::resume))
}

#[derive(OpenApi)]
#[openapi(
    info(
        title = "Pointsman balancer",
        version = "1",
        description = "How a balancer is doing, and back ends that come, go and rest while it serves. What changes \
                       here is gone with the next start, which takes back ends from flags and configuration.",
        license(name = "MIT OR Apache-2.0", identifier = "MIT OR Apache-2.0"),
    ),
    servers((url = "/")),
    tags(
        (name = "balancer", description = "How the balancer is doing."),
        (name = "back ends", description = "Who answers."),
    ),
)]
struct Opening;

#[cfg(test)]
mod tests {
    #[test]
    fn openapi_is_the_one_that_is_kept() {
        ::tests::fresh::check("docs/reference/balance-openapi.json", &super::openapi());
    }

    #[test]
    fn every_path_is_there_with_its_statuses() {
        let expected = [
            "delete /v1/backends/{address} 200 400 401 403 404 409 500 503",
            "get /metrics 200 401",
            "get /v1/openapi.json 200 401",
            "get /v1/status 200 401",
            "post /v1/backends 201 400 401 403 408 409 413 415 422",
            "post /v1/backends/{address}/drain 200 400 401 403 404",
            "post /v1/backends/{address}/resume 200 400 401 403 404 409",
        ];
        assert_eq!(::tests::openapi::operations(&super::openapi()), expected);
    }
}
