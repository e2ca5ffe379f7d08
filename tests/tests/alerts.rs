//! The alerts for Prometheus: they are rules to promtool, fire when they should, and go by numbers that the programs tell.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::Path;
use std::process::Command;

use tests::balancing::Balancing;
use tests::folder::Folder;
use tests::serving::Serving;

/// The file of the alerts.
const ALERTS: &str = "../etc/prometheus-alerts.yml";

/// The pages of the programs' numbers.
const PAGES: [&str; 5] =
    ["metrics", "balance-metrics", "reverse-metrics", "control-metrics", "agent-metrics"];

fn alerts() -> String {
    fs::read_to_string(Path::new(env!("CARGO_MANIFEST_DIR")).join(ALERTS)).expect("it is there")
}

/// Has promtool look at a file; what it says where it finds something wrong is the panic's.
fn promtool(what: &str, file: &Path) {
    let output = Command::new("promtool").args([what, "rules"]).arg(file).output();
    let output = output.expect("promtool (Debian: prometheus)");
    let said = String::from_utf8_lossy(&output.stdout) + String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{said}");
}

/// A number, and which label of it is to have which words, where that is asked.
type Selected<'a> = (&'a str, Option<(&'a str, Vec<&'a str>)>);

/// The numbers that the alerts go by, each with the label that is asked of it and its words, where there is one.
fn selected(text: &str) -> Vec<Selected<'_>> {
    let rules = text.lines().filter(|line| !line.trim_start().starts_with(['#', 's']));
    let places = rules.flat_map(|line| line.match_indices("pointsman_").map(|(at, _)| &line[at..]));
    places
        .map(|rest| {
            let (name, behind) =
                rest.split_at(rest.find(|c: char| c != '_' && !c.is_ascii_lowercase()).unwrap_or(rest.len()));
            let asked = behind.strip_prefix('{').and_then(|asked| {
                let (label, words) = asked.split_once('}')?.0.split_once('=')?;
                Some((label, words.trim_matches(['~', '"']).split('|').collect()))
            });
            (name, asked)
        })
        .collect()
}

#[test]
fn they_go_by_numbers_that_there_are() {
    let pages = PAGES.map(|page| {
        let path = Path::new(env!("CARGO_MANIFEST_DIR")).join(format!("../docs/reference/{page}.md"));
        fs::read_to_string(path).expect("the page is there")
    });
    let mut labels: BTreeMap<&str, BTreeSet<&str>> = BTreeMap::new();
    for line in pages.iter().flat_map(|page| page.lines()).filter_map(|line| line.strip_prefix("| `")) {
        let cells: Vec<&str> = line.split('|').collect();
        let each = cells[3].split(',').map(|label| label.trim().trim_matches('`'));
        labels.insert(cells[0].trim().trim_end_matches('`'), each.collect());
    }
    let text = alerts();
    let all = selected(&text);
    assert!(all.len() > 20, "{all:?}");
    for (name, asked) in &all {
        let known = labels.get(name).unwrap_or_else(|| panic!("there is no {name}"));
        assert!(asked.as_ref().is_none_or(|(label, _)| known.contains(label)), "{name} {asked:?}");
    }
    // What is asked of the two that answer clients stands on their pages, also where it has never happened; but for codes.
    let folder = Folder::new();
    let serving = Serving::start(&folder, &[] as &[&str]);
    let balancing = Balancing::start(&[([127, 0, 0, 1], 9).into()], &["--http", "127.0.0.1:0"]);
    let told = [
        serving.client().call("GET", "/metrics", "").text(),
        balancing.client().call("GET", "/metrics", "").text(),
    ];
    let told = told.concat();
    for (name, asked) in all.iter().filter(|(name, _)| !name.contains("reverse") && !name.contains("control"))
    {
        let Some((label, words)) = asked.as_ref().filter(|(label, _)| *label != "rcode") else { continue };
        for word in words {
            let is_it = |line: &str| line.starts_with(name) && line.contains(&format!("{label}=\"{word}\""));
            assert!(told.lines().any(is_it), "{name} {label} {word}");
        }
    }
    serving.stop();
    balancing.stop();
}

#[test]
fn they_fire_when_they_should() {
    let file = Path::new(env!("CARGO_MANIFEST_DIR")).join(ALERTS);
    promtool("check", &file);
    let rules = fs::canonicalize(file).expect("it is there");
    // Each: what is told, minute by minute; when; the alert; its labels, with its severity; what it says.
    let cases = [
        (
            "up{job=\"pointsman\",instance=\"a\"}",
            "1 0x9",
            "5m",
            "PointsmanGone",
            "job: pointsman, instance: a, severity: page",
            "pointsman at a tells no numbers: it is not there, or cannot be reached.",
        ),
        (
            "pointsman_store_ok{instance=\"a\"}",
            "1 0x9",
            "8m",
            "PointsmanStoreRefuses",
            "instance: a, severity: page",
            "The store of a takes no changes; it answers on. pointsman status says why.",
        ),
        (
            "pointsman_signatures_expire_timestamp_seconds{zone=\"example.\"}",
            "259320x9",
            "3m",
            "PointsmanSignaturesExpire",
            "zone: example., severity: page",
            "The first signature of example. expires in 2d 23h 59m 0s.",
        ),
        (
            "pointsman_queries_total{instance=\"a\",rcode=\"SERVFAIL\"}",
            "0+60x20",
            "15m",
            "PointsmanServfails",
            "instance: a, severity: page",
            "a answers 100% of its queries SERVFAIL.",
        ),
        (
            "pointsman_zone_updates_total{instance=\"a\",outcome=\"failed\"}",
            "0 0 0 1 1 1 1",
            "5m",
            "PointsmanUpdatesFail",
            "instance: a, outcome: failed, severity: ticket",
            "Updates of zones cannot be made at a: failed.",
        ),
        (
            "pointsman_balance_back_end_standing{instance=\"a\",back_end=\"192.0.2.1:53\",standing=\"up\"}",
            "1 0x5",
            "3m",
            "PointsmanNoBackEnd",
            "instance: a, severity: page",
            "No back end of a is up.",
        ),
        (
            "pointsman_agent_heard{instance=\"a\",balancer=\"b\"}",
            "1 0x9",
            "8m",
            "PointsmanAgentUnheard",
            "instance: a, severity: ticket",
            "No balancer speaks to the agent a: keys, addresses or clocks may differ.",
        ),
    ];
    let mut text = format!("rule_files: [\"{}\"]\nevaluation_interval: 1m\ntests:\n", rules.display());
    for (series, values, at, alert, labels, summary) in cases {
        text += &format!(
            "  - interval: 1m\n    input_series:\n      - {{series: '{series}', values: '{values}'}}\n    alert_rule_test:\n      \
             - {{eval_time: 0m, alertname: {alert}, exp_alerts: []}}\n      - eval_time: {at}\n        alertname: {alert}\n        \
             exp_alerts:\n          - {{exp_labels: {{{labels}}}, exp_annotations: {{summary: \"{summary}\"}}}}\n"
        );
    }
    let folder = Folder::new();
    promtool("test", Path::new(&folder.write("alerts.test.yml", text)));
}
