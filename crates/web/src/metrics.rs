//! Numbers that are exported, declared once: for Prometheus, and for a page of the documentation.

use std::collections::HashSet;
use std::fmt;

use axum::http::header::CONTENT_TYPE;
use axum::response::IntoResponse;
use net::histogram::Histogram as Observed;
use prometheus_client::collector::Collector;
use prometheus_client::encoding::{DescriptorEncoder, EncodeMetric, MetricEncoder, NoLabelSet};
use prometheus_client::metrics::MetricType;
use prometheus_client::metrics::counter::ConstCounter;
use prometheus_client::metrics::gauge::ConstGauge;
use prometheus_client::registry::Registry;

/// The type of what [`answer`] answers (OpenMetrics 1.0).
const OPEN_METRICS: &str = "application/openmetrics-text; version=1.0.0; charset=utf-8";

/// A number that is exported: its declaration, and where it comes from.
pub struct Metric<R> {
    /// Its name as it is scraped.
    pub name: &'static str,
    /// What it says, in one sentence.
    pub help: &'static str,
    /// Whether it grows, goes up and down, or is a histogram.
    pub kind: Kind,
    /// What its values are numbers of.
    pub unit: &'static str,
    /// Its labels, where it has some.
    pub labels: &'static [&'static str],
    /// Where it comes from: a function of what is scraped into [`Samples`].
    pub read: R,
}

/// How a number behaves.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// It grows from 0 at start; the name ends in `_total`.
    Counter,
    /// It goes up and down.
    Gauge,
    /// Counts by upper bounds, each growing from 0 at start, with their sum.
    Histogram,
}

/// What is read of one metric.
#[derive(Debug, Default)]
pub struct Samples {
    /// Values with those of their labels, in the order of [`Metric::labels`].
    values: Vec<(Vec<String>, u64)>,
    histograms: Vec<Histogram>,
}

#[derive(Debug)]
struct Histogram {
    /// The values of its labels, in the order of [`Metric::labels`].
    labels: Vec<String>,
    sum: f64,
    /// Upper bounds with their counts.
    buckets: Vec<(f64, u64)>,
}

impl Samples {
    /// Adds a value, with those of its labels.
    pub fn push<const N: usize>(&mut self, labels: [String; N], value: u64) {
        self.values.push((labels.into(), value));
    }

    /// Adds a histogram: the values of its labels, the sum, and the counts by upper bounds.
    pub fn histogram<const N: usize>(&mut self, labels: [String; N], sum: f64, buckets: Vec<(f64, u64)>) {
        self.histograms.push(Histogram { labels: labels.into(), sum, buckets });
    }

    /// Adds what was observed, of several histograms with the same bounds together; so many of their unit are one of the
    /// metric's.
    pub fn observed<'a>(&mut self, all: impl IntoIterator<Item = &'a Observed>, unit: f64) {
        let (mut sum, mut buckets) = (0, Vec::<(f64, u64)>::new());
        for one in all {
            sum += one.sum();
            for (index, (bound, count)) in one.cells().enumerate() {
                match buckets.get_mut(index) {
                    Some((_, bucket)) => *bucket += count,
                    None => buckets.push((bound.map_or(f64::INFINITY, |bound| bound as f64 / unit), count)),
                }
            }
        }
        self.histogram([], sum as f64 / unit, buckets);
    }
}

/// All numbers in the OpenMetrics text format; `scrape` calls what reads one.
pub fn text<R>(metrics: &'static [Metric<R>], mut scrape: impl FnMut(&R, &mut Samples)) -> String {
    let read = |metric: &'static Metric<R>| {
        let mut samples = Samples::default();
        scrape(&metric.read, &mut samples);
        let Metric { name, help, kind, labels, .. } = *metric;
        Scraped { name, help, kind, labels, samples }
    };
    let mut registry = Registry::default();
    registry.register_collector(Box::new(Scrape(metrics.iter().map(read).collect())));
    let mut text = String::new();
    prometheus_client::encoding::text::encode(&mut text, &registry)
        .expect("a string takes all that is written");
    text
}

/// What `/metrics` answers.
pub fn answer(text: String) -> impl IntoResponse {
    ([(CONTENT_TYPE, OPEN_METRICS)], text)
}

