//! What learns: takes wanted addresses, asks for them one an interval, and writes what comes back.
//!
//! [`BackEnd`] is the decisions, without a clock or a socket; [`run()`] is the task around it.

use std::collections::{HashSet, VecDeque};
use std::net::{IpAddr, SocketAddr};
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use learn::{Backoff, Learner, Limits, Next, Order, Pacer, Repeats};
use net::clock::{Clock, Now};
use net::shutdown::Shutdown;
use tokio::sync::{Notify, mpsc};
use tokio::task::JoinSet;

use crate::cache::{self, Entry, Reader, State, Why, Writer};
use crate::front::Wanted;
use crate::name::NameText;
use crate::question::Answered;
use crate::upstream::{self, Ids};

/// Questions under way at a time: each holds a socket. At 50 ms an interval and 2 s to wait there are 40.
pub const IN_FLIGHT_MAX: usize = 256;

/// How long an empty entry stands for a question under way (Rapid DNS, section 6).
pub const PLACEHOLDER: Duration = Duration::from_secs(120);

/// How often one shard of the cache is swept: with 512 of them, all in less than a minute.
const SWEEP_INTERVAL: Duration = Duration::from_millis(100);

/// How many wanted addresses are noted between two questions.
const NOTED_MAX: usize = 1024;

/// How the back end learns.
#[derive(Clone, Debug)]
pub struct Behaviour {
    /// From question to question.
    pub interval: Duration,
    /// How many questions may be asked at once after a pause.
    pub burst: u32,
    /// Addresses that wait at most.
    pub stack: usize,
    /// Of those, for one client.
    pub per_client: usize,
    /// How long one question waits for its answer.
    pub timeout: Duration,
    /// How often an address is asked for before it has failed.
    pub tries: u32,
    /// How long names are kept.
    pub ttl: Ttl,
    /// Whether absences are kept as long as names, or only as long as an empty entry.
    pub negative: bool,
    /// How Rapid DNS did it, instead of our way: one stack for all, no retries.
    pub paper: Option<Paper>,
}

/// What Rapid DNS did; the default is what was published, the rest is what its section 10 asks about.
#[derive(Clone, Copy, Debug)]
pub struct Paper {
    /// What becomes of an address that waits already; published: it waits twice.
    pub repeats: Repeats,
    /// Which address is asked for first; published: the one that was wanted last.
    pub order: Order,
    /// How long a SERVFAIL is kept; published: not at all.
    pub servfail: Option<Duration>,
}

impl Default for Paper {
    fn default() -> Paper {
        Paper { repeats: Repeats::Keep, order: Order::NewestFirst, servfail: None }
    }
}

/// How long names are kept.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Ttl {
    /// Always so long, whatever the record says: as Rapid DNS did, with 7 days.
    Fixed(Duration),
    /// As long as the record says, but not less and not more than this.
    Record(Duration, Duration),
}

impl Ttl {
    fn of(self, seconds: u32) -> Duration {
        match self {
            Ttl::Fixed(life) => life,
            Ttl::Record(least, most) => Duration::from_secs(seconds.into()).clamp(least, most.max(least)),
        }
    }
}

/// What an upstream did, since start.
#[derive(Debug, Default)]
pub struct UpstreamCounts {
    /// Questions that it was asked.
    pub questions: AtomicU64,
    /// Answers: a name, no name, an unusable name.
    pub answers: [AtomicU64; 3],
    /// Failures, as [`Why::ALL`].
    pub failures: [AtomicU64; 5],
    /// Answers to questions that were never asked.
    pub foreign: AtomicU64,
    /// Milliseconds that all of it took.
    pub milliseconds: AtomicU64,
}

