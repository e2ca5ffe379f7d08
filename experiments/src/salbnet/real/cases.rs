//! What servers are given, and what happens to them while they are asked.

use std::thread;
use std::time::{Duration, Instant};

use anyhow::Result;

use super::field::Field;
use crate::options::Size;
use crate::quota::PERIOD;

/// From one move of the antagonist to the next.
const MOVE: Duration = Duration::from_secs(2);

/// After how long a server is ended, how long it is away, and how long each step of its way back takes.
const AWAY_AT: Duration = Duration::from_millis(1_500);
const AWAY: Duration = Duration::from_secs(1);
const WARMS: Duration = Duration::from_millis(500);

/// From one refill to the next where a container runtime sets a limit and is told nothing of it.
const CONTAINER_PERIOD: Duration = Duration::from_millis(100);

/// From which load on our policy must be so much better.
const LOADED: f64 = 0.9;

/// Rounds of a full run where something is demanded.
pub(super) const ROUNDS: u64 = 7;

/// The same at a load that servers can answer. What a query costs them changes by some percent from turn to turn, and near
/// what they can that decides whether they have queues at all. With long periods it does not: quotas make more of a difference.
const ROUNDS_BELOW: u64 = 15;

/// From one look whether the load has ended to the next.
const LOOK: Duration = Duration::from_millis(10);

/// Three servers in some situation.
#[derive(Clone, Copy, Debug)]
pub(super) struct Case {
    pub(super) name: &'static str,
    /// What it is called on the command line, where it is asked for alone.
    pub(super) part: &'static str,
    pub(super) about: &'static str,
    /// What each may use of one processor.
    pub(super) shares: [f64; 3],
    /// From one refill of that to the next, where it is not too small.
    pub(super) period: Duration,
    /// Octets of their receive buffers; the system's default for 0.
    pub(super) buffers: [u32; 3],
    event: Event,
    /// Loads of what they can, in a full and in a quick run; none where it takes no part.
    loads: [&'static [f64]; 3],
    /// Whether what is demanded of unequal and moving servers is demanded here.
    is_demanded: bool,
    /// How many rounds there are then at loads that servers can answer.
    pub(super) rounds_below: u64,
}

/// What happens to the servers during a turn.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Event {
    Nothing,
    /// The antagonist moves on: another server has half every [`MOVE`].
    Moves,
    /// The first server is ended and started again, and is slow then.
    Restarts,
}

/// All of them; the first is the slides'.
pub(super) const CASES: &[Case] = &[
    Case {
        name: "Unequal servers",
        part: "unequal",
        about: "20, 10 and 5 % of one processor.",
        shares: [0.2, 0.1, 0.05],
        period: PERIOD,
        buffers: [0; 3],
        event: Event::Nothing,
        loads: [&[0.6, 0.9, 1.05, 1.2], &[0.9], &[0.5]],
        is_demanded: true,
        rounds_below: ROUNDS_BELOW,
    },
    Case {
        name: "Moving antagonist",
        part: "moving",
        about: "Every two seconds another of three equal servers (12 %) has half.",
        shares: [0.12; 3],
        period: PERIOD,
        buffers: [0; 3],
        event: Event::Moves,
        loads: [&[0.9], &[0.9], &[]],
        is_demanded: true,
        rounds_below: ROUNDS_BELOW,
    },
    Case {
        name: "Containers",
        part: "containers",
        about: "20, 10 and 5 % of one processor in each 100 ms, as container runtimes limit it.",
        shares: [0.2, 0.1, 0.05],
        period: CONTAINER_PERIOD,
        buffers: [0; 3],
        event: Event::Nothing,
        loads: [&[0.9], &[0.9], &[]],
        is_demanded: true,
        rounds_below: ROUNDS,
    },
    Case {
        name: "Buffer trap",
        part: "buffers",
        about: "Three equal servers (12 %), with receive buffers of 64 kB, 64 kB and 4 MB.",
        shares: [0.12; 3],
        period: PERIOD,
        buffers: [32 << 10, 32 << 10, 2 << 20],
        event: Event::Nothing,
        loads: [&[0.95], &[], &[]],
        is_demanded: false,
        rounds_below: 0,
    },
    Case {
        name: "Cold restart",
        part: "restart",
        about: "One of three equal servers (12 %) is ended, started again a second later, and slow then: an eighth of \
            its share, twice as much every half second.",
        shares: [0.12; 3],
        period: PERIOD,
        buffers: [0; 3],
        event: Event::Restarts,
        loads: [&[0.6], &[], &[]],
        is_demanded: false,
        rounds_below: 0,
    },
];

impl Case {
    /// The loads; none where it takes no part.
    pub(super) fn wanted(&self, size: Size) -> &'static [f64] {
        let [full, quick, smoke] = self.loads;
        size.of(full, quick, smoke)
    }

    /// Whether something is demanded of our policy at a load.
    pub(super) fn demands(&self, size: Size, load: f64) -> bool {
        size == Size::Full && self.is_demanded && load >= LOADED
    }

    /// The same servers, to which nothing happens.
    pub(super) fn at_rest(&self) -> Case {
        Case { event: Event::Nothing, ..*self }
    }

    /// What all can together, of what each can to which nothing happens.
    pub(super) fn can(&self, capacities: &[f64; 3]) -> f64 {
        let all: f64 = capacities.iter().sum();
        match self.event {
            Event::Moves => all * (capacities.len() as f64 - 0.5) / capacities.len() as f64,
            Event::Nothing | Event::Restarts => all,
        }
    }

    /// The server that is started again, and so keeps no count of all that it has received.
    pub(super) fn restarted(&self) -> Option<usize> {
        (self.event == Event::Restarts).then_some(0)
    }

    /// Does what happens, until the load has ended.
    ///
    /// # Errors
    /// Where that fails.
    pub(super) fn happens(&self, field: &mut Field, has_ended: &dyn Fn() -> bool) -> Result<()> {
        let wait = |time: Duration| {
            let begin = Instant::now();
            while begin.elapsed() < time && !has_ended() {
                thread::sleep(LOOK);
            }
        };
        match self.event {
            Event::Nothing => {}
            Event::Moves => {
                for turn in 0.. {
                    let mut shares = self.shares;
                    shares[turn % 3] /= 2.0;
                    field.set(shares)?;
                    wait(MOVE);
                    if has_ended() {
                        break;
                    }
                }
                field.set(self.shares)?;
            }
            Event::Restarts => {
                wait(AWAY_AT);
                field.end(0);
                wait(AWAY);
                field.begin(0)?;
                for part in [8.0, 4.0, 2.0, 1.0] {
                    field.set([self.shares[0] / part, self.shares[1], self.shares[2]])?;
                    wait(if part > 1.0 { WARMS } else { Duration::ZERO });
                }
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::salbnet::{PARTS, VIRTUAL};

    #[test]
    fn every_part_is_a_case() {
        let cases = CASES.iter().map(|case| case.part);
        assert_eq!(PARTS, std::iter::once(VIRTUAL).chain(cases).collect::<Vec<_>>());
    }
}
