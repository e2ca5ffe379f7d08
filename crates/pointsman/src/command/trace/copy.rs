//! `pointsman trace convert`, `cut` and `mutate`: another trace is written.

use std::collections::BTreeMap;
use std::fs;

use api::{Fault, Faults, TraceChange, TraceMutation, TraceWritten};
use replay::mutate::{Mutation, Tally};
use replay::remarks::counted;
use replay::report;
use replay::trace::{Cut, Trace};
use tokio::runtime::Handle;
use tokio::task::{self, JoinError};

use super::output::Output;
use super::progress::Line;
use super::{Files, damaged, print_json};
use crate::failure::Failure;
use crate::session;
use crate::supervision::Stop;

/// What becomes of the messages.
#[derive(Default)]
pub(super) struct Work {
    /// Which ones are taken.
    pub(super) cut: Cut,
    /// How many at most.
    pub(super) count: Option<u64>,
    /// What is changed in them.
    pub(super) mutation: Option<Mutation>,
}

/// Reads a trace and writes another, until that is done or a signal comes.
///
/// # Errors
/// [`Failure`]; what could be read of a damaged trace is written before, and nothing once a signal has come.
pub(super) fn run(files: Files, work: Work) -> Result<(), Failure> {
    let (trace, progress) = files.input.open()?;
    // Before there is anything to take away.
    let mut stop = Stop::take()?.or_hang_up()?;
    let output = Output::create(&files.out)?;
    let (partial, interrupted) = (output.partial().to_owned(), interrupted(&files));
    let line = progress.clone();
    // What is read may never come, as from a pipe: who waits for that cannot look at signals.
    let mut copies = task::spawn_blocking(move || copy(&files, work, trace, &progress, output));
    let panicked = |cause: JoinError| Err(Failure::Failed(format!("the copy has panicked: {cause}")));
    task::block_in_place(|| {
        Handle::current().block_on(async {
            tokio::select! {
                biased;
                done = &mut copies => return done.unwrap_or_else(panicked),
                () = stop.wanted() => {}
            }
            line.end();
            match fs::remove_file(&partial) {
                Ok(()) => Err(interrupted),
                // It has its own name by now, or could not be written.
                Err(_) => copies.await.unwrap_or_else(panicked),
            }
        })
    })
}

fn interrupted(files: &Files) -> Failure {
    Failure::Failed(format!("interrupted; {} is not written", files.out.display()))
}

fn copy(
    files: &Files,
    work: Work,
    mut trace: Trace,
    progress: &Line,
    mut output: Output,
) -> Result<(), Failure> {
    let (mut written, read) = copied(&mut trace, work, &mut output)?;
    progress.end();
    written.file = files.out.display().to_string();
    let damage = written.damage.as_ref().map(|damage| files.input.damage(&trace, damage));
    if written.messages == 0 {
        drop(output);
        return Err(match read {
            0 => files.input.nothing(&trace, damage),
            read => none(files, damage, read, written.left_out),
        });
    }
    output.finish()?;
    // Also where nobody reads it, the exit code is that of the copy.
    let printed = match files.json {
        true => print_json(&written),
        false => session::print(shown(&written).as_bytes()),
    };
    damage.map_or(printed, |damage| Err(damaged(&damage)))
}

/// What to say where none of the messages that were read was written.
fn none(files: &Files, damage: Option<Fault>, read: u64, left_out: u64) -> Failure {
    let why = match left_out {
        0 => format!("none of its {} is as asked for", counted(read, "message")),
        left_out => format!("this form has no room for {}", counted(left_out, "message")),
    };
    let mut faults = Faults::default();
    damage.into_iter().for_each(|damage| faults.push(damage));
    let what = format!("{why}; {} is not written", files.out.display());
    faults.push(Fault::whole(files.input.file.to_string_lossy(), what, ""));
    faults.into()
}

