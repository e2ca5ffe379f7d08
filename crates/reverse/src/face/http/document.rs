//! The OpenAPI document of the HTTP face.

use api::Problem;
use axum::http::header::CONTENT_TYPE;
use axum::response::IntoResponse;
use utoipa::OpenApi;

use super::{check, metrics, names, status};

/// The OpenAPI 3.1 document, as `/v1/openapi.json` serves it and `docs/reference/reverse-openapi.json` keeps it.
pub fn openapi() -> String {
    let mut text = Document::openapi().to_pretty_json().expect("the document has only text keys");
    text.push('\n');
    text
}

/// Returns this document.
#[utoipa::path(
    get, path = "/v1/openapi.json", operation_id = "openapi", tag = "service",
    responses(
        (status = 200, description = "The OpenAPI 3.1 document.", body = Object),
        (status = 401, description = "Only this machine may ask, and asks under a host's name.", body = Problem),
    ),
)]
pub(super) async fn served() -> impl IntoResponse {
    ([(CONTENT_TYPE, "application/json")], openapi())
}

#[derive(OpenApi)]
#[openapi(
    info(
        title = "Pointsman names for addresses",
        version = "1",
        description = "Which name an address has, from a cache only: what is not known yet is said to be so at \
                       once, and learned in the background.",
        license(name = "MIT OR Apache-2.0", identifier = "MIT OR Apache-2.0"),
    ),
    servers((url = "/")),
    paths(
        names::one,
        names::bulk,
        check::check,
        status::status,
        served,
        metrics::metrics,
    ),
    tags(
        (name = "names", description = "What is known of addresses."),
        (name = "check", description = "For web servers: may a client go on?"),
        (name = "service", description = "How the service is doing."),
    ),
)]
struct Document;

#[cfg(test)]
mod tests {
    #[test]
    fn openapi_is_the_one_that_is_kept() {
        ::tests::fresh::check("docs/reference/reverse-openapi.json", &super::openapi());
    }

    #[test]
    fn every_path_is_there_with_its_statuses() {
        let expected = [
            "get /metrics 200 401",
            "get /v1/check 200 400 403",
            "get /v1/names/{address} 200 400 401",
            "get /v1/openapi.json 200 401",
            "get /v1/status 200 401",
            "post /v1/names 200 400 401 403 408 413 415 503",
        ];
        assert_eq!(::tests::openapi::operations(&super::openapi()), expected);
    }
}
