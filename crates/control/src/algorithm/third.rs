//! Algorithm III, ours: the nearest servers up to their capacity, without oscillation.
//!
//! Algorithms I and II look at loads only, and a load tells what was answered up to one TTL ago: by the time that it
//! shows, caches have bound as much again (the hidden load). So they overshoot, turn back, and overshoot (figures 7
//! and 8 of the paper). Here the load is asked a question whose answer does not depend on what was answered: how much
//! do the clients of each region demand?
//!
//! 1. **Bound**: of the clients that are bound now, each server has the mean of the shares of the last TTL.
//! 2. **Demand**: the regions' demands that, bound so, explain the measured loads best.
//! 3. **Fill**: rank by rank, servers take what their regions demand up to a margin below their thresholds; what is left
//!    spills to the next rank. What has no room so takes the margins, rank by rank again, and what nobody can take is
//!    shared by capacity.
//! 4. **Hysteresis**: where no share would change by more than a little, none does.
//! 5. **Step**: else all shares go towards the target, none by more than a step.
//!
//! docs/reference/algorithm-iii.md has the rule in full, and why it is stable.

use std::collections::VecDeque;
use std::time::Duration;

use crate::situation::{Shares, Situation};

/// The most changes of the shares that are remembered: a TTL of half an hour at a change every two seconds. Older ones
/// count as the oldest that is.
const SERVED_MAX: usize = 1_024;

/// How often a decision lets the demands come nearer to what explains the loads. Each begins where the last one ended,
/// so few are enough; more would explain by the split of demands what is the chance of a few large clients.
const ROUNDS: usize = 2;

/// The least demand of a region beside that of all, as a share: from 0 no factor leads away.
const DEMAND_MIN: f64 = 1e-4;

/// What an operator may choose of Algorithm III.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Parameters {
    /// How long caches keep an answer.
    pub ttl: Duration,
    /// How long apart decisions are; loads are means over as long.
    pub interval: Duration,
    /// Up to which share of its threshold a server is filled while others have room, above 0 up to 1.
    pub fill: f64,
    /// The most that a share changes in a step, above 0 up to 1.
    pub step: f64,
    /// The change of a share up to which all stays as it is, from 0 and below `step`.
    pub hysteresis: f64,
}

impl Parameters {
    /// What the configuration's keys say where nobody chooses, for this TTL and interval.
    pub const fn new(ttl: Duration, interval: Duration) -> Parameters {
        Parameters { ttl, interval, fill: 0.9, step: 0.25, hysteresis: 0.05 }
    }
}

/// The algorithm and what it remembers.
#[derive(Clone, Debug)]
pub struct Third {
    parameters: Parameters,
    /// What was served from when on, oldest first; the first since ever.
    served: VecDeque<(Duration, Shares)>,
    /// When it last decided.
    decided: Duration,
    /// The demand of each region, in units of capacity at the threshold.
    demand: Vec<f64>,
}

impl Third {
    /// An algorithm that takes what it sees first as what was always served.
    pub fn new(parameters: Parameters) -> Third {
        Third { parameters, served: VecDeque::new(), decided: Duration::ZERO, demand: Vec::new() }
    }

    /// The parameters that it was made with.
    pub fn parameters(&self) -> Parameters {
        self.parameters
    }

    /// The demand of each region as it was last estimated, in units of capacity at the threshold.
    pub fn demand(&self) -> &[f64] {
        &self.demand
    }

    /// Decides; `situation.present` is believed to have been served since the last call.
    pub fn decide(&mut self, now: Duration, situation: &Situation<'_>) -> Shares {
        self.remember(now, situation.present);
        let measured: Vec<Option<f64>> =
            situation.servers.iter().map(|s| s.load.map(|load| load.relative * s.capacity)).collect();
        let bound = self.bound(now.saturating_sub(self.parameters.interval / 2));
        self.estimate(&bound, &measured);
        let target = self.target(situation);
        self.towards(situation.present, target)
    }

    /// Notes what serves. A change is one since the last decision: that of ours, or one of somebody else's.
    fn remember(&mut self, now: Duration, present: &Shares) {
        let like = |shares: &Shares| {
            shares.len() == present.len() && shares.iter().zip(present).all(|(a, b)| a.len() == b.len())
        };
        if self.served.back().is_some_and(|(_, last)| !like(last)) {
            // Regions or servers came or went: what was bound to others says nothing of these.
            *self = Third::new(self.parameters);
        }
        if self.served.back().is_none_or(|(_, last)| last != present) {
            self.served.push_back((self.decided, present.clone()));
        }
        self.decided = now;
        let oldest = now.saturating_sub(self.parameters.ttl + self.parameters.interval);
        while self.served.len() > SERVED_MAX || self.served.get(1).is_some_and(|(from, _)| *from <= oldest) {
            self.served.pop_front();
        }
    }

