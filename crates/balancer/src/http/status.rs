//! `/v1/health`, `/v1/status`, the numbers that matter for people, and the document itself.

use std::sync::atomic::Ordering;

use api::{BackEndStatus, BalanceStatus, CacheStatus, RuleStatus};
use axum::Json;
use axum::extract::State;
use axum::http::header::CONTENT_TYPE;
use axum::response::IntoResponse;
use routing::balance::Lease;

use super::Http;
use super::document::Unauthorized;
use crate::cache::{Cache, CacheNumbers};
use crate::counters::Cells;
use crate::field::{BackEnd, Field};
use crate::health::WHOLE;
use crate::numbers::Numbers;
use crate::rules::Then;

/// Says that the balancer is alive; needs no token.
#[utoipa::path(
    get, path = "/v1/health", operation_id = "health", tag = "balancer",
    security(()),
    responses((status = 200, description = "It is alive.", body = Object)),
)]
pub(super) async fn health() -> Json<serde_json::Value> {
    Json(serde_json::json!({}))
}

/// Returns this document.
#[utoipa::path(
    get, path = "/v1/openapi.json", operation_id = "openapi", tag = "balancer",
    responses(
        (status = 200, description = "The OpenAPI 3.1 document.", body = Object),
        Unauthorized,
    ),
)]
pub(super) async fn openapi() -> impl IntoResponse {
    ([(CONTENT_TYPE, "application/json")], super::openapi())
}

/// Says how the balancer is doing.
#[utoipa::path(
    get, path = "/v1/status", operation_id = "status", tag = "balancer",
    responses(
        (status = 200, description = "How it is doing.", body = BalanceStatus),
        Unauthorized,
    ),
)]
pub(super) async fn status(State(http): State<Http>) -> Json<BalanceStatus> {
    Json(of(&http.numbers))
}

/// How a balancer is doing.
pub fn of(numbers: &Numbers) -> BalanceStatus {
    let field = numbers.field.load();
    let all = sent(numbers);
    let now_ns = numbers.now_ns();
    BalanceStatus {
        version: env!("CARGO_PKG_VERSION").into(),
        uptime_seconds: numbers.clock.now().monotonic.as_secs(),
        listening: numbers.listening.iter().map(ToString::to_string).collect(),
        policy: numbers.policy.clone(),
        steps: numbers
            .steps()
            .into_iter()
            .filter(|(_, threads)| *threads > 0)
            .map(|(step, threads)| (step.word().into(), threads))
            .collect(),
        queries: numbers.sum(|front| &front.queries),
        answers: numbers.sum(|front| &front.answers),
        failed: numbers.sum(|front| &front.failed),
        shed: numbers.sum(|front| &front.shed),
        turned_away: numbers.fronts.iter().map(|front| front.turned_away()).sum(),
        retries: numbers.sum(|front| &front.retries),
        cache: numbers.cache.as_ref().map(|cache| of_cache(numbers, cache)),
        rules: field.rules.met().map(|rule| of_rule(&field, rule)).collect(),
        back_ends: field.iter().map(|back_end| of_back_end(&field, back_end, all, now_ns)).collect(),
    }
}

fn of_cache(numbers: &Numbers, cache: &Cache) -> CacheStatus {
    let CacheNumbers { entries, pushed_out, .. } = cache.numbers();
    CacheStatus {
        entries,
        hits: numbers.sum(|front| &front.cache_hits),
        misses: numbers.sum(|front| &front.cache_misses),
        failures: numbers.sum(|front| &front.cache_failures),
        stale: numbers.sum(|front| &front.cache_stale),
        pushed_out,
    }
}

fn of_rule(field: &Field, (name, then, met): (&str, &Then, u64)) -> RuleStatus {
    let (word, is_pool) = (then.word(&field.pools), matches!(then, Then::Pool(_)));
    let [pool, answer] = [is_pool, !is_pool].map(|is_it| is_it.then(|| word.to_owned()));
    RuleStatus { name: name.into(), pool, answer, met }
}

fn of_back_end(field: &Field, back_end: &BackEnd, all: u64, now_ns: u64) -> BackEndStatus {
    let answered: u64 = back_end.cells.iter().map(Cells::answers).sum();
    let micros = back_end.sum(|cells| &cells.latency_us);
    let lease = lease(back_end, now_ns);
    BackEndStatus {
        address: back_end.address.to_string(),
        tls: back_end.tls().map(|tls| tls.name.to_str().into_owned()),
        pools: field.pools_of(back_end).cloned().collect(),
        standing: back_end.standing().word().into(),
        weight: back_end.weight,
        turns: f64::from(back_end.share()) / f64::from(WHOLE),
        sent: back_end.sum(|cells| &cells.sent),
        share: share(back_end, all),
        answered,
        failures: back_end.failures(),
        timeouts: back_end.sum(|cells| &cells.timeouts),
        unreached: back_end.sum(|cells| &cells.refused),
        in_flight: back_end.in_flight(),
        unsigned: back_end.unsigned.load(Ordering::Relaxed),
        credit: lease.map(|lease| credit(back_end, &lease)),
        queue_delay_milliseconds: lease.map(|lease| lease.queue_ns as f64 / 1e6),
        quota_processors: lease.and_then(|_| back_end.udp.quota.get().processors()),
        mean_milliseconds: (answered > 0).then(|| micros as f64 / 1e3 / answered as f64),
    }
}

/// How many queries were sent to the back ends that there are.
pub(super) fn sent(numbers: &Numbers) -> u64 {
    numbers.field.load().iter().map(|back_end| back_end.sum(|cells| &cells.sent)).sum()
}

/// The part of `all` queries that was sent to this back end, from 0 to 1.
pub(super) fn share(back_end: &BackEnd, all: u64) -> f64 {
    let sent = back_end.sum(|cells| &cells.sent);
    sent as f64 / all.max(1) as f64
}

/// The lease in force.
pub(super) fn lease(back_end: &BackEnd, now_ns: u64) -> Option<Lease> {
    Some(back_end.udp.get()).filter(|lease| now_ns < lease.until_ns)
}

/// What may still be sent.
pub(super) fn credit(back_end: &BackEnd, lease: &Lease) -> u64 {
    lease.limit.saturating_sub(back_end.sum(|cells| &cells.datagrams))
}
