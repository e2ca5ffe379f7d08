//! The conversation with an external proximity service, which no query waits for (MyXDNS §3.2).
//!
//! ```text
//! queries ─> External (notes) ─> Learner: newest first, bounded, paced ─> ADDRESS\n ─> service
//!         <─ External (table) <──────────────────────────────────────────── ADDRESS REGION\n
//! ```
//! Many questions are under way on one connection, and answers come in any order, since each names its address. A service
//! that does not answer, or says what it should not, loses the connection; it is tried again with growing pauses, and
//! meanwhile clients that are not known stay so. [`lines`] reads what it says; [`counters`] is what is told of it.

pub mod counters;
pub mod lines;

use std::collections::{BTreeMap, HashMap};
use std::io;
use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;
use std::time::Duration;

use learn::{Backoff, Learner, Limits, Next, Order, Pacer, Repeats};
use net::clock::Clock;
use net::shutdown::Shutdown;
use routing::external::{External, NOTES_MAX};
use routing::{Prefix, RegionId};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio::time::{MissedTickBehavior, interval, timeout};

use crate::edit::Editor;
pub use counters::Counters;
use lines::{Lines, Said, Wrong};

/// How many questions may be under way: enough for a service that is 100 ms away to be asked 10,000 times a second.
pub const UNDER_WAY_MAX: usize = 1_024;

/// How often notes are fetched and questions sent. Queries do not wake anybody up, which would be a system call.
const LOOK_INTERVAL: Duration = Duration::from_millis(5);

/// How many questions may be asked at once after a pause, as a time's worth of them: those between a few looks.
const BURST: Duration = Duration::from_millis(50);

/// After so many lines that it should not have said, a service loses its connection.
const WRONG_MAX: u32 = 1_000;

/// Octets that are read at once.
const READ: usize = 1 << 14;

/// How long a service that is away is left alone: soon back is soon right again.
const AWAY: Backoff = Backoff { first: Duration::from_millis(250), most: Duration::from_secs(30) };

/// The external service and how it is asked.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Config {
    /// Where it is.
    pub service: SocketAddr,
    /// How long an answer from ignorance may be kept; whole seconds.
    pub ttl: Duration,
    /// How long what it said holds.
    pub life: Duration,
    /// How many blocks of addresses are known at a time; rounded up to a power of two.
    pub known: usize,
    /// How many blocks may wait to be asked about.
    pub waiting: usize,
    /// From one question to the next, in the long run.
    pub interval: Duration,
    /// How long an answer may take.
    pub timeout: Duration,
}

/// What asks the service.
pub struct Learning {
    config: Config,
    external: Arc<External>,
    counters: Arc<Counters>,
}

/// What waits and what is under way.
struct State {
    learner: Learner<Prefix, (), u64>,
    /// When each block was asked about.
    under_way: BTreeMap<(IpAddr, u8), Duration>,
    /// The regions of a generation, by name, and its number.
    regions: (u64, HashMap<String, RegionId>),
}

impl Learning {
    /// An empty table, and nobody asked; `key` should be secret.
    pub fn new(config: Config, key: [u8; 16]) -> Learning {
        // The key's range ends below.
        let ttl = u32::try_from(config.ttl.as_secs()).unwrap_or(u32::MAX);
        let external = Arc::new(External::new(config.known, config.life, ttl, key));
        let counters = Arc::new(Counters::new(config.service, external.capacity()));
        Learning { config, external, counters }
    }

    /// The table, which answers read.
    pub fn external(&self) -> &Arc<External> {
        &self.external
    }

    /// What is told of it.
    pub fn counters(&self) -> &Arc<Counters> {
        &self.counters
    }

