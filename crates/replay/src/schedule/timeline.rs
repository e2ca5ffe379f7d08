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
    /// What it was before the clock was set, and up to which place the clock may turn out to have been right before.
    former: Option<(i128, i128)>,
    last: u64,
    /// How often the clock was set: the line goes on as if no time had passed.
    pub jumps: u64,
}

impl Timeline {
    /// The place of the next time, in nanoseconds; not before the last place.
    pub fn place(&mut self, time: Duration) -> u64 {
        let time = time.as_nanos() as i128;
        let last = i128::from(self.last);
        // One packet of another clock, or each second one of a merged capture, does not move the line.
        if let Some((zero, until)) = self.former.filter(|(_, until)| last <= *until)
            && (last - BACK_MAX..=until).contains(&(time - zero))
        {
            (self.zero, self.former) = (Some(zero), None);
        }
        let zero = *self.zero.get_or_insert(time - last);
        let mut at = time - zero;
        if at < last - BACK_MAX || at > last + PAUSE_MAX {
            self.jumps += 1;
            // As far on as it was set, it would have caught up with itself.
            self.former = Some((zero, last + (at - last).abs().min(PAUSE_MAX)));
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
        (self.zero, self.former) = (None, None);
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
            (102, 8, 2),
            (103, 9, 2),
            (50 * year, 9, 3),
            (51 * year, 9, 4),
            (103, 9, 5),
            (104, 10, 5),
        ] {
            assert_eq!(timeline.place(Duration::from_secs(at)), expected * S, "{at}");
            assert_eq!(timeline.jumps, jumps, "{at}");
        }
        timeline.restart(2 * S);
        assert_eq!(timeline.place(Duration::from_secs(1_000)), 12 * S);
        assert_eq!(timeline.place(Duration::MAX), 12 * S);
        assert_eq!(timeline.place(Duration::ZERO), 12 * S);
    }

    #[test]
    fn a_clock_that_is_behind_does_not_move_the_line() {
        let ms = Duration::from_millis;
        let mut timeline = Timeline::default();
        // Two captures one behind the other in one file, 1.5 s apart, and one packet of long ago.
        let mut last = timeline.place(ms(10_000));
        for packet in 1..=1_000 {
            let at = packet * 10;
            timeline.place(ms(10_000 + at - 1_500));
            last = timeline.place(ms(10_000 + at));
        }
        assert_eq!((last, timeline.jumps), (10_000_000_000, 1_000));
        timeline.place(ms(1_000));
        assert_eq!(timeline.place(ms(21_000)), 11_000_000_000);
        // One that was set back stays so, however long that is.
        for second in 0..100 {
            let at = timeline.place(ms(16_000 + second * 1_000));
            assert_eq!(at, (11 + second) * 1_000_000_000, "{second}");
        }
    }
}
