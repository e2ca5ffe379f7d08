//! `/metrics`: every number that is exported, declared once.

use std::sync::atomic::{AtomicU64, Ordering};

use axum::extract::State;
use axum::response::IntoResponse;
use routing::balance::Why;
use web::metrics::{Kind, Samples};

use super::document::Unauthorized;
use super::{Http, status};
use crate::counters::{Cells, FrontCounters, LATENCY_BOUNDS_US, RCODES};
use crate::field::BackEnd;
use crate::health::WHOLE;
use crate::numbers::Numbers;

/// A number that is exported, and what reads it.
pub type Metric = web::metrics::Metric<fn(&Numbers, &mut Samples)>;

/// The words of response codes, by their numbers.
const RCODE_WORDS: [&str; RCODES] = [
    "noerror", "formerr", "servfail", "nxdomain", "notimp", "refused", "6", "7", "8", "9", "10", "11", "12",
    "13", "14", "15",
];

/// A counter of the clients' side.
macro_rules! front {
    ($name:literal, $help:literal, $unit:literal, $field:ident) => {
        Metric {
            name: $name,
            help: $help,
            kind: Kind::Counter,
            unit: $unit,
            labels: &[],
            read: |numbers, samples| samples.push([], numbers.sum(|front: &FrontCounters| &front.$field)),
        }
    };
}

/// A counter of each back end.
macro_rules! back_end {
    ($name:literal, $help:literal, $unit:literal, $field:ident) => {
        Metric {
            name: $name,
            help: $help,
            kind: Kind::Counter,
            unit: $unit,
            labels: &["back_end"],
            read: |numbers, samples| {
                samples.back_ends(numbers, |back_end| Some(back_end.sum(|cells: &Cells| &cells.$field)))
            },
        }
    };
}

/// A counter of each back end that all threads have in common.
macro_rules! of_back_end {
    ($name:literal, $help:literal, $unit:literal, $($field:ident).+) => {
        Metric {
            name: $name,
            help: $help,
            kind: Kind::Counter,
            unit: $unit,
            labels: &["back_end"],
            read: |numbers, samples| samples.back_ends(numbers, |back_end| Some(get(&back_end.$($field).+))),
        }
    };
}

/// A counter of the replies of each back end that ended nothing, over either transport.
macro_rules! strays {
    ($name:literal, $help:literal, $field:ident) => {
        Metric {
            name: $name,
            help: $help,
            kind: Kind::Counter,
            unit: "replies",
            labels: &["back_end"],
            read: |numbers, samples| {
                samples.back_ends(numbers, |back_end| {
                    Some(back_end.sum(|cells: &Cells| &cells.$field) + get(&back_end.exchange.strays.$field))
                })
            },
        }
    };
}

/// A number of the cache; none where there is none.
macro_rules! cache {
    ($name:literal, $help:literal, $kind:ident, $unit:literal, $field:ident) => {
        Metric {
            name: $name,
            help: $help,
            kind: Kind::$kind,
            unit: $unit,
            labels: &[],
            read: |numbers, samples| {
                if let Some(cache) = &numbers.cache {
                    samples.push([], cache.numbers().$field);
                }
            },
        }
    };
}

