//! Balancers, servers and agents on a virtual clock: every policy is the code that a balancer runs.
//!
//! ```text
//! arrivals (Poisson) -> balancer: Policy::pick, overload::pick -> 100 us -> server: queue of so many slots, one at a time
//!                          ^ leases                                            |  -> 100 us -> balancer
//!                          `- reports (lost, late, again) <- agent <- hellos --'
//! ```
//! A query that is dropped, not answered in time, answered with a failure or shed counts as [`DEADLINE_NS`].
//!
//! What a query is - when it comes, to whom, how much work it makes - is drawn for each by its number, and not as the
//! run goes: with the same seed all policies get the same queries, so that they differ by what they do and not by luck.

use std::cmp::Reverse;
use std::collections::{BinaryHeap, VecDeque};

use fastrand::Rng;
use routing::balance::overload::{self, Fairness};
use routing::balance::{Hearing, Lease, Policy, State};

pub(crate) const US: u64 = 1_000;
pub(crate) const MS: u64 = 1_000_000;
pub(crate) const SECOND: u64 = 1_000_000_000;

/// What a failure counts as, and how long a balancer waits.
pub(crate) const DEADLINE_NS: u64 = SECOND;

/// One way between balancer and server.
const WAY_NS: u64 = 100 * US;

/// The interval of hellos, the lease and the least time between hellos, as `credit` has them.
const INTERVAL_NS: u64 = 20 * MS;
const LEASE_NS: u64 = 60 * MS;
const SPACING_NS: u64 = MS;

/// How long an agent lets a query wait in its server's queue: its default.
const TARGET_NS: u64 = 20 * MS;

/// Different questions.
const QUESTIONS: u64 = 10_000;

/// How a server works.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) enum Work {
    /// On one query after the other, so many nanoseconds for each in the mean: half of it fixed, half by chance.
    Busy(u64),
    /// It reads at once. Of its queries this share is in the cache; the others wait for others, at least so long and
    /// as long again in the mean.
    Waits(f64, u64),
}

/// A server.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Server {
    pub(crate) work: Work,
    /// Slots of its queue.
    pub(crate) slots: usize,
    /// What `wrr` is told about it where it is told the truth.
    pub(crate) capacity: u32,
}

/// What happens to a server at some time.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Event {
    /// Its work takes so many times as long.
    Slowed(f64),
    /// From now on it answers with failures, at once; or no longer.
    Fails(bool),
    /// It is gone, with its queue; or back.
    Gone(bool),
    /// Its agent stops; or goes on.
    AgentStops(bool),
}

/// What happens to reports on their way.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Feedback {
    /// Of all reports this share is lost.
    pub(crate) lost: f64,
    /// The others take up to so much longer, by chance; thus they overtake each other.
    pub(crate) late_ns: (u64, u64),
    /// Of all reports this share comes again, within a second.
    pub(crate) again: f64,
    /// Nobody has agents.
    pub(crate) none: bool,
}

/// What is simulated.
#[derive(Clone, Debug)]
pub(crate) struct Scenario {
    pub(crate) name: &'static str,
    pub(crate) about: &'static str,
    pub(crate) servers: Vec<Server>,
    /// Queries a second.
    pub(crate) rate: f64,
    pub(crate) length_ns: u64,
    /// What share of them comes to which balancer.
    pub(crate) balancers: Vec<f64>,
    pub(crate) events: Vec<(u64, usize, Event)>,
    pub(crate) feedback: Feedback,
}

/// What came of a run.
#[derive(Clone, Debug, Default)]
pub(crate) struct Outcome {
    /// Of each query, in nanoseconds; sorted.
    pub(crate) latencies: Vec<u64>,
    pub(crate) failures: usize,
}

impl Outcome {
    /// A percentile in milliseconds.
    pub(crate) fn percentile(&self, percent: f64) -> f64 {
        let at = (self.latencies.len() as f64 * percent / 100.0) as usize;
        self.latencies
            .get(at.min(self.latencies.len().saturating_sub(1)))
            .map_or(f64::NAN, |ns| *ns as f64 / MS as f64)
    }

