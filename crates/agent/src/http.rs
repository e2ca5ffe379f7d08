//! HTTP: the status as JSON, and numbers for Prometheus.
//!
//! | request | answer |
//! |---|---|
//! | `GET /v1/health` | that it is alive; needs no token |
//! | `GET /v1/status` | how the agent is doing |
//! | `GET /metrics` | [`METRICS`] |
//!
//! Whoever carries the token may ask; where there is none, this machine alone.

use std::collections::BTreeMap;
use std::io;
use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use api::{AgentBalancer, AgentService};
use axum::extract::State;
use axum::response::IntoResponse;
use axum::routing::get;
use axum::{Json, Router};
use net::shutdown::Shutdown;
use web::metrics::{Kind, Samples};

use crate::run::{Counts, View};

/// A bound address that is served once [`Http::serve`] runs.
#[derive(Debug)]
pub struct Http {
    listener: tokio::net::TcpListener,
    address: SocketAddr,
}

impl Http {
    /// Binds the address; port 0 lets the system choose. Within the runtime that will serve.
    ///
    /// # Errors
    /// What the system says, with the address and how to go on.
    pub fn bind(address: SocketAddr) -> io::Result<Self> {
        let listener = net::tcp::bind(address)?;
        let address = listener.local_addr()?;
        let listener = tokio::net::TcpListener::from_std(listener)?;
        Ok(Self { listener, address })
    }

    /// Where it answers.
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// Serves until `shutdown` begins.
    ///
    /// With a `token`, every request but that for `/v1/health` must carry it. Without one, none may be asked by a page in
    /// somebody's browser.
    pub async fn serve(self, view: View, token: Option<String>, shutdown: Shutdown) {
        let counters = Arc::new(web::Counters::default());
        // Whoever has the token, or is on this machine, may ask: there is no list.
        web::serve(self.listener, router(view, token), |_| true, counters, shutdown).await;
    }
}

fn router(view: View, token: Option<String>) -> Router {
    let routes = Router::new()
        .route("/v1/health", get(health))
        .route("/v1/status", get(status))
        .route("/metrics", get(metrics));
    let routes = web::reply::refuse_others(routes, "/v1/health, /v1/status or /metrics");
    web::token::guarded(routes, token).with_state(view)
}

async fn health() -> impl IntoResponse {
    Json(BTreeMap::<&str, &str>::new())
}

async fn status(State(view): State<View>) -> impl IntoResponse {
    Json(view.status())
}

async fn metrics(State(view): State<View>) -> impl IntoResponse {
    let status = view.status();
    let seen = Seen { services: &status.services, uptime: status.uptime_seconds, counts: view.counts() };
    web::metrics::answer(web::metrics::text(METRICS, |read, samples| read(&seen, samples)))
}

/// What metrics are read from.
#[derive(Debug)]
pub struct Seen<'a> {
    services: &'a [AgentService],
    uptime: u64,
    counts: &'a Counts,
}

