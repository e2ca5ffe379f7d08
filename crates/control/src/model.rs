//! A virtual clock, clients behind caches, and servers: what the algorithms are tried on.
//!
//! As in section 7 of the paper: clusters of browsers behind a resolver each, which asks once a TTL and sends all its
//! cluster's requests to what it was answered; loads are measured, and rows recomputed, about every ten seconds.

use std::time::Duration;

use fastrand::Rng;

use crate::Algorithm;
use crate::load::{Load, Scale};
use crate::situation::{Server, Shares, Situation};

/// What a world is like.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Setting {
    /// How long caches keep an answer, in seconds.
    pub(crate) ttl: u64,
    /// How long apart measurements are, in seconds; one more or less by chance.
    pub(crate) interval: u64,
    /// What the load means.
    pub(crate) scale: Scale,
    /// The time constant of the measured load in seconds, such as 60 of `uptime`'s first number; 0 for the mean over
    /// the interval.
    pub(crate) damping: f64,
}

/// The paper's.
pub(crate) const PAPER: Setting = Setting {
    ttl: 30,
    interval: 10,
    scale: Scale { threshold: 0.5, low: 0.4, high: 0.6, weight: 1.0 },
    damping: 0.0,
};

/// A resolver and the clients behind it.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Cluster {
    region: usize,
    /// What its clients demand, as load of a server of capacity 1.
    demand: f64,
    server: usize,
    expires: u64,
}

impl Cluster {
    /// So many clusters of a region, whose demands differ threefold and sum up to `demand` thresholds.
    pub(crate) fn many(count: usize, demand: f64, region: usize, seed: u64) -> Vec<Cluster> {
        let mut rng = Rng::with_seed(seed);
        let weights: Vec<f64> = (0..count).map(|_| 1.0 + 2.0 * rng.f64()).collect();
        let sum: f64 = weights.iter().sum();
        let demand = demand * PAPER.scale.threshold;
        weights
            .iter()
            .map(|weight| Cluster {
                region,
                demand: demand * weight / sum,
                server: 0,
                expires: rng.u64(0..30),
            })
            .collect()
    }
}

/// Everything, at one moment.
pub(crate) struct World {
    setting: Setting,
    capacities: Vec<f64>,
    /// The capacities as they are configured.
    believed: Vec<f64>,
    ranks: Vec<Vec<u32>>,
    clusters: Vec<Cluster>,
    now: u64,
    measure_at: u64,
    /// Load of each server summed up since the last measurement, and for how many seconds.
    sums: (Vec<f64>, u64),
    damped: Vec<f64>,
    shares: Shares,
    rng: Rng,
    run: Run,
}

/// What came of it, second by second.
#[derive(Clone, Debug, Default)]
pub(crate) struct Run {
    /// All rows, one after the other.
    pub(crate) shares: Vec<Vec<f64>>,
    /// Each server's load over its threshold.
    pub(crate) loads: Vec<Vec<f64>>,
}

impl World {
    /// A world in which all have just been sent to the first server.
    pub(crate) fn new(
        setting: Setting,
        capacities: &[f64],
        ranks: &[&[u32]],
        clusters: Vec<Cluster>,
        seed: u64,
    ) -> World {
        let first: Vec<f64> = (0..capacities.len()).map(|server| f64::from(u8::from(server == 0))).collect();
        World {
            setting,
            capacities: capacities.into(),
            believed: capacities.into(),
            ranks: ranks.iter().map(|row| row.to_vec()).collect(),
            clusters,
            now: 0,
            measure_at: setting.interval,
            sums: (vec![0.0; capacities.len()], 0),
            damped: vec![0.0; capacities.len()],
            shares: vec![first; ranks.len()],
            rng: Rng::with_seed(seed ^ 0x9E37_79B9),
            run: Run::default(),
        }
    }

    /// Changes the demands of a region by a factor.
    pub(crate) fn scale(&mut self, region: usize, factor: f64) {
        let of_region = self.clusters.iter_mut().filter(|cluster| cluster.region == region);
        of_region.for_each(|cluster| cluster.demand *= factor);
    }

    /// Configures other capacities than the real ones.
    pub(crate) fn believe(&mut self, capacities: &[f64]) {
        self.believed = capacities.into();
    }

    /// Lets so many seconds pass.
    pub(crate) fn run(&mut self, algorithm: &mut Algorithm, seconds: u64) {
        for _ in 0..seconds {
            self.second();
            if self.now >= self.measure_at {
                self.decide(algorithm);
                self.measure_at =
                    self.now + self.rng.u64(self.setting.interval - 1..=self.setting.interval + 1);
            }
        }
    }

    pub(crate) fn into_run(self) -> Run {
        self.run
    }

    fn second(&mut self) {
        let mut loads = vec![0.0; self.capacities.len()];
        for cluster in &mut self.clusters {
            if self.now >= cluster.expires {
                cluster.server = draw(&self.shares[cluster.region], &mut self.rng);
                cluster.expires = self.now + self.setting.ttl;
            }
            // From one to three requests a second, two on average.
            loads[cluster.server] +=
                cluster.demand * (0.5 + self.rng.f64()) / self.capacities[cluster.server];
        }
        for (sum, load) in self.sums.0.iter_mut().zip(&loads) {
            *sum += load;
        }
        self.sums.1 += 1;
        self.run.shares.push(self.shares.concat());
        self.run.loads.push(loads.iter().map(|load| load / self.setting.scale.threshold).collect());
        self.now += 1;
    }

