//! The times of a trace as one line that never goes back.

use std::time::Duration;

/// A step back up to which a query is only late in the capture, in nanoseconds: a TCP stream's message is told
/// when its last segment has come, and captures from several interfaces are merged. Beyond, the clock was set.
const BACK_MAX: i128 = 1_000_000_000;

/// The longest pause that is kept, in nanoseconds: a day. Beyond, the clock was set or the packet's time is absurd.
const PAUSE_MAX: i128 = 86_400_000_000_000;

/// Turns times since 1970 into nanoseconds since the first of them.
#[derive(Clone, Debug, Default)]
pub struct Timeline {
    /// What is the beginning of the line, in nanoseconds since 1970; none before the first time.
    zero: Option<i128>,
    last: u64,
    /// How often the clock was set: the line goes on as if no time had passed.
    pub jumps: u64,
}

impl Timeline {
    /// The place of the next time, in nanoseconds; not before the last place.
    pub fn place(&mut self, time: Duration) -> u64 {
        let time = time.as_nanos() as i128;
        let last = i128::from(self.last);
        let zero = *self.zero.get_or_insert(time - last);
        let mut at = time - zero;
        if at < last - BACK_MAX || at > last + PAUSE_MAX {
            self.jumps += 1;
            self.zero = Some(time - last);
            at = last;
        }
        // Pauses are bounded, so that the line would pass 2^64 after 584 years of them.
        self.last = u64::try_from(at.max(last)).unwrap_or(u64::MAX);
        self.last
    }

    /// Goes on `gap` nanoseconds later with whatever time comes next: the trace begins anew.
    pub fn restart(&mut self, gap: u64) {
        self.last = self.last.saturating_add(gap);
        self.zero = None;
    }

    /// The last place.
    pub fn last(&self) -> u64 {
        self.last
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_line_never_goes_back() {
        const S: u64 = 1_000_000_000;
        let mut timeline = Timeline::default();
        let year = 365 * 86_400;
        for (at, expected, jumps) in [
            (1_000, 0, 0),
            (1_005, 5, 0),
            (1_004, 5, 0),
            (1_006, 6, 0),
            (100, 6, 1),
            (101, 7, 1),
            (50 * year, 7, 2),
            (102, 7, 3),
            (103, 8, 3),
        ] {
            assert_eq!(timeline.place(Duration::from_secs(at)), expected * S, "{at}");
            assert_eq!(timeline.jumps, jumps, "{at}");
        }
        timeline.restart(2 * S);
        assert_eq!(timeline.place(Duration::from_secs(1_000)), 10 * S);
        assert_eq!(timeline.place(Duration::MAX), 10 * S);
        assert_eq!(timeline.place(Duration::ZERO), 10 * S);
    }
}