    /// The share of queries that failed.
    pub(crate) fn failed(&self) -> f64 {
        self.failures as f64 / self.latencies.len().max(1) as f64
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Next {
    Arrival,
    Reaches(usize),
    Served(usize, u64),
    Answered(usize, bool),
    TimesOut(usize),
    Hello(usize, usize),
    HelloReaches(usize, usize, u64, u64),
    Report(usize, usize, u64, u64, u64),
    Change(usize),
}

#[derive(Clone, Copy, Debug)]
struct Query {
    born_ns: u64,
    balancer: usize,
    server: usize,
    load: u32,
    work: Drawn,
    is_done: bool,
}

/// What chance makes of a query's work, whichever server gets it.
#[derive(Clone, Copy, Debug)]
struct Drawn {
    /// Below the share of cached answers it is one of them; from 0 to 1.
    rank: f64,
    /// How much longer it takes than the least, in means.
    more: f64,
}

struct Running {
    server: Server,
    queue: VecDeque<usize>,
    /// Changes with each that is begun or broken off, so that what was to end before is not.
    run: u64,
    is_busy: bool,
    slowed: f64,
    fails: bool,
    gone: bool,
    agent: Agent,
}

/// What an agent goes by: see `agent::meter`.
struct Agent {
    stopped: bool,
    /// Taken from the queue a second, believed.
    rate: f64,
    marked_ns: u64,
    arrived: u64,
    marked_arrived: u64,
    marked_length: u64,
    was_empty: bool,
    /// By balancer: sent as told last, and demand a second.
    sent: Vec<u64>,
    told_ns: Vec<u64>,
    demand: Vec<f64>,
    wanted: bool,
    limit: Vec<u64>,
}

struct Balancer {
    state: State,
    policy: Policy,
    fairness: Fairness,
    rng: Rng,
    /// By server: when hellos were sent, by sequence; and the last one that was answered.
    hellos: Vec<Vec<u64>>,
    heard: Vec<u64>,
    hearing: Vec<Hearing>,
    hello_ns: Vec<u64>,
    /// What the last report granted, from what was sent then.
    granted: Vec<(u64, u64)>,
}

struct World<'a> {
    scenario: &'a Scenario,
    seed: u64,
    now: u64,
    order: u64,
    arrived: u64,
    events: BinaryHeap<Reverse<(u64, u64, Next)>>,
    queries: Vec<Query>,
    servers: Vec<Running>,
    balancers: Vec<Balancer>,
    rng: Rng,
    outcome: Outcome,
}

/// Runs a scenario; `weights` says whether the policy is told capacities.
pub(crate) fn run(scenario: &Scenario, policy: &str, weights: bool, seed: u64) -> Outcome {
    let count = scenario.balancers.len();
    let servers = scenario.servers.iter().map(|server| Running {
        server: *server,
        queue: VecDeque::new(),
        run: 0,
        is_busy: false,
        slowed: 1.0,
        fails: false,
        gone: false,
        agent: Agent {
            stopped: scenario.feedback.none,
            rate: 200.0,
            marked_ns: 0,
            arrived: 0,
            marked_arrived: 0,
            marked_length: 0,
            was_empty: true,
            sent: vec![0; count],
            told_ns: vec![0; count],
            demand: vec![0.0; count],
            wanted: false,
            limit: vec![0; count],
        },
    });
    let balancers = (0..count).map(|number| {
        let mut state = State::new();
        for (index, server) in scenario.servers.iter().enumerate() {
            state.begin(index, if weights { server.capacity } else { 1 }, 0);
        }
        Balancer {
            state,
            policy: Policy::from_name(policy).expect("a policy's name"),
            fairness: Fairness::new(),
            rng: Rng::with_seed(seed ^ 0x5eed ^ (number as u64) << 32),
            hellos: vec![Vec::new(); scenario.servers.len()],
            heard: vec![0; scenario.servers.len()],
            hearing: vec![Hearing::default(); scenario.servers.len()],
            hello_ns: vec![0; scenario.servers.len()],
            granted: vec![(0, 0); scenario.servers.len()],
        }
    });
    let mut world = World {
        scenario,
        seed,
        now: 0,
        order: 0,
        arrived: 0,
        events: BinaryHeap::new(),
        queries: Vec::new(),
        servers: servers.collect(),
        balancers: balancers.collect(),
        rng: Rng::with_seed(seed),
        outcome: Outcome::default(),
    };
    world.run();
    let mut outcome = world.outcome;
    outcome.latencies.sort_unstable();
    outcome
}

impl World<'_> {
    fn run(&mut self) {
        self.at(0, Next::Arrival);
        for (number, (time, ..)) in self.scenario.events.iter().enumerate() {
            self.at(*time, Next::Change(number));
        }
        for balancer in 0..self.balancers.len() {
            for server in 0..self.servers.len() {
                let begin = self.rng.u64(..INTERVAL_NS);
                self.at(begin, Next::Hello(balancer, server));
            }
        }
        while let Some(Reverse((time, _, next))) = self.events.pop() {
            self.now = time;
            match next {
                Next::Arrival => self.arrival(),
                Next::Reaches(query) => self.reaches(query),
                Next::Served(server, run) => self.served(server, run),
                Next::Answered(query, is_good) => self.answered(query, is_good),
                Next::TimesOut(query) => self.answered(query, false),
                Next::Hello(balancer, server) => {
                    self.hello(balancer, server);
                    if time < self.scenario.length_ns {
                        self.at(INTERVAL_NS, Next::Hello(balancer, server));
                    }
                }
                Next::HelloReaches(balancer, server, sequence, sent) => {
                    self.hello_reaches(balancer, server, sequence, sent);
                }
                Next::Report(balancer, server, sequence, sent, limit) => {
                    self.report(balancer, server, sequence, sent, limit);
                }
                Next::Change(number) => self.change(number),
            }
        }
    }

