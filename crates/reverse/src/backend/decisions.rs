//! What is asked, and what is kept of the answers.

use std::collections::{HashSet, VecDeque};
use std::net::IpAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use learn::{Backoff, Learner, Limits, Next, Order, Pacer, Repeats};
use net::clock::Now;

use super::behaviour::Behaviour;
use super::counts::Counts;
use crate::cache::{Entry, State, Why, Writer};
use crate::front::Wanted;
use crate::name::NameText;
use crate::question::Answered;

/// Questions under way at a time: each holds a socket. At 50 ms an interval and 2 s to wait there are 40.
pub const IN_FLIGHT_MAX: usize = 256;

/// How long an empty entry stands for a question under way (Rapid DNS, section 6).
pub const PLACEHOLDER: Duration = Duration::from_secs(120);

/// The address or network whose servers answer for an address: IPv4's /16, IPv6's /32.
type Lane = (bool, u32);

fn lane(address: IpAddr) -> Lane {
    match address {
        IpAddr::V4(v4) => (false, u32::from(v4) >> 16),
        IpAddr::V6(v6) => (true, (u128::from(v6) >> 96) as u32),
    }
}

/// A question to be asked.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Question {
    /// The address whose name is asked for.
    pub address: IpAddr,
    /// How often it was asked for already, without an answer.
    pub tried: u32,
}

/// What [`BackEnd::next`] says.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Due {
    /// Ask this now.
    Now(Question),
    /// Look again after this long.
    After(Duration),
    /// Look again when something was noted or answered.
    Later,
}

/// Decides what is asked and what is kept.
#[derive(Debug)]
pub struct BackEnd {
    cache: Writer,
    learner: Learner<IpAddr, Lane, IpAddr>,
    retries: VecDeque<Question>,
    in_flight: HashSet<IpAddr>,
    backoff: Backoff,
    behaviour: Behaviour,
    counts: Arc<Counts>,
}

impl BackEnd {
    /// A back end that writes to `cache`.
    pub fn new(cache: Writer, behaviour: Behaviour) -> BackEnd {
        let (repeats, order) = match behaviour.paper {
            Some(paper) => (paper.repeats, paper.order),
            None => (Repeats::MoveToTop, Order::NewestFirst),
        };
        let limits = Limits { capacity: behaviour.stack, per_client: behaviour.per_client, repeats, order };
        let learner = Learner::new(limits, Pacer::new(behaviour.interval, behaviour.burst));
        BackEnd {
            cache,
            learner,
            retries: VecDeque::new(),
            in_flight: HashSet::new(),
            backoff: Backoff::default(),
            behaviour,
            counts: Arc::default(),
        }
    }

    /// Notes a wanted address.
    pub fn note(&mut self, Wanted { address, client }: Wanted) {
        if self.behaviour.paper.is_some() {
            // One lane, and one client that may have all of it: plain Rapid DNS.
            self.learner.ask(address, (false, 0), IpAddr::from([0, 0, 0, 0]));
        } else if !self.in_flight.contains(&address) {
            self.learner.ask(address, lane(address), client);
        }
    }

    /// What is to be asked; the answer is told to [`BackEnd::answered`].
    pub fn next(&mut self, now: Now) -> Due {
        if let Some(question) = self.retries.front().copied() {
            if !self.learner.spend(now.monotonic) {
                return Due::After(self.learner.wait(now.monotonic));
            }
            self.retries.pop_front();
            return Due::Now(question);
        }
        // Behind the retries: those are in flight already, and hold no socket while they wait for their turn.
        if self.in_flight.len() >= IN_FLIGHT_MAX {
            return Due::Later;
        }
        let seconds = seconds(now);
        let (cache, in_flight) = (&self.cache, &self.in_flight);
        let known = |address: &IpAddr| {
            in_flight.contains(address) || cache.get(*address).is_some_and(|entry| !entry.is_stale(seconds))
        };
        match self.learner.next(now.monotonic, known) {
            Next::Idle => Due::Later,
            Next::Wait(wait) => Due::After(wait),
            Next::Ask(address) => {
                self.in_flight.insert(address);
                self.hold(address, seconds);
                Due::Now(Question { address, tried: 0 })
            }
        }
    }

