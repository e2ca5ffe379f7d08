//! `pointsman trace info`: LDplayer's row of a trace and the shares that matter.

use std::collections::BTreeMap;

use api::TraceInfo;
use jiff::Timestamp;
use replay::remarks::counted;
use replay::trace::{Skip, Summary};

use super::{Input, damaged, print_json};
use crate::failure::Failure;
use crate::session;

/// The most lines of a share in the table for people: the rest is one more line. `--json` has all.
const SHARES_SHOWN: usize = 8;

/// A gap after which a packet's time is more likely wrong than right, in seconds: a day.
const GAP_MAX: f64 = 86_400.0;

/// Reads a trace and tells what it is like.
///
/// # Errors
/// [`Failure`]; what could be read of a damaged trace is printed before.
pub(super) fn run(input: &Input, json: bool) -> Result<(), Failure> {
    let (mut trace, progress) = input.open()?;
    let info = Summary::of(&mut trace);
    progress.end();
    // Also where nobody reads it, the exit code is that of the trace.
    let printed = match json {
        true => print_json(&info),
        false if info.queries + info.responses > 0 => session::print(shown(&info).as_bytes()),
        false => Ok(()),
    };
    let damage = info.damage.as_ref().map(|damage| input.damage(&trace, damage));
    if info.queries + info.responses == 0 {
        return Err(input.nothing(&trace, damage));
    }
    damage.map_or(printed, |damage| Err(damaged(&damage)))
}

/// LDplayer's row of a trace, then the shares.
fn shown(info: &TraceInfo) -> String {
    let mut row = session::table(&["START", "LENGTH", "INTER-ARRIVAL", "CLIENTS", "QUERIES"]);
    let unknown = || "-".to_owned();
    row.add_row([
        info.start_ns.map_or_else(unknown, utc),
        info.seconds.map_or_else(unknown, |seconds| format!("{seconds:.3} s")),
        match (info.gap_mean_seconds, info.gap_deviation_seconds) {
            (Some(mean), Some(deviation)) => format!("{mean:.6} ± {deviation:.6} s"),
            _ => unknown(),
        },
        info.clients.to_string(),
        info.queries.to_string(),
    ]);
    let mut shares = session::table(&["OF", "WHAT", "COUNT", "SHARE"]);
    let mut add = |of: &str, counts: &BTreeMap<String, u64>, total: u64| {
        let mut counts: Vec<(&str, u64)> =
            counts.iter().map(|(what, count)| (what.as_str(), *count)).collect();
        counts.sort_by_key(|(_, count)| std::cmp::Reverse(*count));
        let rest = counts.split_off(counts.len().min(SHARES_SHOWN));
        if !rest.is_empty() {
            counts.push(("others", rest.iter().map(|(_, count)| count).sum()));
        }
        for (what, count) in counts {
            shares.add_row([of.to_owned(), what.to_owned(), count.to_string(), percent(count, total)]);
        }
    };
    add("transport", &info.transports, info.queries);
    add("DNSSEC", &BTreeMap::from([("DO".into(), info.dnssec_ok)]), info.queries);
    add("EDNS size", &info.edns_sizes, info.queries);
    add("type", &info.types, info.queries);
    if info.unreadable > 0 {
        add("type", &BTreeMap::from([("unreadable".into(), info.unreadable)]), info.queries);
    }
    add("responses", &info.rcodes, info.responses);
    let skipped = Skip::ALL.into_iter().filter_map(|skip| Some((skip, *info.skipped.get(skip.name())?)));
    let skipped: String =
        skipped.map(|(skip, count)| format!("\n  {count:>9} {}", skip.description())).collect();
    let skipped = if skipped.is_empty() { "\n  nothing".into() } else { skipped };
    let unit = api::trace::unit(&info.format);
    let steps_back = match info.steps_back {
        0 => String::new(),
        count => {
            let first = info.step_back_packet;
            format!(
                "\n{} earlier than the query before, the first in {unit} {first}: no gap is counted there.",
                match count {
                    1 => "1 query is".into(),
                    _ => format!("{count} queries are"),
                }
            )
        }
    };
    let longest_gap = match info.longest_gap_seconds {
        Some(gap) if gap > GAP_MAX => {
            let packet = info.longest_gap_packet;
            format!(
                "\nBefore {unit} {packet} there is a gap of {gap:.0} s: the times around it may be wrong."
            )
        }
        _ => String::new(),
    };
    let busiest = info.busiest_share.map_or_else(String::new, |share| {
        format!("\n\nThe busiest 1 % of clients send {:.1} % of the queries.", share * 100.0)
    });
    format!(
        "{}{busiest}{steps_back}{longest_gap}\n\n{}\n\nSkipped of {} ({}):{skipped}",
        session::lines(row),
        session::lines(shares),
        counted(info.packets, unit),
        info.format,
    )
}