/// Everything that is exported.
pub const METRICS: &[Metric] = &[
    Metric {
        name: "pointsman_balance_build_info",
        help: "Always 1; the label is the version of the program.",
        kind: Kind::Gauge,
        unit: "none",
        labels: &["version"],
        read: |_, samples| samples.push([env!("CARGO_PKG_VERSION").into()], 1),
    },
    Metric {
        name: "pointsman_balance_uptime_seconds",
        help: "Seconds since start.",
        kind: Kind::Gauge,
        unit: "seconds",
        labels: &[],
        read: |numbers, samples| samples.push([], numbers.clock.now().monotonic.as_secs()),
    },
    front!("pointsman_balance_queries_total", "Messages of clients.", "messages", queries),
    front!(
        "pointsman_balance_answers_total",
        "Answers of back ends that went to clients.",
        "answers",
        answers
    ),
    front!(
        "pointsman_balance_late_answers_total",
        "The same, of back ends whose time was over, while another one was waited for.",
        "answers",
        late_answers
    ),
    front!(
        "pointsman_balance_cache_hits_total",
        "Queries that were answered from the cache, by what is fresh.",
        "queries",
        cache_hits
    ),
    front!(
        "pointsman_balance_cache_misses_total",
        "Queries that might have been, but for what the cache did not have, or were to ask anew for what it has.",
        "queries",
        cache_misses
    ),
    front!(
        "pointsman_balance_cache_failures_total",
        "Queries that were answered from the cache by a failure that a back end had just told.",
        "queries",
        cache_failures
    ),
    front!(
        "pointsman_balance_cache_stale_total",
        "Queries that no back end answered, or would as another one had just failed, or that were shed, and that were \
         answered from the cache by what is not fresh any more.",
        "queries",
        cache_stale
    ),
    cache!(
        "pointsman_balance_cache_entries",
        "Answers that the cache holds, fresh or not.",
        Gauge,
        "answers",
        entries
    ),
    cache!(
        "pointsman_balance_cache_kept_total",
        "Answers that the cache was given to keep.",
        Counter,
        "answers",
        kept
    ),
    cache!(
        "pointsman_balance_cache_pushed_out_total",
        "Those of them that gave way to others while they were fresh.",
        Counter,
        "answers",
        pushed_out
    ),
    cache!(
        "pointsman_balance_cache_too_long_total",
        "Answers that were too long to be kept.",
        Counter,
        "answers",
        too_long
    ),
    cache!(
        "pointsman_balance_cache_busy_total",
        "Times that a query or an answer found its part of the cache in use, and went on without it.",
        Counter,
        "looks",
        busy
    ),
    Metric {
        name: "pointsman_balance_dnstap_written_total",
        help: "Messages that dnstap's socket or file took.",
        kind: Kind::Counter,
        unit: "messages",
        labels: &[],
        read: |numbers, samples| {
            if let Some(tap) = &numbers.tap {
                samples.push([], tap.written.load(Ordering::Relaxed));
            }
        },
    },
    Metric {
        name: "pointsman_balance_dnstap_dropped_total",
        help: "Messages for dnstap that were lost, by cause: full, for they came faster than they were taken; \
               failed, for the reader went or the file took no more; or limit, for the file has dnstap.file_max.",
        kind: Kind::Counter,
        unit: "messages",
        labels: &["cause"],
        read: |numbers, samples| {
            if let Some(tap) = &numbers.tap {
                samples.push(["full".into()], numbers.sum(|front| &front.tap_full));
                samples.push(["failed".into()], tap.failed.load(Ordering::Relaxed));
                samples.push(["limit".into()], tap.beyond.load(Ordering::Relaxed));
            }
        },
    },
    front!(
        "pointsman_balance_receive_failed_total",
        "Looks for messages of clients that the system failed; each is made again after a rest.",
        "looks",
        receive_failed
    ),
    front!(
        "pointsman_balance_strangers_total",
        "Messages and connections of clients that allow does not name: dropped, closed.",
        "messages",
        strangers
    ),
    front!("pointsman_balance_no_query_total", "Messages that were no query, dropped.", "messages", no_query),
    front!(
        "pointsman_balance_malformed_total",
        "Malformed queries, and messages with another opcode (NOTIFY, UPDATE), answered here.",
        "queries",
        malformed
    ),
    front!(
        "pointsman_balance_ruled_total",
        "Queries that rules had answered here, or dropped.",
        "queries",
        ruled
    ),
    Metric {
        name: "pointsman_balance_rule_met_total",
        help: "Queries that a rule has decided on, by its name. Rules that are read again go on with their names' counts.",
        kind: Kind::Counter,
        unit: "queries",
        labels: &["rule"],
        read: |numbers, samples| {
            for (name, _, met) in numbers.field.load().rules.met() {
                samples.push([name.into()], met);
            }
        },
    },
    front!(
        "pointsman_balance_transfers_total",
        "Queries for a zone transfer over TCP, answered REFUSED.",
        "queries",
        transfers
    ),
    front!(
        "pointsman_balance_failed_total",
        "Queries that no back end answered, or for which there was none or no way to send them: answered SERVFAIL.",
        "queries",
        failed
    ),
    front!(
        "pointsman_balance_full_total",
        "Queries and connections turned away for want of a place: queries over TCP answered SERVFAIL, others dropped.",
        "queries",
        full
    ),
    front!(
        "pointsman_balance_gave_way_total",
        "Connections of clients that gave way to new ones: nothing had come from them, and no answer gone to them, for longest.",
        "connections",
        gave_way
    ),
    front!(
        "pointsman_balance_tls_failed_total",
        "Connections of clients that came to no terms over TLS, or took longer for it than one message may.",
        "connections",
        tls_failed
    ),
    front!(
        "pointsman_balance_https_refused_total",
        "Requests over HTTPS that held no query, answered with a status that says why.",
        "requests",
        https_refused
    ),
    front!(
        "pointsman_balance_quic_refused_total",
        "Streams over QUIC that held no query as it is to be, whose connections were closed.",
        "streams",
        quic_refused
    ),
    front!(
        "pointsman_balance_full_client_total",
        "Queries whose client had as many as one may have: over TCP answered SERVFAIL, others dropped.",
        "queries",
        full_client
    ),
    front!("pointsman_balance_no_id_total", "Queries for which no free id was found.", "queries", no_id),
    front!(
        "pointsman_balance_no_socket_total",
        "Queries for which no socket to a back end was to be had: sent to another one, or answered SERVFAIL.",
        "queries",
        no_socket
    ),
    front!(
        "pointsman_balance_shed_total",
        "Queries that nobody had credit for: over TCP answered SERVFAIL, others dropped.",
        "queries",
        shed
    ),
    front!("pointsman_balance_steered_total", "The same, answered with TC set.", "queries", steered),
    front!("pointsman_balance_retries_total", "Queries sent to a second back end.", "queries", retries),
    front!(
        "pointsman_balance_retries_denied_total",
        "Queries that would have been, but for the budget of 2 %.",
        "queries",
        retries_denied
    ),
    front!(
        "pointsman_balance_send_failed_total",
        "Datagrams that the system did not take.",
        "datagrams",
        send_failed
    ),
    Metric {
        name: "pointsman_balance_kernel_drops_total",
        help: "Datagrams that the system dropped before they were received, by clients' sockets.",
        kind: Kind::Counter,
        unit: "datagrams",
        labels: &[],
        read: |numbers, samples| {
            let drops = numbers.sockets.iter().filter_map(|socket| socket.upgrade()?.kernel_drops().ok());
            samples.push([], drops.map(u64::from).sum());
        },
    },
    Metric {
        name: "pointsman_balance_picks_total",
        help: "Picks by their reasons.",
        kind: Kind::Counter,
        unit: "picks",
        labels: &["why"],
        read: |numbers, samples| {
            for why in Why::ALL {
                samples.push([why.word().into()], numbers.sum(|front| &front.picks[why as usize]));
            }
        },
    },
    Metric {
        name: "pointsman_balance_step",
        help: "How many threads went by a step of the policy pressure at their last pick: credit, two_choices, latency or \
               blind; that of connections counts as one.",
        kind: Kind::Gauge,
        unit: "threads",
        labels: &["step"],
        read: |numbers, samples| {
            for (step, threads) in numbers.steps() {
                samples.push([step.word().into()], threads);
            }
        },
    },
    Metric {
        name: "pointsman_balance_back_end_standing",
        help: "1 for what the back end is: up, down or draining.",
        kind: Kind::Gauge,
        unit: "none",
        labels: &["back_end", "standing"],
        read: |numbers, samples| {
            for back_end in numbers.field.load().iter() {
                for word in ["up", "down", "draining"] {
                    let is = u64::from(back_end.standing().word() == word);
                    samples.push([back_end.address.to_string(), word.into()], is);
                }
            }
        },
    },
    Metric {
        name: "pointsman_balance_back_end_turns_permille",
        help: "The part of its turns that it gets, in thousandths: less while it starts, and while it fails.",
        kind: Kind::Gauge,
        unit: "thousandths",
        labels: &["back_end"],
        read: |numbers, samples| {
            samples.back_ends(numbers, |back_end| Some(back_end.share().min(WHOLE).into()))
        },
    },
    back_end!("pointsman_balance_back_end_sent_total", "Queries sent, again ones too.", "queries", sent),
    Metric {
        name: "pointsman_balance_back_end_share_permille",
        help: "The part of what was sent to the back ends that there are, each since it was added, in thousandths.",
        kind: Kind::Gauge,
        unit: "thousandths",
        labels: &["back_end"],
        read: |numbers, samples| {
            let all = status::sent(numbers);
            samples.back_ends(numbers, |back_end| Some((status::share(back_end, all) * 1e3).round() as u64));
        },
    },
    Metric {
        name: "pointsman_balance_back_end_answers_total",
        help: "Answers by response code.",
        kind: Kind::Counter,
        unit: "answers",
        labels: &["back_end", "rcode"],
        read: |numbers, samples| {
            for back_end in numbers.field.load().iter() {
                for (rcode, word) in RCODE_WORDS.iter().enumerate() {
                    let count = back_end.sum(|cells| &cells.answered[rcode]);
                    if count > 0 {
                        samples.push([back_end.address.to_string(), (*word).into()], count);
                    }
                }
            }
        },
    },
    back_end!(
        "pointsman_balance_back_end_timeouts_total",
        "Queries without an answer in time.",
        "queries",
        timeouts
    ),
    back_end!(
        "pointsman_balance_back_end_refused_total",
        "Queries that could not be delivered, as nobody listens there or no way leads there, or whose connection ended before \
         their answer.",
        "queries",
        refused
    ),
    back_end!(
        "pointsman_balance_back_end_doubts_total",
        "Times that a thread was told that nobody listens there or no way leads there, which it believes after 100 ms \
         without a word.",
        "doubts",
        doubts
    ),
    strays!("pointsman_balance_back_end_late_total", "Replies that came after their timeout.", late),
    strays!("pointsman_balance_back_end_alien_total", "Replies that answer nothing that was asked.", alien),
    strays!(
        "pointsman_balance_back_end_wrong_question_total",
        "Replies to another question than was asked.",
        wrong_question
    ),
    of_back_end!(
        "pointsman_balance_back_end_connections_total",
        "Connections begun to it, also such as it refused.",
        "connections",
        exchange.opened
    ),
    of_back_end!(
        "pointsman_balance_back_end_pipelined_total",
        "Queries that were sent over a connection while others were under way there.",
        "queries",
        exchange.pipelined
    ),
    of_back_end!(
        "pointsman_balance_back_end_crowded_total",
        "Queries that waited for room in a connection: 128 were open, over TLS 32, and all of them full.",
        "queries",
        exchange.crowded
    ),
    Metric {
        name: "pointsman_balance_back_end_pool",
        help: "Always 1, for each pool that it is in.",
        kind: Kind::Gauge,
        unit: "none",
        labels: &["back_end", "pool"],
        read: |numbers, samples| {
            let field = numbers.field.load();
            for back_end in field.iter() {
                for pool in field.pools_of(back_end) {
                    samples.push([back_end.address.to_string(), pool.clone()], 1);
                }
            }
        },
    },
    Metric {
        name: "pointsman_balance_back_end_in_flight",
        help: "Queries in flight.",
        kind: Kind::Gauge,
        unit: "queries",
        labels: &["back_end"],
        read: |numbers, samples| samples.back_ends(numbers, |back_end| Some(back_end.in_flight())),
    },
    Metric {
        name: "pointsman_balance_back_end_credit",
        help: "Queries that may still be sent by its agent's word; absent without a lease.",
        kind: Kind::Gauge,
        unit: "queries",
        labels: &["back_end"],
        read: |numbers, samples| {
            let now_ns = numbers.now_ns();
            samples.back_ends(numbers, |back_end| {
                status::lease(back_end, now_ns).map(|lease| status::credit(back_end, &lease))
            });
        },
    },
    Metric {
        name: "pointsman_balance_back_end_lease_left_milliseconds",
        help: "For how long its lease is still valid; 0 after its end, absent before the first.",
        kind: Kind::Gauge,
        unit: "milliseconds",
        labels: &["back_end"],
        read: |numbers, samples| {
            let now_ns = numbers.now_ns();
            samples.back_ends(numbers, |back_end| {
                let until_ns = back_end.udp.get().until_ns;
                (until_ns > 0).then(|| until_ns.saturating_sub(now_ns) / 1_000_000)
            });
        },
    },
    Metric {
        name: "pointsman_balance_back_end_queue_delay_microseconds",
        help: "How long queries wait in its queue, as its agent says; absent without a lease.",
        kind: Kind::Gauge,
        unit: "microseconds",
        labels: &["back_end"],
        read: |numbers, samples| {
            let now_ns = numbers.now_ns();
            samples.back_ends(numbers, |back_end| {
                status::lease(back_end, now_ns).map(|lease| lease.queue_ns / 1_000)
            });
        },
    },
    Metric {
        name: "pointsman_balance_back_end_quota_millicores",
        help: "Thousandths of a processor that its server may use, as its agent says; absent where no quota is known.",
        kind: Kind::Gauge,
        unit: "thousandths of a processor",
        labels: &["back_end"],
        read: |numbers, samples| {
            let now_ns = numbers.now_ns();
            samples.back_ends(numbers, |back_end| {
                status::lease(back_end, now_ns)?;
                let processors = back_end.udp.quota.get().processors()?;
                Some((processors * 1_000.0).round() as u64)
            });
        },
    },
    Metric {
        name: "pointsman_balance_back_end_drops_total",
        help: "Datagrams that its system has turned away, by its agent's own count, which begins with the agent.",
        kind: Kind::Counter,
        unit: "datagrams",
        labels: &["back_end"],
        read: |numbers, samples| {
            samples.back_ends(numbers, |back_end| Some(back_end.udp.drops.load(Ordering::Relaxed)));
        },
    },
    Metric {
        name: "pointsman_balance_back_end_connection_credit",
        help: "Connections that may still be opened by its agent's word; absent without a lease for them.",
        kind: Kind::Gauge,
        unit: "connections",
        labels: &["back_end"],
        read: |numbers, samples| {
            let now_ns = numbers.now_ns();
            samples.back_ends(numbers, |back_end| {
                let (lease, opened) = (back_end.tcp.get(), back_end.exchange.opened.load(Ordering::Relaxed));
                (now_ns < lease.until_ns).then(|| lease.limit.saturating_sub(opened))
            });
        },
    },
    Metric {
        name: "pointsman_balance_back_end_connection_drops_total",
        help: "Connections that its system has turned away, by its agent's own count, which begins with the agent.",
        kind: Kind::Counter,
        unit: "connections",
        labels: &["back_end"],
        read: |numbers, samples| {
            samples.back_ends(numbers, |back_end| Some(back_end.tcp.drops.load(Ordering::Relaxed)));
        },
    },
    of_back_end!(
        "pointsman_balance_back_end_unsigned_total",
        "Reports from its address that are signed with another key, or not at all.",
        "reports",
        unsigned
    ),
    Metric {
        name: "pointsman_balance_back_end_latency_seconds",
        help: "How long answers took.",
        kind: Kind::Histogram,
        unit: "seconds",
        labels: &["back_end"],
        read: |numbers, samples| {
            for back_end in numbers.field.load().iter() {
                let seconds = |us: u64| us as f64 / 1e6;
                let bounds = LATENCY_BOUNDS_US.map(seconds).into_iter().chain([f64::INFINITY]);
                let counts =
                    (0..=LATENCY_BOUNDS_US.len()).map(|index| back_end.sum(|cells| &cells.latencies[index]));
                let sum = seconds(back_end.sum(|cells| &cells.latency_us));
                samples.histogram([back_end.address.to_string()], sum, bounds.zip(counts).collect());
            }
        },
    },
    Metric {
        name: "pointsman_balance_hellos_total",
        help: "Hellos sent to agents.",
        kind: Kind::Counter,
        unit: "hellos",
        labels: &[],
        read: |numbers, samples| {
            samples.push([], numbers.credits.as_ref().map_or(0, |credits| get(&credits.hellos)));
        },
    },
    Metric {
        name: "pointsman_balance_reports_total",
        help: "Datagrams of agents by what became of them: fresh (in force), introduction, repeated, late, alien, unsigned \
               (another key) or malformed.",
        kind: Kind::Counter,
        unit: "reports",
        labels: &["verdict"],
        read: |numbers, samples| {
            let Some(credits) = &numbers.credits else { return };
            for (word, count) in [
                ("fresh", &credits.fresh),
                ("introduction", &credits.introductions),
                ("repeated", &credits.repeated),
                ("late", &credits.late),
                ("alien", &credits.alien),
                ("unsigned", &credits.unsigned),
                ("malformed", &credits.malformed),
            ] {
                samples.push([word.into()], get(count));
            }
        },
    },
];