    fn decide(&mut self, algorithm: &mut Algorithm) {
        let (sums, seconds) = std::mem::replace(&mut self.sums, (vec![0.0; self.capacities.len()], 0));
        let seconds = seconds as f64;
        let keep = if self.setting.damping > 0.0 { (-seconds / self.setting.damping).exp() } else { 0.0 };
        for (damped, sum) in self.damped.iter_mut().zip(sums) {
            *damped = *damped * keep + sum / seconds * (1.0 - keep);
        }
        let servers: Vec<Server> = self
            .believed
            .iter()
            .zip(&self.damped)
            .map(|(capacity, load)| Server {
                capacity: *capacity,
                load: Load::of(&[(self.setting.scale, Some(*load))]),
            })
            .collect();
        let situation = Situation { servers: &servers, ranks: &self.ranks, present: &self.shares };
        self.shares = algorithm.decide(Duration::from_secs(self.now), &situation);
    }
}

impl Run {
    /// The mean absolute change of the first share per minute, from second `from` on.
    pub(crate) fn oscillation(&self, from: usize) -> f64 {
        let after = &self.shares[from..];
        let changes: f64 = after.windows(2).map(|pair| (pair[1][0] - pair[0][0]).abs()).sum();
        changes * 60.0 / after.len() as f64
    }

    /// How many seconds after `from` a share is last away from where it ends by more than `band`.
    pub(crate) fn settled(&self, from: usize, band: f64) -> usize {
        last_away(&self.shares[from..], band)
    }

    /// The same of loads over thresholds, as means over ten seconds.
    pub(crate) fn loads_settled(&self, from: usize, band: f64) -> usize {
        let means: Vec<Vec<f64>> = self.loads[from..].windows(10).map(mean).collect();
        last_away(&means, band)
    }

    /// How far any share went beyond both where it was and where it ended, as a part of the longest way of a share.
    pub(crate) fn overshoot(&self, from: usize) -> f64 {
        beyond(&self.shares[from..], |ways| ways.iter().fold(f64::MIN_POSITIVE, |a, b| a.max(*b)))
    }

    /// How far the load of any server went beyond where it was, at its step, and where it ended, as a part of a
    /// threshold; means over ten seconds.
    pub(crate) fn loads_overshoot(&self, from: usize) -> f64 {
        let means: Vec<Vec<f64>> = self.loads[from..].windows(10).map(mean).collect();
        beyond(&means, |_| 1.0)
    }
}

fn mean(rows: &[Vec<f64>]) -> Vec<f64> {
    (0..rows[0].len()).map(|at| rows.iter().map(|row| row[at]).sum::<f64>() / rows.len() as f64).collect()
}

/// Where each value ends: its mean over the last minute.
fn end(rows: &[Vec<f64>]) -> Vec<f64> {
    mean(&rows[rows.len() - 60..])
}

fn last_away(rows: &[Vec<f64>], band: f64) -> usize {
    let end = end(rows);
    let is_away = |row: &Vec<f64>| row.iter().zip(&end).any(|(value, end)| (value - end).abs() > band);
    rows.iter().rposition(is_away).map_or(0, |last| last + 1)
}

fn beyond(rows: &[Vec<f64>], whole: fn(&[f64]) -> f64) -> f64 {
    let (start, end) = (&rows[0], end(rows));
    let ways: Vec<f64> = start.iter().zip(&end).map(|(start, end)| (end - start).abs()).collect();
    let outside = |row: &Vec<f64>| {
        let values = row.iter().zip(start.iter().zip(&end));
        values.map(|(value, (a, b))| (a.min(*b) - value).max(value - a.max(*b))).fold(0.0, f64::max)
    };
    rows.iter().map(outside).fold(0.0, f64::max) / whole(&ways)
}

fn draw(row: &[f64], rng: &mut Rng) -> usize {
    let mut left = rng.f64() * row.iter().sum::<f64>();
    for (server, share) in row.iter().enumerate() {
        left -= share;
        if left < 0.0 {
            return server;
        }
    }
    row.len() - 1
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::algorithm::third::{Parameters, Third};

    /// Twenty runs of the paper's experiment: how much the policy oscillates, least and most.
    fn oscillation(algorithm: &Algorithm, clusters: usize) -> (f64, f64) {
        let runs = (0..20).map(|seed| {
            let (mut algorithm, clusters) = (algorithm.clone(), Cluster::many(clusters, 1.6, 0, seed));
            let mut world = World::new(PAPER, &[1.0, 1.0], &[&[1, 2]], clusters, seed);
            world.run(&mut algorithm, 800);
            world.into_run().oscillation(200)
        });
        runs.fold((f64::MAX, 0.0), |(least, most), run| (least.min(run), most.max(run)))
    }

    /// Figures 7 and 8: the policies of both "constantly oscillate"; ours does not. The whole of the clients moves more
    /// than once a minute under I, most of it under II, and under III less than a fiftieth.
    #[test]
    fn the_paper_s_algorithms_oscillate_and_ours_does_not() {
        let third = Algorithm::Third(Third::new(Parameters {
            ttl: Duration::from_secs(30),
            interval: Duration::from_secs(10),
            fill: 0.9,
            step: 0.25,
            hysteresis: 0.05,
        }));
        let (first, second) = (oscillation(&Algorithm::First, 20), oscillation(&Algorithm::Second(1.0), 20));
        assert!(first.0 > 1.5 && second.0 > 0.5, "I {first:?}, II {second:?}");
        let ours = oscillation(&third, 20);
        assert!(ours.1 < 0.02 && ours.1 < first.0 / 5.0, "III {ours:?}");
        assert!(oscillation(&Algorithm::First, 1000).0 > 1.5);
        assert!(oscillation(&third, 1000).1 < 0.02);
    }
}