    fn at(&mut self, later_ns: u64, next: Next) {
        self.order += 1;
        self.events.push(Reverse((self.now + later_ns, self.order, next)));
    }

    fn arrival(&mut self) {
        self.arrived += 1;
        let mut drawn =
            Rng::with_seed(self.seed.wrapping_add(self.arrived.wrapping_mul(0x9e37_79b9_7f4a_7c15)));
        let gap = (exponential(&mut drawn) * SECOND as f64 / self.scenario.rate) as u64;
        if self.now + gap < self.scenario.length_ns {
            self.at(gap, Next::Arrival);
        }
        let work = Drawn { rank: drawn.f64(), more: exponential(&mut drawn) };
        let (mut point, mut balancer) = (drawn.f64(), 0);
        for share in &self.scenario.balancers[..self.balancers.len() - 1] {
            if point < *share {
                break;
            }
            point -= share;
            balancer += 1;
        }
        let key = drawn.u64(..QUESTIONS).wrapping_mul(0x9e37_79b9_7f4a_7c15);
        let client = drawn.u64(..200);
        let Balancer { state, policy, fairness, rng, .. } = &mut self.balancers[balancer];
        let all = state.all();
        let picked = policy.pick(state, all, key, self.now, rng).or_else(|| {
            let patience = if fairness.admits(client, self.now) { DEADLINE_NS } else { DEADLINE_NS / 2 };
            overload::pick(state, all, self.now, patience)
        });
        let Some(picked) = picked else { return self.end(self.now, self.now, false) };
        let server = picked.back_end;
        state.sent(server, self.now);
        let load = state.in_flight(server);
        self.queries.push(Query { born_ns: self.now, balancer, server, load, work, is_done: false });
        let query = self.queries.len() - 1;
        self.at(WAY_NS, Next::Reaches(query));
        self.at(DEADLINE_NS, Next::TimesOut(query));
        let (granted, from) = self.balancers[balancer].granted[server];
        let sent = self.balancers[balancer].state.sent_total(server);
        let is_half_used = granted > from && granted.saturating_sub(sent) <= (granted - from) / 2;
        if is_half_used && self.now - self.balancers[balancer].hello_ns[server] >= SPACING_NS {
            self.hello(balancer, server);
        }
    }

    fn end(&mut self, born_ns: u64, now: u64, is_good: bool) {
        // The first second is everybody's to learn.
        if born_ns < SECOND {
            return;
        }
        self.outcome.latencies.push(if is_good { now - born_ns } else { DEADLINE_NS });
        self.outcome.failures += usize::from(!is_good);
    }

    fn reaches(&mut self, query: usize) {
        let Query { server, work, .. } = self.queries[query];
        let running = &mut self.servers[server];
        running.agent.arrived += 1;
        if running.gone {
            return;
        }
        if running.fails {
            return self.at(20 * US + WAY_NS, Next::Answered(query, false));
        }
        match running.server.work {
            Work::Waits(cached, wait) => {
                let time =
                    if work.rank < cached { (50 * US) as f64 } else { wait as f64 * (1.0 + work.more) };
                let slowed = running.slowed;
                self.at((time * slowed) as u64 + WAY_NS, Next::Answered(query, true));
            }
            Work::Busy(_) if running.queue.len() >= running.server.slots => {}
            Work::Busy(_) => {
                running.queue.push_back(query);
                if !running.is_busy {
                    self.begin(server);
                }
            }
        }
    }

    fn begin(&mut self, server: usize) {
        let running = &mut self.servers[server];
        let first = running.queue.front().copied();
        running.is_busy = first.is_some();
        running.run += 1;
        let Some(first) = first else {
            running.agent.was_empty = true;
            return;
        };
        let (run, slowed) = (running.run, running.slowed);
        let Work::Busy(mean) = running.server.work else { return };
        let time = mean as f64 * slowed / 2.0 * (1.0 + self.queries[first].work.more);
        self.at(time as u64, Next::Served(server, run));
    }

    fn served(&mut self, server: usize, run: u64) {
        if self.servers[server].run != run {
            return;
        }
        if let Some(query) = self.servers[server].queue.pop_front() {
            self.at(WAY_NS, Next::Answered(query, true));
        }
        self.begin(server);
    }

