//! What the OpenAPI document says of all routes alike.
//!
//! A handler declares its path, its parameters, its bodies and the statuses of its own; what follows from a
//! rule (a route with a body can be sent too long a one) is added here, once, to all that the rule fits.

use axum::http::StatusCode;
use utoipa::openapi::header::HeaderBuilder;
use utoipa::openapi::path::{Operation, Parameter, PathItem};
use utoipa::openapi::response::{Response, ResponseBuilder};
use utoipa::openapi::schema::{ObjectBuilder, Type};
use utoipa::openapi::security::{Http, HttpAuthScheme, SecurityRequirement, SecurityScheme};
use utoipa::openapi::{Content, Ref, RefOr};
use utoipa::{IntoParams, OpenApi, ToSchema};

use api::Problem;
use web::token::HEALTH;

/// The path of a zone.
#[derive(IntoParams)]
#[into_params(parameter_in = Path)]
#[expect(dead_code, reason = "declares the parameter; `path::Domain` reads it")]
pub(super) struct Origin {
    /// The zone's name, in any case, with or without the final dot; `=2E` is the root.
    #[param(min_length = 1, max_length = 1024, example = "example.com")]
    origin: String,
}

/// The path of a policy.
#[derive(IntoParams)]
#[into_params(parameter_in = Path)]
#[expect(dead_code, reason = "declares the parameter; `path::Domain` reads it")]
pub(super) struct Owner {
    /// The policy's first name, in any case, with or without the final dot; `=2E` is the root.
    #[param(min_length = 1, max_length = 1024, example = "www.example.com")]
    owner: String,
}

/// The path of a partition.
#[derive(IntoParams)]
#[into_params(parameter_in = Path)]
#[expect(dead_code, reason = "declares the parameter; `path::Name` reads it")]
pub(super) struct PartitionName {
    /// The partition's name.
    #[param(pattern = "^[A-Za-z0-9][A-Za-z0-9._-]{0,62}$", example = "default")]
    name: String,
}

/// The path of a region.
#[derive(IntoParams)]
#[into_params(parameter_in = Path)]
#[expect(dead_code, reason = "declares the parameter; `path::Id` reads it")]
pub(super) struct RegionId {
    /// The region's number.
    #[param(minimum = 0, maximum = 4_294_967_295u32, example = 1)]
    id: u32,
}

/// The path of a server.
#[derive(IntoParams)]
#[into_params(parameter_in = Path)]
#[expect(dead_code, reason = "declares the parameter; `path::Server` reads it")]
pub(super) struct ServerPath {
    /// The server's address; where it is a name, that.
    #[param(required = true)]
    server: String,
}

/// What a change depends on.
#[derive(IntoParams)]
#[into_params(parameter_in = Header)]
#[expect(dead_code, reason = "declares the header; `precondition` reads it")]
pub(super) struct IfMatch {
    /// Change it only where one of these tags is the one that it has; `*` stands for any, so that it must
    /// exist.
    #[param(
        rename = "If-Match",
        required = false,
        value_type = String,
        pattern = r#"^(\*|"[!#-~]*"(, ?"[!#-~]*")*)$"#
    )]
    if_match: Option<String>,
}

/// What putting something depends on.
#[derive(IntoParams)]
#[into_params(parameter_in = Header)]
#[expect(dead_code, reason = "declares the header; `precondition` reads it")]
pub(super) struct IfAbsent {
    /// `*`: put it only where it does not exist, so that nothing is overwritten.
    #[param(rename = "If-None-Match", required = false, value_type = String, pattern = r"^\*$")]
    if_none_match: Option<String>,
}

/// What a client has.
#[derive(IntoParams)]
#[into_params(parameter_in = Header)]
#[expect(dead_code, reason = "declares the header; `precondition` reads it")]
pub(super) struct IfNoneMatch {
    /// Tags of what the client has; it is not sent again where it still has one of them.
    #[param(
        rename = "If-None-Match",
        required = false,
        value_type = String,
        pattern = r#"^(\*|(W/)?"[!#-~]*"(, ?(W/)?"[!#-~]*")*)$"#
    )]
    if_none_match: Option<String>,
}

/// The document without routes.
pub(super) fn opening() -> utoipa::openapi::OpenApi {
    Opening::openapi()
}