    /// The mean of what was served within the TTL before `at`: each cache asks once in that time.
    fn bound(&self, at: Duration) -> Shares {
        let ttl = self.parameters.ttl.as_secs_f64();
        let at = at.as_secs_f64();
        let mut bound: Option<Shares> = None;
        for (place, (from, shares)) in self.served.iter().enumerate() {
            let from = if place == 0 { f64::NEG_INFINITY } else { from.as_secs_f64() };
            let until = self.served.get(place + 1).map_or(f64::INFINITY, |(until, _)| until.as_secs_f64());
            let part = ((until.min(at) - from.max(at - ttl)) / ttl).clamp(0.0, 1.0);
            let sum = bound
                .get_or_insert_with(|| shares.iter().map(|row| vec![0.0; row.len()]).collect::<Vec<_>>());
            for (sum, share) in sum.iter_mut().flatten().zip(shares.iter().flatten()) {
                *sum += part * share;
            }
        }
        bound.unwrap_or_default()
    }

    /// Brings the regions' demands nearer to what, bound so, explains the measured loads: each is multiplied by the
    /// mean, over the servers that its clients are bound to, of measured over explained (the iteration of Richardson
    /// and Lucy, which keeps demands above 0 and their sum that of the loads). A server of unknown load is taken to be
    /// as explained.
    fn estimate(&mut self, bound: &Shares, measured: &[Option<f64>]) {
        let total: f64 = measured.iter().flatten().sum();
        if self.demand.is_empty() {
            // As if all regions were alike.
            let known: f64 = bound
                .iter()
                .map(|row| row.iter().zip(measured).filter(|(_, m)| m.is_some()).map(|(b, _)| b).sum::<f64>())
                .sum();
            let each = if known > 0.0 { total / known } else { 0.0 };
            self.demand = vec![each; bound.len()];
        }
        for _ in 0..ROUNDS {
            let least = DEMAND_MIN * self.demand.iter().sum::<f64>().max(total).max(f64::MIN_POSITIVE);
            for demand in &mut self.demand {
                *demand = demand.max(least);
            }
            let factors: Vec<f64> = (0..measured.len()).map(|s| self.factor(s, bound, measured[s])).collect();
            for (demand, row) in self.demand.iter_mut().zip(bound) {
                *demand *= row.iter().zip(&factors).map(|(bound, factor)| bound * factor).sum::<f64>();
            }
        }
    }

    /// Measured over explained, for a server; 1 where either says nothing.
    fn factor(&self, server: usize, bound: &Shares, measured: Option<f64>) -> f64 {
        let explained: f64 = self.demand.iter().zip(bound).map(|(demand, row)| demand * row[server]).sum();
        match measured {
            Some(measured) if explained > 0.0 => measured / explained,
            _ => 1.0,
        }
    }

    /// The shares for these demands, were they to last.
    fn target(&self, situation: &Situation<'_>) -> Shares {
        let known = situation.by_capacity();
        // What stays with servers of unknown load is not to be placed.
        let left: Vec<f64> = self
            .demand
            .iter()
            .zip(situation.present)
            .map(|(demand, row)| {
                let free = row.iter().zip(&known).filter(|(_, known)| **known > 0.0).map(|(share, _)| share);
                demand * free.sum::<f64>()
            })
            .collect();
        let placed = fill(left, self.parameters.fill, situation.ranks, &known);
        situation.shared_out(|region, _| placed[region].clone())
    }

    /// From what serves towards the target, by at most a step; not at all where it is near enough.
    fn towards(&self, present: &Shares, target: Shares) -> Shares {
        let change = |(present, target): (&f64, &f64)| (target - present).abs();
        let largest = present.iter().flatten().zip(target.iter().flatten()).map(change).fold(0.0, f64::max);
        if largest <= self.parameters.hysteresis {
            return present.clone();
        }
        let part = (self.parameters.step / largest).min(1.0);
        let rows = present.iter().zip(target);
        rows.map(|(present, target)| {
            present.iter().zip(target).map(|(present, target)| present + part * (target - present)).collect()
        })
        .collect()
    }
}