/// What the back end did, since start, and what it holds now.
#[derive(Debug, Default)]
pub struct Counts {
    /// Questions, retries too.
    pub questions: AtomicU64,
    /// Addresses that were known when their turn came.
    pub hits: AtomicU64,
    /// Addresses dropped at the bottom of a stack.
    pub leaks: AtomicU64,
    /// Addresses that moved to the top because they were wanted again.
    pub moved: AtomicU64,
    /// Addresses that wait.
    pub depth: AtomicU64,
    /// Lanes in which some wait.
    pub lanes: AtomicU64,
    /// Questions under way.
    pub in_flight: AtomicU64,
    /// Entries in the cache.
    pub entries: AtomicU64,
    /// Octets of the cache.
    pub octets: AtomicU64,
    /// Entries that expired.
    pub expired: AtomicU64,
    /// Entries that made room for others.
    pub evicted: AtomicU64,
    /// Entries that found no room for their name.
    pub no_room: AtomicU64,
    /// Snapshots that were written, and that failed.
    pub snapshots: [AtomicU64; 2],
}

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

    /// Copies what it counted.
    pub fn count(&self, counts: &Counts) {
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

/// Those who are asked, in turn; one that fails is left out for a while, unless all do.
#[derive(Debug)]
pub struct Upstreams {
    all: Vec<Upstream>,
    turn: usize,
    backoff: Backoff,
}

#[derive(Debug)]
struct Upstream {
    address: SocketAddr,
    failures: u32,
    until: Duration,
    counts: Arc<UpstreamCounts>,
}

/// How many time-outs in a row say that an upstream is gone, not just one zone's servers.
const GONE_AFTER: u32 = 8;

impl Upstreams {
    /// These; at least one.
    pub fn new(all: &[(SocketAddr, Arc<UpstreamCounts>)]) -> Upstreams {
        let one = |(address, counts): &(SocketAddr, Arc<UpstreamCounts>)| Upstream {
            address: *address,
            failures: 0,
            until: Duration::ZERO,
            counts: counts.clone(),
        };
        Upstreams { all: all.iter().map(one).collect(), turn: 0, backoff: Backoff::default() }
    }

    /// The index of the next one to ask.
    pub fn next(&mut self, now: Duration) -> usize {
        let count = self.all.len();
        let turns = (0..count).map(|step| (self.turn + step) % count);
        let chosen = turns.min_by_key(|index| self.all[*index].until.saturating_sub(now)).unwrap_or(0);
        self.turn = (chosen + 1) % count.max(1);
        chosen
    }

    /// Notes how one did.
    pub fn answered(&mut self, index: usize, answered: &Answered, now: Duration) {
        let upstream = &mut self.all[index];
        if matches!(answered, Answered::Failed(Why::Timeout)) {
            upstream.failures = upstream.failures.saturating_add(1);
            if let Some(beyond) = upstream.failures.checked_sub(GONE_AFTER) {
                upstream.until = now + self.backoff.after(beyond + 1);
            }
        } else {
            (upstream.failures, upstream.until) = (0, Duration::ZERO);
        }
    }
}

impl UpstreamCounts {
    fn count(&self, answered: &Answered, took: Duration) {
        let add = |count: &AtomicU64, n| _ = count.fetch_add(n, Ordering::Relaxed);
        add(&self.milliseconds, took.as_millis() as u64);
        match answered {
            Answered::Name(..) => add(&self.answers[0], 1),
            Answered::NoName(_) => add(&self.answers[1], 1),
            Answered::Unusable(_) => add(&self.answers[2], 1),
            Answered::Failed(why) => add(&self.failures[*why as usize], 1),
            Answered::Truncated | Answered::Foreign => add(&self.failures[Why::Malformed as usize], 1),
        }
    }
}

/// Where the cache is kept between runs, and how often it is written there.
#[derive(Clone, Debug)]
pub struct Kept {
    /// The file.
    pub path: PathBuf,
    /// From one snapshot to the next.
    pub interval: Duration,
}

/// What [`run()`] works with.
#[derive(Debug)]
pub struct Task {
    /// The decisions.
    pub back_end: BackEnd,
    /// The cache as it is read: for snapshots.
    pub reader: Reader,
    /// Where wanted addresses come from.
    pub wanted: mpsc::Receiver<Wanted>,
    /// Who is asked.
    pub upstreams: Upstreams,
    /// How long one question waits.
    pub timeout: Duration,
    /// Where the cache is kept.
    pub kept: Option<Kept>,
    /// Told each time something was learned.
    pub learned: Arc<Notify>,
    /// What it counts.
    pub counts: Arc<Counts>,
    /// The time.
    pub clock: Clock,
}

/// What comes back from the task of a question.
type Flight = (usize, Question, Answered, Duration);

/// Learns until `shutdown` begins, and writes a last snapshot.
pub async fn run(mut task: Task, shutdown: Shutdown) {
    let ids = Arc::new(Ids::new());
    let mut flights: JoinSet<Flight> = JoinSet::new();
    let mut saving: JoinSet<()> = JoinSet::new();
    let mut noted = Vec::with_capacity(NOTED_MAX);
    let mut sweeps = tokio::time::interval(SWEEP_INTERVAL);
    sweeps.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Delay);
    let mut saved = task.clock.now().monotonic;
    let mut ends = std::pin::pin!(shutdown.wait());
    loop {
        let wait = loop {
            match task.back_end.next(task.clock.now()) {
                Due::Now(question) => task.ask(question, &ids, &mut flights),
                Due::After(wait) => break Some(wait),
                Due::Later => break None,
            }
        };
        tokio::select! {
            () = &mut ends => break,
            Some(flight) = flights.join_next() => {
                if let Ok((index, question, answered, took)) = flight {
                    let now = task.clock.now();
                    task.upstreams.all[index].counts.count(&answered, took);
                    task.upstreams.answered(index, &answered, now.monotonic);
                    task.back_end.answered(question, answered, now);
                    task.learned.notify_waiters();
                }
            }
            // None is left once every face has ended; then only the shutdown is waited for.
            count = task.wanted.recv_many(&mut noted, NOTED_MAX), if !task.wanted.is_closed() => {
                noted.drain(..count).for_each(|wanted| task.back_end.note(wanted));
            }
            () = tokio::time::sleep(wait.unwrap_or_default()), if wait.is_some() => {}
            _ = sweeps.tick() => {
                let now = task.clock.now();
                // While a snapshot is read, names stay where they are.
                if saving.try_join_next().is_some() || saving.is_empty() {
                    task.back_end.sweep(now);
                }
                task.back_end.count(&task.counts);
                if let Some(kept) = &task.kept
                    && saving.is_empty()
                    && now.monotonic.saturating_sub(saved) >= kept.interval
                {
                    saved = now.monotonic;
                    let (view, path, counts) = (task.reader.view(), kept.path.clone(), task.counts.clone());
                    saving.spawn_blocking(move || save(&view, now, &path, &counts));
                }
            }
        }
    }
    while saving.join_next().await.is_some() {}
    task.back_end.count(&task.counts);
    if let Some(kept) = task.kept {
        let (view, now, counts) = (task.reader.view(), task.clock.now(), task.counts);
        let _ = tokio::task::spawn_blocking(move || save(&view, now, &kept.path, &counts)).await;
    }
}