#[derive(OpenApi)]
#[openapi(
    info(
        title = "Pointsman name server",
        version = "1",
        description = "Zones, regions, partitions, policies and server states of one name server. A change \
                       is answered when it is durable and every worker serves it.",
        license(name = "MIT OR Apache-2.0", identifier = "MIT OR Apache-2.0"),
    ),
    servers((url = "/")),
    components(schemas(Problem)),
    tags(
        (name = "server", description = "How the name server is doing."),
        (name = "zones", description = "Zones, as master files (RFC 1035 §5)."),
        (name = "regions", description = "Classes of client addresses."),
        (name = "partitions", description = "Which region a client address is in, as CSV."),
        (name = "policies", description = "How names resolve: probabilities and TTLs per server and region."),
        (name = "servers", description = "Whether a server may be drawn."),
    ),
)]
struct Opening;

/// Adds what follows from the rules.
pub(super) fn complete(document: &mut utoipa::openapi::OpenApi) {
    let bearer = SecurityScheme::Http(Http::new(HttpAuthScheme::Bearer));
    document.components.get_or_insert_default().add_security_scheme("bearer", bearer);
    for (path, item) in &mut document.paths.paths {
        for (is_change, operation) in operations(item) {
            complete_operation(path, is_change && path != "/v1/explain", operation);
        }
    }
}

fn complete_operation(path: &str, is_change: bool, operation: &mut Operation) {
    let parameters: Vec<String> = operation.parameters.iter().flatten().filter_map(name).collect();
    let has = |name: &str| parameters.iter().any(|parameter| parameter == name);
    let has_body = operation.request_body.is_some();
    let mut add = |status: StatusCode, response: Response| {
        operation.responses.responses.entry(status.as_str().into()).or_insert(RefOr::T(response));
    };
    if path != HEALTH {
        let challenge = HeaderBuilder::new()
            .schema(Some(ObjectBuilder::new().schema_type(Type::String)))
            .description(Some("How to present the token (RFC 6750 §3)."))
            .build();
        let mut response = problem("A token is configured, and the request does not carry it.");
        response.headers.insert("WWW-Authenticate".into(), RefOr::T(challenge));
        add(StatusCode::UNAUTHORIZED, response);
    }
    // A question with a body is a POST: no browser may be made to send one either.
    if is_change || has_body {
        let what = "No token is configured, and a browser has sent the request for a page of another origin.";
        add(StatusCode::FORBIDDEN, problem(what));
    }
    if !parameters.is_empty() || has_body {
        add(
            StatusCode::BAD_REQUEST,
            problem("The path, the query or a header is wrong, or the body broke off."),
        );
    }
    if has_body {
        add(StatusCode::REQUEST_TIMEOUT, problem("The body came too slowly."));
        add(StatusCode::PAYLOAD_TOO_LARGE, problem("The body is too long."));
        add(StatusCode::UNSUPPORTED_MEDIA_TYPE, problem("The body is of another type."));
        add(StatusCode::UNPROCESSABLE_ENTITY, problem("The body is wrong: every fault of it is listed."));
    }
    if is_change {
        let what = match has("If-Match") {
            true => "It is not what the headers say that it is.",
            false => "It has no tag that a header of preconditions could match.",
        };
        add(StatusCode::PRECONDITION_FAILED, problem(what));
    }
    let is_tagged = !is_change && has("If-None-Match");
    if is_tagged {
        let mut response = ResponseBuilder::new().description("The client has it.").build();
        response.headers.insert("ETag".into(), etag());
        add(StatusCode::NOT_MODIFIED, response);
    }
    if is_change || is_tagged {
        let what = match is_change {
            true => "The store does not take the change, or too many are under way.",
            false => "Too many long texts are on their way to clients.",
        };
        let mut unavailable = problem(what);
        unavailable.headers.insert("Retry-After".into(), retry_after());
        add(StatusCode::SERVICE_UNAVAILABLE, unavailable);
    }
    let served = operation.responses.responses.get_mut("200");
    if let Some(RefOr::T(served)) = served {
        if is_tagged {
            served.headers.insert("ETag".into(), etag());
        }
        if is_change {
            let mut under_way = served.clone();
            under_way.description = "It is durable, but some worker does not serve it yet.".into();
            operation.responses.responses.insert("202".into(), RefOr::T(under_way));
        }
    }
    // The empty alternative: no token is asked for where none is configured.
    let token = SecurityRequirement::new("bearer", [] as [&str; 0]);
    operation.security = (path != HEALTH).then(|| vec![token, SecurityRequirement::default()]);
}

fn operations(item: &mut PathItem) -> impl Iterator<Item = (bool, &mut Operation)> {
    let reads = item.get.iter_mut().map(|operation| (false, operation));
    let changes = [&mut item.put, &mut item.post, &mut item.delete];
    reads.chain(changes.into_iter().flatten().map(|operation| (true, operation)))
}

fn name(parameter: &RefOr<Parameter>) -> Option<String> {
    match parameter {
        RefOr::T(parameter) => Some(parameter.name.clone()),
        RefOr::Ref(_) => None,
    }
}

