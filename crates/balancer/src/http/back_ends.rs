//! Back ends that come, go and rest while queries are answered.

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use api::{BackEndStatus, NewBackEnd, Problem};
use arc_swap::ArcSwap;
use axum::Json;
use axum::extract::{Request, State};
use axum::http::StatusCode;
use net::tls::client::{self, Encrypted};
use routing::balance::BACK_ENDS_MAX;
use rustls::ClientConfig;
use tokio::sync::{Mutex, Semaphore};
use utoipa::IntoParams;
use web::Failure;
use web::path::Segments;

use super::document::{Forbidden, Unauthorized};
use super::{Http, status};
use crate::circle;
use crate::descriptors::Descriptors;
use crate::field::{BackEnd, Drained, Field, Pools, WEIGHT_MAX};

/// The longest body: an address, a weight, and names of pools.
const BODY_MAX: usize = 4096;

/// From one look at what is in flight to the next, while a back end is taken out.
const LOOK: Duration = Duration::from_millis(20);

/// Looks without anything in flight before a back end is out: a worker may have picked it just before it drained.
const LOOKS: u32 = 3;

/// How long one waits for what is in flight: twice the longest timeout.
const DRAIN_WAIT: Duration = Duration::from_secs(60);

/// How many requests to take one out may wait for what is in flight.
const REMOVALS_MAX: usize = BACK_ENDS_MAX;

/// Where back ends come and go, one change after the other.
#[derive(Debug)]
pub struct Editing {
    /// The back ends, replaced as a whole by each change.
    pub field: Arc<ArcSwap<Field>>,
    /// How many threads count of each back end: the workers, and one for connections.
    pub threads: usize,
    /// How many descriptors the system allows, and the workers may need.
    pub descriptors: Descriptors,
    /// Whose certificates are believed of back ends over TLS; none may come where it is not given.
    pub trust: Option<Arc<ClientConfig>>,
    /// Held during a change, and not while what is in flight is waited for.
    pub turn: Mutex<()>,
    /// How many more may be taken out at a time.
    removals: Arc<Semaphore>,
}

impl Editing {
    /// Nobody comes or goes yet; see the fields.
    pub fn new(
        field: Arc<ArcSwap<Field>>,
        threads: usize,
        descriptors: Descriptors,
        trust: Option<Arc<ClientConfig>>,
    ) -> Editing {
        let removals = Arc::new(Semaphore::new(REMOVALS_MAX));
        Editing { field, threads, descriptors, trust, turn: Mutex::default(), removals }
    }
}

/// The path of a back end.
#[derive(IntoParams)]
#[into_params(parameter_in = Path)]
#[expect(dead_code, reason = "declares the parameter; `read` reads it")]
struct AddressPath {
    /// The back end's address with its port; an IPv6 address in brackets.
    #[param(example = "192.0.2.1:53")]
    address: String,
}

