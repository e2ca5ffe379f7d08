//! `pointsman status`: how a running server is doing.

use std::collections::BTreeMap;
use std::time::{SystemTime, UNIX_EPOCH};

use api::{Counters, Status as State, WorkerState};
use clap::Args;
use comfy_table::{CellAlignment, Table, presets};
use replay::remarks::counted;

use crate::failure::Failure;
use crate::session::{self, Connection};

/// The most workers that are shown one by one; of more, only those at another generation are.
const WORKERS_SHOWN: usize = 16;

/// The most servers under probes that are shown; those that fail come first.
const PROBES_SHOWN: usize = 20;

/// The arguments of `status`.
#[derive(Args, Debug)]
pub(crate) struct Status {
    #[command(flatten)]
    connection: Connection,
}

impl Status {
    /// Asks the server how it is doing, and prints that.
    ///
    /// # Errors
    /// [`Failure`].
    pub(crate) async fn run(self) -> Result<(), Failure> {
        self.connection.begin()?.look("/v1/status", shown).await
    }
}

/// The tables, an empty line between two.
fn shown(state: State) -> String {
    let mut tables = vec![about(&state), counts(&state), workers(&state), queries(&state)];
    tables.extend(details(&state));
    tables.extend(primaries(&state));
    tables.extend(left_alone(&state));
    tables.extend(health(&state));
    tables.extend(partitions(&state));
    tables.extend(external(&state));
    tables.join("\n\n")
}

/// What the server is, and whether it is well.
fn about(state: &State) -> String {
    let store = match (state.store.ok, &state.store.message) {
        (true, _) => "ok".into(),
        (false, message) => format!("takes no changes: {}", message.as_deref().unwrap_or("no reason given")),
    };
    let mut table = bare();
    table.add_row(["version", &state.version]);
    table.add_row(["up for", &uptime(state.uptime_seconds)]);
    table.add_row(["generation", &state.generation.to_string()]);
    table.add_row(["store", &store]);
    if let Some(first) = state.imports.first.first() {
        let more = match state.imports.faults {
            ..=1 => String::new(),
            faults => format!(" (the first of {faults} faults)"),
        };
        table.add_row(["files", &format!("not imported, what was served goes on: {first}{more}")]);
    }
    lines(table, &[])
}

/// How much there is of everything.
fn counts(state: &State) -> String {
    let (counts, transfers) = (&state.counts, &state.transfers);
    let followed = match transfers.secondaries {
        0 => String::new(),
        _ => format!(
            "of {}; {}, {} running, {} cut, {} refused",
            counted(transfers.followed, "zone"),
            counted(transfers.finished, "transfer"),
            transfers.running,
            transfers.cut,
            transfers.refused
        ),
    };
    let records = counted(counts.records, "record");
    let primaries = &state.primaries;
    let zones = match primaries.zones {
        0 => records,
        given => {
            let well = given.saturating_sub(primaries.failing);
            let failing = primaries.failing.saturating_sub(primaries.expired);
            let expired = primaries.expired;
            let left_alone = match primaries.left_alone {
                0 => String::new(),
                count => format!(", {count} left alone"),
            };
            format!("{records}; of primaries {well} well, {failing} failing, {expired} expired{left_alone}")
        }
    };
    let servers = match state.health.failing {
        0 => format!("{} down", counts.servers_down),
        failing => format!("{} down, {}", counts.servers_down, counted(failing, "failing probe")),
    };
    let mut table = bare();
    for (name, count, more) in [
        ("zones", counts.zones, zones),
        ("policies", counts.policies, counted(counts.names, "name")),
        ("servers", counts.servers, servers),
        ("regions", counts.regions, String::new()),
        ("partitions", counts.partitions, String::new()),
        ("secondaries", transfers.secondaries, followed),
    ] {
        table.add_row([name, &count.to_string(), &more]);
    }
    lines(table, &[1])
}

/// The workers, those that lag marked.
fn workers(state: &State) -> String {
    let is_late = |worker: &&WorkerState| worker.generation != state.generation;
    let all = state.workers.len();
    let shown: Vec<&WorkerState> = match all {
        0..=WORKERS_SHOWN => state.workers.iter().collect(),
        _ => state.workers.iter().filter(is_late).take(WORKERS_SHOWN).collect(),
    };
    let mut table = session::table(&["WORKER", "GENERATION", "QUERIES", "BATCHES"]);
    for worker in &shown {
        let late = if is_late(worker) { "not the current generation" } else { "" };
        let numbers = [u64::from(worker.worker), worker.generation, worker.queries, worker.batches];
        table.add_row(numbers.map(|number| number.to_string()).into_iter().chain([late.into()]));
    }
    let mut text = lines(table, &[0, 1, 2, 3]);
    if shown.len() < all {
        let current = all - state.workers.iter().filter(is_late).count();
        text += &format!("\n{current} of {all} workers are at generation {}", state.generation);
    }
    text
}

