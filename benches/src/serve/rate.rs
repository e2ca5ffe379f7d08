//! The lossless rate: the highest offered rate of which at least [`ANSWERED_MIN`] is answered and at least
//! [`OFFERED_MIN`] was really offered; each rate has [`TRIES`] tries, and one good one is enough.

use anyhow::Result;

use super::source::{Seen, Source};

/// The least share of queries that must be answered.
const ANSWERED_MIN: f64 = 0.995;

/// The least share of the rate that must have been offered.
const OFFERED_MIN: f64 = 0.98;

/// Tries of one rate: a small machine has hiccups of its own.
pub(super) const TRIES: usize = 3;

/// The first rate that is tried, in queries a second.
const FIRST: u64 = 80_000;

/// The highest: beyond it the source itself would be what is measured.
const LAST: u64 = 600_000;

/// How the rates are gone through.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Plan {
    step: u64,
    /// How near to the first rate with loss the search comes: 3 % between servers is seen only with steps that are
    /// smaller.
    finest: u64,
    tries: usize,
    seconds: u64,
}

/// What was found.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Found {
    /// Queries a second; 0 where not even the lowest rate was lossless.
    pub(crate) lossless: u64,
    /// The most answers a second that were seen in any try.
    pub(crate) peak: f64,
}

impl Plan {
    /// Steps of 20,000 q/s and halves down to 2,500, or coarse ones.
    pub(crate) fn new(quick: bool) -> Plan {
        if quick {
            Plan { step: 20_000, finest: 5_000, tries: 1, seconds: 1 }
        } else {
            Plan { step: 20_000, finest: 2_500, tries: TRIES, seconds: 2 }
        }
    }

    /// Searches upward from [`FIRST`] to the first rate whose tries all fail, and downward where that is too much already;
    /// then between the last two.
    ///
    /// # Errors
    /// Where the source fails.
    pub(crate) fn search(self, source: &Source) -> Result<Found> {
        self.go(|rate| source.udp(rate, self.seconds))
    }

    fn go(self, mut send: impl FnMut(u64) -> Result<Seen>) -> Result<Found> {
        let mut found = Found::default();
        for rate in (FIRST..=LAST).step_by(self.step as usize) {
            if self.is_lossless(rate, &mut found, &mut send)? {
                found.lossless = rate;
            } else {
                break;
            }
        }
        let mut rate = FIRST.saturating_sub(self.step);
        while found.lossless == 0 && rate > 0 {
            if self.is_lossless(rate, &mut found, &mut send)? {
                found.lossless = rate;
            }
            rate = rate.saturating_sub(self.step);
        }
        let mut gap = self.step;
        while found.lossless > 0 && found.lossless < LAST && gap > self.finest {
            gap /= 2;
            let rate = found.lossless + gap;
            if self.is_lossless(rate, &mut found, &mut send)? {
                found.lossless = rate;
            }
        }
        Ok(found)
    }

    fn is_lossless(
        self,
        rate: u64,
        found: &mut Found,
        send: &mut impl FnMut(u64) -> Result<Seen>,
    ) -> Result<bool> {
        for _ in 0..self.tries {
            let seen = send(rate)?;
            found.peak = found.peak.max(seen.rate());
            if seen.share() >= ANSWERED_MIN && seen.offered() >= OFFERED_MIN * rate as f64 {
                return Ok(true);
            }
        }
        Ok(false)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A server that answers up to `capacity` queries a second, of a source that sends up to `limit`.
    fn check(capacity: u64, limit: u64, lossless: u64) {
        let found = Plan::new(false).go(|rate| {
            let sent = rate.min(limit) * 2;
            let answered = sent.min(capacity * 2);
            Ok(Seen { seconds: 2.0, sent, answered, good: answered })
        });
        let found = found.expect("nothing fails");
        assert_eq!(found.lossless, lossless, "{capacity} {limit}");
        assert_eq!(found.peak as u64, capacity.min(limit).min(found.peak as u64));
    }

    #[test]
    fn the_highest_rate_without_loss_is_found() {
        check(150_000, 800_000, 150_000);
        check(158_000, 800_000, 157_500);
        check(80_000, 800_000, 80_000);
        check(45_000, 800_000, 45_000);
        check(5_000, 800_000, 0);
        check(900_000, 200_000, 202_500);
    }

    #[test]
    fn a_hiccup_is_forgiven() {
        let mut sends = 0;
        let found = Plan::new(false).go(|rate| {
            sends += 1;
            let answered = if sends % 3 == 0 { rate.min(120_000) } else { rate / 2 };
            Ok(Seen { seconds: 1.0, sent: rate, answered, good: answered })
        });
        assert_eq!(found.expect("nothing fails").lossless, 120_000);
    }
}
