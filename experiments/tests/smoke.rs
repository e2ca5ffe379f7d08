//! Each experiment in its smallest size, from the command line to its files.

use std::path::Path;
use std::process::{Command, Output};

use serde_json::Value;

fn experiments(words: &[&str]) -> Output {
    Command::new(env!("CARGO_BIN_EXE_experiments")).args(words).output().expect("the program starts")
}

/// Runs one and looks at what it wrote.
fn smoke(name: &str) {
    let folder = Path::new(env!("CARGO_TARGET_TMPDIR")).join(format!("smoke-{name}"));
    let output = experiments(&[name, "--smoke", "--report", folder.to_str().expect("a plain path")]);
    let told = String::from_utf8_lossy(&output.stdout);
    assert!(
        output.status.success(),
        "{name}: {}\n{told}{}",
        output.status,
        String::from_utf8_lossy(&output.stderr)
    );
    let json = std::fs::read_to_string(folder.join("report.json")).expect("it was written");
    let report: Value = serde_json::from_str(&json).expect("it is JSON");
    assert_eq!((report["experiment"].as_str(), report["size"].as_str()), (Some(name), Some("smoke")));
    let must = report["must"].as_array().expect("a list");
    assert!(!must.is_empty() && must.iter().all(|must| must["holds"] == true), "{must:?}");
    let page = std::fs::read_to_string(folder.join("index.html")).expect("it was written");
    assert!(page.contains("<svg") && page.contains("<polyline") && !page.contains("NaN"), "plots are drawn");
    let rest = page.replace("xmlns=\"http://www.w3.org/2000/svg\"", "");
    assert!(!rest.contains("http://") && !rest.contains("https://"), "it needs nothing else");
    let plot = std::fs::read_to_string(folder.join("plot-1.svg")).expect("it was written");
    assert!(plot.starts_with("<svg xmlns=") && page.contains(&plot), "each plot is a file, too");
    std::fs::remove_dir_all(folder).expect("it is ours");
}

#[test]
fn myxdns() {
    tests::program::path();
    smoke("myxdns");
}

#[test]
fn netairt() {
    // It starts the program that stands beside it, which must be there and of this source.
    tests::program::path();
    smoke("netairt");
}

#[test]
fn rapid_dns() {
    smoke("rapid-dns");
}

#[test]
fn salbnet() {
    // It starts the program that stands beside it, which must be there and of this source.
    tests::program::path();
    smoke("salbnet");
}

#[test]
fn servload() {
    smoke("servload");
}

#[test]
fn ldplayer() {
    // It starts the program that stands beside it, which must be there and of this source.
    tests::program::path();
    smoke("ldplayer");
}

#[test]
fn a_wrong_command_line_says_how_it_goes() {
    for (words, code) in [(&["servload", "--help"][..], 0), (&[][..], 2), (&["fly"][..], 2)] {
        let output = experiments(words);
        assert_eq!(output.status.code(), Some(code), "{words:?}");
        let told = [output.stdout, output.stderr].concat();
        assert!(String::from_utf8_lossy(&told).contains("usage: cargo xtask experiment"), "{words:?}");
    }
}