/// What came in, and what became of it.
fn queries(state: &State) -> String {
    let mut table = session::table(&["TRANSPORT", "QUERIES", "ANSWERS", "TRUNCATED", "DROPPED"]);
    for (transport, counters) in transports(state) {
        let answers = counters.answers.values().sum();
        let numbers = [counters.queries, answers, counters.truncated, counters.dropped.values().sum()];
        table.add_row(std::iter::once(transport.into()).chain(numbers.map(|number| number.to_string())));
    }
    lines(table, &[1, 2, 3, 4])
}

/// Answers by response code and dropped messages by cause, where there were any.
fn details(state: &State) -> Option<String> {
    let mut table = bare();
    for (transport, counters) in transports(state) {
        for (what, counts) in [("answers", &counters.answers), ("dropped", &counters.dropped)] {
            if let Some(listed) = listed(counts) {
                table.add_row([format!("{transport} {what}"), listed]);
            }
        }
    }
    (!table.is_empty()).then(|| lines(table, &[]))
}

/// Zones that their primaries do not give.
fn primaries(state: &State) -> Option<String> {
    let first = &state.primaries.first;
    if first.is_empty() {
        return None;
    }
    let now = SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |now| now.as_secs());
    let mut table = session::table(&["ZONE", "STATE", "CONFIRMED", "WHY NOT AGAIN"]);
    for zone in first {
        let confirmed = zone
            .confirmed_at
            .map_or("not yet".into(), |at| format!("{} ago", uptime(now.saturating_sub(at))));
        let state = if zone.expired { "expired" } else { "failing" };
        table.add_row([&zone.zone, state, &confirmed, &zone.message]);
    }
    let mut text = lines(table, &[]);
    if (first.len() as u64) < state.primaries.failing {
        text += &format!("\n{} zones fail in all", state.primaries.failing);
    }
    Some(text)
}

/// Zones that catalogs list and that are not taken.
fn left_alone(state: &State) -> Option<String> {
    let first = &state.primaries.first_left_alone;
    if first.is_empty() {
        return None;
    }
    let mut table = session::table(&["ZONE LEFT ALONE", "WHY"]);
    for zone in first {
        table.add_row([&zone.zone, &zone.message]);
    }
    let mut text = lines(table, &[]);
    if (first.len() as u64) < state.primaries.left_alone {
        text += &format!("\n{} zones are left alone in all", state.primaries.left_alone);
    }
    Some(text)
}

/// What probes say of servers, those that fail first.
fn health(state: &State) -> Option<String> {
    let health = &state.health;
    let all = health.passing + health.failing + health.unknown;
    if all == 0 {
        return None;
    }
    let mut table = session::table(&["SERVER", "PROBE", "STATE", "FOR", "LAST", "REASON"]);
    let now = SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |now| now.as_secs());
    let shown = &health.probes[..health.probes.len().min(PROBES_SHOWN)];
    for probe in shown {
        let last = probe.last.as_ref();
        let reason = last.map(|last| &last.detail).or(probe.message.as_ref());
        table.add_row([
            probe.server.to_string(),
            probe.probe.clone(),
            probe.state.word().into(),
            probe.since.map_or(String::new(), |since| uptime(now.saturating_sub(since))),
            last.map_or("not yet".into(), |last| format!("{} ago", uptime(now.saturating_sub(last.at)))),
            reason.cloned().unwrap_or_default(),
        ]);
    }
    let mut text = lines(table, &[]);
    if (shown.len() as u64) < all {
        let (failing, unknown) = (health.failing, health.unknown);
        text += &format!("\n{failing} of {all} fail, {unknown} are not known; GET /v1/probes has all");
    }
    Some(text)
}

/// The external proximity service.
fn external(state: &State) -> Option<String> {
    let external = state.external.as_ref()?;
    let connection = match (external.connected, &external.message) {
        (true, _) => "connected".into(),
        (false, message) => format!("away: {}", message.as_deref().unwrap_or("not yet connected")),
    };
    let mut table = bare();
    table.add_row(["external", &external.service, &connection]);
    let known =
        format!("{} of {} blocks known, {} wait", external.known, external.capacity, external.waiting);
    table.add_row(["", "", &known]);
    table.add_row(["", "", &listed(&external.events).unwrap_or_default()]);
    Some(lines(table, &[]))
}

