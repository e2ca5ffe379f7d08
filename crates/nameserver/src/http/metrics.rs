//! `/metrics`: where the numbers come from and how they are summed; `declared` has all of them.

mod declared;

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError, Weak};

use axum::extract::State;
use axum::response::IntoResponse;
use dns::OptRcode;

use api::{ProbeState, Status};
use net::clock::Clock;
use net::count::Count;
use net::histogram::Histogram;
use web::metrics::Samples;

use super::Http;
use crate::connections::Connections;
use crate::counters::{Counters, RCODES, TYPE_CLASSES, type_name};
use crate::edit::follow;
use crate::external;
use crate::fast::Shared;
use crate::routed::Routed;
use crate::transfer::{Transfers, counters as transfer};
use crate::zone::Zones;
pub use declared::METRICS;

/// Where the numbers of the data plane come from.
#[derive(Debug, Default)]
pub struct Metrics {
    /// The counters of the UDP workers, in the order of their numbers.
    pub udp: Vec<Arc<Counters>>,
    /// The sockets of the first of them, in the same order, which they close when they end.
    pub sockets: Vec<Weak<net::udp::UdpListener>>,
    /// The queues of the others, in the same order.
    pub queues: Vec<net::xdp::Watch>,
    /// What the TCP listeners counted.
    pub tcp: Vec<Tcp>,
    /// How long changes took, in microseconds.
    pub updates: Arc<Histogram>,
    /// How often the making of changes has panicked.
    pub panicked: Arc<AtomicU64>,
    /// What became of what others changed in the same store.
    pub following: Arc<follow::Counters>,
    /// What the writer of dnstap counted.
    pub tap: Arc<tap::Counters>,
    /// Who follows our zones, and the counters of transfers, signatures and notifications.
    pub transfers: Arc<Transfers>,
    /// The fast state.
    pub fast: Shared,
    /// What was counted of an external proximity service, where there is one.
    pub external: Option<Arc<external::Counters>>,
    /// What became of the API's requests and connections.
    pub api: Arc<web::Counters>,
    /// Texts that the API did not send, since too many were on their way.
    pub texts_unsent: Arc<AtomicU64>,
    /// What is counted of policies, as it was called when it was first read; as much as workers and TCP listeners tell
    /// apart ([`ROUTED_MAX`](crate::routed::ROUTED_MAX) each), as they do not forget either.
    pub labels: Mutex<BTreeMap<Routed, [String; 3]>>,
}

/// What a TCP listener counted.
#[derive(Debug, Default)]
pub struct Tcp {
    /// Whether its connections are over TLS.
    pub is_encrypted: bool,
    /// Its connections.
    pub connections: Arc<net::tcp::Counters>,
    /// Their queries.
    pub queries: Arc<Counters>,
}

impl Tcp {
    /// What these count.
    pub fn of(connections: &Connections) -> Tcp {
        Tcp {
            is_encrypted: connections.identity.is_some(),
            connections: connections.counters.clone(),
            queries: connections.ledger.counters.clone(),
        }
    }
}

/// A number that is exported, and what reads it.
pub type Metric = web::metrics::Metric<fn(&Source<'_>, &mut Samples)>;

/// What a scrape reads.
#[derive(Debug)]
pub struct Source<'a> {
    status: &'a Status,
    metrics: &'a Metrics,
    routed: &'a BTreeMap<[String; 3], u64>,
    probes: &'a [ProbeState],
    first_to_expire: Option<(String, u32)>,
    warned: u64,
}

/// What queries come over, as labels.
const TRANSPORTS: [&str; 3] = ["udp", "tcp", "tls"];

/// The name of a cause, and the counter that counts it.
type Cause<C, N> = (&'static str, fn(&C) -> &N);

/// Returns all numbers in the OpenMetrics text format, which Prometheus reads.
#[utoipa::path(
    get, path = "/metrics", operation_id = "metrics", tag = "server",
    responses((
        status = 200, description = "All numbers.", body = String,
        content_type = "application/openmetrics-text; version=1.0.0; charset=utf-8",
    )),
)]
pub(super) async fn metrics(State(http): State<Http>) -> impl IntoResponse {
    let status = http.status().await;
    let routed = {
        let mut labels = http.metrics.labels.lock().unwrap_or_else(PoisonError::into_inner);
        http.editor.routed_names(http.metrics.routed(), &mut labels)
    };
    let probes = http.editor.probes();
    let source = Source {
        status: &status,
        metrics: &http.metrics,
        routed: &routed,
        probes: &probes,
        first_to_expire: http.editor.first_to_expire(),
        warned: http.editor.warned(Clock::new().now().unix.as_secs()),
    };
    web::metrics::answer(web::metrics::text(METRICS, |read, samples| read(&source, samples)))
}

impl Metrics {
    /// Fills in what was counted, and who follows these zones.
    pub fn fill_in(&self, status: &mut Status, zones: &Zones) {
        status.counters = self.counters("udp");
        status.tcp = self.counters("tcp");
        status.tls = self.counters("tls");
        status.external = self.external.as_ref().map(|external| external.state());
        for (state, counted) in status.workers.iter_mut().zip(&self.udp) {
            (state.queries, state.batches) = (counted.queries.get(), counted.batches.get());
        }
        let read = |count: &AtomicU64| count.load(Ordering::Relaxed);
        let (counted, transfers) = (self.transfers.counters(), &mut status.transfers);
        let secondaries = &self.transfers.config().secondaries;
        transfers.secondaries = secondaries.0.len() as u64;
        transfers.followed = zones.iter().filter(|zone| secondaries.follow(zone.origin())).count() as u64;
        transfers.finished = read(&counted.finished);
        transfers.cut = self.tcp_sum(|tcp| &tcp.streams_cut);
        transfers.running = read(&counted.started).saturating_sub(transfers.finished + transfers.cut);
        transfers.refused = counted.refused().map(|(_, refused)| read(refused)).sum();
        transfers.acknowledged = read(&counted.notify_acknowledged);
        transfers.given_up = read(&counted.notify_given_up);
        status.primaries = self.transfers.primary_state();
    }

