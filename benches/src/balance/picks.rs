//! What a pick takes, by policy: no socket, no network.

use std::hint::black_box;
use std::time::{Duration, Instant};

use fastrand::Rng;
use routing::balance::overload::{self, Patience};
use routing::balance::{Lease, NAMES, Policy, Quota, State};

use crate::options::Options;
use crate::report::{Limit, Report, Table, median};

/// The back ends that a pick has to choose from.
const BACK_ENDS: usize = 16;

/// Picks between two looks at the clock, as many as a batch has; what follows from them is not measured.
const BATCH: usize = 32;

/// Batches of a pass, and passes.
const BATCHES: usize = 20_000;
const PASSES: usize = 11;

/// What a pick may take, in nanoseconds.
const PICK_MAX: f64 = 100.0;

/// Queries in flight, about: some for each back end.
const IN_FLIGHT: usize = 160;

/// So patient that a back end is always picked.
const PATIENCE: Patience = Patience::whole(u64::MAX, f32::INFINITY);

/// What agents tell.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Told {
    Nothing,
    Leases,
    /// And what quotas of processor time leave.
    Quotas,
}

/// Quotas as container runtimes set them: a fifth of a processor.
const QUOTA: Quota = Quota {
    quota_ns: 20_000_000,
    period_ns: 100_000_000,
    refill_ns: 0,
    left_ns: 10_000_000,
    cost_ns: 80_000,
    ended: 0,
};

/// Measures all policies, and those that go by what agents tell with that too.
pub(crate) fn measure(options: &Options, report: &mut Report) {
    // Without leases `credit` has nothing to pick by.
    let unleased = NAMES.iter().filter(|name| **name != "credit").map(|name| (*name, Told::Nothing));
    let mut worlds: Vec<(String, World, Vec<f64>)> = unleased
        .chain([("credit", Told::Leases), ("pressure", Told::Leases), ("pressure", Told::Quotas)])
        .map(|(name, told)| {
            let what = match told {
                Told::Nothing => name.to_owned(),
                Told::Leases => format!("{name}, with leases"),
                Told::Quotas => format!("{name}, with quotas"),
            };
            (what, World::new(name, told, options.seed), Vec::new())
        })
        .collect();
    // In turns, as a machine that has just woken up is slow for longer than all passes of one take.
    for _ in 0..PASSES {
        worlds.iter_mut().for_each(|(_, world, times)| times.push(world.pass()));
    }
    let mut rows = Vec::new();
    for (what, _, times) in worlds {
        let middle = median(&times).expect("some passes");
        let least = times.iter().copied().fold(f64::INFINITY, f64::min);
        report.must(
            format!("a pick of {what}, {BACK_ENDS} back ends, ns"),
            Limit::AtMost(PICK_MAX),
            Some(middle),
        );
        rows.push(vec![what, format!("{middle:.1}"), format!("{least:.1}")]);
    }
    report.add(Table {
        title: "A pick of 16 back ends",
        head: &["policy", "ns, median of passes", "ns, least"],
        rows,
    });
}

/// Back ends that answer in the order of the queries, each at a speed of its own.
struct World {
    policy: Policy,
    state: State,
    rng: Rng,
    told: Told,
    now_ns: u64,
    /// Those in flight: the back end, the load then, and when it was sent.
    flying: std::collections::VecDeque<(usize, u32, u64)>,
}

impl World {
    fn new(name: &str, told: Told, seed: u64) -> World {
        let mut state = State::new();
        (0..BACK_ENDS).for_each(|index| state.begin(index, 1 + index as u32 % 4, 1));
        World {
            policy: Policy::from_name(name).expect("one of the names"),
            state,
            rng: Rng::with_seed(seed),
            told,
            now_ns: 1_000_000,
            flying: std::collections::VecDeque::new(),
        }
    }

    /// Nanoseconds a pick.
    fn pass(&mut self) -> f64 {
        let mut took = Duration::ZERO;
        let all = self.state.all();
        for _ in 0..BATCHES {
            if self.told != Told::Nothing {
                let until_ns = self.now_ns + 60_000_000;
                for index in 0..BACK_ENDS {
                    let limit = self.state.sent_total(index) + 20;
                    let lease = Lease { limit, hard_until_ns: until_ns, until_ns, ..Lease::NONE };
                    self.state.lease(index, lease);
                    if self.told == Told::Quotas {
                        let ended = self.state.sent_total(index) - u64::from(self.state.in_flight(index));
                        let refill_ns = self.now_ns.next_multiple_of(QUOTA.period_ns);
                        self.state.quota(index, Quota { refill_ns, ended, ..QUOTA }, self.now_ns);
                    }
                }
            }
            let keys: [u64; BATCH] = std::array::from_fn(|_| self.rng.u64(..));
            let mut picked = [0; BATCH];
            let begin = Instant::now();
            for (key, picked) in keys.iter().zip(&mut picked) {
                let (state, now) = (&mut self.state, self.now_ns);
                let pick = self.policy.pick(state, all, *key, now, &mut self.rng);
                let pick = pick.or_else(|| overload::pick(state, all, now, PATIENCE, &mut self.rng));
                *picked = black_box(pick).map_or(0, |pick| pick.back_end);
                // As in the balancer: the next pick sees this one.
                state.sent(*picked, now);
            }
            took += begin.elapsed();
            for back_end in picked {
                self.flying.push_back((back_end, self.state.in_flight(back_end), self.now_ns));
            }
            self.now_ns += 200_000;
            while self.flying.len() > IN_FLIGHT {
                let Some((back_end, load, sent)) = self.flying.pop_front() else { break };
                let latency = (self.now_ns - sent) * (1 + back_end as u64 % 4);
                self.state.answered(back_end, load, latency, self.now_ns);
            }
        }
        took.as_secs_f64() * 1e9 / (BATCHES * BATCH) as f64
    }
}