/// Partitions that come from files, what is wrong with them, and what was counted in them.
fn partitions(state: &State) -> Option<String> {
    let mut table = session::table(&["PARTITION", "FROM", "FILES"]);
    for partition in &state.partitions {
        let files = match (partition.ok, &partition.message) {
            (true, _) => "ok".into(),
            (false, message) => {
                format!("not read, the last ones serve: {}", message.as_deref().unwrap_or_default())
            }
        };
        table.add_row([partition.name.clone(), partition.sources.join(", "), files]);
    }
    let mut counted = bare();
    for partition in &state.partitions {
        if let Some(counts) = listed(&partition.counts) {
            counted.add_row([&partition.name, &counts]);
        }
    }
    let tables = [table, counted].into_iter().filter(|table| !table.is_empty());
    let texts: Vec<String> = tables.map(|table| lines(table, &[])).collect();
    (!texts.is_empty()).then(|| texts.join("\n\n"))
}

/// What was counted of each transport; of TLS where any query came over it.
fn transports(state: &State) -> impl Iterator<Item = (&'static str, &Counters)> {
    let tls = (state.tls.queries > 0).then_some(("tls", &state.tls));
    [("udp", &state.counters), ("tcp", &state.tcp)].into_iter().chain(tls)
}

/// A table without headings.
fn bare() -> Table {
    let mut table = Table::new();
    table.load_style(presets::NOTHING);
    table
}

/// A table's lines, with these columns of numbers.
fn lines(mut table: Table, numbers: &[usize]) -> String {
    for index in numbers {
        if let Some(column) = table.column_mut(*index) {
            column.set_cell_alignment(CellAlignment::Right);
        }
    }
    session::lines(table)
}

fn listed(counts: &BTreeMap<String, u64>) -> Option<String> {
    let words: Vec<String> = counts
        .iter()
        .filter(|(_, count)| **count > 0)
        .map(|(name, count)| format!("{name} {count}"))
        .collect();
    (!words.is_empty()).then(|| words.join(", "))
}