    fn answered(&mut self, query: usize, is_good: bool) {
        let Query { born_ns, balancer, server, load, is_done, .. } = self.queries[query];
        if is_done {
            return;
        }
        self.queries[query].is_done = true;
        let state = &mut self.balancers[balancer].state;
        if is_good {
            state.answered(server, load, self.now - born_ns, self.now);
        } else {
            state.failed(server, load, DEADLINE_NS, self.now);
        }
        self.end(born_ns, self.now, is_good);
    }

    fn hello(&mut self, balancer: usize, server: usize) {
        let from = &mut self.balancers[balancer];
        from.hellos[server].push(self.now);
        from.hello_ns[server] = self.now;
        let sequence = from.hellos[server].len() as u64;
        let sent = from.state.sent_total(server);
        self.at(WAY_NS, Next::HelloReaches(balancer, server, sequence, sent));
    }

    fn hello_reaches(&mut self, balancer: usize, server: usize, sequence: u64, sent: u64) {
        let now = self.now;
        let running = &mut self.servers[server];
        let length = running.queue.len() as u64;
        let free = (running.server.slots as u64).saturating_sub(length);
        let agent = &mut running.agent;
        if agent.stopped || running.gone {
            return;
        }
        let more = sent - agent.sent[balancer];
        let granted = agent.limit[balancer].saturating_sub(agent.sent[balancer]);
        agent.wanted |= granted > 0 && more >= granted.div_ceil(2);
        let since = (now - agent.told_ns[balancer]) as f64;
        let weight = since / (since + 200.0 * MS as f64);
        agent.demand[balancer] +=
            (more as f64 * SECOND as f64 / since.max(1.0) - agent.demand[balancer]) * weight;
        (agent.sent[balancer], agent.told_ns[balancer]) = (sent, now);
        agent.measure(now, length);
        let window = (agent.rate * TARGET_NS as f64 / SECOND as f64) as u64;
        let margin = free / 8 + 1;
        let least = if length == 0 { 4 } else { 0 };
        let room = free.saturating_sub(margin).min(window.saturating_sub(length).max(least));
        let all: f64 = agent.demand.iter().map(|demand| demand + 1.0).sum();
        let share = (agent.demand[balancer] + 1.0) / all;
        let limit = sent + ((room as f64 * share) as u64).max(u64::from(room > 0));
        agent.limit[balancer] = limit;
        let feedback = self.scenario.feedback;
        let is_lost = self.rng.f64() < feedback.lost;
        let late =
            if feedback.late_ns.1 > 0 { self.rng.u64(feedback.late_ns.0..feedback.late_ns.1) } else { 0 };
        let report = Next::Report(balancer, server, sequence, sent, limit);
        if !is_lost {
            self.at(WAY_NS + late, report);
        }
        if self.rng.f64() < feedback.again {
            let later = self.rng.u64(..SECOND);
            self.at(WAY_NS + later, report);
        }
    }

    fn report(&mut self, balancer: usize, server: usize, sequence: u64, sent: u64, limit: u64) {
        let to = &mut self.balancers[balancer];
        let from_ns = to.hellos[server][sequence as usize - 1];
        let until_ns = from_ns + LEASE_NS;
        if sequence <= to.heard[server] || until_ns <= self.now {
            return;
        }
        let missed = sequence - to.heard[server] - 1;
        to.hearing[server].heard(missed, self.now - from_ns);
        to.heard[server] = sequence;
        to.granted[server] = (limit, sent);
        to.state.lease(server, Lease::reported(limit, from_ns, until_ns, 0, &to.hearing[server]));
    }

    fn change(&mut self, number: usize) {
        let (_, server, event) = self.scenario.events[number];
        let running = &mut self.servers[server];
        match event {
            Event::Slowed(slowed) => running.slowed = slowed,
            Event::Fails(fails) => running.fails = fails,
            Event::AgentStops(stops) => running.agent.stopped = stops,
            Event::Gone(gone) => {
                running.gone = gone;
                running.queue.clear();
                running.is_busy = false;
                running.run += 1;
            }
        }
    }
}

/// Exponentially distributed, with a mean of 1.
fn exponential(rng: &mut Rng) -> f64 {
    -(1.0 - rng.f64()).ln()
}

impl Agent {
    /// The rate of what was taken, as `agent::drain` has it.
    fn measure(&mut self, now: u64, length: u64) {
        let round = now - self.marked_ns;
        self.was_empty |= length == 0;
        if round < INTERVAL_NS {
            return;
        }
        let taken = (self.arrived - self.marked_arrived + self.marked_length).saturating_sub(length);
        let rate = taken as f64 * SECOND as f64 / round as f64;
        if self.was_empty {
            self.rate = self.rate.max(rate) * if self.wanted { 1.25 } else { 1.0 };
        } else {
            self.rate += (rate - self.rate) / 2.0;
        }
        (self.marked_ns, self.marked_arrived, self.marked_length) = (now, self.arrived, length);
        (self.was_empty, self.wanted) = (length == 0, false);
    }
}
