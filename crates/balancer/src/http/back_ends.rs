//! Back ends that come, go and rest while queries are answered.

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use api::{BackEndStatus, NewBackEnd};
use arc_swap::ArcSwap;
use axum::Json;
use axum::extract::{Path, Request, State};
use axum::http::StatusCode;
use tokio::sync::Mutex;
use web::Failure;

use super::{Http, status};
use crate::circle;
use crate::descriptors::Descriptors;
use crate::field::{BackEnd, Drained, Field};

/// The longest body: an address and a weight.
const BODY_MAX: usize = 1024;

/// From one look at what is in flight to the next, while a back end is taken out.
const LOOK: Duration = Duration::from_millis(20);

/// Looks without anything in flight before a back end is out: a worker may have picked it just before it drained.
const LOOKS: u32 = 3;

/// How long one waits for what is in flight: twice the longest timeout.
const DRAIN_WAIT: Duration = Duration::from_secs(60);

/// Where back ends come and go, one change after the other.
#[derive(Debug)]
pub struct Editing {
    /// The back ends.
    pub field: Arc<ArcSwap<Field>>,
    /// How many threads count.
    pub threads: usize,
    /// What they may open.
    pub descriptors: Descriptors,
    /// Held during a change.
    pub turn: Mutex<()>,
}

pub(super) async fn add(
    State(http): State<Http>,
    request: Request,
) -> Result<(StatusCode, Json<Vec<BackEndStatus>>), Failure> {
    let body = web::body::read(request, &["application/json"], BODY_MAX).await?;
    let expected = "{\"address\": \"192.0.2.1:53\", \"weight\": 1}, the weight from 1 to 10000";
    let unreadable = |what: String| Failure::new(StatusCode::UNPROCESSABLE_ENTITY, what, expected);
    let new: NewBackEnd = serde_json::from_slice(&body).map_err(|cause| unreadable(cause.to_string()))?;
    let address: SocketAddr = new
        .address
        .parse()
        .map_err(|_| unreadable(format!("{:?} is no address with a port", new.address)))?;
    if address.port() == 0 || !(1..=10_000).contains(&new.weight) {
        return Err(unreadable("the port or the weight is out of range".into()));
    }
    let editing = &http.editing;
    let _turn = editing.turn.lock().await;
    let field = editing.field.load_full();
    let refused = |what: &str| Failure::new(StatusCode::CONFLICT, what, "");
    if http.numbers.listening.iter().any(|listens| circle::leads_to(*listens, address)) {
        return Err(refused("queries would go round in a circle"));
    }
    if field.find(address).is_some() {
        return Err(refused("there is this back end already"));
    }
    let field = field
        .with(|place| BackEnd::new(place, address, new.weight, editing.threads))
        .ok_or_else(|| refused("there are as many back ends as can be"))?;
    editing.descriptors.check(field.iter().count());
    editing.field.store(Arc::new(field));
    tracing::info!(back_end = %address, "a back end was added");
    Ok((StatusCode::CREATED, Json(status::of(&http.numbers).back_ends)))
}

pub(super) async fn remove(
    State(http): State<Http>,
    Path(address): Path<String>,
) -> Result<Json<Vec<BackEndStatus>>, Failure> {
    let editing = &http.editing;
    let _turn = editing.turn.lock().await;
    let back_end = find(&http, &address)?;
    back_end.set_draining(Drained::ByOperator, true);
    let until = tokio::time::Instant::now() + DRAIN_WAIT;
    let mut looks = 0;
    while looks < LOOKS && tokio::time::Instant::now() < until {
        tokio::time::sleep(LOOK).await;
        looks = if back_end.in_flight() == 0 { looks + 1 } else { 0 };
    }
    editing.field.store(Arc::new(editing.field.load().without(back_end.place)));
    tracing::info!(back_end = %address, "a back end was taken out");
    Ok(Json(status::of(&http.numbers).back_ends))
}

pub(super) async fn drain(
    State(http): State<Http>,
    Path(address): Path<String>,
) -> Result<Json<Vec<BackEndStatus>>, Failure> {
    find(&http, &address)?.set_draining(Drained::ByOperator, true);
    Ok(Json(status::of(&http.numbers).back_ends))
}

pub(super) async fn resume(
    State(http): State<Http>,
    Path(address): Path<String>,
) -> Result<Json<Vec<BackEndStatus>>, Failure> {
    let back_end = find(&http, &address)?;
    back_end.set_draining(Drained::ByOperator, false);
    if back_end.is_drained(Drained::ByAgent) {
        if status::lease(&back_end, http.numbers.now_ns()).is_some() {
            return Err(Failure::new(
                StatusCode::CONFLICT,
                "the agent beside this back end says that it drains",
                "SIGUSR2 to the agent",
            ));
        }
        back_end.set_draining(Drained::ByAgent, false);
    }
    Ok(Json(status::of(&http.numbers).back_ends))
}

fn find(http: &Http, address: &str) -> Result<Arc<BackEnd>, Failure> {
    let field = http.editing.field.load();
    let found = address.parse().ok().and_then(|address| field.find(address).cloned());
    found.ok_or_else(|| Failure::missing(&format!("back end {address}")))
}
