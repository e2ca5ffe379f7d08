//! What steering costs: static and steered answers of one process, in turns.
//!
//! Processes of one program differ by some percent, as their memory happens to lie; what is to be within five
//! is therefore measured within one.

use std::time::Duration;

use anyhow::Result;

use super::place::Place;
use super::rate::{Found, Plan};
use super::servers::{Running, Server};
use super::source::Source;
use super::{CPU_RATE, WARM_SECONDS, zone};

/// Seconds of a turn in which CPU per answer is measured.
const TURN_SECONDS: u64 = 3;

/// Turns of either kind in a round: nearly two million answers.
const TURNS: usize = 12;

/// The same for `--quick`.
const TURNS_QUICK: usize = 2;

/// What was found of answers of one kind.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Kind {
    /// Microseconds of processor time an answer.
    pub(crate) cpu: f64,
    /// Rates, in answers a second.
    pub(crate) rate: Found,
}

/// Measures both kinds of one process, static answers first in the result; `odd` rounds begin with the steered ones.
///
/// # Errors
/// Where the server does not start or the source fails.
pub(crate) fn measure(place: &Place, quick: bool, odd: bool) -> Result<[Kind; 2]> {
    let running = Server::Pointsman.start(place)?;
    let sources = [Source::new(place, zone::STATIC)?, Source::new(place, zone::STEERED)?];
    let order = if odd { [1, 0] } else { [0, 1] };
    let mut spent = [(Duration::ZERO, 0); 2];
    for source in &sources {
        source.udp(CPU_RATE, WARM_SECONDS)?;
    }
    for _ in 0..if quick { TURNS_QUICK } else { TURNS } {
        for kind in order {
            let (cpu, answers) = turn(&running, &sources[kind])?;
            spent[kind].0 += cpu;
            spent[kind].1 += answers;
        }
    }
    let mut kinds = spent.map(|(cpu, answers)| Kind {
        cpu: cpu.as_secs_f64() * 1e6 / (answers as f64).max(1.0),
        rate: Found::default(),
    });
    for kind in order {
        kinds[kind].rate = Plan::new(quick).search(&sources[kind])?;
    }
    Ok(kinds)
}

/// The server's processor time in one turn, and its answers.
fn turn(running: &Running, source: &Source) -> Result<(Duration, u64)> {
    let before = running.group.cpu()?;
    let seen = source.udp(CPU_RATE, TURN_SECONDS)?;
    Ok((running.group.cpu()?.saturating_sub(before), seen.answered))
}
