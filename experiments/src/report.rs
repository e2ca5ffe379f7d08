//! What a run tells: text, values, plots, and what must hold.

use std::fmt::Write as _;
use std::time::{Duration, Instant};

use replay::plot::Plot;
use serde_json::{Map, Value, json};

use crate::machine::{self, Stolen};
use crate::options::Run;
pub(crate) use experiments::limit::{Limit, number};

/// A report that is being written.
pub(crate) struct Report {
    name: &'static str,
    about: &'static str,
    size: &'static str,
    seed: u64,
    command: String,
    machine: Vec<(&'static str, String)>,
    stolen: Stolen,
    began: Instant,
    took: Duration,
    must: Vec<Must>,
    parts: Vec<Part>,
}

/// A part of a report, in reading order.
pub(crate) enum Part {
    /// The beginning of a section.
    Heading(String),
    /// A paragraph.
    Text(String),
    /// A drawing, and what it shows.
    Plot(String, Plot),
    /// Rows of cells, as text.
    Table(Table),
}

/// A table.
pub(crate) struct Table {
    /// What it shows.
    pub(crate) title: String,
    /// The head of each column.
    pub(crate) head: Vec<String>,
    /// Its rows.
    pub(crate) rows: Vec<Vec<String>>,
}

/// A target: a value, and the limit that it is held to.
pub(crate) struct Must {
    pub(crate) name: String,
    pub(crate) limit: Limit,
    pub(crate) value: f64,
}

impl Must {
    /// Whether the target holds.
    pub(crate) fn holds(&self) -> bool {
        self.limit.holds(self.value)
    }
}

impl Report {
    /// An empty report of a run that begins now.
    pub(crate) fn new(name: &'static str, about: &'static str, run: &Run, words: &[String]) -> Report {
        let built = if cfg!(debug_assertions) { "not optimised" } else { "optimised" };
        Report {
            name,
            about,
            size: run.size.word(),
            seed: run.seed,
            command: format!("cargo xtask experiment {}", words.join(" ")),
            machine: machine::description(("build", built.to_owned())),
            stolen: Stolen::begin(),
            began: Instant::now(),
            took: Duration::ZERO,
            must: Vec::new(),
            parts: Vec::new(),
        }
    }

    /// Begins a section.
    pub(crate) fn heading(&mut self, text: &str) {
        self.parts.push(Part::Heading(text.to_owned()));
    }

    /// Adds a paragraph.
    pub(crate) fn say(&mut self, text: &str) {
        self.parts.push(Part::Text(text.to_owned()));
    }

    /// Adds a drawing.
    pub(crate) fn plot(&mut self, title: impl Into<String>, plot: Plot) {
        self.parts.push(Part::Plot(title.into(), plot));
    }

    /// Adds a table.
    pub(crate) fn table(&mut self, title: &str, head: &[&str], rows: Vec<Vec<String>>) {
        let head = head.iter().map(|text| (*text).to_owned()).collect();
        self.parts.push(Part::Table(Table { title: title.to_owned(), head, rows }));
    }

    /// Says what must hold, and what was found.
    pub(crate) fn must(&mut self, name: impl Into<String>, limit: Limit, value: f64) {
        self.must.push(Must { name: name.into(), limit, value });
    }

    /// The run ends now.
    pub(crate) fn end(&mut self) {
        self.took = self.began.elapsed();
        self.machine.push(self.stolen.told());
    }

    /// Whether all holds that must.
    pub(crate) fn holds(&self) -> bool {
        self.must.iter().all(Must::holds)
    }

    /// The report as other programs read it.
    pub(crate) fn json(&self) -> Value {
        let must = self.must.iter().map(|must| {
            let (limit, holds) = (must.limit.to_string(), must.holds());
            json!({"name": must.name, "limit": limit, "value": must.value, "holds": holds})
        });
        let machine: Map<String, Value> =
            self.machine.iter().map(|(name, value)| ((*name).to_owned(), json!(value))).collect();
        json!({
            "experiment": self.name,
            "size": self.size,
            "command": self.command,
            "seed": self.seed,
            "machine": machine,
            "seconds": self.took.as_secs_f64(),
            "must": must.collect::<Vec<_>>(),
            "tables": self.parts.iter().filter_map(table).collect::<Vec<_>>(),
            "plots": self.parts.iter().filter_map(plot).collect::<Vec<_>>(),
        })
    }

    /// What must hold, for a terminal.
    pub(crate) fn told(&self) -> String {
        let mut text = String::new();
        for must in &self.must {
            let holds = if must.holds() { "holds" } else { "DOES NOT HOLD" };
            let _ = writeln!(text, "{:<60} {:>14}  {}: {holds}", must.name, number(must.value), must.limit);
        }
        let _ = writeln!(text, "{} {}: {:.1} s", self.name, self.size, self.took.as_secs_f64());
        text
    }

    /// The parts, in reading order.
    pub(crate) fn parts(&self) -> &[Part] {
        &self.parts
    }

    /// What must hold.
    pub(crate) fn musts(&self) -> &[Must] {
        &self.must
    }

    /// What was run on what, as pairs of a name and a value.
    pub(crate) fn facts(&self) -> Vec<(&'static str, String)> {
        let mut facts = vec![
            ("command", self.command.clone()),
            ("size", self.size.to_owned()),
            ("seed", self.seed.to_string()),
            ("seconds", format!("{:.1}", self.took.as_secs_f64())),
        ];
        facts.extend(self.machine.iter().cloned());
        facts
    }

    /// The experiment's name, and what it is of.
    pub(crate) fn title(&self) -> (&'static str, &'static str) {
        (self.name, self.about)
    }
}

fn table(part: &Part) -> Option<Value> {
    let Part::Table(Table { title, head, rows }) = part else { return None };
    Some(json!({"title": title, "head": head, "rows": rows}))
}

fn plot(part: &Part) -> Option<Value> {
    let Part::Plot(title, plot) = part else { return None };
    let line = |line: &replay::plot::Line| json!({"name": line.name, "points": line.points.iter().collect::<Vec<_>>()});
    let lines: Vec<Value> = plot.lines.iter().map(line).collect();
    Some(json!({"title": title, "across": plot.across.title, "up": plot.up.title, "lines": lines}))
}

#[cfg(test)]
impl Report {
    /// An empty report for tests, and a run of this size.
    pub(crate) fn of_a_test(size: crate::options::Size) -> (Run, Report) {
        let run = Run { size, seed: 3, folder: "nowhere".into(), only: Vec::new() };
        let report = Report::new("a-name", "What it is of.", &run, &["a-name".to_owned()]);
        (run, report)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::options::Size;

    #[test]
    fn one_that_does_not_hold_is_told_everywhere() {
        let (_, mut report) = Report::of_a_test(Size::Smoke);
        report.must("first", Limit::AtMost(2.0), 1.0);
        assert!(report.holds());
        report.must("second", Limit::AtMost(2.0), 3.0);
        assert!(!report.holds() && report.told().contains("DOES NOT HOLD"));
        let expected = json!([
            {"name": "first", "limit": "at most 2", "value": 1.0, "holds": true},
            {"name": "second", "limit": "at most 2", "value": 3.0, "holds": false},
        ]);
        assert_eq!(report.json()["must"], expected);
        assert!(crate::page::page(&report).contains("does not hold"));
    }
}
