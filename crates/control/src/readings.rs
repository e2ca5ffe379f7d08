//! The last value of each source for each server, and how old it is.

use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use crate::load::is_possible;
use crate::numbers::Verdict;

/// The last values, a place for each server and source: what is not configured has no place.
#[derive(Debug)]
pub struct Readings {
    sources: usize,
    places: Mutex<Vec<Reading>>,
}

#[derive(Clone, Debug, Default)]
struct Reading {
    /// The last value that can be a load, and when it was taken.
    good: Option<(f64, Duration)>,
    /// The last count of what is told per second, and when it was taken.
    count: Option<(f64, Duration)>,
    /// What went wrong since.
    why: String,
}

impl Readings {
    /// Readings of so many servers and sources, all without a value.
    pub fn new(servers: usize, sources: usize) -> Readings {
        Readings { sources, places: Mutex::new(vec![Reading::default(); servers * sources]) }
    }

    /// Notes what was measured at `at`: a load, or with `per_second` a count that grows.
    pub fn note(
        &self,
        server: usize,
        source: usize,
        measured: Result<f64, String>,
        at: Duration,
        per_second: bool,
    ) -> Verdict {
        let mut places = self.places();
        let reading = &mut places[server * self.sources + source];
        let value = match measured {
            Ok(value) if !is_possible(value) => {
                reading.why = format!("{value} is no load");
                return Verdict::Absurd;
            }
            Ok(value) => value,
            Err(why) => {
                reading.why = why;
                return Verdict::Failed;
            }
        };
        let value = if per_second {
            match reading.count.replace((value, at)) {
                // A count that went back began anew.
                Some((before, then)) if value >= before && at > then => {
                    (value - before) / (at - then).as_secs_f64()
                }
                _ => {
                    reading.why = "a count says nothing before it has grown".into();
                    return Verdict::Measured;
                }
            }
        } else {
            value
        };
        (reading.good, reading.why) = (Some((value, at)), String::new());
        Verdict::Measured
    }

    /// The last good value where it is not older than `stale` at `now`, and what went wrong since.
    pub fn value(
        &self,
        server: usize,
        source: usize,
        now: Duration,
        stale: Duration,
    ) -> (Option<f64>, String) {
        let places = self.places();
        let Reading { good, why, .. } = &places[server * self.sources + source];
        match good {
            Some((value, at)) if now.saturating_sub(*at) <= stale => (Some(*value), why.clone()),
            Some((_, at)) => {
                let age = now.saturating_sub(*at).as_secs();
                let since = if why.is_empty() { String::new() } else { format!(": {why}") };
                (None, format!("its value is older than {} s ({age} s){since}", stale.as_secs_f64()))
            }
            None if why.is_empty() => (None, "nothing has been reported".into()),
            None => (None, why.clone()),
        }
    }

    fn places(&self) -> MutexGuard<'_, Vec<Reading>> {
        self.places.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const S: fn(u64) -> Duration = Duration::from_secs;

    #[test]
    fn the_last_good_value_counts_until_it_is_stale() {
        let readings = Readings::new(2, 1);
        let read = |at| readings.value(1, 0, S(at), S(30));
        assert_eq!(read(0), (None, "nothing has been reported".into()));
        assert_eq!(readings.note(1, 0, Ok(0.5), S(10), false), Verdict::Measured);
        assert_eq!(read(10), (Some(0.5), String::new()));
        for absurd in [-0.1, f64::NAN, f64::INFINITY] {
            assert_eq!(readings.note(1, 0, Ok(absurd), S(20), false), Verdict::Absurd);
        }
        assert_eq!(read(20), (Some(0.5), "inf is no load".into()));
        assert_eq!(readings.note(1, 0, Err("refused".into()), S(30), false), Verdict::Failed);
        assert_eq!(read(40), (Some(0.5), "refused".into()));
        assert_eq!(read(41), (None, "its value is older than 30 s (31 s): refused".into()));
        assert_eq!(readings.value(0, 0, S(41), S(30)).0, None, "the other server has none");
    }

    #[test]
    fn counts_are_told_per_second() {
        let readings = Readings::new(1, 1);
        for (at, count, expected) in [
            (10, 100.0, None),
            (20, 150.0, Some(5.0)),
            (25, 150.0, Some(0.0)),
            (30, 20.0, Some(0.0)),
            (40, 40.0, Some(2.0)),
        ] {
            readings.note(0, 0, Ok(count), S(at), true);
            assert_eq!(readings.value(0, 0, S(at), S(30)).0, expected, "at {at}");
        }
    }
}
