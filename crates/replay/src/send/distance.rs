//! How far clients are from servers, as round-trip times.

use std::time::Duration;

use crate::schedule::draw::{self, For};

/// The longest round trip: none on Earth is longer, through satellites and all.
pub const ROUND_TRIP_MAX: Duration = Duration::from_secs(10);

/// The most round trips in a file.
pub const SAMPLE_MAX: usize = 1 << 20;

/// A distribution of round-trip times over clients.
#[derive(Clone, Debug, PartialEq)]
pub enum Distances {
    /// All equally likely from the first to the second.
    Between(Duration, Duration),
    /// Each of these equally likely; there is one at least.
    Sample(Vec<Duration>),
}

impl Distances {
    /// A client's round-trip time; the same for the same seed.
    pub(super) fn of(&self, client: u64, seed: u64) -> Duration {
        match self {
            Distances::Between(low, high) => {
                *low + high.saturating_sub(*low).mul_f64(draw::unit(seed, For::Distance, client))
            }
            Distances::Sample(times) => {
                let drawn = draw::draw(seed, For::Distance, client) % times.len().max(1) as u64;
                times.get(drawn as usize).copied().unwrap_or_default()
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn draws_are_fixed_and_within() {
        let ms = Duration::from_millis;
        let between = Distances::Between(ms(20), ms(140));
        let drawn: Vec<Duration> = (0..1_000).map(|client| between.of(client, 1)).collect();
        assert!(drawn.iter().all(|time| (ms(20)..=ms(140)).contains(time)));
        let mean = drawn.iter().sum::<Duration>() / 1_000;
        assert!((ms(75)..ms(85)).contains(&mean), "{mean:?}");
        assert_eq!(between.of(7, 1), between.of(7, 1));
        assert_ne!(between.of(7, 1), between.of(7, 2));
        let sample = Distances::Sample(vec![ms(1), ms(9)]);
        let long = (0..1_000).filter(|client| sample.of(*client, 1) == ms(9)).count();
        assert!((450..550).contains(&long), "{long}");
    }
}