/// Writes what is asked for, and tells how many messages were read.
fn copied(trace: &mut Trace, work: Work, output: &mut Output) -> Result<(TraceWritten, u64), Failure> {
    let (mut read, mut first) = (0, None);
    let mut written = TraceWritten::default();
    let mut tally = work.mutation.as_ref().map(Tally::new);
    let (mut left, mut index) = (work.count.unwrap_or(u64::MAX), 0);
    while left > 0
        && let Some(message) = trace.next()
    {
        let mut message = match message {
            Ok(message) => message,
            Err(damage) => {
                written.damage = Some(damage);
                continue;
            }
        };
        read += 1;
        let first = *first.get_or_insert(message.time);
        if !work.cut.keeps(&message, first) {
            continue;
        }
        left -= 1;
        if let (Some(mutation), Some(tally)) = (&work.mutation, &mut tally) {
            let (changed, outcome) = mutation.apply(index, message);
            tally.add(&outcome);
            message = changed;
        }
        index += 1;
        match output.write(&message)? {
            true => written.messages += 1,
            false => written.left_out += 1,
        }
    }
    written.skipped = trace.skipped().named();
    written.mutation = work.mutation.zip(tally).map(|(mutation, tally)| report::mutation(&mutation, &tally));
    Ok((written, read))
}

fn shown(written: &TraceWritten) -> String {
    let TraceWritten { file, messages, left_out, skipped, mutation, .. } = written;
    let left_out = match left_out {
        0 => String::new(),
        count => format!(", {count} left out that this form has no room for"),
    };
    let skipped = match skipped.values().sum::<u64>() {
        0 => String::new(),
        // Packets, pairs, frames, or gaps between them.
        count => format!("; {count} skipped (pointsman trace info tells what, and why)"),
    };
    let changes = mutation.as_ref().map_or_else(String::new, |mutation| format!("\n\n{}", changed(mutation)));
    format!("{file}: {}{left_out}{skipped}{changes}", counted(*messages, "message"))
}

/// What was changed, as a table.
pub(in crate::command) fn changed(mutation: &TraceMutation) -> String {
    let mut table = session::table(&["CHANGE", "BY", "DRAWN", "CHANGED", "TOO LONG"]);
    for change in &mutation.changes {
        let TraceChange { change, by, drawn, changed, too_long } = change;
        let count = |count: &u64| count.to_string();
        table.add_row([change.clone(), by.clone(), count(drawn), count(changed), count(too_long)]);
    }
    let alone = BTreeMap::from([
        ("that cannot be read", mutation.unreadable),
        ("with records beside OPT", mutation.with_records),
    ]);
    let alone = alone.into_iter().filter(|(_, count)| *count > 0);
    let alone: String =
        alone.map(|(what, count)| format!("\nNot changed: {} {what}.", counted(count, "query"))).collect();
    let (lines, changed, queries, seed) =
        (session::lines(table), mutation.changed, mutation.queries, mutation.seed);
    format!("{lines}\n\n{changed} of {} changed, seed {seed}.{alone}", counted(queries, "query"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_was_changed_is_told() {
        let mutation = Mutation::parse("do=100%,unique@50%", 7).expect("changes");
        let mut tally = Tally::new(&mutation);
        (tally.queries, tally.changed, tally.unreadable) = (10, 9, 1);
        (tally.changes[0].drawn, tally.changes[0].changed) = (9, 3);
        (tally.changes[1].drawn, tally.changes[1].changed, tally.changes[1].too_long) = (5, 4, 1);
        let written = TraceWritten {
            file: "a.txt".into(),
            messages: 9,
            left_out: 1,
            skipped: BTreeMap::from([("cut".into(), 2)]),
            mutation: Some(report::mutation(&mutation, &tally)),
            damage: None,
        };
        let expected = "\
a.txt: 9 messages, 1 left out that this form has no room for; 2 skipped (pointsman trace info tells what, and why)

CHANGE      BY      DRAWN  CHANGED  TOO LONG
do=100%     client  9      3        0
unique@50%  query   5      4        1

9 of 10 queries changed, seed 7.
Not changed: 1 query that cannot be read.";
        assert_eq!(shown(&written), expected);
    }
}