/// Answers all numbers in the OpenMetrics text format, which Prometheus reads.
#[utoipa::path(
    get, path = "/metrics", operation_id = "metrics", tag = "balancer",
    responses(
        (
            status = 200, description = "All numbers.", body = String,
            content_type = "application/openmetrics-text; version=1.0.0; charset=utf-8",
        ),
        Unauthorized,
    ),
)]
pub(super) async fn metrics(State(http): State<Http>) -> impl IntoResponse {
    web::metrics::answer(web::metrics::text(METRICS, |read, samples| read(&http.numbers, samples)))
}

trait Read {
    /// A value of each back end that has it.
    fn back_ends(&mut self, numbers: &Numbers, of: impl Fn(&BackEnd) -> Option<u64>);
}

impl Read for Samples {
    fn back_ends(&mut self, numbers: &Numbers, of: impl Fn(&BackEnd) -> Option<u64>) {
        for back_end in numbers.field.load().iter() {
            if let Some(value) = of(back_end) {
                self.push([back_end.address.to_string()], value);
            }
        }
    }
}

fn get(count: &AtomicU64) -> u64 {
    count.load(Ordering::Relaxed)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_well_formed_and_told_once() {
        assert_eq!(web::metrics::faults("pointsman_balance_", METRICS), [""; 0]);
    }

    #[test]
    fn the_page_is_as_the_metrics_are_declared() {
        let opening = "# Metrics of the balancer\n\n\
             `GET /metrics` of `pointsman balance --http ADDR` answers these numbers in the OpenMetrics text format, which\n\
             Prometheus reads. Counters begin at 0 with the process, those of a back end when it is added.\n";
        ::tests::fresh::check("docs/reference/balance-metrics.md", &web::metrics::page(opening, METRICS));
    }
}