/// The names of metrics that are not declared as all are: told once, beginning with `prefix`, a counter's ending in
/// `_total`, with a help that is a sentence.
pub fn faults<R>(prefix: &str, metrics: &[Metric<R>]) -> Vec<&'static str> {
    let mut seen = HashSet::new();
    let is_faulty = |metric: &&Metric<R>| {
        let is_first = seen.insert(metric.name);
        let ends_as_counted = metric.name.ends_with("_total") == (metric.kind == Kind::Counter);
        !(is_first && ends_as_counted && metric.name.starts_with(prefix) && metric.help.ends_with('.'))
    };
    metrics.iter().filter(is_faulty).map(|metric| metric.name).collect()
}

/// A page of the documentation: `opening`, and a line for each number.
pub fn page<R>(opening: &str, metrics: &[Metric<R>]) -> String {
    let mut text = format!(
        "{opening}\nThis page is written from the declarations of the metrics.\n\n\
         | metric | type | unit | labels | meaning |\n|---|---|---|---|---|\n"
    );
    for metric in metrics {
        let kind = match metric.kind {
            Kind::Counter => "counter",
            Kind::Gauge => "gauge",
            Kind::Histogram => "histogram",
        };
        let labels: Vec<String> = metric.labels.iter().map(|label| format!("`{label}`")).collect();
        let (name, unit, labels, help) = (metric.name, metric.unit, labels.join(", "), metric.help);
        text += &format!("| `{name}` | {kind} | {unit} | {labels} | {help} |\n");
    }
    text
}

#[derive(Debug)]
struct Scraped {
    name: &'static str,
    help: &'static str,
    kind: Kind,
    labels: &'static [&'static str],
    samples: Samples,
}

/// What was read, to be written.
#[derive(Debug)]
struct Scrape(Vec<Scraped>);

impl Collector for Scrape {
    fn encode(&self, mut encoder: DescriptorEncoder<'_>) -> fmt::Result {
        for metric in &self.0 {
            let samples = &metric.samples;
            let (name, kind) = match metric.kind {
                // The encoder adds the suffix itself.
                Kind::Counter => (metric.name.trim_end_matches("_total"), MetricType::Counter),
                Kind::Gauge => (metric.name, MetricType::Gauge),
                Kind::Histogram => (metric.name, MetricType::Histogram),
            };
            let mut family = encoder.encode_descriptor(name, metric.help, None, kind)?;
            for Histogram { labels: values, sum, buckets } in &samples.histograms {
                let count = buckets.iter().map(|(_, count)| count).sum();
                if values.is_empty() {
                    family.encode_histogram::<NoLabelSet>(*sum, count, buckets, None)?;
                    break;
                }
                let labels = labels(metric, values);
                family.encode_family(&labels)?.encode_histogram::<NoLabelSet>(*sum, count, buckets, None)?;
            }
            for (values, value) in &samples.values {
                if values.is_empty() {
                    // An empty set of labels would be written as `{}`; there is one sample without labels.
                    sample(metric.kind, *value, family)?;
                    break;
                }
                sample(metric.kind, *value, family.encode_family(&labels(metric, values))?)?;
            }
        }
        Ok(())
    }
}

fn labels<'a>(metric: &Scraped, values: &'a [String]) -> Vec<(&'static str, &'a str)> {
    metric.labels.iter().copied().zip(values.iter().map(String::as_str)).collect()
}

fn sample(kind: Kind, value: u64, encoder: MetricEncoder<'_>) -> fmt::Result {
    match kind {
        Kind::Counter => ConstCounter::new(value).encode(encoder),
        Kind::Gauge | Kind::Histogram => ConstGauge::new(value).encode(encoder),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_not_declared_as_all_are_is_found() {
        let metric = |name, help, kind| Metric { name, help, kind, unit: "", labels: &[], read: () };
        let good = metric("our_queries_total", "Queries.", Kind::Counter);
        assert_eq!(faults("our_", &[good]), [""; 0]);
        let metrics = [
            metric("our_queue", "Queries that wait.", Kind::Gauge),
            metric("our_queue", "Queries that wait.", Kind::Gauge),
            metric("our_answers", "Answers.", Kind::Counter),
            metric("our_age_total", "Age.", Kind::Gauge),
            metric("their_queue", "Queries that wait.", Kind::Gauge),
            metric("our_size", "no sentence", Kind::Gauge),
        ];
        let found = ["our_queue", "our_answers", "our_age_total", "their_queue", "our_size"];
        assert_eq!(faults("our_", &metrics), found);
    }
}