/// A number that is exported, and what reads it.
pub type Metric = web::metrics::Metric<fn(&Seen<'_>, &mut Samples)>;

const fn gauge(
    name: &'static str,
    help: &'static str,
    unit: &'static str,
    labels: &'static [&'static str],
    read: fn(&Seen<'_>, &mut Samples),
) -> Metric {
    Metric { name, help, kind: Kind::Gauge, unit, labels, read }
}

const fn counter(
    name: &'static str,
    help: &'static str,
    unit: &'static str,
    labels: &'static [&'static str],
    read: fn(&Seen<'_>, &mut Samples),
) -> Metric {
    Metric { name, help, kind: Kind::Counter, unit, labels, read }
}

const SERVICE: &[&str] = &["service"];
const BALANCER: &[&str] = &["service", "balancer"];

/// Everything that is exported.
pub const METRICS: &[Metric] = &[
    gauge(
        "pointsman_agent_build_info",
        "Always 1; the label is the version of the program.",
        "none",
        &["version"],
        |_, samples| samples.push([env!("CARGO_PKG_VERSION").into()], 1),
    ),
    gauge("pointsman_agent_uptime_seconds", "Seconds since start.", "seconds", &[], |seen, samples| {
        samples.push([], seen.uptime);
    }),
    gauge(
        "pointsman_agent_sockets",
        "Sockets of the service; 0 where it is not there.",
        "sockets",
        SERVICE,
        |seen, samples| seen.each(samples, |service| Some(service.sockets as u64)),
    ),
    gauge(
        "pointsman_agent_backlog",
        "Datagrams or connections that wait: the fullest queue times the number of sockets.",
        "datagrams or connections",
        SERVICE,
        |seen, samples| seen.each(samples, |service| Some(service.backlog)),
    ),
    gauge(
        "pointsman_agent_backlog_limit",
        "How many can wait.",
        "datagrams or connections",
        SERVICE,
        |seen, samples| seen.each(samples, |service| Some(service.backlog_limit)),
    ),
    gauge(
        "pointsman_agent_free",
        "How many more will not be turned away.",
        "datagrams or connections",
        SERVICE,
        |seen, samples| seen.each(samples, |service| Some(service.free)),
    ),
    gauge(
        "pointsman_agent_charge_octets",
        "Octets of the kernel's memory that a datagram takes, once that was learned.",
        "octets",
        SERVICE,
        |seen, samples| seen.each(samples, |service| service.charge_octets.map(u64::from)),
    ),
    gauge(
        "pointsman_agent_drain_rate",
        "Datagrams or connections that are taken in a second, once that was measured.",
        "datagrams or connections per second",
        SERVICE,
        |seen, samples| seen.each(samples, |service| service.drain_per_second),
    ),
    gauge(
        "pointsman_agent_queue_delay_microseconds",
        "How long the last in the queue will wait.",
        "microseconds",
        SERVICE,
        |seen, samples| seen.each(samples, |service| Some(service.queue_delay_us)),
    ),
    gauge(
        "pointsman_agent_quota_microseconds",
        "Processor time that the server may use in each period, where its control group has a quota.",
        "microseconds",
        SERVICE,
        |seen, samples| seen.each(samples, |service| service.quota.map(|quota| quota.quota_us)),
    ),
    gauge(
        "pointsman_agent_quota_period_microseconds",
        "From one refill of that quota to the next.",
        "microseconds",
        SERVICE,
        |seen, samples| seen.each(samples, |service| service.quota.map(|quota| quota.period_us)),
    ),
    gauge(
        "pointsman_agent_query_cost_nanoseconds",
        "Processor time that a query has cost lately, where the server has a quota.",
        "nanoseconds",
        SERVICE,
        |seen, samples| seen.each(samples, |service| service.quota.map(|quota| quota.cost_ns)),
    ),
    counter(
        "pointsman_agent_drops_total",
        "Datagrams or connections that the kernel has turned away.",
        "datagrams or connections",
        SERVICE,
        |seen, samples| seen.each(samples, |service| Some(service.drops)),
    ),
    gauge(
        "pointsman_agent_draining",
        "1 while the service takes no more.",
        "none",
        SERVICE,
        |seen, samples| seen.each(samples, |service| Some(service.draining.into())),
    ),
    gauge(
        "pointsman_agent_heard",
        "1 while a hello of the balancer is in force.",
        "none",
        BALANCER,
        |seen, samples| seen.links(samples, |link| link.heard.into()),
    ),
    gauge(
        "pointsman_agent_credit",
        "How many the balancer may send on top of what its last hello counts.",
        "queries or connections",
        BALANCER,
        |seen, samples| seen.links(samples, |link| link.credit),
    ),
    gauge(
        "pointsman_agent_demand",
        "Queries or connections that the balancer sends in a second, averaged.",
        "queries or connections per second",
        BALANCER,
        |seen, samples| seen.links(samples, |link| link.demand_per_second),
    ),
    counter(
        "pointsman_agent_reports_total",
        "Reports and introductions that were sent to the balancer.",
        "reports",
        BALANCER,
        |seen, samples| seen.links(samples, |link| link.reports),
    ),
    counter(
        "pointsman_agent_unsent_total",
        "Reports that the system did not take.",
        "reports",
        &[],
        |seen, samples| samples.push([], read(&seen.counts.unsent)),
    ),
    counter("pointsman_agent_hellos_total", "Hellos that counted.", "hellos", &[], |seen, samples| {
        samples.push([], read(&seen.counts.hellos));
    }),
    counter(
        "pointsman_agent_refused_total",
        "Datagrams that counted for nothing: of a stranger, of another length, unknown (protocol, version or kind), \
         unsigned, malformed, about an alien service, or old.",
        "datagrams",
        &["why"],
        |seen, samples| {
            let Counts { strangers, length, unknown, unsigned, malformed, alien, old, .. } = seen.counts;
            for (why, count) in [
                ("stranger", strangers),
                ("length", length),
                ("unknown", unknown),
                ("unsigned", unsigned),
                ("malformed", malformed),
                ("alien", alien),
                ("old", old),
            ] {
                samples.push([why.into()], read(count));
            }
        },
    ),
    counter(
        "pointsman_agent_looks_total",
        "Looks at queues: at all that the kernel tells, at duplicates of sockets alone, or refused.",
        "looks",
        &["kind"],
        |seen, samples| {
            let Counts { samples: whole, glances, failed, .. } = seen.counts;
            for (kind, count) in [("whole", whole), ("duplicate", glances), ("refused", failed)] {
                samples.push([kind.into()], read(count));
            }
        },
    ),
];

impl Seen<'_> {
    fn each(&self, samples: &mut Samples, read: impl Fn(&AgentService) -> Option<u64>) {
        for service in self.services {
            if let Some(value) = read(service) {
                samples.push([service.service.clone()], value);
            }
        }
    }

    fn links(&self, samples: &mut Samples, read: impl Fn(&AgentBalancer) -> u64) {
        for service in self.services {
            for link in &service.balancers {
                samples.push([service.service.clone(), link.address.clone()], read(link));
            }
        }
    }
}

fn read(count: &AtomicU64) -> u64 {
    count.load(Ordering::Relaxed)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_well_formed_and_told_once() {
        assert_eq!(web::metrics::faults("pointsman_agent_", METRICS), [""; 0]);
    }

    #[test]
    fn the_page_is_as_the_metrics_are_declared() {
        let opening = "# Metrics of the agent\n\n\
             `GET /metrics` of `pointsman agent --http ADDR` answers these numbers in the OpenMetrics text format, which\n\
             Prometheus reads. Counters begin at 0 with the process. Whoever carries the token of `--token-file` may ask; without\n\
             one, this machine alone.\n";
        ::tests::fresh::check("docs/reference/agent-metrics.md", &web::metrics::page(opening, METRICS));
    }
}
