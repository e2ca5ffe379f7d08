//! What a run tells: tables for people, and the same as JSON.

use std::fmt::Write as _;
use std::fs;

use anyhow::{Context, Result};
pub(crate) use experiments::limit::Limit;
use experiments::quantiles;
use serde_json::{Value, json};

use crate::machine::{self, Stolen};

/// Tables, and the targets with what was found.
pub(crate) struct Report {
    command: String,
    seed: u64,
    machine: Vec<(&'static str, String)>,
    stolen: Stolen,
    versions: Vec<(String, String)>,
    tables: Vec<Table>,
    musts: Vec<Must>,
    notes: Vec<String>,
    pictures: Vec<(String, String)>,
}

/// A table; each cell is a text that reads well.
pub(crate) struct Table {
    pub(crate) title: &'static str,
    pub(crate) head: &'static [&'static str],
    pub(crate) rows: Vec<Vec<String>>,
}

/// A target: what was found must not pass the limit.
pub(crate) struct Must {
    pub(crate) what: String,
    pub(crate) limit: Limit,
    /// `None` where it was not measured in this run.
    pub(crate) value: Option<f64>,
}

impl Must {
    /// Whether it holds; `None` where it was not measured.
    pub(crate) fn holds(&self) -> Option<bool> {
        self.value.map(|value| self.limit.holds(value))
    }

    fn cells(&self) -> Vec<String> {
        let value = self.value.map_or("not measured".to_owned(), |value| format!("{value:.3}"));
        let holds = match self.holds() {
            Some(true) => "yes",
            Some(false) => "NO",
            None => "-",
        };
        vec![self.what.clone(), self.limit.to_string(), value, holds.to_owned()]
    }
}

impl Report {
    /// An empty report of a run with these arguments.
    pub(crate) fn new(words: &[String], seed: u64) -> Report {
        Report {
            command: format!("cargo xtask bench {}", words.join(" ")),
            seed,
            machine: machine::description(("compiler", machine::said("rustc", &["--version"]))),
            stolen: Stolen::begin(),
            versions: Vec::new(),
            tables: Vec::new(),
            musts: Vec::new(),
            notes: Vec::new(),
            pictures: Vec::new(),
        }
    }

    /// The run ends now.
    pub(crate) fn end(&mut self) {
        self.machine.push(self.stolen.told());
    }

    pub(crate) fn version(&mut self, program: &str, version: String) {
        self.versions.push((program.to_owned(), version));
    }

    pub(crate) fn add(&mut self, table: Table) {
        self.tables.push(table);
    }

    pub(crate) fn must(&mut self, what: impl Into<String>, limit: Limit, value: Option<f64>) {
        self.musts.push(Must { what: what.into(), limit, value });
    }

    pub(crate) fn note(&mut self, note: impl Into<String>) {
        self.notes.push(note.into());
    }

    /// A picture, kept beside the report under this name.
    pub(crate) fn picture(&mut self, name: &str, text: String) {
        self.pictures.push((name.to_owned(), text));
    }

    /// The report as Markdown.
    pub(crate) fn table(&self) -> String {
        let mut text = format!("# `{}`\n\nSeed {}.\n", self.command, self.seed);
        for (what, value) in &self.machine {
            let _ = writeln!(text, "- {what}: {value}");
        }
        for (program, version) in &self.versions {
            let _ = writeln!(text, "- {program}: {version}");
        }
        for table in &self.tables {
            write(&mut text, table.title, table.head, &table.rows);
        }
        let musts: Vec<Vec<String>> = self.musts.iter().map(Must::cells).collect();
        write(&mut text, "Targets", &["must", "limit", "value", "holds"], &musts);
        for note in &self.notes {
            let _ = write!(text, "\n{note}\n");
        }
        text
    }

    /// Writes the report into a folder of its own under `benches/runs`; a run of some parts into one of theirs.
    ///
    /// # Errors
    /// Where it cannot be written.
    pub(crate) fn keep(&self) -> Result<()> {
        let mut words = self.command.split(' ').skip(3);
        let mut what = words.next().unwrap_or("run").to_owned();
        if let Some(parts) = words.skip_while(|word| *word != "--only").nth(1) {
            what = format!("{what}-{}", parts.replace(',', "-"));
        }
        let date = machine::said("date", &["-u", "+%Y-%m-%d"]);
        let folder = machine::root().join(format!("benches/runs/{date}-{}-{what}", machine::name()));
        fs::create_dir_all(&folder).with_context(|| format!("{}", folder.display()))?;
        for (name, text) in &self.pictures {
            fs::write(folder.join(name), text).with_context(|| name.clone())?;
        }
        fs::write(folder.join("table.md"), self.table()).context("table.md")?;
        let text = serde_json::to_string_pretty(&self.json()).expect("plain values");
        fs::write(folder.join("report.json"), text + "\n").context("report.json")?;
        println!("\nkept in {}", folder.display());
        Ok(())
    }

    fn json(&self) -> Value {
        let pairs = |pairs: &mut dyn Iterator<Item = (&str, &str)>| -> Value {
            pairs
                .map(|(name, value)| (name.to_owned(), json!(value)))
                .collect::<serde_json::Map<_, _>>()
                .into()
        };
        let tables = self
            .tables
            .iter()
            .map(|table| json!({"title": table.title, "head": table.head, "rows": table.rows}));
        let musts = self.musts.iter().map(|must| {
            json!({
                "must": must.what,
                "limit": must.limit.to_string(),
                "value": must.value,
                "holds": must.holds(),
            })
        });
        json!({
            "command": self.command,
            "seed": self.seed,
            "machine": pairs(&mut self.machine.iter().map(|(name, value)| (*name, value.as_str()))),
            "versions": pairs(&mut self.versions.iter().map(|(name, value)| (name.as_str(), value.as_str()))),
            "tables": tables.collect::<Vec<_>>(),
            "must": musts.collect::<Vec<_>>(),
            "notes": self.notes,
        })
    }
}

/// The median of values in any order; `None` of nothing.
pub(crate) fn median(values: &[f64]) -> Option<f64> {
    quantiles::median(&ascending(values))
}

/// The one of values in any order that this share of them does not pass; `None` of nothing.
pub(crate) fn quantile(values: &[f64], share: f64) -> Option<f64> {
    quantiles::quantile(&ascending(values), share)
}

fn ascending(values: &[f64]) -> Vec<f64> {
    let mut sorted = values.to_vec();
    sorted.sort_by(f64::total_cmp);
    sorted
}

fn write(text: &mut String, title: &str, head: &[&str], rows: &[Vec<String>]) {
    if rows.is_empty() {
        return;
    }
    let _ = write!(text, "\n## {title}\n\n| {} |\n|{}\n", head.join(" | "), "---|".repeat(head.len()));
    for row in rows {
        let _ = writeln!(text, "| {} |", row.join(" | "));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn values_may_come_in_any_order() {
        assert_eq!(median(&[4.0, 1.0, 2.0, 3.0]), Some(2.5));
        assert_eq!(quantile(&[5.0, 1.0, 4.0, 2.0, 3.0], 0.5), Some(3.0));
    }
}