/// Adds a back end, which is given a part of its turns first, and all of them after its slow start.
#[utoipa::path(
    post, path = "/v1/backends", operation_id = "add", tag = "back ends",
    request_body = NewBackEnd,
    responses(
        (status = 201, description = "The back ends, with the new one.", body = [BackEndStatus]),
        (status = 400, description = "The body broke off.", body = Problem),
        Unauthorized,
        Forbidden,
        (status = 408, description = "The body came too slowly.", body = Problem),
        (
            status = 409, body = Problem,
            description = "It is there already, its queries would come back here, there are as many as can be, or none is asked over TLS.",
        ),
        (status = 413, description = "The body is too long.", body = Problem),
        (status = 415, description = "The body is of another type.", body = Problem),
        (status = 422, description = "The body is no back end.", body = Problem),
    ),
)]
pub(super) async fn add(
    State(http): State<Http>,
    request: Request,
) -> Result<(StatusCode, Json<Vec<BackEndStatus>>), Failure> {
    let body = web::body::read(request, &["application/json"], BODY_MAX).await?;
    let expected = format!(
        "{{\"address\": \"192.0.2.1:53\", \"weight\": 1}}, the weight from 1 to {WEIGHT_MAX}; \"pools\" and \"tls\" if you like"
    );
    let unreadable = |what: String| Failure::new(StatusCode::UNPROCESSABLE_ENTITY, what, &expected);
    let new: NewBackEnd = serde_json::from_slice(&body).map_err(|cause| unreadable(cause.to_string()))?;
    let address = read(&new.address)
        .ok_or_else(|| unreadable(format!("{:?} is no address with a port", new.address)))?;
    if circle::is_nowhere(address) {
        return Err(unreadable(format!("{address} is no server's address")));
    }
    if !(1..=WEIGHT_MAX).contains(&new.weight) {
        return Err(unreadable(format!("the weight is {}", new.weight)));
    }
    let editing = &http.editing;
    let tls = new.tls.as_deref().map(|name| encrypted(name, editing.trust.as_ref())).transpose()?;
    let _turn = editing.turn.lock().await;
    let field = editing.field.load_full();
    let pools = pools(&field, &new.pools).map_err(|unknown| {
        let what = format!("there is no pool {unknown:?}");
        Failure::new(StatusCode::UNPROCESSABLE_ENTITY, what, format!("pools of {}", field.pools.join(", ")))
    })?;
    let refused = |what: &str| Failure::new(StatusCode::CONFLICT, what, "");
    if http.numbers.listening.iter().any(|listens| circle::leads_to(*listens, address)) {
        return Err(refused("queries would go round in a circle"));
    }
    if field.find(address).is_some() {
        return Err(refused("there is this back end already"));
    }
    let field = field
        .with(|place| BackEnd::new(place, address, new.weight, editing.threads).of_pools(pools).over_tls(tls))
        .ok_or_else(|| refused("there are as many back ends as can be"))?;
    editing.descriptors.check(field.iter().count());
    editing.field.store(Arc::new(field));
    tracing::info!(back_end = %address, "a back end was added");
    Ok((StatusCode::CREATED, Json(status::of(&http.numbers).back_ends)))
}

/// Drains a back end, and takes it out when nothing is in flight, after a minute at the latest.
#[utoipa::path(
    delete, path = "/v1/backends/{address}", operation_id = "remove", tag = "back ends",
    params(AddressPath),
    responses(
        (status = 200, description = "The back ends that are left.", body = [BackEndStatus]),
        (status = 400, description = "The path is not UTF-8 when decoded.", body = Problem),
        Unauthorized,
        Forbidden,
        (status = 404, description = "There is no such back end.", body = Problem),
        (status = 409, description = "It was given queries again while it drained.", body = Problem),
        (status = 500, description = "A fault of the balancer's; its log says more.", body = Problem),
        (status = 503, description = "Too many are being taken out.", body = Problem),
    ),
)]
pub(super) async fn remove(
    State(http): State<Http>,
    Segments(address): Segments<String>,
) -> Result<Json<Vec<BackEndStatus>>, Failure> {
    let removals = http.editing.removals.clone();
    let place = removals.try_acquire_owned().map_err(|_| {
        let what = "as many back ends are being taken out as may be";
        Failure::new(StatusCode::SERVICE_UNAVAILABLE, what, "the same again shortly")
    })?;
    // In a task of its own: who asked may go away, and what has begun to drain is to be taken out all the same.
    let removal = tokio::spawn(async move {
        let _place = place;
        take_out(&http, &address).await
    });
    removal.await.unwrap_or_else(|cause| {
        Err(Failure::new(StatusCode::INTERNAL_SERVER_ERROR, cause.to_string(), "the log says more"))
    })
}