    /// Asks until it is told to stop. Regions are those of the editor's current generation.
    pub async fn run(self, editor: Editor, clock: Clock, stop: Shutdown) {
        let limits = Limits {
            capacity: self.config.waiting,
            // Half, so that one network's flood leaves room for all others.
            per_client: (self.config.waiting / 2).max(1),
            repeats: Repeats::MoveToTop,
            order: Order::NewestFirst,
        };
        let burst = BURST.as_nanos() / self.config.interval.as_nanos().max(1);
        let burst = u32::try_from(burst).unwrap_or(u32::MAX).clamp(1, UNDER_WAY_MAX as u32);
        let mut state = State {
            learner: Learner::new(limits, Pacer::new(self.config.interval, burst)),
            under_way: BTreeMap::new(),
            regions: (u64::MAX, HashMap::new()),
        };
        let mut failures = 0u32;
        while !stop.is_begun() {
            let connected = tokio::select! {
                () = stop.wait() => return,
                connected = timeout(self.config.timeout, TcpStream::connect(self.config.service)) => connected,
            };
            let ended = match connected.unwrap_or_else(|_| Err(io::Error::other("no connection in time"))) {
                Ok(stream) => {
                    let told = self.counters.told();
                    self.counters.set_connected(true);
                    let ended = self.converse(stream, &mut state, &editor, clock, &stop).await;
                    self.counters.set_connected(false);
                    // A service that answers and then goes is another case than one that never does.
                    failures = if self.counters.told() > told { 0 } else { failures };
                    ended
                }
                Err(cause) => Err(cause.to_string()),
            };
            let Err(what) = ended else { return };
            state.under_way.clear();
            failures = failures.saturating_add(1);
            self.counters.failed(what.clone());
            let pause = AWAY.after(failures);
            tracing::warn!(service = %self.config.service, %what, ?pause,
                "the external proximity service is away; clients that are not known get the default column");
            self.pause(&mut state, pause, clock, &stop).await;
        }
    }

    /// Waits, and goes on fetching notes: what comes last is asked first when the service is back.
    async fn pause(&self, state: &mut State, pause: Duration, clock: Clock, stop: &Shutdown) {
        let until = clock.now().monotonic + pause;
        while clock.now().monotonic < until {
            tokio::select! {
                () = stop.wait() => return,
                () = tokio::time::sleep(LOOK_INTERVAL) => self.fetch(state, clock.now().monotonic),
            }
        }
    }

