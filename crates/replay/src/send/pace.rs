//! When to sleep, when to spin and when to send.

use std::time::Duration;

/// How long before a query is due the sleep ends, in nanoseconds: a core that wakes takes 50 to 100 microseconds to
/// be there, and what is left is spun away.
pub(super) const SPIN: u64 = 80_000;

/// A sleep that is longer leaves a sixteenth to the next one, in nanoseconds: the kernel may end a sleep late by a
/// thousandth of it, and a core that has slept for long wakes late.
const LONG: u64 = 1_000_000;

/// The longest sleep in nanoseconds, so that an interrupt of the run and the live numbers do not wait: 50 ms.
const SLEEP_MAX: u64 = 50_000_000;

/// The shortest pause that is used to read ahead in the trace, in nanoseconds. A decompressor may take half of it
/// for one block.
const READ_AHEAD: u64 = 300_000;

/// What to do now.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Step {
    /// The next query is due.
    Send,
    /// It is due so soon that a sleep would miss it.
    Spin,
    /// There is time to read ahead in the trace.
    Read,
    /// Nothing is to be done for so long, unless a socket has something.
    Sleep(Duration),
}

/// Decides at `now`, in nanoseconds from the beginning: `due` is when the next query is due and `expiry` when the next
/// one is lost, where there are such; `may_read` says that there is room ahead.
pub(super) fn step(now: u64, due: Option<u64>, expiry: Option<u64>, may_read: bool) -> Step {
    let pause = due.map_or(u64::MAX, |due| due.saturating_sub(now));
    if pause == 0 {
        return Step::Send;
    }
    if may_read && pause > READ_AHEAD {
        return Step::Read;
    }
    if pause <= SPIN {
        return Step::Spin;
    }
    let sleep = pause - SPIN;
    let sleep = if sleep > LONG { sleep - sleep / 16 } else { sleep };
    let expires = expiry.map_or(u64::MAX, |expiry| expiry.saturating_sub(now));
    Step::Sleep(Duration::from_nanos(sleep.min(expires).min(SLEEP_MAX)))
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn steps() {
        const US: u64 = 1_000;
        let sleep = |us| Step::Sleep(Duration::from_micros(us));
        for (now, due, expiry, may_read, expected) in [
            (1_000, Some(1_000), None, true, Step::Send),
            (1_001, Some(1_000), None, true, Step::Send),
            (1_000, Some(1_080), None, false, Step::Spin),
            (1_000, Some(1_081), None, false, sleep(1)),
            (1_000, Some(1_200), Some(1_050), true, sleep(50)),
            (1_000, Some(1_301), None, true, Step::Read),
            (1_000, Some(1_301), None, false, sleep(221)),
            (1_000, Some(2_080), None, false, sleep(1_000)),
            (1_000, Some(17_080), None, false, sleep(15_000)),
            (1_000, None, Some(1_050), false, sleep(50)),
            (1_000, None, None, false, sleep(50_000)),
        ] {
            let step = step(now * US, due.map(|due| due * US), expiry.map(|expiry| expiry * US), may_read);
            assert_eq!(step, expected, "{now} {due:?} {expiry:?} {may_read}");
        }
    }

    proptest! {
        /// On a clock that the test turns: sleeps end up to 70 us late, each turn of the spin takes 1 us, sending one
        /// query takes 3 us. Lateness never adds up, as deadlines are absolute.
        #[test]
        fn lateness_is_a_turn_of_the_spin_wherever_there_is_time(
            gaps in prop::collection::vec(5_000..20_000_000_u64, 1..100),
            over in prop::collection::vec(0..70_000_u64, 1..50),
        ) {
            let (mut now, mut due) = (0, 0);
            let mut over = over.iter().cycle();
            for gap in gaps {
                due += gap;
                loop {
                    match step(now, Some(due), None, false) {
                        Step::Send => break,
                        Step::Spin | Step::Read => now += 1_000,
                        Step::Sleep(time) => now += time.as_nanos() as u64 + over.next().unwrap_or(&0),
                    }
                }
                prop_assert!(now - due <= 1_000, "{} ns late", now - due);
                now += 3_000;
            }
        }
    }
}
