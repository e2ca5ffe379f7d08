//! `pointsman trace top`: who asks most, and for what.

use api::{TraceCount, TraceTop};
use replay::trace::Top;

use super::info::percent;
use super::{Input, damaged, print_json};
use crate::failure::Failure;
use crate::session;

/// Reads a trace and tells the most frequent of each kind.
///
/// # Errors
/// [`Failure`]; what could be read of a damaged trace is printed before.
pub(super) fn run(input: &Input, count: usize, json: bool) -> Result<(), Failure> {
    let (mut trace, progress) = input.open()?;
    let top = Top::of(&mut trace, count);
    progress.end();
    let is_empty = top.queries + top.responses == 0;
    // Also where nobody reads it, the exit code is that of the trace.
    let printed = match json {
        true => print_json(&top),
        false if is_empty => Ok(()),
        false => session::print(shown(&top).as_bytes()),
    };
    let damage = top.damage.as_ref().map(|damage| input.damage(&trace, damage));
    if is_empty {
        return Err(input.nothing(&trace, damage));
    }
    damage.map_or(printed, |damage| Err(damaged(&damage)))
}

/// A table for each kind of which there is something.
fn shown(top: &TraceTop) -> String {
    let TraceTop { queries, responses, clients, networks, names, domains, missing, failed, damage: _ } = top;
    let kinds = [
        ("CLIENT", "QUERIES", clients, queries),
        ("NETWORK", "QUERIES", networks, queries),
        ("NAME", "QUERIES", names, queries),
        ("DOMAIN", "QUERIES", domains, queries),
        ("DOMAIN", "NXDOMAIN", missing, responses),
        ("DOMAIN", "FAILED", failed, responses),
    ];
    let tables =
        kinds.into_iter().filter(|(_, _, counts, _)| !counts.is_empty()).map(|(of, counted, counts, all)| {
            let mut table = session::table(&[of, counted, "SHARE"]);
            for TraceCount { what, most, least } in counts {
                let times = if most == least { most.to_string() } else { format!("{least} to {most}") };
                table.add_row([what.clone(), times, percent(*most, *all)]);
            }
            session::lines(table)
        });
    tables.collect::<Vec<_>>().join("\n\n")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn kinds_have_tables_and_what_is_not_known_for_certain_says_so() {
        let count = |what: &str, most, least| TraceCount { what: what.into(), most, least };
        let top = TraceTop {
            queries: 40,
            responses: 8,
            clients: vec![count("192.0.2.1", 30, 30), count("192.0.2.2", 4, 3)],
            failed: vec![count("example.com.", 2, 2)],
            ..TraceTop::default()
        };
        let expected = "\
CLIENT     QUERIES  SHARE
192.0.2.1  30       75.0 %
192.0.2.2  3 to 4   10.0 %

DOMAIN        FAILED  SHARE
example.com.  2       25.0 %";
        assert_eq!(shown(&top), expected);
    }
}
