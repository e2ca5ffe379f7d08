//! Balancers, servers and agents on a virtual clock: every policy is the code that a balancer runs, every meter that of an
//! agent, and both ends of the protocol between them are what is sent over the network.
//!
//! ```text
//! arrivals (Poisson) -> balancer: Policy::pick, overload::pick -> 100 us -> server: queue of so many slots, one at a time
//!                          ^ leases                                            |  -> 100 us -> balancer
//!                          `- reports (lost, late, again) <- agent: Meter <- hellos --'
//! ```
//! With [`ONE_QUEUE`] instead of a policy, queries wait together, and whoever can work on one takes the first.
//! A query that is dropped, not answered in time, answered with a failure or shed counts as [`DEADLINE_NS`].
//!
//! What a query is - when it comes, to whom, how much work it makes - is drawn for each by its number, and not as the
//! run goes: with the same seed all policies get the same queries, so that they differ by what they do and not by luck.

mod server;

use std::cmp::Reverse;
use std::collections::{BinaryHeap, VecDeque};

use std::time::Duration;

use agent::meter::Meter;
use agent::queue::Sample;
use credit::{Account, HELLO_SPACING, Hello, INTERVAL, Report, Service, Taken, Transport};
use fastrand::Rng;
use routing::balance::overload::{self, Fairness};
use routing::balance::{self, Hearing, Lease, Policy, Quota, State};

use crate::quantiles::quantile;
use server::{Begun, Drawn, Running};
pub(crate) use server::{Server, Work};

pub(crate) const US: u64 = 1_000;
pub(crate) const MS: u64 = 1_000_000;
pub(crate) const SECOND: u64 = 1_000_000_000;

/// What a failure counts as, and how long a balancer waits.
pub(crate) const DEADLINE_NS: u64 = SECOND;

/// One way between balancer and server.
const WAY_NS: u64 = 100 * US;

/// From one look of an agent at its queue to the next, as long as that could show what is to be told at once, and else.
const TICK_FILLED_NS: u64 = 4 * MS;
const TICK_NS: u64 = 20 * MS;

/// No policy, but what hardly any can better, as none knows who will be free first: one queue for all servers.
pub(crate) const ONE_QUEUE: &str = "one queue";

/// How many different questions there are: what `hash` goes by.
const QUESTIONS: u64 = 10_000;

/// What happens to a server at some time.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Event {
    /// Its work takes so many times as long.
    Slowed(f64),
    /// From now on it answers with failures, at once; or no longer.
    Fails(bool),
    /// It is ended, with its queue; or started again. Its agent is not.
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
    /// Whether there are no agents at all.
    pub(crate) none: bool,
}

/// Times at which more is asked than else.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Swells {
    /// From the begin of one to that of the next, and how long each lasts.
    pub(crate) every_ns: u64,
    pub(crate) length_ns: u64,
    /// How many times as many queries come in them.
    pub(crate) times: f64,
}

/// What is simulated: servers, load, and what happens meanwhile.
#[derive(Clone, Debug)]
pub(crate) struct Scenario {
    pub(crate) name: &'static str,
    pub(crate) about: &'static str,
    pub(crate) servers: Vec<Server>,
    /// Queries a second, outside of swells.
    pub(crate) rate: f64,
    /// Times at which there are more.
    pub(crate) swells: Option<Swells>,
    /// What share of all queries is more than the servers can answer.
    pub(crate) beyond: f64,
    pub(crate) length_ns: u64,
    /// What share of all queries comes to each balancer.
    pub(crate) balancers: Vec<f64>,
    pub(crate) events: Vec<(u64, usize, Event)>,
    pub(crate) feedback: Feedback,
}

impl Scenario {
    /// Queries a second at a time.
    fn rate_at(&self, now: u64) -> f64 {
        let times =
            self.swells.filter(|swells| now % swells.every_ns < swells.length_ns).map(|swells| swells.times);
        self.rate * times.unwrap_or(1.0)
    }
}

/// What came of a run.
#[derive(Clone, Debug, Default)]
pub(crate) struct Outcome {
    /// The latency of each query, in nanoseconds; sorted.
    pub(crate) latencies: Vec<u64>,
    pub(crate) failures: usize,
    /// What servers with quotas have used of what they may in the scenario's length; not a number without quotas.
    pub(crate) used: f64,
}

