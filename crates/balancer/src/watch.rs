//! Probes, and what is counted, looked at ten times a second: who is down, and who gets less. Whom a worker doubts is probed
//! at once.

use std::collections::HashMap;
use std::io;
use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use arc_swap::ArcSwap;
use dns::Rcode;
use dns::relay::add_subnet;
use net::clock::Clock;
use net::shutdown::Shutdown;
use routing::balance::Set;
use tokio::sync::Notify;
use tokio::task::JoinSet;
use tokio::time::MissedTickBehavior;

use crate::client_address::ClientAddress;
use crate::exchange::ask_by_datagram;
use crate::field::{BackEnd, Field, eligible};
use crate::health::{Health, Probe, Seen, SeenOfGroup, is_failure};
use crate::message::rcode;
use crate::told::Told;

/// From one look to the next.
const LOOK: Duration = Duration::from_millis(100);

/// How much closer probes of a back end that is down are: the sooner it is back.
const DOWN_PROBES: u32 = 4;

/// How back ends are watched.
#[derive(Clone, Debug)]
pub struct Probing {
    /// The question as a message, without its id; see [`question`].
    pub question: Vec<u8>,
    /// How back ends learn whose queries they are: who cannot be asked that way does not answer probes, either.
    pub client_address: ClientAddress,
    /// Whether an answer that says that the server failed is no answer: where the question was chosen.
    pub is_strict: bool,
    /// From one probe of a back end to the next; a quarter of it while it is down.
    pub interval: Duration,
    /// How long an answer may take, also for how long nothing comes before queries' timeouts say that it is down.
    pub timeout: Duration,
    /// How long a back end that comes up gets less than its turns.
    pub slow_start: Duration,
}

impl Probing {
    /// The question as it is sent.
    pub(crate) fn query(&self, id: u16) -> Vec<u8> {
        let mut query = self.question.clone();
        query[..2].copy_from_slice(&id.to_be_bytes());
        if let Some(subnet) = self.client_address.own_subnet() {
            add_subnet(&mut query, self.question.len(), None, &subnet);
        }
        query
    }
}

/// A question as a message with id 0: a name in wire format, a type, and whether recursion is desired: resolvers refuse
/// most of what is asked without.
pub fn question(name: &[u8], rtype: u16, recursion_desired: bool) -> Vec<u8> {
    let mut query = vec![0, 0, u8::from(recursion_desired), 0, 0, 1, 0, 0, 0, 0, 0, 0];
    query.extend_from_slice(name);
    query.extend_from_slice(&rtype.to_be_bytes());
    query.extend_from_slice(&[0, 1]);
    query
}

/// What a probe has found.
#[derive(Debug)]
struct Found {
    probe: Probe,
    /// In words, for the log.
    what: String,
}

/// One back end that is watched.
struct Watched {
    back_end: Arc<BackEnd>,
    health: Health,
    last: Seen,
    probed: Option<Duration>,
    is_probed: bool,
    /// Whether the last probe could not be sent.
    is_unsent: bool,
}

/// Watches until the shutdown begins; `doubted` is told when a worker doubts that a back end is there.
pub async fn run(
    field: Arc<ArcSwap<Field>>,
    probing: Probing,
    clock: Clock,
    doubted: Arc<Notify>,
    shutdown: Shutdown,
) {
    let mut watched: HashMap<SocketAddr, Watched> = HashMap::new();
    let mut probes = JoinSet::new();
    let mut looks = tokio::time::interval(LOOK);
    looks.set_missed_tick_behavior(MissedTickBehavior::Delay);
    loop {
        tokio::select! {
            biased;
            () = shutdown.wait() => return,
            Some(Ok((address, found))) = probes.join_next() => {
                if let Some(watched) = watched.get_mut(&address) {
                    watched.probed(found, clock.now().monotonic, probing.timeout);
                }
            }
            _ = looks.tick() => {
                let now = clock.now().monotonic;
                let field = field.load_full();
                follow(&mut watched, &field, &probing, now);
                look(&mut watched, &field, &probing, now);
            }
            () = doubted.notified() => {}
        }
        let now = clock.now().monotonic;
        for watched in watched.values_mut() {
            if watched.is_due(&probing, now) {
                probes.spawn(probe(watched.back_end.clone(), probing.clone()));
            }
        }
    }
}

