//! `/metrics`: every number that is exported, declared once.

use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use axum::extract::State;
use axum::http::header::CONTENT_TYPE;
use axum::response::IntoResponse;
use dns::Rcode;
use prometheus_client::collector::Collector;
use prometheus_client::encoding::{DescriptorEncoder, EncodeMetric, MetricEncoder};
use prometheus_client::metrics::MetricType;
use prometheus_client::metrics::counter::ConstCounter;
use prometheus_client::metrics::gauge::ConstGauge;
use prometheus_client::registry::Registry;

use api::Status;

use super::Http;
use crate::counters::{Count, Counters};

/// The type of what [`metrics`] answers (OpenMetrics 1.0).
const OPEN_METRICS: &str = "application/openmetrics-text; version=1.0.0; charset=utf-8";

/// Where the numbers of the data plane come from.
#[derive(Debug, Default)]
pub struct Metrics {
    /// The counters of the UDP workers, in the order of their numbers.
    pub udp: Vec<Arc<Counters>>,
    /// The counters of the TCP listeners.
    pub tcp: Vec<Arc<net::tcp::Counters>>,
}

/// A number that is exported: its declaration, and where it comes from.
pub struct Metric {
    /// Its name as it is scraped.
    pub name: &'static str,
    /// What it says, in one sentence.
    pub help: &'static str,
    /// Whether it only grows.
    pub kind: Kind,
    /// Its labels, where it has some.
    pub labels: &'static [&'static str],
    read: fn(&Source<'_>, &mut Samples),
}

/// How a number behaves.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// It grows from 0 at start; the name ends in `_total`.
    Counter,
    /// It goes up and down.
    Gauge,
}

/// What a scrape reads.
struct Source<'a> {
    status: &'a Status,
    metrics: &'a Metrics,
}

/// Values with those of their labels, in the order of [`Metric::labels`].
#[derive(Debug, Default)]
struct Samples(Vec<(Vec<String>, u64)>);

