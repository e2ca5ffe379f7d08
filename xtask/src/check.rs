//! The house rules behind `cargo xtask check`; nothing else about the sources is a gate.
//!
//! Every rule is tried, and everything that was found is told at the end with the way to mend it.

mod code_map;
mod dependencies;
mod floors;
mod sources;

use std::time::{Duration, Instant};

use anyhow::{Result, bail};

use crate::checkout::Checkout;

/// Formatting reads our own sources only.
const FORMAT_MAX: Duration = Duration::from_secs(60);
/// The lints analyse every third-party crate once: about a minute on two cores.
const LINTS_MAX: Duration = Duration::from_secs(600);
/// The docs reuse what the lints analysed.
const DOCS_MAX: Duration = Duration::from_secs(300);

/// The workspace's members beside the house, which is `crates`: none of it may depend on them.
const BESIDE: [&str; 5] = ["benches", "experiments", "fuzz", "tests", "xtask"];

/// Finds what is against one rule.
type Rule = fn(&Checkout) -> Result<Vec<Finding>>;

/// The rules and their names as printed, the quick ones first.
const RULES: &[(&str, Rule)] = &[
    ("names and markers", sources::find),
    ("dependencies", dependencies::find),
    ("floors", floors::find),
    ("code map", code_map::find),
    ("format", format),
    ("lints", lints),
    ("docs", docs),
];

/// Something against a rule, and the way to mend it.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Finding {
    what: String,
    mend: String,
}

impl Finding {
    fn new(what: impl Into<String>, mend: impl Into<String>) -> Self {
        Finding { what: what.into(), mend: mend.into() }
    }
}

/// Tries every rule and lists everything that was found.
///
/// # Errors
/// When anything was found, or a rule could not be tried.
pub(crate) fn run(checkout: &Checkout) -> Result<()> {
    let mut found = Vec::new();
    for (name, rule) in RULES {
        let start = Instant::now();
        let findings = rule(checkout).unwrap_or_else(|error| {
            vec![Finding::new(format!("the rule could not be tried: {error:#}"), "see what is printed above")]
        });
        let verdict = if findings.is_empty() { "ok" } else { "FAILED" };
        println!("check {name:<18} {verdict:<7} {:6.1} s", start.elapsed().as_secs_f64());
        found.extend(findings.into_iter().map(|finding| (*name, finding)));
    }
    if found.is_empty() {
        return Ok(());
    }
    println!();
    for (name, finding) in &found {
        println!("{name}: {}\n    to mend: {}", finding.what, finding.mend);
    }
    bail!(
        "check found {} to mend",
        if found.len() == 1 { "1 thing".into() } else { format!("{} things", found.len()) }
    )
}

fn format(checkout: &Checkout) -> Result<Vec<Finding>> {
    Ok(tool(checkout, &["fmt", "--all", "--check"], FORMAT_MAX, "cargo fmt --all"))
}

fn lints(checkout: &Checkout) -> Result<Vec<Finding>> {
    let arguments = ["clippy", "--workspace", "--all-targets", "--keep-going", "--", "-D", "warnings"];
    Ok(tool(checkout, &arguments, LINTS_MAX, "what clippy says above"))
}

fn docs(checkout: &Checkout) -> Result<Vec<Finding>> {
    let flags = r#"build.rustdocflags=["-Dwarnings"]"#;
    let arguments = ["doc", "--workspace", "--no-deps", "--keep-going", "--config", flags];
    Ok(tool(checkout, &arguments, DOCS_MAX, "what rustdoc says above"))
}

fn tool(checkout: &Checkout, arguments: &[&str], limit: Duration, mend: &str) -> Vec<Finding> {
    let failure = checkout.cargo(arguments, limit).err();
    failure
        .map(|failure| Finding::new(format!("cargo {} {failure}", arguments[0]), mend))
        .into_iter()
        .collect()
}
