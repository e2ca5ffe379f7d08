//! `/v1/explain`: why a client is sent where it is.

use axum::Json;
use axum::extract::{Request, State};

use api::{Explain, Explanation, Problem};

use super::reply::Failure;
use super::{Http, body};

/// Takes the decision for a name and a client apart; nothing is changed.
#[utoipa::path(
    post, path = "/v1/explain", operation_id = "explain", tag = "policies", request_body = Explain,
    responses(
        (status = 200, description = "The decision as the current generation takes it.", body = Explanation),
        (status = 404, description = "No policy decides the name.", body = Problem),
    ),
)]
pub(super) async fn explain(
    State(http): State<Http>,
    request: Request,
) -> Result<Json<Explanation>, Failure> {
    let asked: Explain = body::object(request).await?;
    Ok(Json(http.editor.explain(&asked, &http.metrics.fast)?))
}
