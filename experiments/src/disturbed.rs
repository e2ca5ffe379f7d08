//! Runs of a sender that others held up, told from those that they did not.
//!
//! What other programs and the machine's host take from a sender is lateness that no sender can help. A run from which they
//! took more than [`HELD_UP_MAX`] is disturbed, whatever its errors are, and is done once more.

use anyhow::Result;
use api::replay::ReplayReport;

use crate::errors::Errors;

/// The largest share of a run's time that others may have: half of what the 99.9th percentile leaves out.
pub const HELD_UP_MAX: f64 = 0.000_5;

/// The runs of one load.
#[derive(Clone, Debug, PartialEq)]
pub struct Runs {
    /// Those that count: as many undisturbed ones as were wanted; all that there are, where there are not so many.
    pub counted: Vec<Errors>,
    /// How many were undisturbed.
    pub undisturbed: usize,
    /// How many there were.
    pub all: usize,
    /// The largest share of a run's time that others had, of those that count.
    pub held_up: f64,
}

/// Does runs until so many were undisturbed, or so many disturbed; each is told its number, from 0, and tells the share
/// of its time that others had.
///
/// # Errors
/// Those of a run.
pub fn runs(wanted: usize, mut run: impl FnMut(u64) -> Result<(f64, Errors)>) -> Result<Runs> {
    let (mut undisturbed, mut disturbed) = (Vec::new(), Vec::new());
    while undisturbed.len().max(disturbed.len()) < wanted {
        let done = run((undisturbed.len() + disturbed.len()) as u64)?;
        if done.0 <= HELD_UP_MAX { &mut undisturbed } else { &mut disturbed }.push(done);
    }
    let (quiet, all) = (undisturbed.len(), undisturbed.len() + disturbed.len());
    if quiet < wanted {
        undisturbed.append(&mut disturbed);
    }
    let held_up = undisturbed.iter().map(|(share, _)| *share).fold(0.0, f64::max);
    let counted = undisturbed.into_iter().map(|(_, errors)| errors).collect();
    Ok(Runs { counted, undisturbed: quiet, all, held_up })
}

/// Measures until of so many tries no more than such a share was disturbed, `tries` times at most, and keeps as many of
/// which that was least; each tells that share. What still has more is measured no less, and is to say how much.
///
/// # Errors
/// Those of a try.
pub fn calmest<T>(
    wanted: usize,
    tries: usize,
    taken_max: f64,
    mut measure: impl FnMut() -> Result<(f64, T)>,
) -> Result<Vec<T>> {
    let mut all = Vec::new();
    while all.len() < tries && all.iter().filter(|(taken, _)| *taken <= taken_max).count() < wanted {
        all.push(measure()?);
    }
    all.sort_by(|(one, _), (other, _)| one.total_cmp(other));
    Ok(all.into_iter().take(wanted).map(|(_, measured)| measured).collect())
}

/// The share of a replay's time that other programs and the machine's host had.
pub fn held_up(report: &ReplayReport) -> f64 {
    (report.held_up.waited_us + report.held_up.stolen_us) / 1e6 / report.seconds.max(f64::MIN_POSITIVE)
}

impl Runs {
    /// The largest value of those that count; 0 without one.
    pub fn worst(&self, of: fn(&Errors) -> f64) -> f64 {
        self.counted.iter().map(of).fold(0.0, f64::max)
    }

    /// How many runs count, for a table.
    pub fn told(&self) -> String {
        let (counted, left_out) = (self.counted.len(), self.all - self.counted.len());
        match (self.undisturbed < counted, left_out) {
            (true, _) => format!("{counted}, {} disturbed", self.all - self.undisturbed),
            (false, 0) => counted.to_string(),
            (false, _) => format!("{counted} of {}", self.all),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Runs whose errors are told apart by how many queries they have; 1 is disturbed.
    fn of(wanted: usize, shares: &[f64]) -> Runs {
        let errors = |number: u64| {
            let due: Vec<u64> = (0..=number).collect();
            Errors::of(&due, &due, 0).expect("as many")
        };
        runs(wanted, |number| Ok((shares[number as usize], errors(number)))).expect("none fails")
    }

    fn which(runs: &Runs) -> Vec<usize> {
        runs.counted.iter().map(|errors| errors.queries() - 1).collect()
    }

    #[test]
    fn disturbed_runs_are_done_again() {
        let runs = of(2, &[0.0, 1.0, 0.0, 1.0]);
        assert_eq!((which(&runs), runs.told().as_str(), runs.held_up), (vec![0, 2], "2 of 3", 0.0));
        let runs = of(2, &[0.0, HELD_UP_MAX]);
        assert_eq!((which(&runs), runs.told().as_str(), runs.held_up), (vec![0, 1], "2", HELD_UP_MAX));
    }

    #[test]
    fn all_count_where_as_many_as_wanted_were_disturbed() {
        let runs = of(2, &[1.0, 0.0, 0.5]);
        assert_eq!(
            (which(&runs), runs.told().as_str(), runs.held_up),
            (vec![1, 0, 2], "3, 2 disturbed", 1.0)
        );
        let runs = of(2, &[1.0, 0.5]);
        assert_eq!((which(&runs), runs.told().as_str(), runs.held_up), (vec![0, 1], "2, 2 disturbed", 1.0));
    }

    #[test]
    fn the_tries_count_from_which_the_host_took_least() {
        let kept = |wanted: usize, shares: &[f64]| {
            let mut tries = shares.iter().copied().enumerate();
            let kept = calmest(wanted, 3, 0.01, || {
                tries.next().map(|(at, share)| (share, at)).ok_or(anyhow::anyhow!("no more"))
            });
            (kept.expect("none fails"), tries.count())
        };
        assert_eq!(kept(1, &[0.01, 0.0]), (vec![0], 1));
        assert_eq!(kept(1, &[0.5, 0.0, 0.0]), (vec![1], 1));
        assert_eq!(kept(1, &[0.5, 0.2, 0.3, 0.0]), (vec![1], 1));
        assert_eq!(kept(2, &[0.5, 0.0, 0.01, 0.0]), (vec![1, 2], 1));
        assert_eq!(kept(2, &[0.5, 0.0, 0.2, 0.0]), (vec![1, 2], 1));
    }
}