impl Outcome {
    /// What this share of latencies do not pass, in milliseconds.
    pub(crate) fn quantile(&self, share: f64) -> f64 {
        quantile(&self.latencies, share).map_or(f64::NAN, |ns| ns as f64 / MS as f64)
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
    /// Balancer, server, and when the hello before was sent.
    Hello(usize, usize, u64),
    /// Balancer, server, and which of all hellos.
    HelloReaches(usize, usize, usize),
    /// Balancer, server, and which of all reports.
    Report(usize, usize, usize),
    /// Server, and which wait of its agent ends.
    AgentLooks(usize, u64),
    Refilled(usize, u64),
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

/// An agent's thread: see `agent::run`.
struct Agent {
    stopped: bool,
    meter: Meter,
    waits: u64,
}

struct Balancer {
    state: State,
    policy: Policy,
    fairness: Fairness,
    rng: Rng,
    /// The end of the protocol for each server, in their order.
    links: Vec<Link>,
}

/// A balancer's end of the protocol: see `balancer::credits`.
struct Link {
    account: Account,
    hearing: Hearing,
    /// Whether a report has ever come.
    is_heard: bool,
    told_ns: u64,
    ended: u64,
    quota: Quota,
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
    /// One beside each server.
    agents: Vec<Agent>,
    balancers: Vec<Balancer>,
    hellos: Vec<Hello>,
    reports: Vec<Report>,
    rng: Rng,
    outcome: Outcome,
    /// Where queries wait together, with [`ONE_QUEUE`].
    together: Option<VecDeque<usize>>,
}

/// Runs a scenario with a policy of this name or with [`ONE_QUEUE`]; `weights` says whether the policy is told capacities.
pub(crate) fn run(scenario: &Scenario, policy: &str, weights: bool, seed: u64) -> Outcome {
    let (count, seed) = (scenario.balancers.len(), own_seed(seed));
    let servers = scenario.servers.iter().enumerate().map(|(number, server)| {
        let begun_ns = Rng::with_seed(seed ^ number as u64).u64(..SECOND);
        Running::new(*server, policy != ONE_QUEUE, begun_ns)
    });
    let agents = (0..scenario.servers.len()).map(|server| Agent {
        stopped: scenario.feedback.none,
        meter: Meter::new(service(server), agent::Settings::default(), (0..count).map(|_| 1)),
        waits: 0,
    });
    let balancers = (0..count).map(|number| {
        let mut state = State::new();
        for (index, server) in scenario.servers.iter().enumerate() {
            state.begin(index, if weights { server.capacity } else { 1 }, 0);
        }
        let link = |server| Link {
            account: Account::new(number as u64 + 1, seed.max(1), service(server)),
            hearing: Hearing::default(),
            is_heard: false,
            told_ns: 0,
            ended: 0,
            quota: Quota::NONE,
        };
        Balancer {
            state,
            policy: match policy {
                ONE_QUEUE => Policy::Random,
                name => Policy::from_name(name).expect("a policy's name"),
            },
            fairness: Fairness::new(),
            rng: Rng::with_seed(seed ^ 0x5eed ^ (number as u64) << 32),
            links: (0..scenario.servers.len()).map(link).collect(),
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
        agents: agents.collect(),
        balancers: balancers.collect(),
        hellos: Vec::new(),
        reports: Vec::new(),
        rng: Rng::with_seed(seed),
        outcome: Outcome::default(),
        together: (policy == ONE_QUEUE).then(VecDeque::new),
    };
    world.run();
    let all = world.servers.iter().filter_map(|server| server.used_of(scenario.length_ns));
    let (used, may) = all.fold((0.0, 0.0), |sums, one| (sums.0 + one.0, sums.1 + one.1));
    let mut outcome = Outcome { used: used / may, ..world.outcome };
    outcome.latencies.sort_unstable();
    outcome
}

impl World<'_> {
    fn run(&mut self) {
        self.at(0, Next::Arrival);
        for (number, (time, ..)) in self.scenario.events.iter().enumerate() {
            self.at(*time, Next::Change(number));
        }
        for server in 0..self.servers.len() {
            let begin = self.rng.u64(..TICK_NS);
            self.at(begin, Next::AgentLooks(server, 0));
        }
        while let Some(Reverse((time, _, next))) = self.events.pop() {
            self.now = time;
            match next {
                Next::Arrival => self.arrival(),
                Next::Reaches(query) => self.reaches(query),
                Next::Served(server, run) => self.served(server, run),
                Next::Answered(query, is_good) => self.answered(query, is_good),
                Next::TimesOut(query) => self.answered(query, false),
                Next::Hello(balancer, server, before) => {
                    if self.balancers[balancer].links[server].told_ns == before {
                        self.hello(balancer, server);
                    }
                }
                Next::HelloReaches(balancer, server, number) => {
                    self.hello_reaches(balancer, server, number);
                }
                Next::Report(balancer, server, number) => self.report(balancer, server, number),
                Next::AgentLooks(server, turn) => {
                    if self.agents[server].waits == turn {
                        self.look(server);
                    }
                }
                Next::Refilled(server, run) => {
                    if self.servers[server].run == run {
                        self.begin(server);
                    }
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
        let gap = (exponential(&mut drawn) * SECOND as f64 / self.scenario.rate_at(self.now)) as u64;
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
        let Balancer { state, policy, fairness, rng, links, .. } = &mut self.balancers[balancer];
        let all = state.all();
        for (server, link) in links.iter().enumerate() {
            state.quota(server, link.quota, self.now);
        }
        let picked = policy.pick(state, all, key, self.now, rng).or_else(|| {
            let patience = fairness.patience(client, self.now, DEADLINE_NS);
            overload::pick(state, all, self.now, patience, rng)
        });
        let Some(picked) = picked else { return self.end(self.now, self.now, false) };
        let server = picked.back_end;
        state.sent(server, self.now);
        let load = state.in_flight(server);
        self.queries.push(Query { born_ns: self.now, balancer, server, load, work, is_done: false });
        let query = self.queries.len() - 1;
        self.at(WAY_NS, Next::Reaches(query));
        self.at(DEADLINE_NS, Next::TimesOut(query));
        let Balancer { state, links, .. } = &self.balancers[balancer];
        let (link, sent) = (&links[server], state.sent_total(server));
        if link.is_heard
            && self.now - link.told_ns >= ns(HELLO_SPACING)
            && link.account.is_half_used(time(self.now), sent)
        {
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
        if let Some(together) = &mut self.together {
            together.push_back(query);
            let idle: Vec<usize> =
                (0..self.servers.len()).filter(|server| !self.servers[*server].is_busy).collect();
            return idle.into_iter().for_each(|server| self.begin(server));
        }
        let Query { server, work, .. } = self.queries[query];
        let running = &mut self.servers[server];
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
            Work::Busy(_) | Work::Limited { .. } if running.waiting() >= running.server.slots => {
                running.drops += 1;
            }
            Work::Busy(_) | Work::Limited { .. } => {
                running.queue.push_back(query);
                if !running.is_busy {
                    self.begin(server);
                }
            }
        }
    }

    fn begin(&mut self, server: usize) {
        let running = &mut self.servers[server];
        if let Some(together) = &mut self.together
            && running.queue.is_empty()
            && !running.gone
        {
            running.queue.extend(together.pop_front());
        }
        let first = running.queue.front().map(|query| self.queries[*query].work);
        let (begun, run) = (running.begin(first, self.now), running.run);
        match begun {
            Some(Begun::For(time)) => self.at(time, Next::Served(server, run)),
            Some(Begun::NotBefore(until)) => {
                if let Some(together) = &mut self.together {
                    running.queue.drain(..).for_each(|query| together.push_front(query));
                }
                // What has come meanwhile it has not received.
                self.at(until - self.now, Next::Refilled(server, run));
            }
            None => {}
        }
    }

    fn served(&mut self, server: usize, run: u64) {
        if self.servers[server].run != run {
            return;
        }
        if let Some(query) = self.servers[server].done() {
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
        self.balancers[balancer].links[server].ended += 1;
        let state = &mut self.balancers[balancer].state;
        if is_good {
            state.answered(server, load, self.now - born_ns, self.now);
        } else {
            state.failed(server, load, DEADLINE_NS, self.now);
        }
        self.end(born_ns, self.now, is_good);
    }

    fn hello(&mut self, balancer: usize, server: usize) {
        let Balancer { state, links, .. } = &mut self.balancers[balancer];
        let link = &mut links[server];
        link.told_ns = self.now;
        let hello = link.account.hello(time(self.now), state.sent_total(server), link.ended);
        self.hellos.push(hello);
        self.at(WAY_NS, Next::HelloReaches(balancer, server, self.hellos.len() - 1));
        if self.now < self.scenario.length_ns {
            self.at(ns(INTERVAL), Next::Hello(balancer, server, self.now));
        }
    }

    fn hello_reaches(&mut self, balancer: usize, server: usize, number: usize) {
        let agent = &mut self.agents[server];
        if !agent.stopped {
            agent.meter.hear(balancer, &self.hellos[number], time(self.now));
            self.look(server);
        }
    }

    /// An agent has woken.
    fn look(&mut self, server: usize) {
        let now = time(self.now);
        let running = &self.servers[server];
        let sample = Sample { at: now, queues: running.queues() };
        let Agent { stopped, meter, waits } = &mut self.agents[server];
        *waits += 1;
        let (turn, mut made) = (*waits, Vec::new());
        if !*stopped {
            if !meter.is_owing() && meter.wants_glances() {
                meter.glance(&sample);
            }
            if meter.is_due(now) || meter.next_reading().is_some_and(|at| at <= now) {
                meter.used(running.reading(self.now));
            }
            if meter.is_due(now) {
                meter.sample(&sample);
            }
            meter.reports(now, |balancer, report| {
                made.push((balancer, *report));
                true
            });
        }
        let tick = if meter.wants_glances() { TICK_FILLED_NS } else { TICK_NS };
        let tick = meter.next_reading().map_or(tick, |at| tick.min(ns(at).saturating_sub(self.now).max(MS)));
        if self.now < self.scenario.length_ns {
            self.at(tick, Next::AgentLooks(server, turn));
        }
        let feedback = self.scenario.feedback;
        for (balancer, report) in made {
            self.reports.push(report);
            let next = Next::Report(balancer, server, self.reports.len() - 1);
            let is_lost = self.rng.f64() < feedback.lost;
            let late =
                if feedback.late_ns.1 > 0 { self.rng.u64(feedback.late_ns.0..feedback.late_ns.1) } else { 0 };
            if !is_lost {
                self.at(WAY_NS + late, next);
            }
            if self.rng.f64() < feedback.again {
                let later = self.rng.u64(..SECOND);
                self.at(WAY_NS + later, next);
            }
        }
    }

    fn report(&mut self, balancer: usize, server: usize, number: usize) {
        let report = self.reports[number];
        let Balancer { state, links, .. } = &mut self.balancers[balancer];
        let link = &mut links[server];
        let before = link.account.last().map_or(0, |(last, _)| last.hello);
        match link.account.take(&report, time(self.now)) {
            Taken::Fresh => {
                link.is_heard = true;
                let until_ns = link.account.last().map_or(self.now, |(_, until)| ns(until));
                let from_ns = until_ns - ns(report.lease);
                if let Some(missed) = report.hello.checked_sub(before + 1) {
                    link.hearing.heard(missed, self.now - from_ns);
                }
                let quota = report.quota.map_or(Quota::NONE, |quota| Quota {
                    quota_ns: ns(quota.quota),
                    period_ns: ns(quota.period),
                    refill_ns: self.now + ns(quota.refill),
                    left_ns: i64::from(quota.left_us) * 1_000,
                    cost_ns: ns(quota.cost),
                    ended: link.ended,
                });
                let queue = balance::Queue {
                    delay_ns: ns(report.queue_delay),
                    room: report.backlog_limit.into(),
                    backlog: report.backlog.into(),
                    sent: report.sent,
                };
                let lease = Lease::reported(report.limit, from_ns, until_ns, queue, &link.hearing);
                state.lease(server, lease);
                link.quota = quota;
            }
            Taken::Introduction if self.now - link.told_ns >= ns(HELLO_SPACING) => {
                self.hello(balancer, server);
            }
            _ => {}
        }
    }

    fn change(&mut self, number: usize) {
        let (_, server, event) = self.scenario.events[number];
        let running = &mut self.servers[server];
        match event {
            Event::Slowed(slowed) => running.slowed = slowed,
            Event::Fails(fails) => running.fails = fails,
            Event::AgentStops(stops) => self.agents[server].stopped = stops,
            Event::Gone(gone) => running.go(gone),
        }
    }
}

/// What the draws of a run begin with. Runs have seeds that are next to each other, and generators that begin with such draw
/// alike: nothing twice, but with correlations of up to 0.27. What each of them draws first is next to no other's.
fn own_seed(seed: u64) -> u64 {
    Rng::with_seed(seed).u64(..)
}

/// Exponentially distributed, with a mean of 1.
fn exponential(rng: &mut Rng) -> f64 {
    -(1.0 - rng.f64()).ln()
}

fn service(server: usize) -> Service {
    Service::new(Transport::Udp, [192, 0, 2, 1].into(), 1 + server as u16)
}

fn time(ns: u64) -> Duration {
    Duration::from_nanos(ns)
}

fn ns(time: Duration) -> u64 {
    u64::try_from(time.as_nanos()).unwrap_or(u64::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// How alike two runs of numbers are, from -1 to 1.
    fn correlation(one: &[f64], other: &[f64]) -> f64 {
        let product = |one: &[f64], other: &[f64]| -> f64 {
            one.iter().zip(other).map(|(one, other)| (one - 0.5) * (other - 0.5)).sum()
        };
        product(one, other) / (product(one, one) * product(other, other)).sqrt()
    }

    #[test]
    fn runs_whose_seeds_are_next_to_each_other_draw_as_others_do() {
        // Of 4,096 draws chance makes 1/64; four times as much is what no pair of these has by chance.
        let draws = |seed: u64| -> Vec<f64> {
            let mut rng = Rng::with_seed(own_seed(seed));
            (0..4_096).map(|_| rng.f64()).collect()
        };
        let all: Vec<Vec<f64>> = (1..=8).map(draws).collect();
        for (number, one) in all.iter().enumerate() {
            for other in &all[..number] {
                let alike = correlation(one, other);
                assert!(alike.abs() < 4.0 / 64.0, "{alike}");
            }
        }
    }
}
