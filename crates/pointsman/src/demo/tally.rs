//! What was asked and answered: in all, within the last second, and beside what the policies foretold.

use std::time::Duration;

use super::in_force::InForce;
use super::sample::{Cells, REGIONS, SITES};

/// The slots of a second: the picture follows a change within a tenth of it.
const SLOTS_SHOWN: u64 = 10;

/// The slots that are kept: those of the last second, and the one that is being filled.
const SLOTS: usize = SLOTS_SHOWN as usize + 1;

/// How long a slot is, in milliseconds.
const SLOT_MS: u64 = 100;

/// How far, in standard deviations, a region's share of a site may be from what the policies foretold: chance
/// alone goes beyond in one of 500 million.
const DEVIATIONS_MAX: f64 = 6.0;

/// Counts of queries and answers.
#[derive(Debug, Default)]
pub(super) struct Tally {
    pub(super) queries: u64,
    pub(super) answers: u64,
    pub(super) lost: u64,
    pub(super) wrong: u64,
    /// Answers for which one policy alone was in force.
    judged: Cells<Judged>,
    slots: [Slot; SLOTS],
}

/// Answers of a region with a site, beside how many were to be expected.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub(super) struct Judged {
    pub(super) seen: u64,
    /// The sum of probabilities over all answers of the region.
    pub(super) expected: f64,
    variance: f64,
}

#[derive(Clone, Copy, Debug, Default)]
struct Slot {
    /// Which slot of all time this is.
    number: u64,
    cells: Cells<u32>,
}

impl Tally {
    /// Counts an answer.
    pub(super) fn answered(&mut self, at: Duration, region: usize, site: usize) {
        self.answers += 1;
        let number = slot(at);
        let slot = &mut self.slots[number as usize % SLOTS];
        if slot.number != number {
            *slot = Slot { number, ..Slot::default() };
        }
        slot.cells[region][site] += 1;
    }

    /// Counts an answer beside the policy that was in force for it.
    pub(super) fn judged(&mut self, in_force: &InForce, region: usize, site: usize) {
        for (place, chance) in in_force.chances(region).into_iter().enumerate() {
            let cell = &mut self.judged[region][place];
            cell.seen += u64::from(place == site);
            cell.expected += chance;
            cell.variance += chance * (1.0 - chance);
        }
    }

    /// The answers of the last second, to the tenth of one.
    pub(super) fn last_second(&self, now: Duration) -> Cells<u32> {
        let mut sum = Cells::default();
        let filling = slot(now);
        let shown = filling.saturating_sub(SLOTS_SHOWN)..filling;
        for slot in self.slots.iter().filter(|slot| shown.contains(&slot.number)) {
            for (sum, cell) in sum.iter_mut().flatten().zip(slot.cells.iter().flatten()) {
                *sum += cell;
            }
        }
        sum
    }

    /// All answers for which one policy alone was in force.
    pub(super) fn shares(&self) -> &Cells<Judged> {
        &self.judged
    }

    /// Says which shares chance does not explain.
    pub(super) fn deviations(&self) -> Vec<String> {
        let mut found = Vec::new();
        for (region, row) in self.judged.iter().enumerate() {
            for (site, Judged { seen, expected, variance }) in row.iter().enumerate() {
                // An answer more or less is what rounding can do.
                if (*seen as f64 - expected).abs() > DEVIATIONS_MAX * variance.sqrt() + 1.0 {
                    let (region, site) = (REGIONS[region], SITES[site].name);
                    found.push(format!("{region} was sent to {site} {seen} times, not about {expected:.0}"));
                }
            }
        }
        found
    }
}

fn slot(at: Duration) -> u64 {
    at.as_millis() as u64 / SLOT_MS
}

#[cfg(test)]
mod tests {
    use super::super::sample::NEAREST;
    use super::*;

    #[test]
    fn the_last_second_forgets() {
        let mut tally = Tally::default();
        for ms in [0, 50, 150, 990, 1_050] {
            tally.answered(Duration::from_millis(ms), 1, 2);
        }
        assert_eq!(tally.answers, 5);
        for (now, expected) in
            [(1_050, 4), (1_099, 4), (1_100, 3), (1_200, 2), (1_999, 2), (2_000, 1), (2_100, 0)]
        {
            let cells = tally.last_second(Duration::from_millis(now));
            assert_eq!(cells[1][2], expected, "at {now} ms");
            assert_eq!(cells.iter().flatten().sum::<u32>(), expected);
        }
    }

    #[test]
    fn shares_that_chance_does_not_explain_are_told() {
        let in_force = InForce { matrix: &NEAREST, down: [false; SITES.len()] };
        let judge = |frankfurt: u64, new_york: u64| {
            let mut tally = Tally::default();
            (0..frankfurt).for_each(|_| tally.judged(&in_force, 0, 0));
            (0..new_york).for_each(|_| tally.judged(&in_force, 0, 1));
            tally
        };
        // 1,000 draws of 0.8 have a standard deviation of 12.6.
        assert_eq!(judge(800, 200).deviations(), Vec::<String>::new());
        assert_eq!(judge(730, 270).deviations(), Vec::<String>::new());
        let told = [
            "europe was sent to frankfurt 720 times, not about 800",
            "europe was sent to new-york 280 times, not about 200",
        ];
        assert_eq!(judge(720, 280).deviations(), told);
        let tally = judge(3, 1);
        assert_eq!(tally.shares()[0][0].seen, 3);
        assert!((tally.shares()[0][0].expected - 3.2).abs() < 1e-9);
    }
}
