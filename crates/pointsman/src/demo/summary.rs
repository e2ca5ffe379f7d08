//! What is said when the demo ends, for people and as JSON.

use std::collections::VecDeque;
use std::fmt::Write as _;
use std::time::Duration;

use serde::Serialize;

use super::sample::{REGIONS, SITES};
use super::screen::{grouped, taken};
use super::watch::{Changed, Watch};

/// How the demo went.
#[derive(Debug, Serialize)]
pub(super) struct Summary {
    /// Whether nothing was wrong.
    pub(super) ok: bool,
    seconds: f64,
    queries: u64,
    answers: u64,
    lost: u64,
    wrong: u64,
    regions: Vec<Region>,
    changes: Vec<Row>,
    pub(super) faults: Vec<String>,
    /// How long the changes took, for people.
    #[serde(skip)]
    times: Option<String>,
}

/// A region's answers for which one policy alone was in force.
#[derive(Debug, Serialize)]
struct Region {
    region: &'static str,
    sites: Vec<Share>,
}

/// A site's part of a region's answers.
#[derive(Debug, Serialize)]
struct Share {
    site: &'static str,
    answers: u64,
    /// From 0 to 1.
    share: f64,
    /// The mean of the probabilities that were in force, from 0 to 1.
    probability: f64,
}

#[derive(Debug, Serialize)]
struct Row {
    at_seconds: f64,
    change: String,
    generation: u64,
    first_answer_ms: Option<f64>,
    returned_ms: Option<f64>,
}

impl Summary {
    /// Sums up what was watched for `time`.
    pub(super) fn new(watch: &Watch, time: Duration) -> Summary {
        let faults = watch.faults();
        let tally = &watch.tally;
        let regions = tally.shares().iter().enumerate().map(|(region, row)| {
            let total = row.iter().map(|cell| cell.seen).sum::<u64>().max(1) as f64;
            let sites = row.iter().enumerate().map(|(site, cell)| Share {
                site: SITES[site].name,
                answers: cell.seen,
                share: cell.seen as f64 / total,
                probability: cell.expected / total,
            });
            Region { region: REGIONS[region], sites: sites.collect() }
        });
        let ms = |time: Option<Duration>| time.map(|time| time.as_secs_f64() * 1_000.0);
        let changes = watch.changes.iter().map(|change| Row {
            at_seconds: change.at.as_secs_f64(),
            change: change.what.clone(),
            generation: change.generation,
            first_answer_ms: ms(change.first_answer),
            returned_ms: ms(change.returned),
        });
        Summary {
            ok: faults.is_empty(),
            seconds: time.as_secs_f64(),
            queries: tally.queries,
            answers: tally.answers,
            lost: tally.lost,
            wrong: tally.wrong,
            regions: regions.collect(),
            changes: changes.collect(),
            faults,
            times: times(&watch.changes),
        }
    }

    /// The summary for people.
    pub(super) fn text(&self) -> String {
        let mut text = format!(
            "in {:.1} s: {} queries, {} answers, {} lost, {} wrong\n\n",
            self.seconds,
            grouped(self.queries),
            grouped(self.answers),
            grouped(self.lost),
            grouped(self.wrong)
        );
        let _ = write!(text, "{:<16}", "answers in %");
        for site in SITES {
            let _ = write!(text, "{:<22}", site.name);
        }
        text.truncate(text.trim_end().len());
        text.push('\n');
        for Region { region, sites } in &self.regions {
            let _ = write!(text, "{region:<16}");
            for Share { share, probability, .. } in sites {
                let cell = format!("{:.1} (policy {:.1})", share * 100.0, probability * 100.0);
                let _ = write!(text, "{cell:<22}");
            }
            text.truncate(text.trim_end().len());
            text.push('\n');
        }
        text.push_str("policy: what the policies in force said, on average\n");
        if let Some(times) = &self.times {
            let _ = writeln!(text, "\n{times}");
        }
        text
    }
}

/// How long the changes took; `None` where there was none.
fn times(changes: &VecDeque<Changed>) -> Option<String> {
    let told: Vec<Duration> = changes.iter().filter_map(|change| change.first_answer).collect();
    let returned: Vec<Duration> = changes.iter().filter_map(|change| change.returned).collect();
    (!changes.is_empty()).then(|| {
        format!(
            "changes in an answer  {} of {}, {}\ncalls returned        {}",
            told.len(),
            changes.len(),
            spread(told),
            spread(returned),
        )
    })
}

/// The median and the longest of some times since calls began.
fn spread(mut times: Vec<Duration>) -> String {
    times.sort_unstable();
    let median = times.get(times.len() / 2).copied();
    format!("after a median of {} (at most {})", taken(median), taken(times.last().copied()))
}

#[cfg(test)]
mod tests {
    use super::super::in_force::InForce;
    use super::super::sample::{NEAREST, SCRIPT};
    use super::*;

    fn watch() -> Watch {
        let in_force = InForce { matrix: &NEAREST, down: [false; SITES.len()] };
        let mut watch = Watch::new(in_force, 5, Default::default(), fastrand::Rng::with_seed(0));
        watch.tally.queries = 1_000;
        watch.tally.answers = 1_000;
        for (region, row) in [[79, 21, 0], [20, 80, 0], [0, 0, 100], [41, 39, 20]].iter().enumerate() {
            for (site, count) in row.iter().enumerate() {
                (0..*count).for_each(|_| watch.tally.judged(&in_force, region, site));
            }
        }
        for (change, ms) in SCRIPT.iter().zip([4, 9, 3]) {
            watch.begin(Duration::from_secs(1), change);
            watch.returned(Duration::from_millis(1_010), watch.generation + 1);
            watch.changes.back_mut().expect("it was begun").first_answer = Some(Duration::from_millis(ms));
        }
        watch
    }

    #[test]
    fn for_people() {
        let summary = Summary::new(&watch(), Duration::from_millis(10_040));
        assert!(summary.ok, "{:?}", summary.faults);
        let expected = "\
in 10.0 s: 1,000 queries, 1,000 answers, 0 lost, 0 wrong

answers in %    frankfurt             new-york              singapore
europe          79.0 (policy 80.0)    21.0 (policy 20.0)    0.0 (policy 0.0)
americas        20.0 (policy 20.0)    80.0 (policy 80.0)    0.0 (policy 0.0)
asia            0.0 (policy 0.0)      0.0 (policy 0.0)      100.0 (policy 100.0)
unclassified    41.0 (policy 40.0)    39.0 (policy 40.0)    20.0 (policy 20.0)
policy: what the policies in force said, on average

changes in an answer  3 of 3, after a median of 4.0 ms (at most 9.0 ms)
calls returned        after a median of 10.0 ms (at most 10.0 ms)
";
        assert_eq!(summary.text(), expected);
    }

    #[test]
    fn as_json() {
        let mut watch = watch();
        watch.fault("it rained".into());
        let summary = Summary::new(&watch, Duration::from_secs(10));
        let json = serde_json::to_value(&summary).expect("a summary has a JSON form");
        assert_eq!(json["ok"], false);
        assert_eq!(json["faults"], serde_json::json!(["it rained"]));
        assert_eq!(json["regions"][0]["sites"][0]["share"], 0.79);
        assert_eq!(json["changes"][1]["first_answer_ms"], 9.0);
        assert_eq!(json["changes"][1]["change"], "policy: nearest site");
    }
}