/// Takes up back ends that have come, and drops those that have gone. Who comes to others begins slowly.
fn follow(watched: &mut HashMap<SocketAddr, Watched>, field: &Field, probing: &Probing, now: Duration) {
    let are_others = !watched.is_empty();
    watched.retain(|_, watched| field.iter().any(|back_end| Arc::ptr_eq(back_end, &watched.back_end)));
    for back_end in field.iter() {
        watched.entry(back_end.address).or_insert_with(|| {
            let mut watched = Watched::new(back_end.clone());
            if are_others {
                watched.health = Health::begun(now);
                back_end.set_share(watched.health.share(0.0, now, probing.slow_start));
            }
            watched
        });
    }
}

/// Looks at what was counted since the last look.
fn look(watched: &mut HashMap<SocketAddr, Watched>, field: &Field, probing: &Probing, now: Duration) {
    // As it was before: what follows now is seen at the next look.
    let ready: Vec<Set> = (0..field.pools.len()).map(|pool| eligible(field, field.members(pool)).0).collect();
    for watched in watched.values_mut() {
        let seen = seen(&watched.back_end);
        let was_down = watched.heed();
        watched.health.look(seen.since(&watched.last), now, probing.timeout);
        watched.last = seen;
        watched.settle(was_down, "queries have no answer in time");
    }
    // Who gets no queries is no measure for the others, nor who gets those of other pools.
    let least = ready.into_iter().map(|ready| {
        let getting = watched.values().filter(|watched| ready.contains(watched.back_end.place));
        getting.map(|watched| watched.health.failures()).fold(f32::INFINITY, f32::min)
    });
    let least: Vec<f32> = least.collect();
    for watched in watched.values() {
        let of_pools = least.iter().enumerate().filter(|(pool, _)| watched.back_end.pools.contains(*pool));
        let least = of_pools.map(|(_, least)| *least).fold(f32::INFINITY, f32::min);
        watched.back_end.set_share(watched.health.share(least, now, probing.slow_start));
    }
}

fn seen(back_end: &BackEnd) -> Seen {
    let groups = std::array::from_fn(|group| SeenOfGroup {
        ended: back_end.sum(|cells| &cells.groups[group].ended),
        failed: back_end.sum(|cells| &cells.groups[group].failed),
    });
    Seen {
        groups,
        answers: back_end.cells.iter().map(crate::counters::Cells::answers).sum(),
        failures: back_end.failures(),
        timeouts: back_end.sum(|cells| &cells.timeouts),
        refused: back_end.cells.last().map_or(0, |connections| connections.refused.get()),
        late: back_end.sum(|cells| &cells.late) + back_end.exchange.strays.late.load(Ordering::Relaxed),
    }
}

impl Watched {
    fn new(back_end: Arc<BackEnd>) -> Watched {
        Watched {
            back_end,
            health: Health::default(),
            last: Seen::default(),
            probed: None,
            is_probed: false,
            is_unsent: false,
        }
    }

    /// Takes in what became of a probe.
    fn probed(&mut self, found: io::Result<Found>, now: Duration, patience: Duration) {
        self.is_probed = false;
        let was_down = self.heed();
        match &found {
            Ok(found) => self.health.probed(found.probe, now, patience),
            // It may go on for long, and is told once.
            Err(cause) if !self.is_unsent => {
                tracing::error!(back_end = %self.back_end.address, %cause, "a probe cannot be sent; it is tried again and again");
            }
            Err(_) => {}
        }
        self.is_unsent = found.is_err();
        self.settle(was_down, found.as_ref().map_or("", |found| &found.what));
    }

    /// A worker may have found meanwhile that nobody listens there; returns whether the back end is held to be down.
    fn heed(&mut self) -> bool {
        let is_down = self.back_end.is_down();
        if is_down {
            self.health.is_gone();
        }
        is_down
    }

    /// Tells everybody what was found, and the log why, unless a worker has found something since that was heeded: that is
    /// next.
    fn settle(&self, was: bool, why: &str) {
        let is = self.health.is_down();
        if was == is || !self.back_end.set_down_from(was, is) {
            return;
        }
        let back_end = self.back_end.address;
        if is {
            tracing::warn!(%back_end, why, "the back end is down; it gets no queries");
        } else {
            tracing::info!(%back_end, "the back end answers again");
        }
    }

