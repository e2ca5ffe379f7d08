//! The schedule: which client asks what, and when, fixed before anything is sent.
//!
//! ```text
//! trace -> Timeline (never back) -> copies of each client, shifted -> in order of time -> due times
//! ```
//! Pure: a trace, a [`Plan`] and a seed give the same schedule, bit for bit. All draws are hashes of the seed and of
//! what they decide ([`mod@draw`]), so that threads which read the trace each for themselves and keep the clients of
//! their share agree on all times. Memory does not grow with the trace: copies wait in a look-ahead of
//! [`LOOK_AHEAD_MAX`] queries.
//!
//! In reading order: [`Plan`], [`Schedule`], [`Planned`]; [`census`]: what must be known of the whole trace before;
//! [`mod@sources`]: where clients ask from; [`timeline`] and [`mod@draw`].

pub mod census;
pub mod draw;
pub mod sources;
pub mod timeline;

use std::cmp::Reverse;
use std::collections::BinaryHeap;
use std::net::IpAddr;
use std::sync::Arc;
use std::time::Duration;

use routing::Prefix;

use crate::trace::pairs::{Pair, Pairs};
use crate::trace::{Damage, Message, Skipped};
use census::{Census, Wanted};
use draw::For;
use sources::Sources;
use timeline::Timeline;

/// The most shifted copies that wait for their time: about 100 MiB beside their messages. What is beyond keeps its
/// due time but is handed out before its turn, which is counted.
pub const LOOK_AHEAD_MAX: usize = 1 << 21;

/// The most messages that a step reads: responses, and queries that wait for their turn.
pub const READ_MAX: usize = 256;

/// The smallest and the largest factor.
pub const FACTORS: std::ops::RangeInclusive<f64> = 0.1..=10_000.0;

/// The longest default of [`Clients::Factor`]'s spread.
pub const SPREAD_DEFAULT_MAX: Duration = Duration::from_secs(1);

/// How a trace becomes a schedule.
#[derive(Clone, Debug)]
pub struct Plan {
    /// When queries are due.
    pub pacing: Pacing,
    /// How often each client is there.
    pub clients: Clients,
    /// The most queries.
    pub limit: Option<u64>,
    /// How often the trace is gone through; each time begins a mean gap after the end of the time before.
    pub loops: u64,
    /// The seed of every draw.
    pub seed: u64,
}

/// When queries are due.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Pacing {
    /// As recorded, so many times as fast.
    Recorded {
        /// 1 for the recorded speed.
        speed: f64,
    },
    /// At a rate of our own, in the recorded order.
    Rate {
        /// Queries a second.
        per_second: f64,
        /// Gaps are drawn (a Poisson process) instead of even.
        poisson: bool,
    },
    /// As soon as they can be sent.
    Fast,
}

/// How often each client of the trace is there.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Clients {
    /// So many times on average: each client as often as the factor's whole part says, and once more with the
    /// probability of its fraction.
    Factor {
        /// Within [`FACTORS`].
        factor: f64,
        /// Each copy but the first is shifted by less than this; `None` for the trace's mean gap, at most
        /// [`SPREAD_DEFAULT_MAX`].
        spread: Option<Duration>,
    },
    /// Servload's `multiply`: every client so many times, at the same instants.
    Multiply(u32),
    /// Servload's `peak`: so, but only the queries in seconds whose rate is the median or more.
    Peak(u32),
    /// Servload's `score`: so, but only clients whose sessions are close to the median one.
    Score(u32),
}

/// One query of a schedule.
#[derive(Clone, Debug)]
pub struct Planned {
    /// When it is to be sent, in nanoseconds from the beginning; 0 for all with [`Pacing::Fast`].
    pub due: u64,
    /// Its place in the whole schedule, from 0.
    pub index: u64,
    /// Who asks: a client's copy ([`draw::client`]).
    pub client: u64,
    /// Which copy of the client; 0 is the client itself.
    pub copy: u32,
    /// Where from, with [`Schedule::with_sources`].
    pub source: Option<IpAddr>,
    /// The recorded query.
    pub message: Arc<Message>,
    /// Its recorded response, with [`Schedule::with_responses`].
    pub recorded: Option<Arc<Message>>,
}

