//! `/metrics`: every number that is exported, declared once.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicU64, Ordering};

use api::Problem;
use axum::extract::State;
use axum::response::IntoResponse;
use dns::Rcode;
use web::metrics::{Kind, Samples};

use super::Http;
use crate::backend::upstreams::WITHOUT_EDNS;
use crate::cache::Verdict;
use crate::front::{self, LOOKED_AT_ONE_IN};
use crate::known::WORDS;
use crate::numbers::{Numbers, get};

/// A number that is exported, and what reads it.
pub type Metric = web::metrics::Metric<fn(&Numbers, &mut Samples)>;

/// Everything that is exported.
pub const METRICS: &[Metric] = &[
    Metric {
        name: "pointsman_reverse_build_info",
        help: "Always 1; the label is the version of the program.",
        kind: Kind::Gauge,
        unit: "none",
        labels: &["version"],
        read: |_, samples| samples.push([env!("CARGO_PKG_VERSION").into()], 1),
    },
    Metric {
        name: "pointsman_reverse_uptime_seconds",
        help: "Seconds since start.",
        kind: Kind::Gauge,
        unit: "seconds",
        labels: &[],
        read: |numbers, samples| samples.push([], numbers.clock.now().monotonic.as_secs()),
    },
    Metric {
        name: "pointsman_reverse_requests_total",
        help: "Look-ups by face and by what was known: name, no_name, failed or not_yet. One that waits is counted once, \
               by what was known when it came.",
        kind: Kind::Counter,
        unit: "look-ups",
        labels: &["face", "state"],
        read: |numbers, samples| {
            for (state, word) in WORDS.iter().enumerate() {
                faces(samples, numbers, &[word], &|counts| &counts.known[state]);
            }
        },
    },
    Metric {
        name: "pointsman_reverse_hits_total",
        help: "Look-ups that found an entry, an empty one too: what Rapid DNS called a cache hit.",
        kind: Kind::Counter,
        unit: "look-ups",
        labels: &["face"],
        read: |numbers, samples| faces(samples, numbers, &[], &|counts| &counts.hits),
    },
    Metric {
        name: "pointsman_reverse_stale_total",
        help: "Answers that had expired and were being learned anew.",
        kind: Kind::Counter,
        unit: "look-ups",
        labels: &["face"],
        read: |numbers, samples| faces(samples, numbers, &[], &|counts| &counts.stale),
    },
    Metric {
        name: "pointsman_reverse_refused_total",
        help: "What was no question of its face: refused, broken or too long; over HTTP, what was no address, and bulk \
               requests of too many.",
        kind: Kind::Counter,
        unit: "requests",
        labels: &["face"],
        read: |numbers, samples| faces(samples, numbers, &[], &|counts| &counts.refused),
    },
    Metric {
        name: "pointsman_reverse_door_full_total",
        help: "Wanted addresses that found the door to the back end full, and were not noted.",
        kind: Kind::Counter,
        unit: "addresses",
        labels: &["face"],
        read: |numbers, samples| faces(samples, numbers, &[], &|counts| &counts.door_full),
    },
    Metric {
        name: "pointsman_reverse_age_seconds",
        help: "How long ago it was learned what hits found; one hit in 16 is looked at.",
        kind: Kind::Histogram,
        unit: "seconds",
        labels: &[],
        read: |numbers, samples| {
            const { assert!(LOOKED_AT_ONE_IN == 16) };
            let faces = numbers.faces();
            samples.observed(faces.iter().map(|(_, counts)| &counts.ages), 1.0);
        },
    },
    Metric {
        name: "pointsman_reverse_questions_total",
        help: "Questions that were asked, each for an interval.",
        kind: Kind::Counter,
        unit: "questions",
        labels: &[],
        read: |numbers, samples| samples.push([], get(&numbers.back_end.questions)),
    },
    Metric {
        name: "pointsman_reverse_unsent_total",
        help: "Questions that this machine had no socket for; each is asked again, and no failure of an upstream.",
        kind: Kind::Counter,
        unit: "questions",
        labels: &[],
        read: |numbers, samples| samples.push([], get(&numbers.back_end.unsent)),
    },
    Metric {
        name: "pointsman_reverse_asked_total",
        help: "The same by purpose: name, confirm (does it lead back), prefix (is there any name in it), ahead (before \
               it expires), sample (is it still right), and retry of any.",
        kind: Kind::Counter,
        unit: "questions",
        labels: &["purpose"],
        read: |numbers, samples| {
            let asked = &numbers.back_end.asked;
            let counts = [
                ("name", &asked.name),
                ("ahead", &asked.ahead),
                ("sample", &asked.sample),
                ("confirm", &asked.confirm),
                ("prefix", &asked.prefix),
                ("retry", &asked.retry),
            ];
            each(samples, counts);
        },
    },
    Metric {
        name: "pointsman_reverse_back_end_hits_total",
        help: "Addresses that were known when their turn came, which cost no question.",
        kind: Kind::Counter,
        unit: "addresses",
        labels: &[],
        read: |numbers, samples| samples.push([], get(&numbers.back_end.hits)),
    },
    Metric {
        name: "pointsman_reverse_leaks_total",
        help: "Addresses that were dropped at the bottom of a stack: wanted, or spare (ahead of time, or as samples).",
        kind: Kind::Counter,
        unit: "addresses",
        labels: &["stack"],
        read: |numbers, samples| {
            let back_end = &numbers.back_end;
            each(samples, [("wanted", &back_end.leaks), ("spare", &back_end.spare_leaks)]);
        },
    },
    Metric {
        name: "pointsman_reverse_moved_total",
        help: "Addresses that were wanted again while they waited, and moved to the top.",
        kind: Kind::Counter,
        unit: "addresses",
        labels: &[],
        read: |numbers, samples| samples.push([], get(&numbers.back_end.moved)),
    },
    Metric {
        name: "pointsman_reverse_waiting",
        help: "Addresses that wait to be asked for: wanted, or spare (ahead of time, or as samples).",
        kind: Kind::Gauge,
        unit: "addresses",
        labels: &["stack"],
        read: |numbers, samples| {
            let back_end = &numbers.back_end;
            each(samples, [("wanted", &back_end.depth), ("spare", &back_end.spare_depth)]);
        },
    },
    Metric {
        name: "pointsman_reverse_lanes",
        help: "Networks (IPv4 /16, IPv6 /32) of which some address waits.",
        kind: Kind::Gauge,
        unit: "networks",
        labels: &[],
        read: |numbers, samples| samples.push([], get(&numbers.back_end.lanes)),
    },
    Metric {
        name: "pointsman_reverse_in_flight",
        help: "Addresses whose questions are under way.",
        kind: Kind::Gauge,
        unit: "addresses",
        labels: &[],
        read: |numbers, samples| samples.push([], get(&numbers.back_end.in_flight)),
    },
    Metric {
        name: "pointsman_reverse_verdicts_total",
        help: "Names by whether they lead back to their address: confirmed, mismatch, or not_yet, for nobody could tell.",
        kind: Kind::Counter,
        unit: "names",
        labels: &["verdict"],
        read: |numbers, samples| {
            each(samples, Verdict::ALL.map(Verdict::word).into_iter().zip(&numbers.back_end.verdicts));
        },
    },
    Metric {
        name: "pointsman_reverse_prefixes_total",
        help: "Prefixes that were asked about: empty ones have no name in them, others have something; contradicted were \
               said to be empty, and a name in them was known or found.",
        kind: Kind::Counter,
        unit: "prefixes",
        labels: &["outcome"],
        read: |numbers, samples| {
            let back_end = &numbers.back_end;
            let counts = [
                ("empty", &back_end.empty_prefixes),
                ("other", &back_end.prefixes_in_use),
                ("contradicted", &back_end.contradicted),
            ];
            each(samples, counts);
        },
    },
    Metric {
        name: "pointsman_reverse_staleness_total",
        help: "Hits that were asked for again, by what became of them: same, changed, gone, or failed.",
        kind: Kind::Counter,
        unit: "hits",
        labels: &["outcome"],
        read: |numbers, samples| {
            let staleness = &numbers.back_end.staleness;
            let counts = [
                ("same", &staleness.same),
                ("changed", &staleness.changed),
                ("gone", &staleness.gone),
                ("failed", &staleness.failed),
            ];
            each(samples, counts);
        },
    },
    Metric {
        name: "pointsman_reverse_entries",
        help: "Entries in the cache.",
        kind: Kind::Gauge,
        unit: "entries",
        labels: &[],
        read: |numbers, samples| samples.push([], get(&numbers.back_end.entries)),
    },
    Metric {
        name: "pointsman_reverse_cache_bytes",
        help: "Octets of the cache.",
        kind: Kind::Gauge,
        unit: "bytes",
        labels: &[],
        read: |numbers, samples| samples.push([], get(&numbers.back_end.octets)),
    },
    Metric {
        name: "pointsman_reverse_dropped_entries_total",
        help: "Entries that left the cache or did not come in: expired, evicted for others, or no_room for their name.",
        kind: Kind::Counter,
        unit: "entries",
        labels: &["cause"],
        read: |numbers, samples| {
            let back_end = &numbers.back_end;
            let causes = [
                ("expired", &back_end.expired),
                ("evicted", &back_end.evicted),
                ("no_room", &back_end.no_room),
            ];
            each(samples, causes);
        },
    },
    Metric {
        name: "pointsman_reverse_snapshots_total",
        help: "Snapshots of the cache by outcome: written or failed.",
        kind: Kind::Counter,
        unit: "snapshots",
        labels: &["outcome"],
        read: |numbers, samples| {
            let back_end = &numbers.back_end;
            each(samples, [("written", &back_end.snapshots_written), ("failed", &back_end.snapshots_failed)]);
        },
    },
    Metric {
        name: "pointsman_reverse_mmdb_files_total",
        help: "MMDB files by outcome: written or failed; absent without --mmdb.",
        kind: Kind::Counter,
        unit: "files",
        labels: &["outcome"],
        read: |numbers, samples| {
            if let Some(counts) = &numbers.mmdb {
                each(samples, [("written", &counts.written), ("failed", &counts.failed)]);
            }
        },
    },
    Metric {
        name: "pointsman_reverse_mmdb_names",
        help: "Names of the last MMDB file: written, or left_out because the file would have become too large; absent without \
               --mmdb.",
        kind: Kind::Gauge,
        unit: "names",
        labels: &["outcome"],
        read: |numbers, samples| {
            if let Some(counts) = &numbers.mmdb {
                each(samples, [("written", &counts.names), ("left_out", &counts.left_out)]);
            }
        },
    },
    Metric {
        name: "pointsman_reverse_upstream_questions_total",
        help: "Questions by the upstream that was asked.",
        kind: Kind::Counter,
        unit: "questions",
        labels: &["upstream"],
        read: |numbers, samples| {
            for (address, counts) in &numbers.upstreams {
                samples.push([address.to_string()], get(&counts.questions));
            }
        },
    },
    Metric {
        name: "pointsman_reverse_upstream_outcomes_total",
        help: "What became of them: name (or another thing that was asked for), no_name, unusable, or failed by cause: \
               timeout (also where nobody listens), servfail, refused (an answer that says so), malformed.",
        kind: Kind::Counter,
        unit: "questions",
        labels: &["upstream", "outcome"],
        read: |numbers, samples| {
            for (address, counts) in &numbers.upstreams {
                for (word, count) in counts.answers().into_iter().chain(counts.failures()) {
                    samples.push([address.to_string(), word.into()], get(count));
                }
            }
        },
    },
    Metric {
        name: "pointsman_reverse_upstream_rcodes_total",
        help: "Answers that were believed, by upstream and the response code in their header, where BADVERS is NOERROR; codes \
               that never came are absent.",
        kind: Kind::Counter,
        unit: "answers",
        labels: &["upstream", "rcode"],
        read: |numbers, samples| {
            for (address, counts) in &numbers.upstreams {
                for (code, count) in counts.rcodes.iter().enumerate().filter(|(_, count)| get(count) > 0) {
                    // Sixteen codes fit the header's four bits.
                    let rcode = Rcode::checked_from_int(code as u8)
                        .map_or_else(|| code.to_string(), |rcode| rcode.to_string());
                    samples.push([address.to_string(), rcode], get(count));
                }
            }
        },
    },
    Metric {
        name: "pointsman_reverse_upstream_oddities_total",
        help: "What else came from upstreams: cut answers, asked for again over TCP; not_understood: FORMERR, NOTIMP or \
               BADVERS to a question with EDNS, asked again without; many: more records than are looked at; foreign \
               ones, to questions that were never asked.",
        kind: Kind::Counter,
        unit: "answers",
        labels: &["upstream", "kind"],
        read: |numbers, samples| {
            for (address, counts) in &numbers.upstreams {
                samples.push([address.to_string(), "cut".into()], get(&counts.cut));
                samples.push([address.to_string(), "not_understood".into()], get(&counts.not_understood));
                samples.push([address.to_string(), "many".into()], get(&counts.many));
                samples.push([address.to_string(), "foreign".into()], get(&counts.foreign));
            }
        },
    },
    Metric {
        name: "pointsman_reverse_upstream_without_edns",
        help: "1 for an upstream that answers questions without EDNS only, and is asked such for ten minutes at a time; 0 for \
               others.",
        kind: Kind::Gauge,
        unit: "none",
        labels: &["upstream"],
        read: |numbers, samples| {
            const { assert!(WITHOUT_EDNS.as_secs() == 600) };
            for (address, counts) in &numbers.upstreams {
                samples.push([address.to_string()], counts.is_without_edns.load(Ordering::Relaxed).into());
            }
        },
    },
    Metric {
        name: "pointsman_reverse_upstream_seconds",
        help: "How long questions took until they were answered or given up, over all upstreams.",
        kind: Kind::Histogram,
        unit: "seconds",
        labels: &[],
        read: |numbers, samples| {
            samples.observed(numbers.upstreams.iter().map(|(_, counts)| &counts.times), 1e6);
        },
    },
    Metric {
        name: "pointsman_reverse_upstream_milliseconds_total",
        help: "How long questions took until they were answered or given up, in sum, by upstream.",
        kind: Kind::Counter,
        unit: "milliseconds",
        labels: &["upstream"],
        read: |numbers, samples| {
            for (address, counts) in &numbers.upstreams {
                samples.push([address.to_string()], counts.times.sum() / 1_000);
            }
        },
    },
    Metric {
        name: "pointsman_reverse_connections_total",
        help: "Connections by face that were served; over DNS also strangers', which are closed at their first question.",
        kind: Kind::Counter,
        unit: "connections",
        labels: &["face"],
        read: |numbers, samples| {
            for ((face, _), count) in
                numbers.connections().iter().filter(|((_, word), _)| *word == "accepted")
            {
                samples.push([(*face).into()], *count);
            }
        },
    },
    Metric {
        name: "pointsman_reverse_connections_ended_total",
        help: "Connections by face that were not served, or ended, by cause: strangers may not ask, refused found no \
               place, accept_failed is the system's want; idle, late (a request) and untaken (answers) took too long; \
               malformed was no request, broken was reset or lost; lifetime is over, gave_way waited for its client and \
               made room; panics are faults of ours.",
        kind: Kind::Counter,
        unit: "connections",
        labels: &["face", "cause"],
        read: |numbers, samples| {
            for ((face, cause), count) in
                numbers.connections().iter().filter(|((_, word), _)| *word != "accepted")
            {
                samples.push([(*face).into(), (*cause).into()], *count);
            }
        },
    },
    Metric {
        name: "pointsman_reverse_http_responses_total",
        help: "Answers over HTTP by status: from 400 on, requests that were refused; 403 are clients of web servers that \
               may not go on.",
        kind: Kind::Counter,
        unit: "responses",
        labels: &["status"],
        read: |numbers, samples| {
            for (status, count) in numbers.responses() {
                samples.push([status.to_string()], count);
            }
        },
    },
    Metric {
        name: "pointsman_reverse_receive_failures_total",
        help: "Calls to receive datagrams that the system failed; each is made again.",
        kind: Kind::Counter,
        unit: "calls",
        labels: &[],
        read: |numbers, samples| samples.push([], numbers.receive_failures()),
    },
    Metric {
        name: "pointsman_reverse_panics_total",
        help: "Datagrams that made the code panic; each was dropped.",
        kind: Kind::Counter,
        unit: "messages",
        labels: &[],
        read: |numbers, samples| samples.push([], get(&numbers.panics)),
    },
];