/// Drains a back end, and takes it out when nothing is in flight.
async fn take_out(http: &Http, address: &str) -> Result<Json<Vec<BackEndStatus>>, Failure> {
    let editing = &http.editing;
    let back_end = find(http, address)?;
    set_drained(&back_end, true);
    let until = tokio::time::Instant::now() + DRAIN_WAIT;
    let mut looks = 0;
    while looks < LOOKS && back_end.is_drained(Drained::ByOperator) && tokio::time::Instant::now() < until {
        tokio::time::sleep(LOOK).await;
        looks = if back_end.in_flight() == 0 { looks + 1 } else { 0 };
    }
    let _turn = editing.turn.lock().await;
    if !back_end.is_drained(Drained::ByOperator) {
        let what = "the back end was given queries again while it drained";
        return Err(Failure::new(StatusCode::CONFLICT, what, ""));
    }
    // Somebody else may have taken it out, and even added another one there.
    if !find(http, address).is_ok_and(|there| Arc::ptr_eq(&there, &back_end)) {
        return Err(Failure::missing(&format!("back end {address}")));
    }
    editing.field.store(Arc::new(editing.field.load().without(back_end.place)));
    tracing::info!(back_end = %address, "a back end was taken out");
    Ok(Json(status::of(&http.numbers).back_ends))
}

/// Gives a back end no more queries; it stays.
#[utoipa::path(
    post, path = "/v1/backends/{address}/drain", operation_id = "drain", tag = "back ends",
    params(AddressPath),
    responses(
        (status = 200, description = "The back ends.", body = [BackEndStatus]),
        (status = 400, description = "The path is not UTF-8 when decoded.", body = Problem),
        Unauthorized,
        Forbidden,
        (status = 404, description = "There is no such back end.", body = Problem),
    ),
)]
pub(super) async fn drain(
    State(http): State<Http>,
    Segments(address): Segments<String>,
) -> Result<Json<Vec<BackEndStatus>>, Failure> {
    set_drained(&*find(&http, &address)?, true);
    Ok(Json(status::of(&http.numbers).back_ends))
}

/// Gives a back end queries again.
#[utoipa::path(
    post, path = "/v1/backends/{address}/resume", operation_id = "resume", tag = "back ends",
    params(AddressPath),
    responses(
        (status = 200, description = "The back ends.", body = [BackEndStatus]),
        (status = 400, description = "The path is not UTF-8 when decoded.", body = Problem),
        Unauthorized,
        Forbidden,
        (status = 404, description = "There is no such back end.", body = Problem),
        (status = 409, description = "The agent beside it says that it drains.", body = Problem),
    ),
)]
pub(super) async fn resume(
    State(http): State<Http>,
    Segments(address): Segments<String>,
) -> Result<Json<Vec<BackEndStatus>>, Failure> {
    let back_end = find(&http, &address)?;
    let (granted, now_ns) = (back_end.granted(), http.numbers.now_ns());
    if granted.iter().any(|(who, granted)| back_end.is_drained(*who) && now_ns < granted.get().until_ns) {
        return Err(Failure::new(
            StatusCode::CONFLICT,
            "the agent beside this back end says that it drains",
            "SIGUSR2 to the agent",
        ));
    }
    granted.iter().for_each(|(who, _)| back_end.set_draining(*who, false));
    set_drained(&back_end, false);
    Ok(Json(status::of(&http.numbers).back_ends))
}

/// Says that the operator drains it, or does no longer.
fn set_drained(back_end: &BackEnd, drains: bool) {
    back_end.set_draining(Drained::ByOperator, drains);
    let back_end = back_end.address;
    if drains {
        tracing::info!(%back_end, "the operator drains the back end");
    } else {
        tracing::info!(%back_end, "the operator gives the back end queries again");
    }
}

/// How a server whose certificate is for this name is asked over TLS.
///
/// # Errors
/// That it is no name, or that there is nobody whose certificates are believed.
fn encrypted(name: &str, trust: Option<&Arc<ClientConfig>>) -> Result<Encrypted, Failure> {
    let named = client::host(name).ok_or_else(|| {
        let expected = "the name or address that its certificate is for";
        Failure::new(StatusCode::UNPROCESSABLE_ENTITY, format!("tls is {name:?}"), expected)
    })?;
    let config = trust.cloned().ok_or_else(|| {
        let what = "no back end is asked over TLS here";
        let expected = "a balancer that knows authorities, with client_address = \"hidden\" or \"subnet\"";
        Failure::new(StatusCode::CONFLICT, what, expected)
    })?;
    Ok(Encrypted { name: named, config })
}

