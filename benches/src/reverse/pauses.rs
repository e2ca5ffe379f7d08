//! Pauses of the machine: when a core did nothing for anybody here.

use std::collections::VecDeque;
use std::process::Command;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::Sender;
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use nix::unistd::gettid;

/// How much time is to be lost for a pause, at once or in pieces. No answer is late for less.
const PAUSE_MIN: Duration = Duration::from_micros(500);

/// In how long a time the pieces of a pause are lost. A host that has others to run takes a core for some tenths of a
/// millisecond again and again, and leaves a fifth of it for ten milliseconds; each piece alone would go unseen.
const WITHIN: Duration = Duration::from_millis(2);

/// Shorter pieces do not count: interrupts and timers of the machine take as long. A server that works off what has
/// waited, without any rest, delays the witness by less, too.
const PIECE_MIN: Duration = Duration::from_micros(100);

/// How often the witness looks at the clock. That takes a tenth of the core that it watches; every millisecond it took less,
/// and missed pauses of which answers over RESP then were accused (p99.9 of 1.0 to 1.5 ms).
const LOOK: Duration = Duration::from_micros(200);

/// For how many times its length a pause is felt at most: a core that is busy for more than nine tenths of its time has
/// too much to do, pauses or not.
const FELT_MAX: f64 = 9.0;

/// What a report says of them.
pub(crate) const RULE: &str = "Held up are look-ups that were under way when one of the two cores paused, or while the \
    server's core worked off what had come meanwhile; with a share b of its time busy, that takes b / (1 - b) times what \
    was lost (counted are once to nine times), on top of what the one before has left. A pause is more than 0.5 ms lost \
    within 2 ms, at once or in pieces of more than 0.1 ms. Pauses are as the source saw them, which does not rest, and a \
    witness before all other threads (SCHED_FIFO) on the server's core, which only looks at the clock. All other columns \
    are without them, but for the one that says so; the targets count all.";

/// Pauses of one core, in their order and apart from each other.
#[derive(Debug, Default)]
pub(crate) struct Pauses {
    found: Vec<Pause>,
    /// The pieces of the last [`WITHIN`].
    pieces: VecDeque<(Instant, Instant)>,
}

/// From the beginning of the first piece to the end of the last, and what was lost of that.
#[derive(Clone, Copy, Debug)]
struct Pause {
    from: Instant,
    to: Instant,
    lost: Duration,
}

/// The times in which pauses are felt: in their order, apart from each other.
#[derive(Debug)]
pub(crate) struct Felt(Vec<(Instant, Instant)>);

impl Pauses {
    /// Notes that nothing happened between these two, which were to be no time apart.
    pub(crate) fn look(&mut self, last: Instant, now: Instant) {
        if now.duration_since(last) <= PIECE_MIN {
            return;
        }
        self.pieces.push_back((last, now));
        while self.pieces.front().is_some_and(|(_, to)| now.duration_since(*to) > WITHIN) {
            self.pieces.pop_front();
        }
        let lost_since = |begin: Instant| -> Duration {
            let since = self.pieces.iter().filter(|(from, _)| *from >= begin);
            since.map(|(from, to)| to.duration_since(*from)).sum()
        };
        let from = self.pieces.front().map_or(last, |(from, _)| *from);
        let lost = lost_since(from);
        if lost <= PAUSE_MIN {
            return;
        }
        match self.found.last_mut() {
            Some(pause) if from <= pause.to => {
                pause.lost += lost_since(pause.to);
                pause.to = now;
            }
            _ => self.found.push(Pause { from, to: now, lost }),
        }
    }

    /// The most that one of them has lost.
    pub(crate) fn longest(&self) -> Duration {
        self.found.iter().map(|pause| pause.lost).max().unwrap_or_default()
    }