/// What comes of a step of [`Schedule::step`].
#[derive(Debug)]
pub enum Next {
    /// The next query.
    Query(Planned),
    /// There may be more; what was read gave none.
    NotYet,
    /// There are no more.
    End,
}

/// What was met on the way.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Met {
    /// Queries, before clients are multiplied.
    pub queries: u64,
    /// Responses, which are not sent.
    pub responses: u64,
    /// What gave no message, with [`Schedule::with_skipped`].
    pub skipped: Skipped,
    /// Responses that belong to no query, with [`Schedule::with_responses`].
    pub unmatched: u64,
    /// How often the trace's clock was set ([`Timeline`]).
    pub jumps: u64,
    /// Queries handed out before their turn, because [`LOOK_AHEAD_MAX`] waited.
    pub crowded: u64,
    /// Clients, copies counted, whose source address another had before, with [`Schedule::with_sources`].
    pub sharing: u64,
    /// Queries of clients beyond [`sources::CLIENTS_MAX`], whose source addresses are drawn.
    pub unnumbered: u64,
    /// Where the trace breaks off; what stands before is used.
    pub damage: Option<Damage>,
}

impl Plan {
    /// What must be counted in a first pass over the trace; `None` where one pass is enough.
    pub fn wanted(&self) -> Option<Wanted> {
        match self.clients {
            Clients::Factor { factor, spread: None } if factor > 1.0 => Some(Wanted::Gap),
            Clients::Factor { .. } | Clients::Multiply(_) => None,
            Clients::Peak(_) => Some(Wanted::Peaks),
            Clients::Score(_) => Some(Wanted::Scores),
        }
    }

    /// The span in nanoseconds within which copies are shifted.
    fn spread(&self, census: &Census) -> u64 {
        let spread = match self.clients {
            Clients::Factor { spread: Some(spread), .. } => spread,
            Clients::Factor { spread: None, .. } => {
                Duration::from_nanos(census.gap_mean).min(SPREAD_DEFAULT_MAX)
            }
            _ => Duration::ZERO,
        };
        u64::try_from(spread.as_nanos()).unwrap_or(u64::MAX)
    }
}

/// A trace as a schedule: its queries in order of time.
///
/// `open` begins the trace anew, once for each loop: an iterator of its messages, which may give `None` for one where it
/// read on without meeting any.
pub struct Schedule<I, F> {
    plan: Plan,
    census: Arc<Census>,
    open: F,
    messages: Option<I>,
    /// Where responses are wanted.
    pairs: Option<Pairs>,
    /// Where clients are to have source addresses.
    sources: Option<Sources>,
    /// Where what gave no message is to be told.
    skipped: Option<fn(&I) -> &Skipped>,
    timeline: Timeline,
    /// Where on the timeline this loop began.
    began: u64,
    queries_in_loop: u64,
    loops_left: u64,
    waiting: BinaryHeap<Reverse<Waiting>>,
    spread: u64,
    handed_out: u64,
    /// The due time of the last query in nanoseconds, where gaps are drawn.
    drawn: f64,
    met: Met,
}

/// A copy of a query in the look-ahead, in the order in which they are handed out.
#[derive(Debug)]
struct Waiting {
    at: u64,
    /// Which query of the trace.
    read: u64,
    copy: u32,
    /// The number of its client's source address, where it is to have one.
    source: u64,
    message: Arc<Message>,
    recorded: Option<Arc<Message>>,
}

