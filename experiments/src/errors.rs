//! How far from their due times queries arrived.

use anyhow::{Result, bail};

use crate::quantiles::quantile;

/// A second, in nanoseconds.
pub const SECOND: u64 = 1_000_000_000;

/// The most that either quartile may be off, in microseconds.
pub const QUARTILES_MAX: f64 = 50.0;

/// The most that 99.9 % may be off, in microseconds.
pub const P999_MAX: f64 = 1_000.0;

/// The least share of seconds whose rate must be kept.
pub const SECONDS_MIN: f64 = 0.995;

/// The rate from which a second's rate is judged, in queries a second: below it, one query on the other side of
/// a second's border is more than [`RATE_OFF_MAX`].
const RATE_MIN: usize = 10_000;

/// The most that the rate of a second may be off.
const RATE_OFF_MAX: f64 = 0.001;

/// The errors of one run.
///
/// An error is when a query arrived less when it was due, with the median of these differences taken off: sender
/// and receiver agree on no beginning. Queries are matched in order of time.
#[derive(Clone, Debug, PartialEq)]
pub struct Errors {
    /// Microseconds, ascending; never empty.
    sorted: Vec<f64>,
    rates_off: Vec<f64>,
}

impl Errors {
    /// Holds arrivals against due times, both in nanoseconds from a beginning of their own and ascending; what is
    /// due in the first `ignored` nanoseconds is left out.
    ///
    /// # Errors
    /// Where there is not an arrival for each due time, or nothing is left.
    pub fn of(due: &[u64], arrived: &[u64], ignored: u64) -> Result<Errors> {
        if due.len() != arrived.len() {
            bail!("{} queries were due and {} arrived", due.len(), arrived.len());
        }
        let first = due.partition_point(|&due| due < ignored);
        let mut off: Vec<i64> =
            due.iter().zip(arrived).skip(first).map(|(&due, &at)| at as i64 - due as i64).collect();
        off.sort_unstable();
        let Some(median) = quantile(&off, 0.5) else { bail!("no query is due after what is ignored") };
        let sorted = off.iter().map(|&off| (off - median) as f64 / 1e3).collect();
        let shifted = arrived[first..].iter().map(|&at| at.saturating_add_signed(-median));
        let rates_off = rates_off(&due[first..], shifted);
        Ok(Errors { sorted, rates_off })
    }

    /// The error that this share of all errors does not pass, in microseconds.
    pub fn quantile(&self, share: f64) -> f64 {
        quantile(&self.sorted, share).unwrap_or(f64::NAN)
    }

    /// The distance of the two quartiles from the median, the larger one, in microseconds.
    pub fn quartiles(&self) -> f64 {
        self.quantile(0.25).abs().max(self.quantile(0.75).abs())
    }

    /// What 99.9 % of all errors do not pass, whatever their sign, in microseconds.
    pub fn p999(&self) -> f64 {
        let mut sizes: Vec<f64> = self.sorted.iter().map(|error| error.abs()).collect();
        sizes.sort_by(f64::total_cmp);
        quantile(&sizes, 0.999).unwrap_or(f64::NAN)
    }

    /// The largest error, whatever its sign, in microseconds.
    pub fn extreme(&self) -> f64 {
        self.quantile(0.0).abs().max(self.quantile(1.0).abs())
    }

    /// How many queries there were.
    pub fn queries(&self) -> usize {
        self.sorted.len()
    }

    /// By how much the rate of each whole second was off, as a share; of those with 10,000 queries and more.
    pub fn rates_off(&self) -> &[f64] {
        &self.rates_off
    }

    /// How many of these seconds were within 0.1 % of their rate.
    pub fn rates_kept(&self) -> usize {
        self.rates_off.iter().filter(|off| off.abs() <= RATE_OFF_MAX).count()
    }
}

/// By how much more arrived in each second than was due, as a share; of seconds with [`RATE_MIN`] and more due. The
/// first second and the last are not whole and are left out.
fn rates_off(due: &[u64], arrived: impl Iterator<Item = u64>) -> Vec<f64> {
    let (Some(first), Some(last)) = (due.first(), due.last()) else { return Vec::new() };
    let first = first / SECOND;
    let mut seconds = vec![(0_usize, 0_usize); (last / SECOND - first + 1) as usize];
    for at in due {
        seconds[(at / SECOND - first) as usize].0 += 1;
    }
    for at in arrived {
        if let Some(second) = (at / SECOND).checked_sub(first).and_then(|at| seconds.get_mut(at as usize)) {
            second.1 += 1;
        }
    }
    let whole = seconds.get(1..seconds.len() - 1).unwrap_or_default();
    let judged = whole.iter().filter(|(due, _)| *due >= RATE_MIN);
    judged.map(|&(due, came)| (came as f64 - due as f64) / due as f64).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_common_delay_is_no_error() {
        let due: Vec<u64> = (0..1_000).map(|i| i * 1_000_000).collect();
        let arrived: Vec<u64> = due.iter().map(|due| 5_000_000_000 + due).collect();
        let errors = Errors::of(&due, &arrived, 0).expect("as many");
        assert_eq!((errors.quartiles(), errors.p999(), errors.extreme()), (0.0, 0.0, 0.0));
    }

    #[test]
    fn what_is_late_is_seen_and_what_is_ignored_is_not() {
        let due: Vec<u64> = (0..1_000).map(|i| i * 1_000_000).collect();
        let mut arrived = due.clone();
        arrived[0] += 900_000;
        arrived[999] += 20_000;
        let errors = Errors::of(&due, &arrived, 500_000_000).expect("as many");
        assert_eq!((errors.queries(), errors.quartiles(), errors.extreme()), (500, 0.0, 20.0));
        assert!(Errors::of(&due, &arrived[1..], 0).is_err());
        assert!(Errors::of(&due, &arrived, SECOND).is_err());
    }

    #[test]
    fn a_second_is_kept_when_its_rate_is() {
        let due: Vec<u64> = (0..50_000).map(|i| i * 80_000).collect();
        let errors = Errors::of(&due, &due, 0).expect("as many");
        assert_eq!((errors.rates_off().len(), errors.rates_kept()), (2, 2));
        let late = |at: u64| if (1_500_000_000..2_000_000_000).contains(&at) { at + 500_000_000 } else { at };
        let mut arrived: Vec<u64> = due.iter().map(|&at| late(at)).collect();
        arrived.sort_unstable();
        let errors = Errors::of(&due, &arrived, 0).expect("as many");
        assert_eq!((errors.rates_off().len(), errors.rates_kept()), (2, 0));
    }
}