    /// Asks and listens until the connection fails; `Ok` when it is time to stop.
    async fn converse(
        &self,
        stream: TcpStream,
        state: &mut State,
        editor: &Editor,
        clock: Clock,
        stop: &Shutdown,
    ) -> Result<(), String> {
        let _ = stream.set_nodelay(true);
        let (mut from, mut to) = stream.into_split();
        let mut looks = interval(LOOK_INTERVAL);
        looks.set_missed_tick_behavior(MissedTickBehavior::Delay);
        let (mut lines, mut octets) = (Lines::default(), vec![0; READ]);
        let (mut questions, mut wrong) = (Vec::new(), 0);
        loop {
            tokio::select! {
                () = stop.wait() => return Ok(()),
                read = from.read(&mut octets) => {
                    let length = read.map_err(|cause| cause.to_string())?;
                    if length == 0 {
                        return Err("it closed the connection".into());
                    }
                    state.know_regions(editor);
                    let now = clock.now().monotonic;
                    let mut said = |said: Result<Said<'_>, Wrong>| {
                        let heard = said.and_then(|said| self.hear(said, state, now));
                        if let Err(what) = heard {
                            self.counters.wrong(&what);
                            wrong += 1;
                            if wrong == 1 {
                                tracing::warn!(service = %self.config.service, %what, "a line of the external \
                                    proximity service is passed over; further ones are only counted");
                            }
                        }
                    };
                    lines.push(&octets[..length], &mut said).map_err(|what| {
                        self.counters.wrong(&what);
                        what.to_string()
                    })?;
                    if wrong > WRONG_MAX {
                        return Err(format!("it said {wrong} lines that it should not have"));
                    }
                }
                _ = looks.tick() => {
                    let now = clock.now().monotonic;
                    self.fetch(state, now);
                    self.expire(state, now)?;
                    questions.clear();
                    self.ask(state, now, &mut questions);
                    if !questions.is_empty() {
                        let sent = timeout(self.config.timeout, to.write_all(&questions)).await;
                        let sent = sent.map_err(|_| "it takes no more questions".to_string())?;
                        sent.map_err(|cause| cause.to_string())?;
                    }
                }
            }
        }
    }

    /// Takes the notes of queries over.
    fn fetch(&self, state: &mut State, now: Duration) {
        for note in std::iter::from_fn(|| self.external.next_note()).take(NOTES_MAX) {
            state.learner.ask(note.block, (), note.asker);
        }
        let waiting = state.learner.waiting();
        self.counters.set_waiting(waiting.len(), waiting.leaks(), self.external.lost());
        self.counters.set_known(now, || self.external.known(now));
    }

    /// Writes the questions that are due.
    fn ask(&self, state: &mut State, now: Duration, questions: &mut Vec<u8>) {
        while state.under_way.len() < UNDER_WAY_MAX {
            let under_way = &state.under_way;
            let known = |block: &Prefix| {
                let is_fresh = self.external.find(*block, now).is_some_and(|(_, is_fresh)| is_fresh);
                is_fresh || under_way.contains_key(&(block.address(), block.length()))
            };
            let Next::Ask(block) = state.learner.next(now, |()| true, known) else { break };
            // One answer is of all blocks that begin with the address.
            let of_address = (block.address(), 0)..=(block.address(), u8::MAX);
            if state.under_way.range(of_address).next().is_none() {
                questions.extend_from_slice(format!("{}\n", block.address()).as_bytes());
            }
            state.under_way.insert((block.address(), block.length()), now);
            self.counters.asked();
        }
    }

    /// Gives questions up that nobody answered. Where it was the oldest of all, nothing comes any more.
    fn expire(&self, state: &mut State, now: Duration) -> Result<(), String> {
        let late = state.under_way.values().filter(|asked| now.saturating_sub(**asked) > self.config.timeout);
        let late = late.count();
        if late == 0 {
            return Ok(());
        }
        (0..late).for_each(|_| self.counters.late());
        Err(format!("no answer to {late} questions within {:?}", self.config.timeout))
    }

    /// Learns from a line.
    fn hear(&self, said: Said<'_>, state: &mut State, now: Duration) -> Result<(), Wrong> {
        // The same address may be the first of a longer block too.
        let of_address = (said.address, 0)..=(said.address, u8::MAX);
        let blocks: Vec<(IpAddr, u8)> = state.under_way.range(of_address).map(|(block, _)| *block).collect();
        if blocks.is_empty() {
            return Err(Wrong::Unasked(said.address));
        }
        for block in &blocks {
            state.under_way.remove(block);
        }
        let region = state
            .region(said.region)
            .ok_or_else(|| Wrong::UnknownRegion(said.address, said.region.into()))?;
        for (address, length) in blocks {
            let Some(block) = Prefix::new(address, length) else { continue };
            self.external.learn(block, region, now);
            self.counters.learned();
        }
        Ok(())
    }
}

impl State {
    fn know_regions(&mut self, editor: &Editor) {
        let book = editor.book();
        if self.regions.0 != book.generation.number {
            let ids = book.regions.iter();
            let ids = ids.filter_map(|(id, name)| Some((name.clone(), RegionId::new(*id)?)));
            self.regions = (book.generation.number, ids.collect());
        }
    }

    /// The region of a word: its name, its number, or `-` or `0` for none.
    fn region(&self, word: &str) -> Option<RegionId> {
        match word {
            "-" | "0" => Some(RegionId::NONE),
            word => {
                let known = &self.regions.1;
                let number = || word.parse().ok().and_then(RegionId::new);
                known
                    .get(word)
                    .copied()
                    .or_else(|| number().filter(|id| known.values().any(|known| known == id)))
            }
        }
    }
}