pub(super) fn percent(count: u64, total: u64) -> String {
    if total == 0 { "-".into() } else { format!("{:.1} %", count as f64 * 100.0 / total as f64) }
}

/// A time in UTC, to the second.
fn utc(nanos: u64) -> String {
    let time = Timestamp::from_nanosecond(nanos.into()).expect("64 bits end in 2554, timestamps in 9999");
    time.strftime("%Y-%m-%d %H:%M:%S UTC").to_string()
}

#[cfg(test)]
mod tests {
    use std::io;

    use replay::trace::{PORT, Trace};

    use super::*;

    #[test]
    fn times_are_told_in_utc() {
        for (seconds, expected) in [
            (0, "1970-01-01 00:00:00 UTC"),
            (951_782_399, "2000-02-28 23:59:59 UTC"),
            (951_782_400, "2000-02-29 00:00:00 UTC"),
            (1_475_745_600, "2016-10-06 09:20:00 UTC"),
            (4_102_444_800, "2100-01-01 00:00:00 UTC"),
        ] {
            assert_eq!(utc(seconds * 1_000_000_000), expected);
        }
    }

    #[test]
    fn the_table_has_the_row_and_the_shares() {
        let lines = "10.5 192.0.2.1:1 udp a. A rd,edns=1232,do\n12.5 192.0.2.1:1 udp a. MX rd\n";
        let trace_of = |text: &str| Trace::read(io::Cursor::new(text.to_owned()), PORT).expect("lines");
        let expected = "\
START                    LENGTH   INTER-ARRIVAL          CLIENTS  QUERIES
1970-01-01 00:00:10 UTC  2.000 s  2.000000 ± 0.000000 s  1        2

The busiest 1 % of clients send 100.0 % of the queries.

OF         WHAT  COUNT  SHARE
transport  udp   2      100.0 %
transport  tcp   0      0.0 %
DNSSEC     DO    1      50.0 %
EDNS size  1232  1      50.0 %
EDNS size  none  1      50.0 %
type       A     1      50.0 %
type       MX    1      50.0 %

Skipped of 2 lines (text):
  nothing";
        assert_eq!(shown(&Summary::of(&mut trace_of(lines))), expected);
        let told = shown(&Summary::of(&mut trace_of("a. A\nb. MX\n")));
        let row: Vec<_> = told.lines().nth(1).expect("a row").split_whitespace().collect();
        assert_eq!(row, ["-", "-", "-", "1", "2"], "{told}");

        // A single query has no gap; without one, nobody is busy.
        let info = Summary::of(&mut trace_of(&lines[..lines.find('\n').expect("two lines")]));
        assert!(shown(&info).contains("0.000 s  -  "), "{}", shown(&info));
        let none = TraceInfo { queries: 0, responses: 1, busiest_share: None, ..info };
        assert!(!shown(&none).contains("busiest"), "{}", shown(&none));
    }
}
