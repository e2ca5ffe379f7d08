//! `/metrics`: every number that is exported, declared once.

use axum::extract::State;
use axum::response::IntoResponse;
use web::metrics::{Kind, Samples};

use super::Face;
use crate::numbers::Numbers;

/// A number that is exported, and what reads it.
pub type Metric = web::metrics::Metric<fn(&Numbers, &mut Samples)>;

/// Everything that is exported.
pub const METRICS: &[Metric] = &[
    Metric {
        name: "pointsman_control_build_info",
        help: "Always 1; the label is the version of the program.",
        kind: Kind::Gauge,
        unit: "none",
        labels: &["version"],
        read: |_, samples| samples.push([env!("CARGO_PKG_VERSION").into()], 1),
    },
    Metric {
        name: "pointsman_control_uptime_seconds",
        help: "Seconds since start.",
        kind: Kind::Gauge,
        unit: "seconds",
        labels: &[],
        read: |numbers, samples| samples.push([], numbers.clock.now().monotonic.as_secs()),
    },
    Metric {
        name: "pointsman_control_rounds_total",
        help: "Rounds by outcome: installed, unchanged, dry_run, stood_back, overtaken (412), nothing (no such policy or \
               servers), refused or unreachable.",
        kind: Kind::Counter,
        unit: "rounds",
        labels: &["outcome"],
        read: |numbers, samples| {
            for (outcome, count) in numbers.rounds() {
                samples.push([outcome.into()], count);
            }
        },
    },
    Metric {
        name: "pointsman_control_readings_total",
        help: "Loads by source and by what became of them: measured, failed, absurd (negative or no number) or reported.",
        kind: Kind::Counter,
        unit: "readings",
        labels: &["source", "verdict"],
        read: |numbers, samples| {
            for (source, verdict, count) in numbers.readings() {
                samples.push([source.into(), verdict.into()], count);
            }
        },
    },
    Metric {
        name: "pointsman_control_installed_seconds",
        help: "When rows were last installed, in seconds since 1970; 0 for never.",
        kind: Kind::Gauge,
        unit: "seconds",
        labels: &[],
        read: |numbers, samples| samples.push([], numbers.installed()),
    },
    Metric {
        name: "pointsman_control_load_thousandths",
        help: "A server's load over its threshold, in thousandths: above 1000 it is overloaded. None where it is unknown.",
        kind: Kind::Gauge,
        unit: "thousandths",
        labels: &["server"],
        read: |numbers, samples| {
            for server in numbers.last().iter().flat_map(|round| &round.servers) {
                if let Some(load) = server.load {
                    samples.push([server.target.to_string()], (load * 1000.0).round() as u64);
                }
            }
        },
    },
    Metric {
        name: "pointsman_control_unknown_servers",
        help: "Servers whose load is unknown.",
        kind: Kind::Gauge,
        unit: "servers",
        labels: &[],
        read: |numbers, samples| {
            let last = numbers.last();
            let unknown = last.iter().flat_map(|round| &round.servers).filter(|server| server.load.is_none());
            samples.push([], unknown.count() as u64);
        },
    },
    Metric {
        name: "pointsman_control_http_responses_total",
        help: "Answers over HTTP by status.",
        kind: Kind::Counter,
        unit: "answers",
        labels: &["status"],
        read: |numbers, samples| {
            for (status, count) in numbers.http.responses() {
                samples.push([status.to_string()], count);
            }
        },
    },
];

/// Answers all of them.
pub(super) async fn metrics(State(face): State<Face>) -> impl IntoResponse {
    web::metrics::answer(web::metrics::text(METRICS, |read, samples| read(&face.numbers, samples)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_well_formed_and_told_once() {
        assert_eq!(web::metrics::faults("pointsman_control_", METRICS), [""; 0]);
    }

    #[test]
    fn the_page_is_as_the_metrics_are_declared() {
        let opening = "# Metrics of the control process\n\n\
             `GET /metrics` of `pointsman control`, at the address `listen` of its configuration, answers these numbers in\n\
             the OpenMetrics text format, which Prometheus reads.\n";
        ::tests::fresh::check("docs/reference/control-metrics.md", &web::metrics::page(opening, METRICS));
    }
}
