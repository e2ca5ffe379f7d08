//! Everything that is counted, where it can be read.

use std::net::SocketAddr;
use std::sync::atomic::Ordering;
use std::sync::{Arc, Weak};

use arc_swap::ArcSwap;
use net::clock::Clock;
use net::count::Count;
use net::udp::UdpListener;
use routing::balance::pressure::Step;

use crate::cache::Cache;
use crate::counters::FrontCounters;
use crate::credits;
use crate::field::Field;
use crate::picker;

/// What can be read of a balancer.
#[derive(Debug)]
pub struct Numbers {
    /// The clock of the whole balancer, which begins with it.
    pub clock: Clock,
    /// The policy's name, one of `routing::balance::NAMES`.
    pub policy: String,
    /// The addresses at which clients are answered.
    pub listening: Vec<SocketAddr>,
    /// The back ends, replaced as a whole when one comes or goes.
    pub field: Arc<ArcSwap<Field>>,
    /// What each thread counts, and last the connections' side.
    pub fronts: Vec<Arc<FrontCounters>>,
    /// The sockets of the threads, which close them when they end.
    pub sockets: Vec<Weak<UdpListener>>,
    /// Answers that are given again, where they are.
    pub cache: Option<Arc<Cache>>,
    /// What became of reports, where agents are waited for.
    pub credits: Option<Arc<credits::Counters>>,
    /// What the writer of dnstap counts, where there is one.
    pub tap: Option<Arc<tap::Counters>>,
}

impl Numbers {
    /// A count over all threads.
    pub fn sum(&self, of: impl Fn(&FrontCounters) -> &Count) -> u64 {
        self.fronts.iter().map(|front| of(front).get()).sum()
    }

    /// The steps of `pressure`, and how many threads went by each at their last pick.
    pub fn steps(&self) -> [(Step, u64); 4] {
        let last: Vec<Step> =
            self.fronts.iter().filter_map(|front| picker::step(front.step.load(Ordering::Relaxed))).collect();
        Step::ALL.map(|step| (step, last.iter().filter(|last| **last == step).count() as u64))
    }

    /// Now, in nanoseconds of the monotonic clock.
    pub fn now_ns(&self) -> u64 {
        self.clock.monotonic_ns()
    }
}
