//! A Rapid DNS server on a virtual clock: the service's own front and back end, without sockets and threads.

use std::cmp::Reverse;
use std::collections::BinaryHeap;
use std::net::{IpAddr, Ipv4Addr};
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use net::clock::Now;
use reverse::backend::{BackEnd, Behaviour, Due, Paper, Question, Ttl, seconds};
use reverse::cache;
use reverse::front::{Front, Known, Wanted};
use reverse::name::NameText;
use reverse::question::Answered;
use tokio::sync::mpsc;

/// When the virtual clock begins, in seconds since 1970: the paper's summer.
const BEGINNING: Duration = Duration::from_secs(933_000_000);

/// Room for the farm's addresses of a week.
const MEMORY: usize = 2 << 30;

/// How often a shard of the cache is swept; the service does so all the time. What has expired is passed over by look-ups
/// before it is swept, too.
const SWEEP_INTERVAL: Duration = Duration::from_secs(480);

/// Seven days: how long names are kept in the standard configuration (section 8.1).
pub(crate) const WEEK: Duration = Duration::from_secs(7 * 86_400);

/// What is asked upstream, and when the answer is back.
pub(crate) type Upstream = Box<dyn FnMut(Ipv4Addr) -> (Answered, Duration)>;

/// A server of the farm: our cache, front end and back end on a virtual clock.
pub(crate) struct Server {
    reader: cache::Reader,
    front: Front,
    back_end: BackEnd,
    door: mpsc::Receiver<Wanted>,
    upstream: Upstream,
    /// When the back end is to be asked again for what is due.
    due: Option<Duration>,
    swept: Duration,
    answers: BinaryHeap<Reverse<Coming>>,
    asked: u64,
    failed: u64,
    ages: u64,
    name: NameText,
}

/// An answer that is under way.
struct Coming {
    at: Duration,
    order: u64,
    question: Question,
    answered: Answered,
}

/// What a server counted since its start.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Counts {
    /// Look-ups.
    pub(crate) requests: u64,
    /// Those that found an entry, whatever is in it: the paper's cache hits.
    pub(crate) hits: u64,
    /// Those that were answered with a name.
    pub(crate) named: u64,
    /// Questions to the upstream.
    pub(crate) questions: u64,
    /// Questions that failed.
    pub(crate) failed: u64,
    /// Addresses dropped at the bottom of the stack.
    pub(crate) leaks: u64,
    /// Addresses that were known when they were popped.
    pub(crate) back_end_hits: u64,
    /// The ages of all names that were answered, in seconds.
    pub(crate) ages: u64,
}

impl std::ops::Sub for Counts {
    type Output = Counts;

    fn sub(self, before: Counts) -> Counts {
        Counts {
            requests: self.requests - before.requests,
            hits: self.hits - before.hits,
            named: self.named - before.named,
            questions: self.questions - before.questions,
            failed: self.failed - before.failed,
            leaks: self.leaks - before.leaks,
            back_end_hits: self.back_end_hits - before.back_end_hits,
            ages: self.ages - before.ages,
        }
    }
}

impl std::iter::Sum for Counts {
    fn sum<I: Iterator<Item = Counts>>(all: I) -> Counts {
        all.fold(Counts::default(), |sum, one| Counts {
            requests: sum.requests + one.requests,
            hits: sum.hits + one.hits,
            named: sum.named + one.named,
            questions: sum.questions + one.questions,
            failed: sum.failed + one.failed,
            leaks: sum.leaks + one.leaks,
            back_end_hits: sum.back_end_hits + one.back_end_hits,
            ages: sum.ages + one.ages,
        })
    }
}

impl Counts {
    /// The share of look-ups that found an entry.
    pub(crate) fn hit_ratio(&self) -> f64 {
        self.hits as f64 / self.requests.max(1) as f64
    }

    /// The share of look-ups that were answered with a name.
    pub(crate) fn named_share(&self) -> f64 {
        self.named as f64 / self.requests.max(1) as f64
    }
}

/// The paper's standard configuration (section 8.1): a stack of 4,096, seven days, 50 ms, negative caching.
pub(crate) fn standard() -> Behaviour {
    Behaviour {
        interval: Duration::from_millis(50),
        burst: 1,
        stack: 4_096,
        per_client: 4_096,
        timeout: Duration::from_secs(5),
        tries: 1,
        ttl: Ttl::Fixed(WEEK),
        negative: true,
        confirm: false,
        prefixes: false,
        paper: Some(Paper::default()),
    }
}

/// The same for a model that is so many times smaller.
pub(crate) fn scaled(behaviour: Behaviour, scale: f64) -> Behaviour {
    let stack = (behaviour.stack as f64 / scale).round() as usize;
    Behaviour { interval: behaviour.interval.mul_f64(scale), stack, per_client: stack, ..behaviour }
}

impl Server {
    /// A server with an empty cache.
    pub(crate) fn new(behaviour: Behaviour, upstream: Upstream) -> Server {
        let (writer, reader) = cache::new(MEMORY, 0, 0);
        let (sender, door) = mpsc::channel(reverse::front::DOOR_MAX);
        Server {
            reader: reader.clone(),
            front: Front::new(reader, sender, 0, Arc::default()),
            back_end: BackEnd::new(writer, behaviour),
            door,
            upstream,
            due: None,
            swept: Duration::ZERO,
            answers: BinaryHeap::new(),
            asked: 0,
            failed: 0,
            ages: 0,
            name: NameText::EMPTY,
        }
    }

