//! What a region may be answered under the policy in force, worked out apart from the server.

use super::sample::{BySite, Change, Matrix, REGIONS, SITES};

/// A policy and the servers that are down.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct InForce {
    pub(super) matrix: &'static Matrix,
    pub(super) down: BySite<bool>,
}

impl InForce {
    /// What is in force behind a change.
    pub(super) fn after(&self, change: &Change) -> InForce {
        let mut after = *self;
        match change {
            Change::Policy(matrix) => after.matrix = matrix,
            Change::Site { site, up } => after.down[*site] = !up,
        }
        after
    }

    /// The probability of each site for a region: the row without what is down, normalised; where nothing of
    /// it remains, all that is up alike (the last lines of MyXDNS's Algorithm 1).
    pub(super) fn chances(&self, region: usize) -> BySite<f64> {
        let is_up = |site: usize| !self.down[site] || self.down == [true; SITES.len()];
        let row = self.matrix.rows[region];
        let weighted = std::array::from_fn(|site| if is_up(site) { row[site] } else { 0.0 });
        let weights: BySite<f64> = match weighted.iter().sum::<f64>() {
            0.0 => std::array::from_fn(|site| f64::from(u8::from(is_up(site)))),
            _ => weighted,
        };
        let total: f64 = weights.iter().sum();
        weights.map(|weight| weight / total)
    }

    /// Whether a region may be sent to a site.
    pub(super) fn allows(&self, region: usize, site: usize) -> bool {
        self.chances(region)[site] > 0.0
    }

    /// The region by whose answers one knows soonest that this is in force, and `before` is not any more;
    /// `None` where no single answer tells.
    pub(super) fn telling(&self, before: &InForce) -> Option<usize> {
        let chance = |region: usize| -> f64 {
            let new = (0..SITES.len()).filter(|site| !before.allows(region, *site));
            new.map(|site| self.chances(region)[site]).sum()
        };
        let best = (0..REGIONS.len()).max_by(|a, b| chance(*a).total_cmp(&chance(*b)))?;
        (chance(best) > 0.0).then_some(best)
    }
}

#[cfg(test)]
mod tests {
    use super::super::sample::{NEAREST, SCRIPT};
    use super::*;

    const EUROPE: usize = 0;
    const ASIA: usize = 2;

    static HOME: Matrix =
        Matrix { name: "home", rows: [[3.0, 1.0, 0.0], [0.0, 1.0, 0.0], [0.0, 0.0, 1.0], [1.0, 1.0, 2.0]] };
    static AWAY: Matrix =
        Matrix { name: "away", rows: [[1.0, 1.0, 0.0], [0.5, 0.5, 0.0], [0.0, 0.0, 1.0], [1.0, 1.0, 2.0]] };

    fn home(down: BySite<bool>) -> InForce {
        InForce { matrix: &HOME, down }
    }

    #[test]
    fn rows_without_what_is_down() {
        for (down, region, expected) in [
            ([false, false, false], EUROPE, [0.75, 0.25, 0.0]),
            ([true, false, false], EUROPE, [0.0, 1.0, 0.0]),
            ([true, true, false], EUROPE, [0.0, 0.0, 1.0]),
            ([false, false, true], ASIA, [0.5, 0.5, 0.0]),
            ([true, true, true], EUROPE, [0.75, 0.25, 0.0]),
            ([true, true, true], ASIA, [0.0, 0.0, 1.0]),
        ] {
            assert_eq!(home(down).chances(region), expected, "{down:?} {region}");
        }
        assert!(home([false; 3]).allows(EUROPE, 1));
        assert!(!home([false; 3]).allows(EUROPE, 2));
        assert!(home([true, true, false]).allows(EUROPE, 2));
    }

    #[test]
    fn the_region_with_the_most_new_answers_tells() {
        let (all_up, asia_down) = (home([false; 3]), home([false, false, true]));
        assert_eq!(asia_down.telling(&all_up), Some(ASIA));
        assert_eq!(all_up.telling(&asia_down), Some(ASIA));
        let away = InForce { matrix: &AWAY, down: [false; 3] };
        assert_eq!(away.telling(&all_up), Some(1));
        // The way back only takes servers away, or weighs them otherwise: no single answer tells.
        assert_eq!(all_up.telling(&away), None);
        assert_eq!(all_up.telling(&all_up), None);
    }

    #[test]
    fn every_change_of_the_script_can_be_told_and_they_end_where_they_began() {
        let first = InForce { matrix: &NEAREST, down: [false; SITES.len()] };
        let mut now = first;
        for change in SCRIPT {
            let after = now.after(&change);
            assert!(after.telling(&now).is_some(), "{}", change.what());
            now = after;
        }
        assert_eq!(now, first);
    }
}