fn save(view: &cache::View, now: Now, path: &std::path::Path, counts: &Counts) {
    let saved = cache::snapshot::save(view, seconds(now), path);
    counts.snapshots[usize::from(saved.is_err())].fetch_add(1, Ordering::Relaxed);
    match saved {
        Ok(()) => tracing::info!(path = %path.display(), "the snapshot is written"),
        Err(cause) => {
            tracing::error!(path = %path.display(), %cause, "the snapshot was not written; the one before stays");
        }
    }
}

impl Task {
    fn ask(&mut self, question: Question, ids: &Arc<Ids>, flights: &mut JoinSet<Flight>) {
        let index = self.upstreams.next(self.clock.now().monotonic);
        let Upstream { address, counts, .. } = &self.upstreams.all[index];
        let (upstream, counts) = (*address, counts.clone());
        let (ids, wait, clock) = (ids.clone(), self.timeout, self.clock);
        counts.questions.fetch_add(1, Ordering::Relaxed);
        flights.spawn(async move {
            let begun = clock.now().monotonic;
            let answered = upstream::ask(upstream, question.address, ids.next(), wait, &counts.foreign).await;
            (index, question, answered, clock.now().monotonic.saturating_sub(begun))
        });
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cache::Verdict;
    use crate::front::{Front, Known};

    /// A service without threads or sockets: a virtual clock, and whatever the upstream is to say.
    struct World {
        back_end: BackEnd,
        front: Front,
        door: mpsc::Receiver<Wanted>,
        now: Duration,
    }

    fn behaviour() -> Behaviour {
        Behaviour {
            interval: Duration::from_millis(50),
            burst: 1,
            stack: 64,
            per_client: 64,
            timeout: Duration::from_secs(2),
            tries: 2,
            ttl: Ttl::Fixed(Duration::from_secs(1000)),
            negative: true,
            paper: None,
        }
    }

    impl World {
        fn new(behaviour: Behaviour) -> World {
            let stale = if behaviour.paper.is_some() { 0 } else { 500 };
            let (cache, reader) = cache::new(cache::LIMIT_MIN, stale, 1);
            let (sender, door) = mpsc::channel(1024);
            let front = Front::new(reader, sender, stale > 0, Arc::default());
            World {
                back_end: BackEnd::new(cache, behaviour),
                front,
                door,
                now: Duration::from_secs(1_000_000),
            }
        }

        fn now(&self) -> Now {
            Now { monotonic: self.now, unix: self.now }
        }

        fn look_up(&mut self, address: &str) -> Known {
            let (view, address) = (self.front.view(), address.parse().unwrap());
            let client = "127.0.0.1".parse().unwrap();
            let known =
                self.front.look_up(&view, address, client, seconds(self.now()), &mut NameText::EMPTY.clone());
            while let Ok(wanted) = self.door.try_recv() {
                self.back_end.note(wanted);
            }
            known
        }

        /// Lets the time pass to the next question, and answers it.
        fn turn(&mut self, answered: Answered) -> Option<String> {
            self.now += Duration::from_millis(50);
            match self.back_end.next(self.now()) {
                Due::Now(question) => {
                    self.back_end.answered(question, answered, self.now());
                    Some(question.address.to_string())
                }
                _ => None,
            }
        }

        fn pass(&mut self, seconds: u64) {
            self.now += Duration::from_secs(seconds);
        }
    }

    fn name(ttl: u32) -> Answered {
        Answered::Name(NameText::from_text(b"www.example").unwrap(), ttl)
    }

    const ONE: &str = "192.0.2.1";

    #[test]
    fn an_address_is_learned() {
        let mut world = World::new(behaviour());
        assert_eq!(world.look_up(ONE), Known::NotYet);
        assert_eq!(world.turn(name(60)).as_deref(), Some(ONE));
        world.pass(10);
        assert_eq!(
            world.look_up(ONE),
            Known::Name(Since { age: 10, left: 990, stale: false }, Verdict::NotYet)
        );
        assert_eq!(world.turn(name(60)), None);
    }

    use crate::front::Since;

    #[test]
    fn a_failure_is_tried_again_and_then_kept_with_a_back_off() {
        let mut world = World::new(behaviour());
        let failed = Answered::Failed(Why::Servfail);
        let mut waits = Vec::new();
        for _ in 0..10 {
            assert_eq!(world.look_up(ONE), Known::NotYet);
            assert!(world.turn(failed).is_some(), "asked");
            assert_eq!(world.look_up(ONE), Known::NotYet, "under way");
            assert!(world.turn(failed).is_some(), "and tried again");
            let Known::Failed(Why::Servfail, since) = world.look_up(ONE) else { panic!("kept as failed") };
            waits.push(since.left);
            world.pass(since.left.into());
        }
        assert_eq!(waits, [1, 2, 4, 8, 16, 32, 64, 128, 256, 300]);
        world.look_up(ONE);
        world.turn(name(1));
        assert!(matches!(world.look_up(ONE), Known::Name(..)));
    }

    #[test]
    fn a_stale_name_is_served_while_it_is_renewed_and_while_that_fails() {
        let mut world = World::new(Behaviour { tries: 1, ..behaviour() });
        world.look_up(ONE);
        world.turn(name(1));
        world.pass(1000);
        let stale = |age| Known::Name(Since { age, left: 30, stale: true }, Verdict::NotYet);
        assert_eq!(world.look_up(ONE), stale(1000));
        assert!(world.turn(Answered::Failed(Why::Timeout)).is_some());
        assert_eq!(world.look_up(ONE), stale(1000));
        assert_eq!(world.turn(name(1)), None, "left alone for a second");
        world.pass(2);
        assert_eq!(world.look_up(ONE), stale(1002));
        assert!(world.turn(name(1)).is_some());
        assert!(matches!(world.look_up(ONE), Known::Name(Since { stale: false, .. }, _)));
    }

    #[test]
    fn absences_are_kept_unless_they_are_not_to_be() {
        for (negative, expected) in [(true, "no_name"), (false, "not_yet")] {
            let mut world = World::new(Behaviour { negative, ..behaviour() });
            world.look_up(ONE);
            world.turn(Answered::NoName(5));
            world.pass(119);
            assert_eq!(world.look_up(ONE).word(), expected);
            assert_eq!(world.turn(name(1)), None);
            world.pass(2);
            assert_eq!(world.look_up(ONE).word(), expected);
            assert_eq!(world.turn(name(1)).is_some(), !negative);
        }
    }

    #[test]
    fn the_records_ttl_is_clamped() {
        let ttl = Ttl::Record(Duration::from_secs(60), Duration::from_secs(600));
        assert_eq!([5, 100, 9999].map(|seconds| ttl.of(seconds).as_secs()), [60, 100, 600]);
    }

    #[test]
    fn the_paper_keeps_duplicates_and_forgets_failures() {
        let mut world = World::new(Behaviour { paper: Some(Paper::default()), ..behaviour() });
        for address in [ONE, ONE, "192.0.2.2", ONE] {
            assert_eq!(world.look_up(address), Known::NotYet);
        }
        assert_eq!(world.turn(Answered::Failed(Why::Servfail)).as_deref(), Some(ONE));
        // The empty entry answers for two minutes; the duplicates are found when they are popped.
        assert_eq!(world.turn(name(1)).as_deref(), Some("192.0.2.2"));
        assert_eq!(world.turn(name(1)), None);
        assert_eq!(world.back_end.learner.hits(), 2);
        world.pass(121);
        world.look_up(ONE);
        assert_eq!(world.turn(name(1)).as_deref(), Some(ONE));
    }

    #[test]
    fn the_paper_keeps_servfail_where_it_is_asked_to() {
        let paper = Paper { servfail: Some(Duration::from_secs(600)), ..Paper::default() };
        let mut world = World::new(Behaviour { paper: Some(paper), ..behaviour() });
        world.look_up(ONE);
        assert!(world.turn(Answered::Failed(Why::Servfail)).is_some());
        world.pass(590);
        assert!(matches!(world.look_up(ONE), Known::Failed(Why::Servfail, _)));
        assert_eq!(world.turn(name(1)), None);
        world.pass(10);
        world.look_up(ONE);
        // A time-out is not kept: the empty entry stands for two minutes.
        assert!(world.turn(Answered::Failed(Why::Timeout)).is_some());
        world.pass(121);
        assert_eq!(world.look_up(ONE), Known::NotYet);
        assert!(world.turn(name(1)).is_some());
    }

    #[test]
    fn a_flood_of_one_network_leaves_the_others_their_turns() {
        let mut world = World::new(behaviour());
        world.look_up("198.51.100.1");
        for i in 0..500 {
            world.look_up(&format!("203.0.{}.{}", i / 250, i % 250));
        }
        let asked: Vec<_> = (0..3).map(|_| world.turn(name(1)).unwrap()).collect();
        assert!(asked.contains(&"198.51.100.1".to_owned()), "{asked:?}");
        let counts = Counts::default();
        world.back_end.count(&counts);
        assert_eq!(counts.leaks.load(Ordering::Relaxed), 501 - 64);
    }

    #[test]
    fn an_upstream_that_is_gone_is_left_out_unless_all_are() {
        let counts = || Arc::new(UpstreamCounts::default());
        let all = [("192.0.2.1:53".parse().unwrap(), counts()), ("192.0.2.2:53".parse().unwrap(), counts())];
        let mut upstreams = Upstreams::new(&all);
        let now = Duration::from_secs(100);
        assert_eq!([upstreams.next(now), upstreams.next(now), upstreams.next(now)], [0, 1, 0]);
        for _ in 0..GONE_AFTER {
            upstreams.answered(0, &Answered::Failed(Why::Timeout), now);
        }
        assert_eq!([upstreams.next(now), upstreams.next(now)], [1, 1]);
        assert_eq!(upstreams.next(now + Duration::from_secs(1)), 0, "tried again after a second");
        upstreams.answered(0, &name(1), now);
        assert_eq!([upstreams.next(now), upstreams.next(now)], [1, 0]);
    }

    #[test]
    fn questions_under_way_are_bounded() {
        let mut world =
            World::new(Behaviour { interval: Duration::ZERO, stack: 4096, per_client: 4096, ..behaviour() });
        for i in 0..600 {
            world.look_up(&format!("10.{}.{}.1", i / 100, i % 100));
        }
        let all = |world: &mut World| -> Vec<Question> {
            let now = world.now();
            let asked = std::iter::from_fn(|| match world.back_end.next(now) {
                Due::Now(question) => Some(question),
                _ => None,
            });
            asked.collect()
        };
        let first = all(&mut world);
        assert_eq!(first.len(), IN_FLIGHT_MAX);
        // All of them fail at once: they are tried again, and then make room.
        let fail = |world: &mut World, questions: Vec<Question>| {
            let now = world.now();
            for question in questions {
                world.back_end.answered(question, Answered::Failed(Why::Timeout), now);
            }
        };
        fail(&mut world, first);
        let second = all(&mut world);
        assert!(second.len() == IN_FLIGHT_MAX && second.iter().all(|question| question.tried == 1));
        fail(&mut world, second);
        assert_eq!(all(&mut world).len(), IN_FLIGHT_MAX);
    }
}