/// The name of a cause, and the counter that counts it.
type Cause<C, N> = (&'static str, fn(&C) -> &N);

/// Everything that is exported.
pub const METRICS: &[Metric] = &[
    Metric {
        name: "pointsman_build_info",
        help: "Always 1; the label is the version of the program.",
        kind: Kind::Gauge,
        labels: &["version"],
        read: |source, samples| samples.push([source.status.version.clone()], 1),
    },
    Metric {
        name: "pointsman_uptime_seconds",
        help: "Seconds since start.",
        kind: Kind::Gauge,
        labels: &[],
        read: |source, samples| samples.push([], source.status.uptime_seconds),
    },
    Metric {
        name: "pointsman_generation",
        help: "The current generation.",
        kind: Kind::Gauge,
        labels: &[],
        read: |source, samples| samples.push([], source.status.generation),
    },
    Metric {
        name: "pointsman_worker_generation",
        help: "The generation that each worker serves; 0 for the moment in which it takes the next one.",
        kind: Kind::Gauge,
        labels: &["worker"],
        read: |source, samples| {
            for state in &source.status.workers {
                samples.push([state.worker.to_string()], state.generation);
            }
        },
    },
    Metric {
        name: "pointsman_slowest_worker_generation",
        help: "The oldest generation that any worker serves.",
        kind: Kind::Gauge,
        labels: &[],
        read: |source, samples| {
            let served = source.status.workers.iter().map(|state| state.generation);
            samples.push([], served.min().unwrap_or(source.status.generation));
        },
    },
    Metric {
        name: "pointsman_store_ok",
        help: "1 while the store takes changes, 0 while it does not.",
        kind: Kind::Gauge,
        labels: &[],
        read: |source, samples| samples.push([], u64::from(source.status.store.ok)),
    },
    Metric {
        name: "pointsman_zones",
        help: "Zones.",
        kind: Kind::Gauge,
        labels: &[],
        read: |source, samples| samples.push([], source.status.counts.zones),
    },
    Metric {
        name: "pointsman_records",
        help: "Records of all zones.",
        kind: Kind::Gauge,
        labels: &[],
        read: |source, samples| samples.push([], source.status.counts.records),
    },
    Metric {
        name: "pointsman_regions",
        help: "Regions, without region 0.",
        kind: Kind::Gauge,
        labels: &[],
        read: |source, samples| samples.push([], source.status.counts.regions),
    },
    Metric {
        name: "pointsman_partitions",
        help: "Partitions.",
        kind: Kind::Gauge,
        labels: &[],
        read: |source, samples| samples.push([], source.status.counts.partitions),
    },
    Metric {
        name: "pointsman_policies",
        help: "Policies.",
        kind: Kind::Gauge,
        labels: &[],
        read: |source, samples| samples.push([], source.status.counts.policies),
    },
    Metric {
        name: "pointsman_names",
        help: "Names that policies serve.",
        kind: Kind::Gauge,
        labels: &[],
        read: |source, samples| samples.push([], source.status.counts.names),
    },
    Metric {
        name: "pointsman_servers",
        help: "Distinct servers of all policies.",
        kind: Kind::Gauge,
        labels: &[],
        read: |source, samples| samples.push([], source.status.counts.servers),
    },
    Metric {
        name: "pointsman_servers_down",
        help: "Servers that are down.",
        kind: Kind::Gauge,
        labels: &[],
        read: |source, samples| samples.push([], source.status.counts.servers_down),
    },
    Metric {
        name: "pointsman_queries_total",
        help: "Messages that came in over UDP, by worker.",
        kind: Kind::Counter,
        labels: &["worker"],
        read: |source, samples| samples.workers(source, |worker| &worker.queries),
    },
    Metric {
        name: "pointsman_batches_total",
        help: "Batches in which messages came in over UDP, by worker.",
        kind: Kind::Counter,
        labels: &["worker"],
        read: |source, samples| samples.workers(source, |worker| &worker.batches),
    },
    Metric {
        name: "pointsman_answers_total",
        help: "Answers over UDP, by the header's response code.",
        kind: Kind::Counter,
        labels: &["rcode"],
        read: |source, samples| {
            for (rcode, count) in source.metrics.answers() {
                samples.push([rcode], count);
            }
        },
    },
    Metric {
        name: "pointsman_truncated_total",
        help: "Answers over UDP with TC set.",
        kind: Kind::Counter,
        labels: &[],
        read: |source, samples| samples.push([], source.metrics.sum(|worker| &worker.truncated)),
    },
    Metric {
        name: "pointsman_dropped_total",
        help: "Messages over UDP that got no answer, by cause.",
        kind: Kind::Counter,
        labels: &["cause"],
        read: |source, samples| {
            for (cause, count) in source.metrics.dropped() {
                samples.push([cause.into()], count);
            }
        },
    },
    Metric {
        name: "pointsman_tcp_connections_total",
        help: "TCP connections that were accepted and served.",
        kind: Kind::Counter,
        labels: &[],
        read: |source, samples| samples.push([], source.metrics.tcp_sum(|tcp| &tcp.accepted)),
    },
    Metric {
        name: "pointsman_tcp_refused_total",
        help: "TCP connections that were not served, by cause.",
        kind: Kind::Counter,
        labels: &["cause"],
        read: |source, samples| {
            samples.push(["full".into()], source.metrics.tcp_sum(|tcp| &tcp.refused_full));
            samples.push(["per_client".into()], source.metrics.tcp_sum(|tcp| &tcp.refused_per_client));
            samples.push(["aborted".into()], source.metrics.tcp_sum(|tcp| &tcp.accept_aborted));
        },
    },
    Metric {
        name: "pointsman_tcp_accept_failed_total",
        help: "Times that the system had no descriptor or memory for a TCP connection.",
        kind: Kind::Counter,
        labels: &[],
        read: |source, samples| samples.push([], source.metrics.tcp_sum(|tcp| &tcp.accept_failed)),
    },
    Metric {
        name: "pointsman_tcp_queries_total",
        help: "Queries that came in over TCP.",
        kind: Kind::Counter,
        labels: &[],
        read: |source, samples| samples.push([], source.metrics.tcp_sum(|tcp| &tcp.queries)),
    },
    Metric {
        name: "pointsman_tcp_answers_total",
        help: "Answers over TCP.",
        kind: Kind::Counter,
        labels: &[],
        read: |source, samples| samples.push([], source.metrics.tcp_sum(|tcp| &tcp.answers)),
    },
    Metric {
        name: "pointsman_tcp_dropped_total",
        help: "Queries over TCP that got no answer.",
        kind: Kind::Counter,
        labels: &[],
        read: |source, samples| samples.push([], source.metrics.tcp_sum(|tcp| &tcp.drops)),
    },
    Metric {
        name: "pointsman_tcp_ended_total",
        help: "TCP connections that ended, by what ended them.",
        kind: Kind::Counter,
        labels: &["cause"],
        read: |source, samples| {
            let causes: [Cause<net::tcp::Counters, AtomicU64>; 10] = [
                ("handler", |tcp| &tcp.ended_by_handler),
                ("client", |tcp| &tcp.ended_by_client),
                ("cut_short", |tcp| &tcp.ended_cut_short),
                ("reset", |tcp| &tcp.ended_reset),
                ("idle", |tcp| &tcp.ended_idle),
                ("query_late", |tcp| &tcp.ended_query_late),
                ("answers_untaken", |tcp| &tcp.ended_answers_untaken),
                ("lifetime", |tcp| &tcp.ended_lifetime),
                ("shutdown", |tcp| &tcp.ended_by_shutdown),
                ("panicked", |tcp| &tcp.handler_panics),
            ];
            for (cause, counter) in causes {
                samples.push([cause.into()], source.metrics.tcp_sum(counter));
            }
        },
    },
];

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
    ([(CONTENT_TYPE, OPEN_METRICS)], text(&Source { status: &status, metrics: &http.metrics }))
}

