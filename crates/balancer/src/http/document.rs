//! What the OpenAPI document says of all routes alike: who may ask, and what others are told.

use api::Problem;
use utoipa::openapi::security::{Http, HttpAuthScheme, SecurityScheme};
use utoipa::{IntoResponses, OpenApi};

/// What the OpenAPI document begins with, without routes.
pub(super) fn opening() -> utoipa::openapi::OpenApi {
    let mut document = Opening::openapi();
    let bearer = SecurityScheme::Http(Http::new(HttpAuthScheme::Bearer));
    document.components.get_or_insert_default().add_security_scheme("bearer", bearer);
    document
}

// The empty alternative: no token is asked for where none is configured.
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
    components(schemas(Problem)),
    security(("bearer" = []), ()),
    tags(
        (name = "balancer", description = "How the balancer is doing."),
        (name = "back ends", description = "Who answers."),
        (name = "cache", description = "Answers that are given again."),
    ),
)]
struct Opening;

/// What is answered to who may not ask.
#[derive(IntoResponses)]
#[response(
    status = 401,
    description = "A token is configured, and the request does not carry it; or none is, and it is asked for under a \
                   host's name.",
    headers(("WWW-Authenticate" = String, description = "How to present the token (RFC 6750 §3).")),
)]
#[expect(dead_code, reason = "declares the answer; `web::token` makes it")]
pub(super) struct Unauthorized(Problem);

/// What is answered to who may not change anything.
#[derive(IntoResponses)]
#[response(
    status = 403,
    description = "No token is configured, and a browser has sent the request for a page of another origin."
)]
#[expect(dead_code, reason = "declares the answer; `web::host` makes it")]
pub(super) struct Forbidden(Problem);

#[cfg(test)]
mod tests {
    use crate::http::openapi;

    #[test]
    fn openapi_is_the_one_that_is_kept() {
        ::tests::fresh::check("docs/reference/balance-openapi.json", &openapi());
    }

    #[test]
    fn every_path_is_there_with_its_statuses() {
        let expected = [
            "delete /v1/backends/{address} 200 400 401 403 404 409 500 503",
            "delete /v1/cache 200 401 403 404 500",
            "delete /v1/cache/{name} 200 400 401 403 404 422 500",
            "get /metrics 200 401",
            "get /v1/health 200",
            "get /v1/openapi.json 200 401",
            "get /v1/status 200 401",
            "post /v1/backends 201 400 401 403 408 409 413 415 422",
            "post /v1/backends/{address}/drain 200 400 401 403 404",
            "post /v1/backends/{address}/resume 200 400 401 403 404 409",
        ];
        assert_eq!(::tests::openapi::operations(&openapi()), expected);
    }
}