/// Writes seconds with days, as people compare them.
pub(super) fn uptime(seconds: u64) -> String {
    let (days, hours, minutes) = (seconds / 86_400, seconds / 3_600 % 24, seconds / 60 % 60);
    match (days, hours, minutes) {
        (0, 0, 0) => format!("{seconds} s"),
        (0, 0, _) => format!("{minutes} min {} s", seconds % 60),
        (0, _, _) => format!("{hours} h {minutes} min"),
        _ => format!("{days} d {hours} h"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A state with this many workers, of which number 1 lags.
    fn state(workers: u32) -> State {
        let worker = |worker| {
            format!(
                r#"{{"worker": {worker}, "generation": {}, "queries": {}, "batches": 7}}"#,
                if worker == 1 { 41 } else { 42 },
                1_000 * u64::from(worker),
            )
        };
        let workers: Vec<String> = (0..workers).map(worker).collect();
        let text = format!(
            r#"{{"version": "0.1.0", "uptime_seconds": 90000, "generation": 42, "workers": [{}],
            "counts": {{"zones": 3, "records": 1204, "regions": 8, "partitions": 1, "policies": 2, "names": 14,
                "servers": 6, "servers_down": 1}},
            "store": {{"ok": false, "message": "the disk is full"}},
            "counters": {{"queries": 1000, "answers": {{"NOERROR": 900, "NXDOMAIN": 99}},
                "dropped": {{"no_query": 1, "no_room": 0}}, "truncated": 12}},
            "transfers": {{"secondaries": 2, "followed": 1, "running": 1, "finished": 12, "cut": 0, "refused": 3,
                "acknowledged": 12, "given_up": 0}}}}"#,
            workers.join(", ")
        );
        serde_json::from_str(&text).expect("a state")
    }

    #[test]
    fn all_of_it_is_shown_in_columns() {
        let expected = "\
version     0.1.0
up for      1 d 1 h
generation  42
store       takes no changes: the disk is full

zones        3  1204 records
policies     2  14 names
servers      6  1 down
regions      8
partitions   1
secondaries  2  of 1 zone; 12 transfers, 1 running, 0 cut, 3 refused

WORKER  GENERATION  QUERIES  BATCHES
     0          42        0        7
     1          41     1000        7  not the current generation

TRANSPORT  QUERIES  ANSWERS  TRUNCATED  DROPPED
udp           1000      999         12        1
tcp              0        0          0        0

udp answers  NOERROR 900, NXDOMAIN 99
udp dropped  no_query 1";
        assert_eq!(shown(state(2)), expected);
        assert!(expected.lines().all(|line| line.len() <= 80));
    }

    #[test]
    fn faults_of_the_last_import_are_shown() {
        let mut state = state(1);
        let fault = r#"{"source": "a.zone", "line": 3, "what": "no such type"}"#;
        let imports = format!(r#"{{"faults": 2, "first": [{fault}, {fault}]}}"#);
        state.imports = serde_json::from_str(&imports).expect("a state");
        let told = "\nfiles       not imported, what was served goes on: a.zone:3: no such type (the first of 2 faults)";
        assert!(about(&state).contains(told), "{}", about(&state));
    }

    #[test]
    fn of_many_workers_those_that_lag_are_shown() {
        let text = shown(state(64));
        assert!(text.contains("\n     1          41 "), "{text}");
        assert!(text.contains("\n63 of 64 workers are at generation 42\n"), "{text}");
        assert!(!text.contains("\n     2 "), "{text}");
    }

    #[test]
    fn what_was_counted_in_partitions_is_shown_behind_what_is_wrong_with_them() {
        let mut state = state(1);
        assert_eq!(partitions(&state), None);
        let partition = r#"{"name": "topology", "sources": ["as-path"], "ok": false, "message": "t.gz: cut off",
            "counts": {"routes": 7, "as_sets": 0, "incomplete": 2}}"#;
        state.partitions = vec![serde_json::from_str(partition).expect("a state")];
        let expected = "PARTITION  FROM     FILES\n\
                        topology   as-path  not read, the last ones serve: t.gz: cut off\n\n\
                        topology  incomplete 2, routes 7";
        assert_eq!(partitions(&state).as_deref(), Some(expected));
    }

    #[test]
    fn zones_that_primaries_do_not_give_are_shown_with_the_reason() {
        let mut state = state(1);
        assert_eq!(primaries(&state), None);
        let given = r#"{"zones": 20, "failing": 12, "expired": 1, "first": [
            {"zone": "a.", "expired": true, "confirmed_at": 1, "message": "192.0.2.1:53: no connection"},
            {"zone": "b.", "expired": false, "message": "192.0.2.1:53: it answers REFUSED"}]}"#;
        state.primaries = serde_json::from_str(given).expect("a state");
        let text = primaries(&state).expect("a table");
        let words: Vec<Vec<&str>> = text.lines().map(|line| line.split_whitespace().collect()).collect();
        assert_eq!(
            (words[1][..2].to_vec(), words[2][..2].to_vec()),
            (vec!["a.", "expired"], vec!["b.", "failing"])
        );
        assert!(text.contains(" ago ") && text.contains("  192.0.2.1:53: it answers REFUSED"), "{text}");
        assert!(text.ends_with("\n12 zones fail in all"), "{text}");
        assert!(counts(&state).contains("of primaries 8 well, 11 failing, 1 expired"), "{}", counts(&state));
    }

    #[test]
    fn what_probes_say_is_shown_with_its_reason() {
        let mut state = state(1);
        assert_eq!(health(&state), None);
        let probe = |server: u8, verdict: &str, rest: &str| -> api::ProbeState {
            let text =
                format!(r#"{{"server": "192.0.2.{server}", "probe": "web", "state": "{verdict}"{rest}}}"#);
            serde_json::from_str(&text).expect("a state")
        };
        let now = SystemTime::now().duration_since(UNIX_EPOCH).expect("it is past 1970").as_secs();
        let last = format!(
            r#", "since": {}, "last": {{"passed": false, "reason": "status", "detail": "status 503", "at": {now},
                "took_ms": 3}}"#,
            now - 90_000
        );
        state.health.probes =
            vec![probe(1, "failing", &last), probe(2, "unknown", r#", "message": "no such probe""#)];
        (state.health.failing, state.health.unknown) = (1, 1);
        let text = health(&state).expect("a table");
        let words: Vec<Vec<&str>> = text.lines().map(|line| line.split_whitespace().collect()).collect();
        assert_eq!(words[1][..7], ["192.0.2.1", "web", "failing", "1", "d", "1", "h"]);
        assert!(text.contains(" ago  status 503"), "{text}");
        assert!(words[2].join(" ") == "192.0.2.2 web unknown not yet no such probe", "{text}");
        assert!(shown(state.clone()).contains("1 down, 1 failing probe"));
        (state.health.passing, state.health.probes) = (50, vec![probe(1, "failing", &last); 25]);
        let text = health(&state).expect("a table");
        assert!(text.ends_with("\n1 of 52 fail, 1 are not known; GET /v1/probes has all"), "{text}");
        assert_eq!(text.lines().count(), PROBES_SHOWN + 2);
    }

    #[test]
    fn uptimes_have_two_units() {
        for (seconds, text) in [
            (59, "59 s"),
            (61, "1 min 1 s"),
            (3_600, "1 h 0 min"),
            (90_000, "1 d 1 h"),
            (86_399, "23 h 59 min"),
        ] {
            assert_eq!(uptime(seconds), text);
        }
    }
}