    /// Puts an empty entry where there is none that is worth more.
    fn hold(&mut self, address: IpAddr, now: u32) {
        let old = self.cache.get(address);
        if old.is_some_and(|old| matches!(old.state, State::Name | State::NoName))
            && self.behaviour.paper.is_none()
        {
            return;
        }
        let failures = old.map_or(0, |old| old.failures);
        let entry = Entry { failures, ..Entry::new(State::Asked, now, PLACEHOLDER) };
        self.cache.put(address, entry, &NameText::EMPTY);
    }

    /// Keeps what was answered, or has it asked again.
    pub fn answered(&mut self, question: Question, answered: Answered, now: Now) {
        let (address, seconds) = (question.address, seconds(now));
        let put = |cache: &mut Writer, state, life, name: &NameText| {
            cache.put(address, Entry::new(state, seconds, life), name);
        };
        match answered {
            Answered::Name(name, ttl) => put(&mut self.cache, State::Name, self.behaviour.ttl.of(ttl), &name),
            Answered::NoName(ttl) if self.behaviour.negative => {
                put(&mut self.cache, State::NoName, self.behaviour.ttl.of(ttl), &NameText::EMPTY);
            }
            // The empty entry stands until it expires, and it is asked for again.
            Answered::NoName(_) => put(&mut self.cache, State::Asked, PLACEHOLDER, &NameText::EMPTY),
            Answered::Unusable(ttl) => {
                let state =
                    if self.behaviour.paper.is_some() { State::NoName } else { State::Failed(Why::Unusable) };
                put(&mut self.cache, state, self.behaviour.ttl.of(ttl), &NameText::EMPTY);
            }
            Answered::Failed(why) if let Some(paper) = self.behaviour.paper => {
                if let (Why::Servfail, Some(life)) = (why, paper.servfail) {
                    put(&mut self.cache, State::Failed(why), life, &NameText::EMPTY);
                }
            }
            Answered::Failed(_) if question.tried + 1 < self.behaviour.tries => {
                self.retries.push_back(Question { tried: question.tried + 1, ..question });
                return;
            }
            Answered::Failed(why) => self.failed(address, why, seconds),
            // They end where they are asked.
            Answered::Truncated | Answered::Foreign => self.failed(address, Why::Malformed, seconds),
        }
        self.in_flight.remove(&address);
    }

    fn failed(&mut self, address: IpAddr, why: Why, now: u32) {
        let old = self.cache.get(address);
        let failures = old.map_or(0, |old| old.failures).saturating_add(1).min(15);
        let life = self.backoff.after(failures.into());
        let mut name = NameText::EMPTY;
        let entry = match old {
            // What was known goes on being served as stale; its age goes on, too.
            Some(old) if matches!(old.state, State::Name | State::NoName) => {
                self.cache.name(address, &mut name);
                let expiry = now.saturating_add(life.as_secs() as u32);
                let life = old.age(now).saturating_add(life.as_secs() as u32);
                Entry { expiry, life, failures, ..old }
            }
            _ => Entry { failures, ..Entry::new(State::Failed(why), now, life) },
        };
        self.cache.put(address, entry, &name);
    }

    /// Sweeps the next shard of the cache.
    pub fn sweep(&mut self, now: Now) {
        self.cache.sweep(seconds(now));
    }

    /// What it counts. [`BackEnd::gauge`] brings what it holds up to date.
    pub fn counts(&self) -> &Arc<Counts> {
        &self.counts
    }

    /// Tells in its counts what it and the cache hold now.
    pub fn gauge(&self) {
        let counts = &self.counts;
        let set = |count: &AtomicU64, value: u64| count.store(value, Ordering::Relaxed);
        let waiting = self.learner.waiting();
        set(&counts.questions, self.learner.questions());
        set(&counts.hits, self.learner.hits());
        set(&counts.leaks, waiting.leaks());
        set(&counts.moved, waiting.moved());
        set(&counts.depth, waiting.len() as u64);
        set(&counts.lanes, waiting.lanes() as u64);
        set(&counts.in_flight, self.in_flight.len() as u64);
        let cached = self.cache.counts();
        set(&counts.expired, cached.expired);
        set(&counts.evicted, cached.evicted);
        set(&counts.no_room, cached.no_room);
        set(&counts.entries, self.cache.len() as u64);
        set(&counts.octets, self.cache.octets() as u64);
    }
}

/// Seconds since 1970, as entries have them; they end in 2106.
pub fn seconds(now: Now) -> u32 {
    u32::try_from(now.unix.as_secs()).unwrap_or(u32::MAX)
}