fn problem(description: &str) -> Response {
    let schema = RefOr::Ref(Ref::from_schema_name(Problem::name()));
    ResponseBuilder::new()
        .description(description)
        .content("application/json", Content::new(Some(schema)))
        .build()
}

fn etag() -> RefOr<utoipa::openapi::Header> {
    let header = HeaderBuilder::new()
        .schema(Some(ObjectBuilder::new().schema_type(Type::String)))
        .description(Some("Stands for the content: the same content has the same tag."))
        .build();
    RefOr::T(header)
}

fn retry_after() -> RefOr<utoipa::openapi::Header> {
    let header = HeaderBuilder::new()
        .schema(Some(ObjectBuilder::new().schema_type(Type::Integer)))
        .description(Some("After so many seconds it may be asked for again."))
        .build();
    RefOr::T(header)
}

#[cfg(test)]
mod tests {
    use serde_json::Value;
    use std::collections::BTreeSet;

    #[test]
    fn openapi_is_the_one_that_is_kept() {
        ::tests::fresh::check("docs/reference/openapi.json", &crate::http::openapi());
    }

    #[test]
    fn every_route_is_documented_with_all_its_statuses() {
        const WRONG_BODY: [u16; 5] = [400, 408, 413, 415, 422];
        const CHANGE: [u16; 5] = [200, 202, 403, 412, 503];
        let routes: &[(&str, &str, &[&[u16]])] = &[
            ("get", "/v1/health", &[&[200]]),
            ("get", "/v1/status", &[&[200, 401]]),
            ("get", "/v1/openapi.json", &[&[200, 401]]),
            ("get", "/metrics", &[&[200, 401]]),
            ("get", "/v1/zones", &[&[200, 401]]),
            ("get", "/v1/zones/{origin}", &[&[200, 304, 400, 401, 404, 503]]),
            ("put", "/v1/zones/{origin}", &[&CHANGE, &WRONG_BODY, &[401]]),
            ("delete", "/v1/zones/{origin}", &[&CHANGE, &[400, 401, 404, 409]]),
            ("get", "/v1/regions", &[&[200, 401]]),
            ("post", "/v1/regions", &[&CHANGE, &WRONG_BODY, &[401]]),
            ("delete", "/v1/regions/{id}", &[&CHANGE, &[400, 401, 404]]),
            ("get", "/v1/partitions", &[&[200, 401]]),
            ("get", "/v1/partitions/{name}", &[&[200, 304, 400, 401, 404, 503]]),
            ("put", "/v1/partitions/{name}", &[&CHANGE, &WRONG_BODY, &[401]]),
            ("delete", "/v1/partitions/{name}", &[&CHANGE, &[400, 401, 404, 409]]),
            ("get", "/v1/partitions/{name}/lookup", &[&[200, 400, 401, 404]]),
            ("get", "/v1/policies", &[&[200, 401]]),
            ("get", "/v1/policies/{owner}", &[&[200, 304, 400, 401, 404, 503]]),
            ("put", "/v1/policies/{owner}", &[&CHANGE, &WRONG_BODY, &[401]]),
            ("delete", "/v1/policies/{owner}", &[&CHANGE, &[400, 401, 404]]),
            ("get", "/v1/servers", &[&[200, 401]]),
            ("put", "/v1/servers/{server}/state", &[&CHANGE, &WRONG_BODY, &[401, 404]]),
            ("get", "/v1/probes", &[&[200, 401]]),
            ("post", "/v1/explain", &[&[200, 401, 403, 404], &WRONG_BODY]),
        ];
        let operation = |(method, path, statuses): &(&str, &str, &[&[u16]])| {
            let statuses: BTreeSet<String> = statuses.concat().iter().map(u16::to_string).collect();
            format!("{method} {path} {}", Vec::from_iter(statuses).join(" "))
        };
        let mut expected: Vec<String> = routes.iter().map(operation).collect();
        expected.sort();
        assert_eq!(::tests::openapi::operations(&crate::http::openapi()), expected);
    }

    #[test]
    fn every_refusal_is_a_problem() {
        let document: Value = serde_json::from_str(&crate::http::openapi()).expect("it is JSON");
        for statuses in document["paths"]
            .as_object()
            .unwrap()
            .values()
            .flat_map(|item| item.as_object().unwrap().values())
        {
            for (status, response) in statuses["responses"].as_object().unwrap() {
                let schema = &response["content"]["application/json"]["schema"]["$ref"];
                assert_eq!(
                    status.starts_with(['4', '5']),
                    schema == "#/components/schemas/Problem",
                    "{response}"
                );
            }
        }
    }
}
