//! What is asked, and what is kept of the answers.
//!
//! ```text
//! wanted ─> name ─┬─ a name ──────────> does it lead back? ──────> the verdict is kept
//!                 └─ nothing there ───> is there anything in its /24? ─ nothing ─> in its /16? ─ nothing ─> in its /8?
//! ```
//! Each step is a question of its own, with an interval of its own.

use std::collections::hash_map::Entry as Busy;
use std::collections::{HashMap, HashSet, VecDeque};
use std::net::IpAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use learn::{Backoff, Learner, Limits, Next, Order, Pacer, Repeats};
use net::admission::client_of;
use net::clock::Now;

use super::behaviour::Behaviour;
use super::counts::Counts;
use super::spare::Spare;
use crate::cache::{Entry, State, Verdict, Why, Writer, prefix};
use crate::front::{Purpose, Seen, Wanted};
use crate::name::NameText;
use crate::question::{Answered, Ask};

/// Questions under way at a time: each holds a socket. At 50 ms an interval and 2 s to wait there are 40.
pub const IN_FLIGHT_MAX: usize = 256;

/// Of those, in one lane, so that networks whose servers are slow do not take all of them.
pub const LANE_IN_FLIGHT_MAX: usize = 32;

/// How long it is kept that nobody could tell whether a name leads back, or whether there is anything in a prefix, and that
/// something is not there for a time that nobody told: as long as RFC 9520 §3.2 lets failures be kept.
pub const UNCONFIRMED: Duration = Duration::from_secs(300);

/// How long a prefix is not asked for that was said to be empty and is not: its servers do not follow RFC 8020.
const CONTRADICTED: Duration = Duration::from_secs(7 * 86_400);

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
    /// The address that it is about.
    pub address: IpAddr,
    /// Whether its name is asked for, the addresses of its name, or a prefix.
    pub ask: Ask,
    /// Why it is asked for.
    pub purpose: Purpose,
    /// For how long the name may be kept, where it is asked whether that leads back.
    pub life: Duration,
    /// How often it was asked already, without an answer.
    pub tried: u32,
}