    /// When these or others are felt on a core that is busy for such a share of its time: what came meanwhile waits in a
    /// queue, and so does what comes while that drains. Another one before the queue has drained makes it longer.
    pub(crate) fn and(self, others: Pauses, busy: f64) -> Felt {
        let times = (busy / (1.0 - busy).max(f64::EPSILON)).clamp(1.0, FELT_MAX);
        let mut all: Vec<Pause> = self.found.into_iter().chain(others.found).collect();
        all.sort_by_key(|pause| pause.from);
        // Of both cores at once, they are one.
        let mut pauses: Vec<Pause> = Vec::new();
        for pause in all {
            match pauses.last_mut() {
                Some(before) if pause.from <= before.to => {
                    before.to = pause.to.max(before.to);
                    before.lost = (before.lost + pause.lost).min(before.to.duration_since(before.from));
                }
                _ => pauses.push(pause),
            }
        }
        let mut felt: Vec<(Instant, Instant)> = Vec::new();
        for Pause { from, to, lost } in pauses {
            let drained = to + lost.mul_f64(times);
            match felt.last_mut() {
                Some((_, end)) if from <= *end => *end = drained + end.duration_since(from),
                _ => felt.push((from, drained)),
            }
        }
        Felt(felt)
    }
}

impl Felt {
    /// Whether one of them has a moment in common with these two and what is between them.
    pub(crate) fn touch(&self, from: Instant, to: Instant) -> bool {
        let first = self.0.partition_point(|(_, end)| *end < from);
        self.0.get(first).is_some_and(|(begin, _)| *begin <= to)
    }
}

/// Looks at the clock of a core, before all other threads there, until it is told to end; says when it begins. What is
/// needed to come before others takes that core some milliseconds.
///
/// # Errors
/// Where it cannot have that core, or come before others.
pub(crate) fn witness(core: usize, begun: Sender<()>, done: &AtomicBool) -> Result<Pauses> {
    net::thread::pin(core).context("pinning a thread")?;
    let this = gettid().to_string();
    let status = Command::new("chrt").args(["--fifo", "--pid", "50", &this]).status().context("chrt")?;
    ensure!(status.success(), "chrt: {status}");
    let mut pauses = Pauses::default();
    let _ = begun.send(());
    while !done.load(Ordering::Relaxed) {
        let due = Instant::now() + LOOK;
        thread::sleep(LOOK);
        pauses.look(due, Instant::now().max(due));
    }
    Ok(pauses)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_pause_may_come_in_pieces() {
        let begin = Instant::now();
        // Of each millisecond, so many microseconds in so many pieces, for ten milliseconds.
        let lost = |micros: u64, pieces: u64| {
            let mut pauses = Pauses::default();
            for piece in 0..10 * pieces {
                let from = begin + Duration::from_micros(piece * 1_000 / pieces);
                pauses.look(from, from + Duration::from_micros(micros / pieces));
            }
            pauses
        };
        // One of 0.3 ms each millisecond: after the second it is one, and lasts.
        let pauses = lost(300, 1);
        assert_eq!(pauses.longest(), Duration::from_millis(3));
        let felt = pauses.and(Pauses::default(), 0.5);
        let at = |micros: u64| begin + Duration::from_micros(micros);
        for (from, to, expected) in
            [(0, 1, true), (5_500, 5_600, true), (12_200, 12_200, true), (12_400, 13_000, false)]
        {
            assert_eq!(felt.touch(at(from), at(to)), expected, "{from} to {to}");
        }
        assert_eq!(lost(150, 1).longest(), Duration::ZERO, "too little");
        assert_eq!(lost(400, 4).longest(), Duration::ZERO, "pieces that are too short");
    }

    #[test]
    fn what_a_pause_may_have_held_up_is_told_apart() {
        let begin = Instant::now();
        let at = |ms: u64| begin + Duration::from_millis(ms);
        let (mut one, mut other) = (Pauses::default(), Pauses::default());
        for (from, to) in [(0, 0), (10, 12), (40, 44)] {
            one.look(at(from), at(to));
        }
        other.look(at(13), at(15));
        assert_eq!((one.longest(), other.longest()), (Duration::from_millis(4), Duration::from_millis(2)));
        // Felt from 10 to 22, for three are left of the first one's drain when the second begins, and from 40 to 52, where a
        // core is busy for two thirds of its time.
        let felt = one.and(other, 2.0 / 3.0);
        for (from, to, expected) in
            [(8, 9, false), (9, 10, true), (21, 30, true), (23, 39, false), (0, 100, true), (53, 54, false)]
        {
            assert_eq!(felt.touch(at(from), at(to)), expected, "{from} to {to}");
        }
    }
}
