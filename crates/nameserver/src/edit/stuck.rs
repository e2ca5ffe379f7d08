//! What follows a take-over that fails: it is tried again after a pause, and what is wrong is told until it succeeds.

use std::time::Duration;

use learn::Backoff;

/// How long it is until a take-over is tried again. It may load all that is stored, and whatever keeps it from that
/// seldom ends by itself; so the longest pause is what an operator who has mended it waits for.
pub(super) const RETRY: Backoff =
    Backoff { first: Duration::from_millis(100), most: Duration::from_secs(30) };

/// Take-overs that have failed in a row.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Stuck {
    /// When the first of them did: Unix time in seconds.
    pub(super) since: u64,
    /// The same on the editor's clock.
    first: Duration,
    /// How many they are.
    tries: u32,
    /// Before which time nothing is tried.
    again: Duration,
    /// Why the last one failed.
    why: String,
}

impl Stuck {
    /// One more has failed, at `now` of the editor's clock and `unix` of the wall's. A `draw` from 0 to below 1
    /// spreads what name servers that fail together do next: the pause is between half of what is due and all of it.
    pub(super) fn after(
        before: Option<Stuck>,
        why: String,
        now: Duration,
        unix: Duration,
        draw: f64,
    ) -> Stuck {
        let (since, first, tries) = match before {
            Some(Stuck { since, first, tries, .. }) => (since, first, tries.saturating_add(1)),
            None => (unix.as_secs(), now, 1),
        };
        let again = now + RETRY.after(tries).mul_f64(0.5 + draw / 2.0);
        Stuck { since, first, tries, again, why }
    }

    /// Whether it is too early to try again.
    pub(super) fn is_pausing(&self, now: Duration) -> bool {
        now < self.again
    }

    /// Has the next try wait for so long from the editor's start.
    #[cfg(test)]
    pub(super) fn wait(&mut self, until: Duration) {
        self.again = until;
    }

    /// What is wrong, for people.
    pub(super) fn told(&self, now: Duration) -> String {
        let (seconds, tries) = (now.saturating_sub(self.first).as_secs(), self.tries);
        let tries = if tries == 1 { "once".into() } else { format!("{tries} times") };
        format!("what others changed could not be loaded, tried {tries} in {seconds} s: {}", self.why)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pauses_double_up_to_the_longest_and_are_spread_by_the_draw() {
        let ms = Duration::from_millis;
        for (draw, expected) in [
            (0.0, [50, 100, 200, 400, 800, 1_600, 3_200, 6_400, 12_800, 15_000, 15_000]),
            (0.5, { [75, 150, 300, 600, 1_200, 2_400, 4_800, 9_600, 19_200, 22_500, 22_500] }),
        ] {
            let (mut stuck, mut now) = (None, ms(7));
            for pause in expected {
                let failed = Stuck::after(stuck.take(), "why".into(), now, ms(5_000) + now, draw);
                assert!(failed.is_pausing(now + ms(pause) - Duration::from_nanos(1)), "{pause} ms at {draw}");
                assert!(!failed.is_pausing(now + ms(pause)), "{pause} ms at {draw}");
                now += ms(pause);
                assert_eq!(failed.since, 5, "it is the first that counts");
                stuck = Some(failed);
            }
        }
    }

    #[test]
    fn it_tells_how_often_since_when_and_why_the_last_time() {
        let seconds = Duration::from_secs;
        let once = Stuck::after(None, "lost".into(), seconds(1), seconds(9), 0.0);
        assert_eq!(once.told(seconds(1)), "what others changed could not be loaded, tried once in 0 s: lost");
        let twice = Stuck::after(Some(once), "full".into(), seconds(3), seconds(11), 0.0);
        assert_eq!(
            twice.told(seconds(8)),
            "what others changed could not be loaded, tried 2 times in 7 s: full"
        );
    }
}