impl Metrics {
    /// What the UDP workers counted, in sum.
    pub fn counters(&self) -> api::Counters {
        api::Counters {
            queries: self.sum(|worker| &worker.queries),
            answers: self.answers().filter(|(_, count)| *count > 0).collect(),
            dropped: self.dropped().map(|(cause, count)| (cause.into(), count)).collect(),
            truncated: self.sum(|worker| &worker.truncated),
        }
    }

    fn answers(&self) -> impl Iterator<Item = (String, u64)> {
        (0..crate::counters::RCODES).map(|code| {
            // Sixteen codes fit the header's four bits.
            let name = Rcode::checked_from_int(code as u8)
                .map_or_else(|| code.to_string(), |rcode| rcode.to_string());
            (name, self.sum(|worker| &worker.answers[code]))
        })
    }

    fn dropped(&self) -> impl Iterator<Item = (&'static str, u64)> {
        let causes: [Cause<Counters, Count>; 4] = [
            ("no_query", |worker| &worker.no_query),
            ("no_room", |worker| &worker.no_room),
            ("send_failed", |worker| &worker.send_failed),
            ("panicked", |worker| &worker.panicked),
        ];
        causes.into_iter().map(|(cause, count)| (cause, self.sum(count)))
    }

    fn sum(&self, count: impl Fn(&Counters) -> &Count) -> u64 {
        self.udp.iter().map(|worker| count(worker).get()).sum()
    }

    fn tcp_sum(&self, counter: fn(&net::tcp::Counters) -> &AtomicU64) -> u64 {
        self.tcp.iter().map(|tcp| counter(tcp).load(Ordering::Relaxed)).sum()
    }
}

impl Samples {
    fn push<const N: usize>(&mut self, labels: [String; N], value: u64) {
        self.0.push((labels.into(), value));
    }

    fn workers(&mut self, source: &Source<'_>, count: fn(&Counters) -> &Count) {
        for (number, worker) in source.metrics.udp.iter().enumerate() {
            self.push([number.to_string()], count(worker).get());
        }
    }
}

fn text(source: &Source<'_>) -> String {
    let scrape = |metric: &'static Metric| {
        let mut samples = Samples::default();
        (metric.read)(source, &mut samples);
        (metric, samples)
    };
    let mut registry = Registry::default();
    registry.register_collector(Box::new(Scrape(METRICS.iter().map(scrape).collect())));
    let mut text = String::new();
    prometheus_client::encoding::text::encode(&mut text, &registry)
        .expect("a string takes all that is written");
    text
}

/// What was read, to be written.
struct Scrape(Vec<(&'static Metric, Samples)>);

impl fmt::Debug for Scrape {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_list().entries(self.0.iter().map(|(metric, samples)| (metric.name, samples))).finish()
    }
}

impl Collector for Scrape {
    fn encode(&self, mut encoder: DescriptorEncoder<'_>) -> fmt::Result {
        for (metric, samples) in &self.0 {
            let (name, kind) = match metric.kind {
                // The encoder adds the suffix itself.
                Kind::Counter => (metric.name.trim_end_matches("_total"), MetricType::Counter),
                Kind::Gauge => (metric.name, MetricType::Gauge),
            };
            let mut family = encoder.encode_descriptor(name, metric.help, None, kind)?;
            for (values, value) in &samples.0 {
                if values.is_empty() {
                    // An empty set of labels would be written as `{}`; there is one sample without labels.
                    sample(metric.kind, *value, family)?;
                    break;
                }
                let labels: Vec<(&str, &str)> =
                    metric.labels.iter().copied().zip(values.iter().map(String::as_str)).collect();
                sample(metric.kind, *value, family.encode_family(&labels)?)?;
            }
        }
        Ok(())
    }
}

fn sample(kind: Kind, value: u64, encoder: MetricEncoder<'_>) -> fmt::Result {
    match kind {
        Kind::Counter => ConstCounter::new(value).encode(encoder),
        Kind::Gauge => ConstGauge::new(value).encode(encoder),
    }
}
