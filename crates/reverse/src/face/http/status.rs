//! `/v1/status`: the numbers that matter, for people.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicU64, Ordering};

use api::{FaceAddress, Problem, ReverseStatus, UpstreamStatus};
use axum::Json;
use axum::extract::State;

use super::Http;
use crate::known::WORDS;
use crate::numbers::get;

/// Says how the service is doing.
#[utoipa::path(
    get, path = "/v1/status", operation_id = "status", tag = "service",
    responses(
        (status = 200, description = "How it is doing.", body = ReverseStatus),
        (status = 401, description = "Only this machine may ask, and asks under a host's name.", body = Problem),
    ),
)]
pub(super) async fn status(State(http): State<Http>) -> Json<ReverseStatus> {
    let (faces, back_end) = (http.numbers.faces(), &http.numbers.back_end);
    let sum = |of: &dyn Fn(&crate::front::Counts) -> &AtomicU64| -> u64 {
        faces.iter().map(|(_, counts)| get(of(counts))).sum()
    };
    let states: BTreeMap<String, u64> = WORDS
        .iter()
        .enumerate()
        .map(|(state, word)| ((*word).into(), sum(&|counts| &counts.known[state])))
        .collect();
    Json(ReverseStatus {
        version: env!("CARGO_PKG_VERSION").into(),
        uptime_seconds: http.clock.now().monotonic.as_secs(),
        faces: http
            .listening
            .iter()
            .map(|(face, address)| FaceAddress { face: (*face).into(), address: address.to_string() })
            .collect(),
        requests: states.values().sum(),
        states,
        hits: sum(&|counts| &counts.hits),
        questions: get(&back_end.questions),
        door_full: sum(&|counts| &counts.door_full),
        leaks: get(&back_end.leaks),
        back_end_hits: get(&back_end.hits),
        waiting: get(&back_end.depth),
        in_flight: get(&back_end.in_flight),
        entries: get(&back_end.entries),
        octets: get(&back_end.octets),
        upstreams: http
            .numbers
            .upstreams
            .iter()
            .map(|(address, counts)| {
                let ended: u64 = counts.times.cells().map(|(_, count)| count).sum();
                UpstreamStatus {
                    address: address.to_string(),
                    questions: get(&counts.questions),
                    answers: counted(counts.answers()),
                    failures: counted(counts.failures()),
                    without_edns: counts.is_without_edns.load(Ordering::Relaxed),
                    mean_milliseconds: (ended > 0).then(|| counts.times.sum() as f64 / 1e3 / ended as f64),
                }
            })
            .collect(),
    })
}

fn counted<'a>(counts: impl IntoIterator<Item = (&'static str, &'a AtomicU64)>) -> BTreeMap<String, u64> {
    counts.into_iter().map(|(word, count)| (word.into(), get(count))).collect()
}