/// Places demands on servers: rank by rank into the room that there is up to `margin` of each capacity; what is left
/// over rank by rank into the rest of the capacities, as the nearest has the best use of it; and what is left then by
/// capacity.
fn fill(mut left: Vec<f64>, margin: f64, ranks: &[Vec<u32>], capacity: &[f64]) -> Shares {
    let mut placed: Shares = ranks.iter().map(|row| vec![0.0; row.len()]).collect();
    for part in [margin, 1.0 - margin] {
        let room = capacity.iter().map(|capacity| capacity * part).collect();
        place(&mut placed, &mut left, room, ranks);
    }
    let all: f64 = capacity.iter().sum();
    for (row, left) in placed.iter_mut().zip(left).filter(|_| all > 0.0) {
        for (placed, capacity) in row.iter_mut().zip(capacity) {
            *placed += left * capacity / all;
        }
    }
    placed
}

/// Places what is left into the room that there is, rank by rank.
///
/// Within a rank a region offers what it has left to the servers of that rank in proportion to their room, and a server
/// that is offered too much takes the same part of each offer.
fn place(placed: &mut Shares, left: &mut [f64], mut room: Vec<f64>, ranks: &[Vec<u32>]) {
    let mut order: Vec<u32> = ranks.iter().flatten().copied().collect();
    order.sort_unstable();
    order.dedup();
    for rank in order {
        // Each pass fills a server or places all that there is.
        for _ in 0..=room.len() {
            let offers: Shares =
                ranks.iter().zip(&*left).map(|(ranks, left)| offer(*left, ranks, rank, &room)).collect();
            let offered: Vec<f64> = (0..room.len()).map(|s| offers.iter().map(|row| row[s]).sum()).collect();
            if offered.iter().sum::<f64>() <= 0.0 {
                break;
            }
            let taken: Vec<f64> = offered
                .iter()
                .zip(&room)
                .map(|(offered, room)| if *offered > 0.0 { (room / offered).min(1.0) } else { 0.0 })
                .collect();
            for (region, row) in offers.iter().enumerate() {
                for (server, offer) in row.iter().enumerate() {
                    let amount = offer * taken[server];
                    placed[region][server] += amount;
                    left[region] = (left[region] - amount).max(0.0);
                    room[server] = (room[server] - amount).max(0.0);
                }
            }
        }
    }
}