/// Answers all numbers in the OpenMetrics text format, which Prometheus reads.
#[utoipa::path(
    get, path = "/metrics", operation_id = "metrics", tag = "service",
    responses(
        (
            status = 200, description = "All numbers.", body = String,
            content_type = "application/openmetrics-text; version=1.0.0; charset=utf-8",
        ),
        (status = 401, description = "Only this machine may ask, and asks under a host's name.", body = Problem),
    ),
)]
pub(super) async fn metrics(State(http): State<Http>) -> impl IntoResponse {
    web::metrics::answer(web::metrics::text(METRICS, |read, samples| read(&http.numbers, samples)))
}

/// Tells a count of each face, summed over its threads, with more labels behind the face's.
fn faces(samples: &mut Samples, numbers: &Numbers, more: &[&str], of: &dyn Fn(&front::Counts) -> &AtomicU64) {
    let mut faces = BTreeMap::<&str, u64>::new();
    for (face, counts) in numbers.faces() {
        *faces.entry(face).or_default() += get(of(&counts));
    }
    for (face, count) in faces {
        match more {
            [] => samples.push([face.into()], count),
            [more, ..] => samples.push([face.into(), (*more).into()], count),
        }
    }
}

/// Tells counts by their words.
fn each<'a>(samples: &mut Samples, counts: impl IntoIterator<Item = (&'static str, &'a AtomicU64)>) {
    for (word, count) in counts {
        samples.push([word.into()], get(count));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_well_formed_and_told_once() {
        assert_eq!(web::metrics::faults("pointsman_reverse_", METRICS), [""; 0]);
    }

    #[test]
    fn the_page_is_as_the_metrics_are_declared() {
        let opening = "# Metrics of the reverse look-up service\n\n\
             `GET /metrics` of `pointsman reverse --http ADDR` answers these numbers in the OpenMetrics text format, which\n\
             Prometheus reads. Counters and histograms begin at 0 with the process. The paper's four series are\n\
             `pointsman_reverse_requests_total`, `..._hits_total`, `..._questions_total` and `..._leaks_total`; the share of\n\
             look-ups that were answered with a name is the requests with state `name` over all.\n";
        ::tests::fresh::check("docs/reference/reverse-metrics.md", &web::metrics::page(opening, METRICS));
    }
}
