//! `pointsman balance status`: how a running balancer and its back ends are doing.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::io::{self, IsTerminal};
use std::ops::RangeInclusive;
use std::time::Duration;

use api::{BackEndStatus, BalanceStatus, CacheStatus, RuleStatus};
use clap::Args;
use comfy_table::Table;

use super::Connection;
use crate::command::status::uptime;
use crate::config::kind;
use crate::failure::Failure;
use crate::session;
use crate::terminal;

/// What clears a terminal and begins at its top (ECMA-48).
const CLEAR: &str = "\x1b[H\x1b[2J";

/// How far apart looks may be: nobody reads faster, and the balancer has other things to do.
const WATCH: RangeInclusive<Duration> = Duration::from_millis(100)..=Duration::from_secs(24 * 3_600);

/// The arguments of `balance status`.
#[derive(Args, Debug)]
pub(super) struct Status {
    #[command(flatten)]
    connection: Connection,
    /// Print it again and again, so far apart: 100ms at least
    #[arg(long, value_name = "TIME", value_parser = watch)]
    watch: Option<Duration>,
}

impl Status {
    /// Asks the balancer how it is doing and prints that, once or again and again.
    ///
    /// # Errors
    /// [`Failure`].
    pub(super) async fn run(self) -> Result<(), Failure> {
        let session = self.connection.begin()?;
        let is_picture = self.watch.is_some() && terminal::takes_pictures(io::stdout().is_terminal());
        // In a pipe a line is left between one look and the next.
        let mut before = "";
        loop {
            let told = |status| match is_picture {
                true => picture(&shown(status), terminal::size()),
                false => before.to_owned() + &fitted(shown(status)),
            };
            session.look("/v1/status", told).await?;
            let Some(wait) = self.watch else { return Ok(()) };
            tokio::time::sleep(wait).await;
            before = "\n";
        }
    }
}

/// A text as stdout has room for it: on a terminal the ends of long lines are left out, elsewhere it is whole.
pub(super) fn fitted(text: String) -> String {
    if io::stdout().is_terminal() { narrow(&text, terminal::size().0) } else { text }
}

/// A text on a terminal that is cleared before; what it has no room for is left out.
fn picture(text: &str, (columns, rows): (usize, usize)) -> String {
    // The cursor needs a line, too.
    let lines: Vec<&str> = text.lines().take(rows.saturating_sub(1)).collect();
    CLEAR.to_owned() + &narrow(&lines.join("\n"), columns)
}

/// A text whose lines have so many columns at most.
fn narrow(text: &str, columns: usize) -> String {
    let lines: Vec<&str> = text.lines().map(|line| terminal::cut(line, columns)).collect();
    lines.join("\n")
}

/// Reads how far apart looks are.
fn watch(text: &str) -> Result<Duration, String> {
    kind::time_within(text, &WATCH)
}

fn shown(status: BalanceStatus) -> String {
    let mut text = String::new();
    let mut line = |name: &str, value: String| {
        // Writing to a String cannot fail.
        let _ = writeln!(text, "{name:<15}{value}");
    };
    line("version", status.version);
    line("up for", uptime(status.uptime_seconds));
    line("listening", status.listening.join(", "));
    line("policy", status.policy + &steps(&status.steps));
    line("queries", status.queries.to_string());
    line("answers", status.answers.to_string());
    line("failed", format!("{}, {} shed, {} sent again", status.failed, status.shed, status.retries));
    line("turned away", status.turned_away.to_string());
    if let Some(cache) = status.cache {
        line("cache", cached(&cache));
    }
    if !status.rules.is_empty() {
        text.push('\n');
        text += &session::lines(rules(&status.rules));
        text.push('\n');
    }
    text.push('\n');
    text + &table(&status.back_ends)
}

/// The rules, a line each.
fn rules(rules: &[RuleStatus]) -> Table {
    let mut table = session::table(&["RULE", "QUERIES", "BECOMES"]);
    for RuleStatus { name, pool, answer, met } in rules {
        let becomes = pool.as_ref().map(|pool| format!("of the pool {pool}"));
        table.add_row([
            name.clone(),
            met.to_string(),
            becomes.or_else(|| answer.clone()).unwrap_or_default(),
        ]);
    }
    table
}

/// What the threads go by, and how many where they differ.
fn steps(steps: &BTreeMap<String, u64>) -> String {
    let told = steps.iter().map(|(step, threads)| match (step.replace('_', " "), threads) {
        (step, _) if steps.len() == 1 => step,
        (step, 1) => format!("{step} (1 thread)"),
        (step, threads) => format!("{step} ({threads} threads)"),
    });
    let told: Vec<String> = told.collect();
    if told.is_empty() { String::new() } else { format!(", at the step {}", told.join(", ")) }
}