/// What a region offers each server of a rank.
fn offer(left: f64, ranks: &[u32], rank: u32, room: &[f64]) -> Vec<f64> {
    let open = || ranks.iter().zip(room).map(|(own, room)| if *own == rank { *room } else { 0.0 });
    let sum: f64 = open().sum();
    open().map(|room| if sum > 0.0 { left * room / sum } else { 0.0 }).collect()
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::model::{self, Cluster};
    use crate::situation::{Server, assert_rows, server};

    const PLAIN: Parameters = Parameters {
        ttl: Duration::from_secs(30),
        interval: Duration::from_secs(10),
        fill: 1.0,
        step: 1.0,
        hysteresis: 0.0,
    };

    /// Three servers of capacities 1, 2 and 1, two regions, as for the others; demands are what the loads say, since
    /// each region is bound to one server.
    #[test]
    fn the_table_worked_by_hand() {
        let ranks = vec![vec![1, 2, 3], vec![2, 2, 1]];
        let present = vec![vec![1.0, 0.0, 0.0], vec![0.0, 0.0, 1.0]];
        let check = |loads: [f64; 3], parameters, expected: &[&[f64]]| {
            let servers =
                [server(1.0, loads[0], 0.0), server(2.0, loads[1], 0.0), server(1.0, loads[2], 0.0)];
            let situation = Situation { servers: &servers, ranks: &ranks, present: &present };
            assert_rows(&Third::new(parameters).decide(Duration::from_secs(10), &situation), expected);
        };
        // Demands 0.5 and 0.8 fit where they are nearest.
        check([0.5, 0.0, 0.8], PLAIN, &[&[1.0, 0.0, 0.0], &[0.0, 0.0, 1.0]]);
        // Demand 2: one stays, one spills to the next rank.
        check([2.0, 0.0, 0.8], PLAIN, &[&[0.5, 0.5, 0.0], &[0.0, 0.0, 1.0]]);
        // Demand 2 of the second region: 1 stays; 1 spills to the first, which has 0.5 left, and the second, which has 2:
        // one to four.
        check([0.5, 0.0, 2.0], PLAIN, &[&[1.0, 0.0, 0.0], &[0.1, 0.4, 0.5]]);
        // Demands 4 and 4, room 1, 2 and 1. After rank 1 each has 3 left for the second server, which takes a third of
        // both; the 4 that are left are shared by capacity, 0.5, 1 and 0.5 of each region.
        check([4.0, 0.0, 4.0], PLAIN, &[&[0.375, 0.5, 0.125], &[0.125, 0.5, 0.375]]);
        // A server is filled to half: 0.5 of 0.8 stays, the rest goes on.
        let half = Parameters { fill: 0.5, ..PLAIN };
        check([0.8, 0.0, 0.2], half, &[&[0.625, 0.375, 0.0], &[0.0, 0.0, 1.0]]);
        // To a quarter: 0.25 of 1.2 stay, 0.5 and the 0.05 that are left of the third spill; the other 0.4 have no room
        // there, and the nearest takes them above its quarter.
        let quarter = Parameters { fill: 0.25, ..PLAIN };
        check([1.2, 0.0, 0.2], quarter, &[&[0.65 / 1.2, 0.5 / 1.2, 0.05 / 1.2], &[0.0, 0.0, 1.0]]);
        // Half of the way at most, and none where it is short.
        let slow = Parameters { step: 0.25, hysteresis: 0.1, ..PLAIN };
        check([2.0, 0.0, 0.8], slow, &[&[0.75, 0.25, 0.0], &[0.0, 0.0, 1.0]]);
        check([1.1, 0.0, 0.8], slow, &[&[1.0, 0.0, 0.0], &[0.0, 0.0, 1.0]]);
    }

    #[test]
    fn what_earlier_answers_have_bound_is_not_taken_for_demand() {
        let (ranks, mut third) = (vec![vec![1, 2]], Third::new(PLAIN));
        let at = |third: &mut Third, seconds, present: [f64; 2], loads: [f64; 2]| {
            let servers = [server(1.0, loads[0], 0.0), server(1.0, loads[1], 0.0)];
            let present = vec![present.to_vec()];
            let situation = Situation { servers: &servers, ranks: &ranks, present: &present };
            third.decide(Duration::from_secs(seconds), &situation)
        };
        // All is on the first, which is a quarter too much. A TTL later caches have moved, and it stays decided.
        for (seconds, present, loads) in [
            (10, [1.0, 0.0], [1.25, 0.0]),
            (20, [0.8, 0.2], [1.2, 0.05]),
            (30, [0.8, 0.2], [1.1, 0.15]),
            (40, [0.8, 0.2], [1.0, 0.25]),
        ] {
            assert_rows(&at(&mut third, seconds, present, loads), &[&[0.8, 0.2]]);
        }
        assert!((third.demand()[0] - 1.25).abs() < 1e-6);
    }

    #[test]
    fn demands_of_regions_are_told_apart_by_what_is_bound_where() {
        // The second region spills to the first one's server.
        let ranks = vec![vec![1, 2], vec![2, 1]];
        let present = vec![vec![1.0, 0.0], vec![0.25, 0.75]];
        let mut third = Third::new(PLAIN);
        for step in 1..=10 {
            let servers = [server(1.0, 0.2 + 0.3, 0.0), server(1.0, 0.9, 0.0)];
            let situation = Situation { servers: &servers, ranks: &ranks, present: &present };
            third.decide(Duration::from_secs(10 * step), &situation);
        }
        let demand = third.demand();
        assert!((demand[0] - 0.2).abs() < 0.01 && (demand[1] - 1.2).abs() < 0.01, "{demand:?}");
    }

    const CHOSEN: Parameters = Parameters { fill: 0.9, step: 0.25, hysteresis: 0.05, ..PLAIN };

    /// When the step comes, in seconds.
    const STEP: usize = 200;

    /// A step of the first region's demand, and four minutes more.
    fn step(
        setting: model::Setting,
        (configured, real): (&[f64], &[f64]),
        ranks: &[&[u32]],
        demands: &[f64],
        factor: f64,
        seed: u64,
    ) -> model::Run {
        let mut algorithm = crate::Algorithm::Third(Third::new(CHOSEN));
        let clusters = demands.iter().enumerate();
        let clusters =
            clusters.flat_map(|(region, demand)| Cluster::many(2000, *demand, region, seed)).collect();
        let mut world = model::World::new(setting, real, ranks, clusters, seed);
        world.believe(configured);
        world.run(&mut algorithm, STEP as u64);
        world.scale(0, factor);
        world.run(&mut algorithm, 240);
        world.into_run()
    }

    fn settles(run: &model::Run, within: usize, told: &str) {
        let (shares, loads) = (run.settled(STEP, 0.05), run.loads_settled(STEP, 0.1));
        assert!(shares <= within && loads <= within, "{told}: settled after {shares} s, loads {loads} s");
        let (shares, loads) = (run.overshoot(STEP), run.loads_overshoot(STEP));
        assert!(shares < 0.1 && loads < 0.1, "{told}: overshoot {shares}, loads {loads}");
    }

    /// Five TTLs of 30 s.
    const SETTLED: usize = 150;

    #[test]
    fn a_step_settles_within_five_ttls_and_overshoots_little() {
        for seed in 0..20 {
            for (before, after) in [(0.5, 1.4), (1.6, 1.1), (1.2, 1.9), (1.4, 0.6)] {
                let capacities: (&[f64], &[f64]) = (&[1.0, 1.0], &[1.0, 1.0]);
                let run = step(model::PAPER, capacities, &[&[1, 2]], &[before], after / before, seed);
                settles(&run, SETTLED, &format!("seed {seed}, {before} to {after}"));
            }
        }
    }

    #[test]
    fn a_step_of_one_region_among_three_settles_as_well() {
        let ranks: &[&[u32]] = &[&[1, 2, 3], &[2, 1, 3], &[3, 2, 1]];
        let capacities: (&[f64], &[f64]) = (&[1.0, 2.0, 1.0], &[1.0, 2.0, 1.0]);
        for seed in 0..20 {
            for factor in [2.0, 0.5] {
                let run = step(model::PAPER, capacities, ranks, &[0.8, 1.0, 0.6], factor, seed);
                settles(&run, SETTLED, &format!("seed {seed}, times {factor}"));
            }
        }
    }

    /// What the stability argument promises beyond what is asked for: loads that are told late, and capacities that are
    /// wrong by a factor of 1.5, make it slower, not unsteady.
    #[test]
    fn late_loads_and_wrong_capacities_do_not_make_it_oscillate() {
        let late = model::Setting { damping: 60.0, ..model::PAPER };
        for seed in 0..20 {
            for (setting, configured) in
                [(late, [1.0, 1.0]), (model::PAPER, [1.0, 1.5]), (model::PAPER, [1.5, 1.0])]
            {
                let run = step(setting, (&configured, &[1.0, 1.0]), &[&[1, 2]], &[0.8], 1.75, seed);
                // At most one change of a twentieth in the last two minutes.
                let moved = run.oscillation(STEP + 120);
                assert!(moved < 0.04, "seed {seed}, {configured:?}: {moved} a minute");
            }
        }
    }

    proptest! {
        #![proptest_config(ProptestConfig { rng_seed: proptest::test_runner::RngSeed::Fixed(3), ..Default::default() })]

        #[test]
        fn rows_are_distributions_and_change_by_a_step_at_most(
            loads in prop::collection::vec((0.01f64..100.0, prop::option::of(0f64..50.0)), 4),
            ranks in prop::collection::vec(prop::collection::vec(1u32..5, 4), 3),
            rows in prop::collection::vec(prop::collection::vec(0f64..1.0, 4), 3),
        ) {
            let servers: Vec<Server> = loads
                .iter()
                .map(|(capacity, relative)| Server {
                    capacity: *capacity,
                    load: relative.map(|relative| crate::Load { relative, room: 0.0 }),
                })
                .collect();
            let rows = rows.into_iter().map(|row| {
                let sum: f64 = row.iter().sum::<f64>() + 1e-9;
                row.iter().map(|share| (share + 0.25e-9) / sum).collect::<Vec<f64>>()
            });
            let mut present: Shares = rows.collect();
            let mut third = Third::new(Parameters { step: 0.3, hysteresis: 0.01, ..PLAIN });
            for step in 1..6 {
                let situation = Situation { servers: &servers, ranks: &ranks, present: &present };
                let shares = third.decide(Duration::from_secs(10 * step), &situation);
                for (row, before) in shares.iter().zip(&present) {
                    prop_assert!((row.iter().sum::<f64>() - 1.0).abs() < 1e-6, "{:?}", row);
                    for ((share, before), server) in row.iter().zip(before).zip(&servers) {
                        prop_assert!(*share >= 0.0 && (share - before).abs() <= 0.3 + 1e-9);
                        prop_assert!(server.load.is_some() || share == before);
                    }
                }
                present = shares;
            }
        }
    }
}
