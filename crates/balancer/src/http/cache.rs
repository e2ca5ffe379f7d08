//! Answers that are given again, forgotten before their time.

use api::{Forgotten, Problem};
use axum::Json;
use axum::extract::State;
use axum::http::StatusCode;
use dns::name::folded_from_text;
use utoipa::IntoParams;
use web::Failure;
use web::path::{ROOT, Segments};

use super::Http;
use super::document::{Forbidden, Unauthorized};

/// The path of a name.
#[derive(IntoParams)]
#[into_params(parameter_in = Path)]
#[expect(dead_code, reason = "declares the parameter; `forget_name` reads it")]
struct NamePath {
    /// The name; what is below it is meant, too.
    #[param(example = "example.com")]
    name: String,
}

/// Forgets all answers.
#[utoipa::path(
    delete, path = "/v1/cache", operation_id = "forget_all", tag = "cache",
    responses(
        (status = 200, description = "How many there were.", body = Forgotten),
        Unauthorized,
        Forbidden,
        (status = 404, description = "No answers are kept.", body = Problem),
        (status = 500, description = "A fault of the balancer's; its log says more.", body = Problem),
    ),
)]
pub(super) async fn forget_all(State(http): State<Http>) -> Result<Json<Forgotten>, Failure> {
    forget(&http, None).await
}

/// Forgets the answers about a name, and about all names below it.
#[utoipa::path(
    delete, path = "/v1/cache/{name}", operation_id = "forget", tag = "cache",
    params(NamePath),
    responses(
        (status = 200, description = "How many there were.", body = Forgotten),
        (status = 400, description = "The path is not UTF-8 when decoded.", body = Problem),
        Unauthorized,
        Forbidden,
        (status = 404, description = "No answers are kept.", body = Problem),
        (status = 422, description = "It is no name.", body = Problem),
        (status = 500, description = "A fault of the balancer's; its log says more.", body = Problem),
    ),
)]
pub(super) async fn forget_name(
    State(http): State<Http>,
    Segments(name): Segments<String>,
) -> Result<Json<Forgotten>, Failure> {
    let unreadable =
        |what| Failure::new(StatusCode::UNPROCESSABLE_ENTITY, what, "a name, such as example.com");
    let name = if name.eq_ignore_ascii_case(ROOT) { "." } else { &name };
    let name = folded_from_text(name).map_err(unreadable)?;
    forget(&http, Some(name)).await
}

async fn forget(http: &Http, name: Option<Vec<u8>>) -> Result<Json<Forgotten>, Failure> {
    let Some(cache) = http.numbers.cache.clone() else {
        let what = "no answers are kept here";
        return Err(Failure::new(StatusCode::NOT_FOUND, what, "cache (--cache SIZE) at the start"));
    };
    // All of a large cache is looked through, which other requests need not wait for.
    let forgotten = tokio::task::spawn_blocking(move || cache.forget(name.as_deref()));
    let answers = forgotten.await.map_err(|cause| {
        Failure::new(StatusCode::INTERNAL_SERVER_ERROR, cause.to_string(), "the log says more")
    })?;
    Ok(Json(Forgotten { answers }))
}