/// The pools of these names, the default one where there are none.
///
/// # Errors
/// A name that no pool has.
fn pools<'a>(field: &Field, names: &'a [String]) -> Result<Pools, &'a str> {
    let mut pools = Pools::NONE;
    for name in names {
        pools = pools.with(field.pools.iter().position(|pool| pool == name).ok_or(&**name)?);
    }
    Ok(if pools.is_empty() { Pools::DEFAULT } else { pools })
}

fn find(http: &Http, address: &str) -> Result<Arc<BackEnd>, Failure> {
    let field = http.editing.field.load();
    let found = read(address).and_then(|address| field.find(address).cloned());
    found.ok_or_else(|| Failure::missing(&format!("back end {address}")))
}

/// Reads an address with a port; that of an IPv4 server written as one of IPv6 (`::ffff:192.0.2.1`) is its own.
fn read(address: &str) -> Option<SocketAddr> {
    address.parse().ok().map(net::client::canonical)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::numbers::Numbers;
    use axum::body::Body;
    use net::clock::Clock;
    use routing::balance::Lease;

    /// A balancer with one back end.
    fn http() -> (Http, Arc<BackEnd>) {
        let address = ([192, 0, 2, 1], 53).into();
        let field = Field::default().with(|place| BackEnd::new(place, address, 1, 1));
        let field = Arc::new(ArcSwap::from_pointee(field.expect("there is a place")));
        let back_end = field.load().find(address).expect("it is there").clone();
        let numbers = Numbers {
            clock: Clock::new(),
            policy: "wrr".into(),
            listening: Vec::new(),
            field: field.clone(),
            fronts: Vec::new(),
            sockets: Vec::new(),
            credits: None,
            cache: None,
            tap: None,
        };
        let descriptors = Descriptors::raise(1, 1, 1, 0);
        let editing = Editing::new(field, 1, descriptors, None);
        (Http { numbers: Arc::new(numbers), editing: Arc::new(editing) }, back_end)
    }

    async fn added(http: &Http, address: &str) -> Result<usize, StatusCode> {
        let body = format!("{{\"address\": \"{address}\"}}");
        let request = Request::post("/").header("content-type", "application/json").body(Body::from(body));
        let added = add(State(http.clone()), request.expect("a request")).await;
        added.map(|(_, Json(back_ends))| back_ends.len()).map_err(status_of)
    }

    fn status_of(failure: Failure) -> StatusCode {
        axum::response::IntoResponse::into_response(failure).status()
    }

    #[tokio::test]
    async fn what_can_be_no_server_is_no_back_end() {
        let (http, _) = http();
        for nowhere in
            ["0.0.0.0:53", "[::]:53", "224.0.0.1:53", "255.255.255.255:53", "192.0.2.2:0", "192.0.2.2"]
        {
            assert_eq!(added(&http, nowhere).await, Err(StatusCode::UNPROCESSABLE_ENTITY), "{nowhere}");
        }
        assert_eq!(added(&http, "192.0.2.2:53").await, Ok(2));
    }

    // The clock runs by itself while everybody waits.
    #[tokio::test(start_paused = true)]
    async fn who_drains_holds_no_other_change_up() {
        let (http, back_end) = http();
        back_end.cells[0].sent.add(1);
        let removal =
            |http: &Http| tokio::spawn(remove(State(http.clone()), Segments("192.0.2.1:53".into())));
        let (first, second) = (removal(&http), removal(&http));
        while !back_end.is_drained(Drained::ByOperator) {
            tokio::task::yield_now().await;
        }
        assert_eq!(added(&http, "192.0.2.2:53").await, Ok(2));
        for there in ["192.0.2.1:53", "[::ffff:192.0.2.1]:53"] {
            assert_eq!(added(&http, there).await, Err(StatusCode::CONFLICT), "it is still there");
        }
        assert!(!first.is_finished());
        back_end.cells[0].ended.add(1);
        let removed = first.await.expect("no panic").map(|Json(left)| left[0].address.clone());
        assert_eq!(removed.map_err(status_of), Ok("192.0.2.2:53".into()));
        let again = second.await.expect("no panic").map(drop).map_err(status_of);
        assert_eq!(again, Err(StatusCode::NOT_FOUND), "the other one was quicker");
    }

    #[tokio::test(start_paused = true)]
    async fn only_so_many_wait_for_what_is_in_flight() {
        let (http, back_end) = http();
        back_end.cells[0].sent.add(1);
        let remove = || remove(State(http.clone()), Segments("192.0.2.1:53".into()));
        let waiting: Vec<_> = (0..REMOVALS_MAX).map(|_| tokio::spawn(remove())).collect();
        while http.editing.removals.available_permits() > 0 {
            tokio::task::yield_now().await;
        }
        assert_eq!(remove().await.map(drop).map_err(status_of), Err(StatusCode::SERVICE_UNAVAILABLE));
        back_end.cells[0].ended.add(1);
        let mut removed = 0;
        for removal in waiting {
            removed += u32::from(removal.await.expect("no panic").is_ok());
        }
        assert_eq!(removed, 1);
        assert_eq!(
            remove().await.map(drop).map_err(status_of),
            Err(StatusCode::NOT_FOUND),
            "there is room again"
        );
    }

    #[tokio::test(start_paused = true)]
    async fn who_is_given_queries_again_stays() {
        let (http, back_end) = http();
        back_end.cells[0].sent.add(1);
        let path = || Segments("192.0.2.1:53".into());
        let removal = tokio::spawn(remove(State(http.clone()), path()));
        while !back_end.is_drained(Drained::ByOperator) {
            tokio::task::yield_now().await;
        }
        let mapped = Segments("[::ffff:192.0.2.1]:53".into());
        assert!(resume(State(http.clone()), mapped).await.is_ok());
        let removed = removal.await.expect("no panic").map(drop).map_err(status_of);
        assert_eq!(removed, Err(StatusCode::CONFLICT));
        assert_eq!(http.editing.field.load().iter().count(), 1);
    }

    #[tokio::test(start_paused = true)]
    async fn who_drains_is_taken_out_although_nobody_waits() {
        let (http, back_end) = http();
        back_end.cells[0].sent.add(1);
        let removal = tokio::spawn(remove(State(http.clone()), Segments("192.0.2.1:53".into())));
        while !back_end.is_drained(Drained::ByOperator) {
            tokio::task::yield_now().await;
        }
        removal.abort();
        assert!(removal.await.is_err_and(|cause| cause.is_cancelled()));
        back_end.cells[0].ended.add(1);
        for _ in 0..=LOOKS {
            tokio::time::advance(LOOK).await;
            tokio::task::yield_now().await;
        }
        assert_eq!(http.editing.field.load().iter().count(), 0);
    }

    #[tokio::test]
    async fn a_resume_that_is_refused_changes_nothing() {
        let (http, back_end) = http();
        back_end.set_draining(Drained::ByOperator, true);
        back_end.set_draining(Drained::ByAgent, true);
        back_end.set_draining(Drained::ByTcpAgent, true);
        let all = [Drained::ByOperator, Drained::ByAgent, Drained::ByTcpAgent];
        let resumed = || resume(State(http.clone()), Segments("192.0.2.1:53".into()));
        for (_, granted) in back_end.granted() {
            granted.put(Lease { until_ns: u64::MAX, ..Lease::NONE });
            assert_eq!(resumed().await.map(drop).map_err(status_of), Err(StatusCode::CONFLICT));
            assert_eq!(all.map(|who| back_end.is_drained(who)), [true; 3]);
            granted.put(Lease::NONE);
        }
        assert!(resumed().await.is_ok());
        assert_eq!(all.map(|who| back_end.is_drained(who)), [false; 3]);
    }
}