    fn is_due(&mut self, probing: &Probing, now: Duration) -> bool {
        let divisor = if self.health.is_down() { DOWN_PROBES } else { 1 };
        let interval = probing.interval / divisor;
        let is_time = || self.probed.is_none_or(|last| now.saturating_sub(last) >= interval);
        // One at a time, however many doubts there are.
        let is_due =
            !self.is_probed && (self.back_end.is_doubted.swap(false, Ordering::Relaxed) || is_time());
        if is_due {
            (self.probed, self.is_probed) = (Some(now), true);
        }
        is_due
    }
}

/// Probes; an error is our own and says nothing of the back end.
async fn probe(back_end: Arc<BackEnd>, probing: Probing) -> (SocketAddr, io::Result<Found>) {
    let address = back_end.address;
    let query = probing.query(fastrand::u16(..));
    let preface = probing.client_address.own_preface();
    let mut told = Told::Nothing;
    let question_end = probing.question.len();
    let asked = async {
        match back_end.tls() {
            None => ask_by_datagram(address, &preface, &query, question_end, &mut told).await,
            Some(_) => back_end.exchange.ask(&preface, &query, question_end, &mut told).await,
        }
    };
    let asked = tokio::time::timeout(probing.timeout, asked).await;
    back_end.replied.fetch_add(u64::from(matches!(asked, Ok(Ok(_)))), Ordering::Relaxed);
    let found = match asked {
        Err(_) => Ok(Found { probe: Probe::Silent, what: "a probe has no answer in time".into() }),
        Ok(Ok(reply)) => {
            let is_good = is_good(reply[3] & 0x0f, probing.is_strict);
            let probe = if is_good { Probe::Answered } else { Probe::Failed };
            Ok(Found { probe, what: format!("a probe is answered {}", rcode(&reply)) })
        }
        Ok(Err(cause)) if net::client::is_shortage(&cause) => Err(cause),
        Ok(Err(cause)) => Ok(Found { probe: Probe::Failed, what: format!("a probe failed: {cause}") }),
    };
    (address, found)
}