    /// Looks an address up at a time since the beginning, not before the last one; whether there was an entry.
    pub(crate) fn look_up(&mut self, at: Duration, address: Ipv4Addr) -> (Known, bool) {
        self.pass(at);
        let view = self.front.view();
        let client = IpAddr::V4(Ipv4Addr::LOCALHOST);
        let known = self.front.look_up(&view, address.into(), client, seconds(now(at)), &mut self.name);
        drop(view);
        if let Known::Name(since, _) = known {
            self.ages += u64::from(since.age);
        }
        let mut noted = false;
        while let Ok(wanted) = self.door.try_recv() {
            self.back_end.note(wanted);
            noted = true;
        }
        if noted && self.due.is_none() {
            self.ask(at);
        }
        (known, !noted)
    }

    /// Lets the time pass: answers come back, questions are asked as they are due.
    pub(crate) fn pass(&mut self, until: Duration) {
        loop {
            let answer = self.answers.peek().map(|Reverse(coming)| coming.at);
            let (Some(at), is_answer) = (match (answer, self.due) {
                (Some(answer), Some(due)) => (Some(answer.min(due)), answer <= due),
                (answer, due) => (answer.or(due), answer.is_some()),
            }) else {
                break;
            };
            if at > until {
                break;
            }
            if !is_answer {
                self.ask(at);
            } else if let Some(Reverse(coming)) = self.answers.pop() {
                self.back_end.answered(coming.question, coming.answered, now(at));
                if self.due.is_none() {
                    self.ask(at);
                }
            }
        }
        while self.swept + SWEEP_INTERVAL <= until {
            self.swept += SWEEP_INTERVAL;
            self.back_end.sweep(now(self.swept));
        }
    }

    /// Asks what is due.
    fn ask(&mut self, at: Duration) {
        self.due = loop {
            match self.back_end.next(now(at)) {
                Due::Now(question) => {
                    let IpAddr::V4(address) = question.address else { continue };
                    let (answered, took) = (self.upstream)(address);
                    self.asked += 1;
                    self.failed += u64::from(matches!(answered, Answered::Failed(_)));
                    let order = self.asked;
                    self.answers.push(Reverse(Coming { at: at + took, order, question, answered }));
                }
                Due::After(wait) => break Some(at + wait),
                Due::Later => break None,
            }
        };
    }

    /// What it counted since its start.
    pub(crate) fn counts(&self) -> Counts {
        self.back_end.gauge();
        let (known, learned) = (self.front.counts(), self.back_end.counts());
        let get = |count: &std::sync::atomic::AtomicU64| count.load(Ordering::Relaxed);
        Counts {
            requests: known.known.iter().map(get).sum(),
            hits: get(&known.hits),
            named: get(&known.known[0]),
            questions: get(&learned.questions),
            failed: self.failed,
            leaks: get(&learned.leaks),
            back_end_hits: get(&learned.hits),
            ages: self.ages,
        }
    }

    /// Entries with a name, and all entries, at a virtual time. What has expired is no entry: it is swept in the background.
    pub(crate) fn entries(&self, at: Duration) -> (u64, u64) {
        let (mut named, mut all, seconds) = (0, 0, seconds(now(at)));
        self.reader.for_each(|_, entry, _| {
            if !entry.is_stale(seconds) {
                all += 1;
                named += u64::from(entry.state == cache::State::Name);
            }
        });
        (named, all)
    }
}

/// A virtual time as the back end takes it.
fn now(at: Duration) -> Now {
    Now { monotonic: at, unix: BEGINNING + at }
}

impl PartialEq for Coming {
    fn eq(&self, other: &Self) -> bool {
        (self.at, self.order) == (other.at, other.order)
    }
}

impl Eq for Coming {}

impl PartialOrd for Coming {
    fn partial_cmp(&self, other: &Self) -> Option<std::cmp::Ordering> {
        Some(self.cmp(other))
    }
}

impl Ord for Coming {
    fn cmp(&self, other: &Self) -> std::cmp::Ordering {
        (self.at, self.order).cmp(&(other.at, other.order))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SECOND: Duration = Duration::from_secs(1);

    fn address(last: u32) -> Ipv4Addr {
        (0xc000_0200 + last).into()
    }

    fn server(behaviour: Behaviour) -> Server {
        let name = NameText::from_text(b"www.example").expect("a name");
        Server::new(behaviour, Box::new(move |_| (Answered::Name(name, 60), SECOND / 2)))
    }

    #[test]
    fn a_name_is_known_when_its_answer_has_come() {
        let mut server = server(standard());
        assert_eq!(server.look_up(SECOND, address(1)), (Known::NotYet, false));
        // The empty entry answers until then, and is a hit.
        assert_eq!(server.look_up(SECOND + SECOND / 3, address(1)), (Known::NotYet, true));
        assert!(matches!(server.look_up(2 * SECOND, address(1)), (Known::Name(..), true)));
        let expected = Counts { requests: 3, hits: 2, named: 1, questions: 1, ages: 1, ..Counts::default() };
        assert_eq!((server.counts(), server.entries(2 * SECOND)), (expected, (1, 1)));
    }

    #[test]
    fn questions_keep_their_interval_while_time_passes() {
        let mut server = server(Behaviour { interval: 10 * SECOND, stack: 8, ..standard() });
        for at in 0..20 {
            server.look_up(SECOND, address(at));
        }
        // One was asked at once; eight of the others found room.
        assert_eq!((server.counts().questions, server.counts().leaks), (1, 11));
        server.pass(31 * SECOND);
        assert_eq!(server.counts().questions, 4);
        server.pass(1_000 * SECOND);
        assert_eq!((server.counts().questions, server.entries(1_000 * SECOND).1), (9, 9));
    }
}