impl<I, F, M, E> Schedule<I, F>
where
    I: Iterator<Item = Result<M, Damage>>,
    F: FnMut() -> Result<I, E>,
    M: Into<Option<Arc<Message>>>,
{
    /// Makes the schedule of a trace; `census` is what [`Plan::wanted`] asks for, or the default.
    pub fn new(plan: Plan, census: Arc<Census>, open: F) -> Self {
        let (spread, loops_left) = (plan.spread(&census), plan.loops);
        Schedule {
            plan,
            census,
            open,
            messages: None,
            pairs: None,
            sources: None,
            skipped: None,
            timeline: Timeline::default(),
            began: 0,
            queries_in_loop: 0,
            loops_left,
            waiting: BinaryHeap::new(),
            spread,
            handed_out: 0,
            drawn: 0.0,
            met: Met::default(),
        }
    }

    /// Has each query with its recorded response, for which the trace is read up to two seconds ahead ([`Pairs`]).
    pub fn with_responses(mut self) -> Self {
        self.pairs = Some(Pairs::default());
        self
    }

    /// Gives each client, copies counted, a source address in a prefix ([`Sources`]).
    pub fn with_sources(mut self, prefix: Prefix) -> Self {
        self.sources = Some(Sources::new(prefix, self.plan.seed));
        self
    }

    /// Has what gave no message told, as `skipped` does of a trace.
    pub fn with_skipped(mut self, skipped: fn(&I) -> &Skipped) -> Self {
        self.skipped = Some(skipped);
        self
    }

    /// What was met so far.
    pub fn met(&self) -> Met {
        let unmatched = self.pairs.as_ref().map_or(0, |pairs| pairs.unmatched);
        let mut met = Met { jumps: self.timeline.jumps, unmatched, ..self.met.clone() };
        if let Some(sources) = &self.sources {
            (met.sharing, met.unnumbered) = (sources.sharing(), sources.unnumbered);
        }
        if let (Some(skipped), Some(messages)) = (self.skipped, &self.messages) {
            met.skipped.merge(skipped(messages));
        }
        met
    }

    /// The next query.
    ///
    /// # Errors
    /// Those of `open`.
    pub fn next_query(&mut self) -> Result<Option<Planned>, E> {
        loop {
            match self.step()? {
                Next::Query(planned) => return Ok(Some(planned)),
                Next::NotYet => {}
                Next::End => return Ok(None),
            }
        }
    }

    /// Reads on to the next query, but no further than [`READ_MAX`] messages or a stretch without any.
    ///
    /// # Errors
    /// Those of `open`.
    pub fn step(&mut self) -> Result<Next, E> {
        if self.plan.limit.is_some_and(|limit| self.handed_out >= limit) {
            return Ok(Next::End);
        }
        for _ in 0..READ_MAX {
            let is_full = self.waiting.len() >= LOOK_AHEAD_MAX;
            // What is read later is at the last place read or behind it.
            if let Some(Reverse(first)) = self.waiting.peek()
                && (first.at <= self.timeline.last() || is_full || self.is_read_out())
            {
                self.met.crowded += u64::from(first.at > self.timeline.last() && is_full);
                let Some(Reverse(waiting)) = self.waiting.pop() else { continue };
                return Ok(Next::Query(self.planned(waiting)));
            }
            if self.is_read_out() {
                return Ok(Next::End);
            }
            if !self.read()? {
                break;
            }
        }
        Ok(Next::NotYet)
    }

    fn is_read_out(&self) -> bool {
        self.messages.is_none() && self.loops_left == 0
    }

    /// Reads one message of the trace; false where there was none yet.
    fn read(&mut self) -> Result<bool, E> {
        let messages = match &mut self.messages {
            Some(messages) => messages,
            None => {
                self.loops_left -= 1;
                self.began = self.timeline.last();
                self.queries_in_loop = 0;
                self.messages.insert((self.open)()?)
            }
        };
        match messages.next() {
            Some(Ok(message)) => {
                let Some(message) = message.into() else { return Ok(false) };
                self.met.responses += u64::from(message.is_response());
                match &mut self.pairs {
                    Some(pairs) => {
                        pairs.push(message);
                        self.copy_pairs(Pairs::next_ripe);
                    }
                    None if message.is_response() => {}
                    None => self.copy(message, None),
                }
            }
            Some(Err(damage)) => self.met.damage = Some(damage),
            None => {
                if let Some(skipped) = self.skipped {
                    self.met.skipped.merge(skipped(messages));
                }
                self.messages = None;
                self.copy_pairs(Pairs::pop);
                let length = self.timeline.last() - self.began;
                self.timeline
                    .restart(length.checked_div(self.queries_in_loop.saturating_sub(1)).unwrap_or(0));
                // A trace without queries would be gone through for nothing.
                if self.queries_in_loop == 0 {
                    self.loops_left = 0;
                }
            }
        }
        Ok(true)
    }

    fn copy_pairs(&mut self, next: fn(&mut Pairs) -> Option<Pair>) {
        while let Some(Pair { query, response }) = self.pairs.as_mut().and_then(next) {
            self.copy(query, response);
        }
    }

    /// Puts every copy of a query into the look-ahead.
    fn copy(&mut self, message: Arc<Message>, recorded: Option<Arc<Message>>) {
        let at = self.timeline.place(message.time);
        self.met.queries += 1;
        self.queries_in_loop += 1;
        if self.queries_in_loop == 1 {
            self.began = at;
        }
        let client = message.client.ip();
        let copies = match self.plan.clients {
            Clients::Factor { factor, .. } => {
                let share = factor.fract();
                let drawn = || draw::unit(self.plan.seed, For::Copies, draw::client(client, 0));
                factor as u32 + u32::from(share > 0.0 && drawn() < share)
            }
            Clients::Multiply(factor) => factor,
            Clients::Peak(factor) if self.census.is_peak(at - self.began) => factor,
            Clients::Score(factor) if self.census.is_typical(client) => factor,
            Clients::Peak(_) | Clients::Score(_) => 1,
        };
        let numbers = self.sources.as_mut().map(|sources| sources.numbers(client, copies));
        for copy in 0..copies {
            let phase = match copy {
                0 => 0,
                _ => scaled(draw::draw(self.plan.seed, For::Phase, draw::client(client, copy)), self.spread),
            };
            let message = Arc::clone(&message);
            self.waiting.push(Reverse(Waiting {
                at: at.saturating_add(phase),
                read: self.met.queries,
                copy,
                source: numbers.map_or(0, |numbers| numbers.of(copy)),
                message,
                recorded: recorded.clone(),
            }));
        }
    }

    fn planned(&mut self, waiting: Waiting) -> Planned {
        let index = self.handed_out;
        self.handed_out += 1;
        let due = match self.plan.pacing {
            Pacing::Fast => 0,
            Pacing::Recorded { speed: 1.0 } => waiting.at,
            Pacing::Recorded { speed } => (waiting.at as f64 / speed) as u64,
            Pacing::Rate { per_second, poisson: false } => (index as f64 * 1e9 / per_second) as u64,
            Pacing::Rate { per_second, poisson: true } => {
                // 1 - u is never 0.
                let gap = -(1.0 - draw::unit(self.plan.seed, For::Gap, index)).ln() * 1e9 / per_second;
                self.drawn += gap;
                self.drawn as u64
            }
        };
        let client = draw::client(waiting.message.client.ip(), waiting.copy);
        Planned {
            due,
            index,
            client,
            copy: waiting.copy,
            source: self.sources.as_ref().map(|sources| sources.address(waiting.source)),
            message: waiting.message,
            recorded: waiting.recorded,
        }
    }
}

/// A draw as a number below `most`.
fn scaled(draw: u64, most: u64) -> u64 {
    ((u128::from(draw) * u128::from(most)) >> 64) as u64
}

impl<I, F> std::fmt::Debug for Schedule<I, F> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Schedule").field("plan", &self.plan).field("met", &self.met).finish_non_exhaustive()
    }
}

impl Waiting {
    fn order(&self) -> (u64, u64, u32) {
        (self.at, self.read, self.copy)
    }
}

impl PartialEq for Waiting {
    fn eq(&self, other: &Self) -> bool {
        self.order() == other.order()
    }
}

impl Eq for Waiting {}

impl PartialOrd for Waiting {
    fn partial_cmp(&self, other: &Self) -> Option<std::cmp::Ordering> {
        Some(self.cmp(other))
    }
}

impl Ord for Waiting {
    fn cmp(&self, other: &Self) -> std::cmp::Ordering {
        self.order().cmp(&other.order())
    }
}

#[cfg(test)]
mod tests;