    /// What was counted of a transport, in sum.
    fn counters(&self, transport: &str) -> api::Counters {
        api::Counters {
            queries: self.sum(transport, |counted| &counted.queries),
            answers: self.answers(transport, |_, _, rcode| rcode),
            dropped: self.dropped(transport).map(|(cause, count)| (cause.into(), count)).collect(),
            truncated: self.answers(transport, |verdict, _, _| verdict).remove("truncated").unwrap_or(0),
        }
    }

    /// What became of queries, by type, response code and verdict.
    fn queries(&self, transport: &str) -> impl Iterator<Item = ([String; 3], u64)> {
        let none = |verdict: &str| ["none", "none", verdict].map(String::from);
        // An answer that the system did not take is one, too.
        let causes = self.dropped(transport).filter(|(cause, _)| *cause != "send_failed");
        let dropped = causes.map(|(_, count)| count).sum();
        let streamed = self.sum(transport, |counters| &counters.streamed);
        let answers = self.answers(transport, |verdict, rtype, rcode| [rtype, rcode, verdict]);
        answers.into_iter().chain([(none("streamed"), streamed), (none("dropped"), dropped)])
    }

    /// Answers of which there was any, summed by what `key` makes of verdict, type and response code.
    fn answers<K: Ord>(
        &self,
        transport: &str,
        key: impl Fn(String, String, String) -> K,
    ) -> BTreeMap<K, u64> {
        let mut answers = BTreeMap::new();
        for (verdict, name) in ["answered", "truncated"].into_iter().enumerate() {
            for class in 0..TYPE_CLASSES {
                for code in 0..RCODES {
                    let count = self.sum(transport, |counters| &counters.answers[verdict][class][code]);
                    if count > 0 {
                        let rcode = OptRcode::masked_from_int(code as u16)
                            .to_mnemonic_str()
                            .map_or_else(|| code.to_string(), str::to_owned);
                        *answers.entry(key(name.into(), type_name(class), rcode)).or_insert(0) += count;
                    }
                }
            }
        }
        answers
    }

    /// What policies decided, over all transports.
    fn routed(&self) -> BTreeMap<Routed, u64> {
        let mut routed = BTreeMap::new();
        for (what, count) in self.counted().flat_map(|counted| counted.routed.iter()) {
            *routed.entry(what).or_insert(0) += count;
        }
        routed
    }

    fn counted(&self) -> impl Iterator<Item = &Counters> {
        self.udp.iter().chain(self.tcp.iter().map(|tcp| &tcp.queries)).map(|counted| &**counted)
    }

    fn dropped(&self, transport: &str) -> impl Iterator<Item = (&'static str, u64)> {
        let causes: [Cause<Counters, Count>; 5] = [
            ("no_query", |counters| &counters.no_query),
            ("no_room", |counters| &counters.no_room),
            ("rate_limited", |counters| &counters.rate_limited),
            ("send_failed", |counters| &counters.send_failed),
            ("panicked", |counters| &counters.panicked),
        ];
        causes.into_iter().map(move |(cause, count)| (cause, self.sum(transport, count)))
    }

    /// One of [`TRANSPORTS`]'s counts, in sum.
    fn sum(&self, transport: &str, count: impl Fn(&Counters) -> &Count) -> u64 {
        match transport {
            "udp" => self.udp.iter().map(|worker| count(worker).get()).sum(),
            _ => {
                let of_it = self.tcp.iter().filter(|tcp| tcp.is_encrypted == (transport == "tls"));
                of_it.map(|tcp| count(&tcp.queries).get()).sum()
            }
        }
    }

    /// The workers that have queues, by number.
    fn queues(&self) -> impl Iterator<Item = (usize, &net::xdp::Watch)> {
        self.queues.iter().enumerate().map(|(place, queue)| (self.sockets.len() + place, queue))
    }

    fn tcp_sum(&self, counter: fn(&net::tcp::Counters) -> &AtomicU64) -> u64 {
        self.tcp.iter().map(|tcp| counter(&tcp.connections).load(Ordering::Relaxed)).sum()
    }
}

/// What several metrics read.
trait Read {
    fn transfers(&mut self, source: &Source<'_>, causes: &[Cause<transfer::Counters, AtomicU64>]);
    fn workers(&mut self, source: &Source<'_>, count: fn(&Counters) -> &Count);
}

impl Read for Samples {
    fn transfers(&mut self, source: &Source<'_>, causes: &[Cause<transfer::Counters, AtomicU64>]) {
        for (cause, counter) in causes {
            self.push(
                [(*cause).into()],
                counter(source.metrics.transfers.counters()).load(Ordering::Relaxed),
            );
        }
    }

    fn workers(&mut self, source: &Source<'_>, count: fn(&Counters) -> &Count) {
        for (number, worker) in source.metrics.udp.iter().enumerate() {
            self.push([number.to_string()], count(worker).get());
        }
    }
}

/// What `docs/reference/metrics.md` holds.
#[cfg(test)]
pub(super) fn page() -> String {
    web::metrics::page(
        "# Metrics\n\n\
         `GET /metrics` answers these numbers in the OpenMetrics text format, which Prometheus reads. Counters and\n\
         histograms begin at 0 with the process. A message that comes in is one of `pointsman_queries_total`; a dropped\n\
         one is also one of `pointsman_dropped_total`, where `send_failed` is an answer that the system did not take.\n",
        METRICS,
    )
}