/// What [`BackEnd::next`] says.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[expect(clippy::large_enum_variant, reason = "it is looked at where it is made")]
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
    spare: Spare,
    /// Next steps and retries of addresses that are in flight.
    steps: VecDeque<Question>,
    in_flight: HashSet<IpAddr>,
    /// How many of them there are in a lane.
    busy: HashMap<Lane, usize>,
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
        let per_client = if behaviour.paper.is_some() { behaviour.stack } else { behaviour.per_client };
        let limits = Limits { capacity: behaviour.stack, per_client, repeats, order };
        let learner = Learner::new(limits, Pacer::new(behaviour.interval, behaviour.burst));
        BackEnd {
            cache,
            learner,
            spare: Spare::new(),
            steps: VecDeque::new(),
            in_flight: HashSet::new(),
            busy: HashMap::new(),
            backoff: Backoff::default(),
            behaviour,
            counts: Arc::default(),
        }
    }

    /// Notes a wanted address.
    pub fn note(&mut self, Wanted { address, client }: Wanted) {
        if prefix::is_key(address) {
            // Nobody has that address, and it has no entry.
        } else if self.behaviour.paper.is_some() {
            // One lane, and one client that may have all of it: plain Rapid DNS.
            self.learner.ask(address, (false, 0), IpAddr::from([0, 0, 0, 0]));
        } else if !self.in_flight.contains(&address) {
            self.learner.ask(address, lane(address), client_of(client));
        }
    }

    /// Notes a hit that a face looked at more closely.
    pub fn see(&mut self, seen: Seen) {
        self.spare.push(seen);
    }

    /// What is to be asked; the answer is told to [`BackEnd::answered`].
    pub fn next(&mut self, now: Now) -> Due {
        if let Some(step) = self.steps.front().copied() {
            if !self.learner.spend(now.monotonic) {
                return Due::After(self.learner.wait(now.monotonic));
            }
            self.steps.pop_front();
            return self.ask(step);
        }
        // Behind the next steps: those are in flight already, and hold no socket while they wait for their turn.
        if self.in_flight.len() >= IN_FLIGHT_MAX {
            return Due::Later;
        }
        let seconds = seconds(now);
        let (cache, in_flight, busy) = (&self.cache, &self.in_flight, &self.busy);
        let is_paper = self.behaviour.paper.is_some();
        let open = |lane: &Lane| is_paper || busy.get(lane).is_none_or(|count| *count < LANE_IN_FLIGHT_MAX);
        let known = |address: &IpAddr| {
            in_flight.contains(address) || cache.get(*address).is_some_and(|entry| !entry.is_stale(seconds))
        };
        match self.learner.next(now.monotonic, open, known) {
            Next::Idle => self.next_spare(now),
            Next::Wait(wait) => Due::After(wait),
            Next::Ask(address) => {
                self.hold(address, seconds);
                self.begin(address, Purpose::Name)
            }
        }
    }

    /// What is asked while nobody waits.
    fn next_spare(&mut self, now: Now) -> Due {
        if self.spare.is_empty() {
            return Due::Later;
        }
        let wait = self.learner.spare(now.monotonic);
        if !wait.is_zero() {
            return Due::After(wait);
        }
        let seconds = seconds(now);
        while let Some(Seen { address, purpose }) = self.spare.pop() {
            let entry = self.cache.get(address);
            let is_worth = entry.is_some_and(|entry| {
                let named = entry.state == State::Name && !entry.is_stale(seconds) && entry.failures == 0;
                named && (purpose == Purpose::Sample || entry.is_ending(seconds))
            });
            let is_open = self.busy.get(&lane(address)).is_none_or(|count| *count < LANE_IN_FLIGHT_MAX);
            if is_worth && is_open && !self.in_flight.contains(&address) && self.learner.spend(now.monotonic)
            {
                return self.begin(address, purpose);
            }
        }
        Due::Later
    }

    fn begin(&mut self, address: IpAddr, purpose: Purpose) -> Due {
        self.in_flight.insert(address);
        *self.busy.entry(lane(address)).or_default() += 1;
        self.ask(Question { address, ask: Ask::Name, purpose, life: Duration::ZERO, tried: 0 })
    }

    fn end(&mut self, address: IpAddr) {
        if self.in_flight.remove(&address)
            && let Busy::Occupied(mut busy) = self.busy.entry(lane(address))
        {
            *busy.get_mut() -= 1;
            if *busy.get() == 0 {
                busy.remove();
            }
        }
    }

    fn ask(&self, question: Question) -> Due {
        let asked = &self.counts.asked;
        let count = match (question.tried, question.ask, question.purpose) {
            (1.., _, _) => &asked.retry,
            (0, Ask::Name, Purpose::Name) => &asked.name,
            (0, Ask::Name, Purpose::Ahead) => &asked.ahead,
            (0, Ask::Name, Purpose::Sample) => &asked.sample,
            (0, Ask::Addresses(_), _) => &asked.confirm,
            (0, Ask::Prefix(_), _) => &asked.prefix,
        };
        count.fetch_add(1, Ordering::Relaxed);
        Due::Now(question)
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

    /// Has a question that could not be sent asked again, behind the others that go on; it is no failure of anybody's.
    pub fn unsent(&mut self, question: Question) {
        self.counts.unsent.fetch_add(1, Ordering::Relaxed);
        self.steps.push_back(question);
    }

    /// Keeps what was answered, or has it asked again, or has more asked.
    pub fn answered(&mut self, question: Question, answered: Answered, now: Now) {
        let now = seconds(now);
        // Of what nobody waits for, the interval would be taken from who does; it is asked again when it is seen again.
        let may_retry = self.behaviour.paper.is_none() && question.purpose == Purpose::Name;
        let again = may_retry && question.tried + 1 < self.behaviour.tries;
        let next = match (answered, question.ask) {
            (Answered::Failed(_), _) if again => Some(Question { tried: question.tried + 1, ..question }),
            (answered, Ask::Name) => self.told_name(question, answered, now),
            (answered, Ask::Addresses(name)) => {
                self.told_verdict(question, &name, answered, now);
                None
            }
            (answered, Ask::Prefix(bits)) => self.told_prefix(question, bits, answered, now),
        };
        match next {
            Some(step) => self.steps.push_back(step),
            None => self.end(question.address),
        }
    }

    /// Keeps what is said of a name; what is to be asked next.
    fn told_name(&mut self, question: Question, answered: Answered, now: u32) -> Option<Question> {
        let address = question.address;
        if question.purpose == Purpose::Sample {
            self.compare(address, &answered);
        }
        let ttl = self.behaviour.ttl;
        match answered {
            Answered::Name(name, seconds) => {
                let life = ttl.of(seconds);
                self.contradict(address, now);
                if !self.behaviour.confirm || self.behaviour.paper.is_some() {
                    self.cache.put(address, Entry::new(State::Name, now, life), &name);
                    return None;
                }
                // While it is asked, the verdict on the same name stands; should there be no answer, all of it is
                // asked again before long. But what nobody waits for is not written by halves.
                if question.purpose == Purpose::Name || !self.is_name(address, &name) {
                    let verdict = self.verdict(address, &name);
                    let entry = Entry { verdict, ..Entry::new(State::Name, now, life.min(UNCONFIRMED)) };
                    self.cache.put(address, entry, &name);
                }
                return Some(Question { ask: Ask::Addresses(name), life, tried: 0, ..question });
            }
            Answered::NoName(seconds) | Answered::Nothing(seconds) if self.behaviour.negative => {
                let entry = Entry::new(State::NoName, now, self.absent_for(seconds));
                self.cache.put(address, entry, &NameText::EMPTY);
                if matches!(answered, Answered::Nothing(_))
                    && self.behaviour.prefixes
                    && self.behaviour.paper.is_none()
                {
                    return self.above(question, u8::MAX, now);
                }
            }
            // Not for long, but it is known: who has no name is no crawler. Rapid DNS's empty entry stands until it expires.
            Answered::NoName(_) | Answered::Nothing(_) => {
                let state = if self.behaviour.paper.is_some() { State::Asked } else { State::NoName };
                self.cache.put(address, Entry::new(state, now, PLACEHOLDER), &NameText::EMPTY);
            }
            Answered::Unusable(seconds) => {
                let state =
                    if self.behaviour.paper.is_some() { State::NoName } else { State::Failed(Why::Unusable) };
                self.cache.put(address, Entry::new(state, now, ttl.of(seconds)), &NameText::EMPTY);
            }
            Answered::Failed(why) if let Some(paper) = self.behaviour.paper => {
                if let (Why::Servfail, Some(life)) = (why, paper.servfail) {
                    self.cache.put(address, Entry::new(State::Failed(why), now, life), &NameText::EMPTY);
                }
            }
            Answered::Failed(why) => self.failed(address, why, now),
            // They end where they are asked, or answer another question.
            Answered::Truncated | Answered::Foreign | Answered::NotUnderstood | Answered::Verdict(..) => {
                self.failed(address, Why::Malformed, now);
            }
        }
        None
    }

    /// Keeps the verdict on a name, with the lower of both lives.
    fn told_verdict(&mut self, question: Question, name: &NameText, answered: Answered, now: u32) {
        let (verdict, life) = match answered {
            Answered::Verdict(Verdict::Mismatch, ttl) => {
                (Verdict::Mismatch, question.life.min(self.absent_for(ttl)))
            }
            Answered::Verdict(verdict, ttl) => (verdict, question.life.min(self.behaviour.ttl.of(ttl))),
            // Nobody can tell, so it is not confirmed any more either.
            _ => (Verdict::NotYet, question.life.min(UNCONFIRMED)),
        };
        self.counts.verdicts[verdict as usize].fetch_add(1, Ordering::Relaxed);
        if verdict == Verdict::NotYet
            && question.purpose != Purpose::Name
            && self.is_name(question.address, name)
        {
            return;
        }
        let entry = Entry { verdict, ..Entry::new(State::Name, now, life) };
        self.cache.put(question.address, entry, name);
    }

    /// Keeps whether there is anything in a prefix; the question for the next one above.
    fn told_prefix(
        &mut self,
        question: Question,
        bits: u8,
        answered: Answered,
        now: u32,
    ) -> Option<Question> {
        let address = question.address;
        let is_wrong =
            matches!(answered, Answered::Nothing(_)) && self.cache.knows_name_in(address, bits, now);
        let (state, life) = match answered {
            Answered::Nothing(_) if is_wrong => (State::Asked, CONTRADICTED),
            Answered::Nothing(ttl) => (State::NoName, self.absent_for(ttl)),
            Answered::NoName(ttl) => (State::Asked, self.behaviour.ttl.of(ttl)),
            _ => (State::Asked, UNCONFIRMED),
        };
        self.cache.put_prefix(address, bits, Entry::new(state, now, life));
        match answered {
            Answered::Nothing(_) if is_wrong => {
                self.counts.contradicted.fetch_add(1, Ordering::Relaxed);
                None
            }
            Answered::Nothing(_) => {
                self.counts.empty_prefixes.fetch_add(1, Ordering::Relaxed);
                self.above(question, bits, now)
            }
            Answered::NoName(_) => {
                self.counts.prefixes_in_use.fetch_add(1, Ordering::Relaxed);
                None
            }
            _ => None,
        }
    }

    /// The question for the longest prefix shorter than `bits`, unless something is known of it.
    fn above(&mut self, question: Question, bits: u8, now: u32) -> Option<Question> {
        let address = question.address;
        let bits = prefix::lengths(address).into_iter().find(|length| *length < bits)?;
        if self.cache.prefix(address, bits).is_some_and(|entry| !entry.is_stale(now)) {
            return None;
        }
        self.cache.put_prefix(address, bits, Entry::new(State::Asked, now, PLACEHOLDER));
        Some(Question { ask: Ask::Prefix(bits), tried: 0, ..question })
    }

    /// Takes out the prefixes of an address that were taken for empty: it has a name.
    fn contradict(&mut self, address: IpAddr, now: u32) {
        for bits in prefix::lengths(address) {
            if self.cache.prefix(address, bits).is_some_and(|entry| entry.state == State::NoName) {
                self.counts.contradicted.fetch_add(1, Ordering::Relaxed);
                self.cache.put_prefix(address, bits, Entry::new(State::Asked, now, CONTRADICTED));
            }
        }
    }

    /// How long it is kept that something is not there. Where nothing says for how long it may be (RFC 2308 §5), not as
    /// long as names whose record does not count; the paper makes no difference.
    fn absent_for(&self, seconds: u32) -> Duration {
        let life = self.behaviour.ttl.of(seconds);
        if seconds == 0 && self.behaviour.paper.is_none() { life.min(UNCONFIRMED) } else { life }
    }

    /// Whether this is the name that is known of an address.
    fn is_name(&self, address: IpAddr, name: &NameText) -> bool {
        self.name(address).is_some_and(|(_, known)| known == *name)
    }

    /// The verdict on the name of an address, where that is this one.
    fn verdict(&self, address: IpAddr, name: &NameText) -> Verdict {
        match self.name(address) {
            Some((old, old_name)) if old_name == *name => old.verdict,
            _ => Verdict::NotYet,
        }
    }

    /// The name of an address, with what is known of it.
    fn name(&self, address: IpAddr) -> Option<(Entry, NameText)> {
        let old = self.cache.get(address).filter(|old| old.state == State::Name)?;
        let mut name = NameText::EMPTY;
        self.cache.name(address, &mut name);
        Some((old, name))
    }

    /// Counts whether a name that was given is still right.
    fn compare(&self, address: IpAddr, answered: &Answered) {
        let Some((_, old)) = self.name(address) else { return };
        let staleness = &self.counts.staleness;
        let count = match answered {
            Answered::Name(name, _) if *name == old => &staleness.same,
            Answered::Name(..) | Answered::Unusable(_) => &staleness.changed,
            Answered::NoName(_) | Answered::Nothing(_) => &staleness.gone,
            _ => &staleness.failed,
        };
        count.fetch_add(1, Ordering::Relaxed);
    }

    fn failed(&mut self, address: IpAddr, why: Why, now: u32) {
        let old = self.cache.get(address);
        // It was asked for ahead of time, or as a sample, and nobody waits.
        if old.is_some_and(|old| matches!(old.state, State::Name | State::NoName) && !old.is_stale(now)) {
            return;
        }
        let failures = old.map_or(0, |old| old.failures).saturating_add(1).min(15);
        let life = self.backoff.after(failures.into());
        let stale = self.cache.stale();
        let longest = u32::try_from(self.behaviour.ttl.longest().as_secs()).unwrap_or(u32::MAX);
        let oldest = longest.saturating_add(stale);
        let mut name = NameText::EMPTY;
        let entry = match old {
            // What was known goes on being served as stale, but not for ever: by its own expiry, and once that was put
            // off, by its age.
            Some(old)
                if matches!(old.state, State::Name | State::NoName)
                    && now < old.expiry.saturating_add(stale)
                    && old.age(now) < oldest =>
            {
                self.cache.name(address, &mut name);
                old.postponed(now, life.as_secs() as u32, failures)
            }
            _ => Entry { failures, ..Entry::new(State::Failed(why), now, life) },
        };
        self.cache.put(address, entry, &name);
    }

    /// Sweeps the next shard of the cache.
    pub fn sweep(&mut self, now: Now) {
        self.cache.sweep(seconds(now));
    }

    /// Sweeps a part of the next shard, about a tenth of a millisecond's work; whether that was the last of it.
    pub fn sweep_part(&mut self, now: Now) -> bool {
        self.cache.sweep_part(seconds(now))
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
        set(&counts.spare_depth, self.spare.len() as u64);
        set(&counts.spare_leaks, self.spare.leaks());
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