/// Whether a response code is that of a server that works, and knows what the probe asks it with.
fn is_good(rcode: u8, is_strict: bool) -> bool {
    let says_so = [Rcode::FORMERR, Rcode::SERVFAIL].contains(&Rcode::masked_from_int(rcode));
    let is_bad = says_so || is_strict && is_failure(rcode);
    !is_bad
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::counters::FrontCounters;
    use crate::field::Drained;
    use crate::health::WHOLE;
    use crate::health::{FALL, RISE};
    use crate::picker::{For, Picker};
    use dns::{Folded, Query};
    use fastrand::Rng;
    use routing::balance::Policy;
    use tokio::net::UdpSocket;

    fn probing() -> Probing {
        Probing {
            question: question(b"\0", 2, false),
            client_address: ClientAddress::Hidden,
            is_strict: false,
            interval: Duration::from_secs(1),
            timeout: Duration::from_secs(1),
            slow_start: Duration::from_secs(1),
        }
    }

    fn found(probe: Probe) -> io::Result<Found> {
        Ok(Found { probe, what: String::new() })
    }

    #[tokio::test]
    async fn who_knows_no_subnet_does_not_answer_a_probe_where_queries_have_one() {
        let server = UdpSocket::bind("127.0.0.1:0").await.expect("loopback binds");
        let address = server.local_addr().expect("it is bound");
        let back_end = Arc::new(BackEnd::new(0, address, 1, 1));
        let subnet = ClientAddress::Subnet { v4_bits: 24, v6_bits: 56 };
        for (client_address, expected) in [(ClientAddress::Hidden, Probe::Answered), (subnet, Probe::Failed)]
        {
            let probing = Probing { client_address, timeout: Duration::from_secs(10), ..probing() };
            let answers = async {
                let mut message = [0; 512];
                let (length, from) = server.recv_from(&mut message).await.expect("it is asked");
                let edns = Query::read(&message[..length], &mut Folded::root()).expect("a query").edns;
                let rcode = if edns.is_some() { Rcode::FORMERR } else { Rcode::NOERROR };
                let end = probing.question.len();
                (message[2], message[3]) = (0x80, rcode.to_int());
                message[10..12].fill(0);
                server.send_to(&message[..end], from).await.expect("it is sent");
            };
            let ((_, probed), ()) = tokio::join!(probe(back_end.clone(), probing.clone()), answers);
            assert_eq!(probed.expect("it was asked").probe, expected, "{client_address:?}");
        }
    }

    #[test]
    fn what_a_worker_has_found_holds_until_probes_are_answered() {
        let back_end = Arc::new(BackEnd::new(0, ([192, 0, 2, 1], 53).into(), 1, 1));
        let mut watched = Watched::new(back_end.clone());
        let second = Duration::from_secs(1);
        back_end.set_down(true);
        watched.probed(found(Probe::Failed), second, second);
        assert!(back_end.is_down());
        for left in (0..RISE).rev() {
            watched.probed(found(Probe::Answered), second, second);
            assert_eq!(back_end.is_down(), left > 0);
        }
    }

    #[tokio::test]
    async fn who_is_doubted_is_probed_at_once_and_whoever_replies_is_there() {
        let server = UdpSocket::bind("127.0.0.1:0").await.expect("loopback binds");
        let back_end = Arc::new(BackEnd::new(0, server.local_addr().expect("it is bound"), 1, 1));
        let (mut watched, probing) = (Watched::new(back_end.clone()), probing());
        let now = Duration::from_secs(1);
        assert!(watched.is_due(&probing, now));
        back_end.is_doubted.store(true, Ordering::Relaxed);
        assert!(!watched.is_due(&probing, now), "one is under way");
        watched.probed(found(Probe::Silent), now, probing.timeout);
        assert!(watched.is_due(&probing, now));
        watched.probed(found(Probe::Silent), now, probing.timeout);
        assert!(!watched.is_due(&probing, now));
        let fails = async {
            let mut message = [0; 512];
            let (length, from) = server.recv_from(&mut message).await.expect("it is asked");
            (message[2], message[3]) = (0x80, Rcode::SERVFAIL.to_int());
            server.send_to(&message[..length], from).await.expect("it is sent");
        };
        let probing = Probing { timeout: Duration::from_secs(10), ..probing };
        let ((_, probed), ()) = tokio::join!(probe(back_end.clone(), probing), fails);
        let probed = probed.expect("it was asked");
        assert_eq!((probed.probe, probed.what.as_str()), (Probe::Failed, "a probe is answered SERVFAIL"));
        assert_eq!(back_end.replied.load(Ordering::Relaxed), 1);
    }

    #[test]
    fn a_probe_that_we_cannot_send_says_nothing_of_a_back_end() {
        let back_end = Arc::new(BackEnd::new(0, ([192, 0, 2, 1], 53).into(), 1, 1));
        let mut watched = Watched::new(back_end.clone());
        let probing = probing();
        let mut now = Duration::from_secs(1);
        for _ in 0..2 * FALL {
            assert!(watched.is_due(&probing, now) && !watched.is_due(&probing, now));
            watched.probed(Err(io::Error::other("no descriptor is left")), now, probing.timeout);
            now += probing.interval;
        }
        assert!(!back_end.is_down());
    }

    #[test]
    fn who_comes_to_others_begins_slowly() {
        let with = |field: Field, last: u8| {
            let address = ([192, 0, 2, last], 53).into();
            field.with(|place| BackEnd::new(place, address, 1, 1)).expect("there is a place")
        };
        let shares = |field: &Field| field.iter().map(|back_end| back_end.share()).collect::<Vec<_>>();
        let (mut watched, second) = (HashMap::new(), Duration::from_secs(1));
        let first = with(Field::default(), 1);
        follow(&mut watched, &first, &probing(), second);
        assert_eq!(shares(&first), [WHOLE]);
        let both = with(first, 2);
        follow(&mut watched, &both, &probing(), second);
        assert_eq!(shares(&both), [WHOLE, WHOLE / 10]);
        look(&mut watched, &both, &probing(), 2 * second);
        assert_eq!(shares(&both), [WHOLE; 2]);
    }

    #[test]
    fn a_worker_that_finds_it_gone_meanwhile_is_heeded() {
        let back_end = Arc::new(BackEnd::new(0, ([192, 0, 2, 1], 53).into(), 1, 1));
        let mut watched = Watched::new(back_end.clone());
        let was_down = watched.heed();
        back_end.set_down(true);
        watched.settle(was_down, "a test");
        assert!(back_end.is_down() && watched.heed() && watched.health.is_down());
    }

    #[test]
    fn who_gets_no_queries_is_no_measure_of_failures() {
        let field = (0..3).fold(Field::default(), |field, last| {
            let address = ([192, 0, 2, last], 53).into();
            field.with(|place| BackEnd::new(place, address, 1, 1)).expect("there is a place")
        });
        let at = |place: usize| field.places[place].as_ref().expect("it is there");
        // Names that nobody can resolve; the third one drains and gets none of them.
        at(2).set_draining(Drained::ByOperator, true);
        let (mut watched, mut now) = (HashMap::new(), Duration::from_secs(1));
        follow(&mut watched, &field, &probing(), now);
        let servfail = Rcode::SERVFAIL.to_int();
        for _ in 0..50 {
            (0..2).for_each(|place| at(place).cells[0].count_answer(servfail, 1));
            look(&mut watched, &field, &probing(), now);
            now += LOOK;
        }
        assert_eq!([at(0).share(), at(1).share()], [WHOLE; 2]);
        // One is better now, and the other one is what fails.
        for _ in 0..50 {
            at(0).cells[0].count_answer(0, 1);
            at(1).cells[0].count_answer(servfail, 1);
            look(&mut watched, &field, &probing(), now);
            now += LOOK;
        }
        assert!(at(0).share() == WHOLE && at(1).share() < WHOLE / 10, "{} {}", at(0).share(), at(1).share());
    }

    /// The shares of three back ends under `hash`, ten seconds on, 0 of one that is down; what becomes of a question is said
    /// by its number and the place of its back end.
    fn shares_by_hash(becomes: impl Fn(usize, usize) -> Option<Rcode>) -> [u32; 3] {
        let field = (0..3).fold(Field::default(), |field, last| {
            let address = ([127, 0, 0, last], 53).into();
            field.with(|place| BackEnd::new(place, address, 1, 1)).expect("there is a place")
        });
        let (field, counters) = (Arc::new(field), FrontCounters::default());
        let policy = Policy::from_name("hash").expect("one of the names");
        let mut picker = Picker::new(policy, For::Datagrams, 0, 1_000_000, 7, Rng::with_seed(1));
        let keys: [u64; 92] = std::array::from_fn(|_| picker.rng().u64(..));
        let (mut watched, mut now) = (HashMap::new(), Duration::from_secs(1));
        follow(&mut watched, &field, &probing(), now);
        for _ in 0..100 {
            // One question in three is for one of a few names, the others are spread over many.
            for number in (0..90).map(|turn| if turn % 3 == 0 { turn % 2 } else { 2 + turn }) {
                picker.look(&field, 1);
                let key = keys[number];
                let picked = picker.pick(0, key, [127, 0, 0, 1].into(), Set::EMPTY, 1, &counters);
                let place = picked.expect("all are there");
                let load = picker.sent(place, 1);
                match becomes(number, place) {
                    Some(rcode) => picker.answered(place, key, load, rcode.to_int(), 1, 2),
                    None => picker.timed_out(place, key, load, 2),
                }
            }
            look(&mut watched, &field, &probing(), now);
            now += LOOK;
        }
        [0, 1, 2].map(|place| {
            let back_end = field.places[place].as_ref().expect("it is there");
            if back_end.is_down() { 0 } else { back_end.share() }
        })
    }

    #[test]
    fn a_name_that_fails_by_itself_moves_no_others_from_its_back_end() {
        for fails in [Some(Rcode::SERVFAIL), Some(Rcode::REFUSED), None] {
            let fails_at = |number| if number == 0 { fails } else { Some(Rcode::NOERROR) };
            assert_eq!(shares_by_hash(|number, _| fails_at(number)), [WHOLE; 3], "{fails:?}");
        }
    }

    #[test]
    fn who_fails_is_noticed_where_each_question_has_its_back_end() {
        for fails in [Some(Rcode::SERVFAIL), Some(Rcode::REFUSED), None] {
            for (part, most) in [(1, WHOLE / 10), (2, WHOLE * 3 / 4)] {
                let shares = shares_by_hash(|number, place| {
                    if place == 1 && number % part == 0 { fails } else { Some(Rcode::NOERROR) }
                });
                let [first, failing, third] = shares;
                assert!(failing < most && first == WHOLE && third == WHOLE, "{shares:?} {fails:?}");
            }
        }
    }
}