/// How much of what may come from the cache does.
fn cached(cache: &CacheStatus) -> String {
    let CacheStatus { entries, hits, misses, failures, stale, pushed_out } = cache;
    let asked = (hits + misses).max(1);
    let share = *hits as f64 / asked as f64 * 100.0;
    format!(
        "{hits} hits ({share:.1} %), {failures} by failures, {stale} stale; {entries} kept, {pushed_out} pushed out while fresh"
    )
}

/// The back ends, a line each.
pub(super) fn table(back_ends: &[BackEndStatus]) -> String {
    // Where all are in one pool, nobody asks which.
    let is_split = back_ends.windows(2).any(|both| both[0].pools != both[1].pools);
    let pools = is_split.then_some("POOLS");
    let is_encrypted = back_ends.iter().any(|back_end| back_end.tls.is_some());
    let tls = is_encrypted.then_some("TLS");
    let headings = ["BACK END", "STANDING"].into_iter().chain(tls).chain(pools).chain([
        "SHARE",
        "SENT",
        "ANSWERED",
        "ERRORS",
        "TIMEOUTS",
        "UNREACHED",
        "IN FLIGHT",
        "CREDIT",
        "QUEUE",
        "MEAN",
    ]);
    let mut table = session::table(&headings.collect::<Vec<_>>());
    let ms = |value: Option<f64>| value.map_or_else(|| "-".into(), |value| format!("{value:.1} ms"));
    for back_end in back_ends {
        let standing = match (back_end.standing.as_str(), back_end.turns) {
            // Who is not up has none at all.
            ("up", turns) if turns < 1.0 => format!("up, {:.0} % of its turns", turns * 100.0),
            (standing, _) => standing.to_owned(),
        };
        let pools = is_split.then(|| back_end.pools.join(", "));
        let tls = is_encrypted.then(|| back_end.tls.clone().unwrap_or_else(|| "-".into()));
        table.add_row([back_end.address.clone(), standing].into_iter().chain(tls).chain(pools).chain([
            format!("{:.1} %", back_end.share * 100.0),
            back_end.sent.to_string(),
            back_end.answered.to_string(),
            back_end.failures.to_string(),
            back_end.timeouts.to_string(),
            back_end.unreached.to_string(),
            back_end.in_flight.to_string(),
            back_end.credit.map_or_else(|| "-".into(), |credit| credit.to_string()),
            ms(back_end.queue_delay_milliseconds),
            ms(back_end.mean_milliseconds),
        ]));
    }
    let mut text = session::lines(table);
    for back_end in back_ends.iter().filter(|back_end| back_end.unsigned > 0) {
        // Writing to a String cannot fail.
        let _ = write!(text, "\n{}: reports with another key: {}", back_end.address, back_end.unsigned);
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nobody_watches_without_a_pause() {
        for (text, expected) in [("0s", None), ("99ms", None), ("100ms", Some(100)), ("2s", Some(2_000))] {
            assert_eq!(watch(text).ok(), expected.map(Duration::from_millis), "{text}");
        }
    }

    #[test]
    fn a_picture_is_no_larger_than_its_terminal() {
        let text = "one line\nanother\na third\n";
        for (size, expected) in
            [((80, 24), "one line\nanother\na third"), ((4, 3), "one \nanot"), ((0, 0), "")]
        {
            assert_eq!(picture(text, size), format!("{CLEAR}{expected}"));
        }
    }

    #[test]
    fn steps_and_back_ends_are_shown() {
        let status = BalanceStatus {
            policy: "pressure".into(),
            steps: [("two_choices".into(), 3)].into(),
            back_ends: vec![BackEndStatus {
                address: "192.0.2.1:53".into(),
                standing: "up".into(),
                turns: 0.25,
                share: 0.5,
                credit: Some(7),
                mean_milliseconds: Some(1.25),
                ..BackEndStatus::default()
            }],
            ..BalanceStatus::default()
        };
        let text = shown(status);
        assert!(text.contains("policy         pressure, at the step two choices\n"), "{text}");
        let last = text.lines().last().expect("a line");
        let several = [("credit".into(), 1), ("latency".into(), 2)].into();
        assert_eq!(steps(&several), ", at the step credit (1 thread), latency (2 threads)");
        let wrong = BackEndStatus { address: "192.0.2.2:53".into(), unsigned: 3, ..BackEndStatus::default() };
        assert!(table(&[wrong]).ends_with("\n192.0.2.2:53: reports with another key: 3"));
        let of_pool = |pool: &str| BackEndStatus { pools: vec![pool.into()], ..BackEndStatus::default() };
        assert!(!table(&[of_pool("default"), of_pool("default")]).contains("POOLS"));
        assert!(table(&[of_pool("default"), of_pool("corp")]).contains("corp"));
        let down = BackEndStatus { standing: "down".into(), turns: 0.25, ..BackEndStatus::default() };
        assert!(!table(&[down]).contains("of its turns"), "it has none");
        for part in ["192.0.2.1:53", "up, 25 % of its turns", "50.0 %", " 7 ", "1.2 ms"] {
            assert!(last.contains(part), "{last}");
        }
    }
}
