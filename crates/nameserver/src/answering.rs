//! The path of one query, over UDP and TCP alike: answered, counted, told to who watches.
//!
//! ```text
//! query ─> Transfers::answer  what is signed, asks for a zone, or changes one
//!       `> Generation::answer all else
//!       ─> Counters, Tap      what became of it; a panic is survived, and counted too
//! ```

use std::net::SocketAddr;
use std::ops::DerefMut;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;

use fastrand::Rng;
use net::clock::{Clock, Now};
use tap::{Talk, Tap};

use crate::answer::{Answered, Asked, Reply, Transport};
use crate::counters::Counters;
use crate::fast::{Fast, Shared};
use crate::generation::Generation;
use crate::panics::{Panics, Scene};
use crate::publish::Published;
use crate::transfer::outgoing::Outgoing;
use crate::transfer::update::Accepted;
use crate::transfer::{Given, Transfers};

/// What queries are answered from; all who answer share it.
#[derive(Clone)]
pub struct Answering {
    /// Where generations come from.
    pub published: Arc<Published>,
    /// What answers signed queries and transfers.
    pub transfers: Arc<Transfers>,
    /// What outlives generations and is written by answers, too.
    pub fast: Shared,
    /// When the last panic was, and what follows one.
    pub panics: Arc<Panics>,
    /// What tells the time.
    pub clock: Clock,
}

/// A query as it came in, and what it is taken up with.
#[derive(Clone, Copy)]
pub struct Received<'a> {
    /// The message.
    pub query: &'a [u8],
    /// Who sent it.
    pub client: SocketAddr,
    /// The address of ours that it was sent to.
    pub server: SocketAddr,
    /// What it came over.
    pub transport: Transport,
    /// The number of the worker that has it; none over TCP.
    pub worker: Option<usize>,
    /// What it is answered from.
    pub generation: &'a Generation,
    /// When it is taken up.
    pub now: Now,
}

/// Where queries are noted; it has one writer at a time.
pub struct Ledger {
    /// What is counted.
    pub counters: Arc<Counters>,
    /// Who is told of queries and answers, where somebody watches.
    pub tap: Option<Tap>,
}

/// What goes back to a client.
pub enum Return {
    /// So many octets of the buffer.
    Message(usize),
    /// A transfer's messages; only over TCP.
    Stream(Box<Outgoing>),
    /// What becomes of an update, later.
    Update(Box<Accepted>),
    /// Nothing: it was no query, its answer had no room or was over the rate, or we panicked.
    Nothing,
}

impl Ledger {
    /// One in which nothing is counted yet.
    pub fn new(tap: Option<Tap>) -> Ledger {
        Ledger { counters: Arc::default(), tap }
    }
}

impl Answering {
    /// Answers a query into `out`, and notes what became of it in the ledger, which is taken once that is known.
    ///
    /// Only signed queries, updates and requests for zones make it allocate. A query on which the code panics is dropped and
    /// counted; what then follows is [`Panics::suffered`]'s.
    #[inline]
    pub fn answer<L>(
        &self,
        received: &Received<'_>,
        rng: &mut Rng,
        out: &mut [u8],
        ledger: impl FnOnce() -> L,
    ) -> Return
    where
        L: DerefMut<Target = Ledger>,
    {
        let Received { generation, now, transport, .. } = *received;
        self.answer_by(received, out, ledger, |asked, out| {
            let fast = self.fast(transport);
            match self.transfers.answer(generation, asked, fast, now, rng, out) {
                Some(given) => given,
                None => Given::Answered(generation.answer_counted(asked, fast, now, rng, out)),
            }
        })
    }

    /// The fast state as an answer over `transport` sees it: who has a connection is where it says, and no rate limits it.
    #[inline]
    fn fast(&self, transport: Transport) -> Fast<'_> {
        let fast = self.fast.fast();
        Fast { limit: fast.limit.filter(|_| transport == Transport::Udp), ..fast }
    }

    /// Answers by a function, so that tests can have one that panics.
    #[inline]
    fn answer_by<L>(
        &self,
        received: &Received<'_>,
        out: &mut [u8],
        ledger: impl FnOnce() -> L,
        answer: impl FnOnce(&Asked<'_>, &mut [u8]) -> Given,
    ) -> Return
    where
        L: DerefMut<Target = Ledger>,
    {
        let Received { query, client, server, transport, worker, generation, now } = *received;
        let asked = Asked { query, client: client.ip(), local: server.ip(), transport };
        let given = catch_unwind(AssertUnwindSafe(|| answer(&asked, out)));
        let mut ledger = ledger();
        let Ledger { counters, tap } = &mut *ledger;
        let back = match given {
            Ok(Given::Answered(Answered { reply: Reply::Send(length), verdict, alias, routed })) => {
                counters.rated(verdict);
                counters.answered(&out[..length], [alias, routed]);
                Return::Message(length)
            }
            Ok(Given::Answered(Answered { reply: Reply::Drop(why), .. })) => {
                counters.dropped(why);
                Return::Nothing
            }
            Ok(Given::Outgoing(outgoing)) => {
                counters.streamed.add(1);
                Return::Stream(outgoing)
            }
            Ok(Given::Update(accepted)) => Return::Update(accepted),
            Err(panic) => {
                counters.panicked.add(1);
                let scene = Scene { worker, generation: generation.number, query };
                self.panics.suffered(scene, &*panic, now.monotonic);
                Return::Nothing
            }
        };
        if let Some(tap) = tap
            && tap.takes(query)
        {
            let talk = Talk { client, server, protocol: transport.protocol(), time: now.unix };
            counters.tap_full.add(tap.query(&talk, query));
            if let Return::Message(length) = back {
                counters.tap_full.add(tap.response(&talk, now.unix, &out[..length]));
            }
        }
        back
    }
}

#[cfg(test)]
mod tests {
    use std::io::Write as _;
    use std::os::unix::process::ExitStatusExt;
    use std::process::Command;
    use std::time::Duration;

    use super::*;
    use crate::generation::Settings;
    use crate::rate_limit::{Limits, RateLimit};

    /// Tells the test, started again, that it is to be aborted.
    const ABORTS: &str = "POINTSMAN_TEST_ABORTS";

    fn answering(generation: &Generation, fast: Shared) -> Answering {
        Answering {
            published: Arc::new(Published::new(generation.clone(), 1)),
            transfers: Arc::new(Transfers::new(crate::transfer::Config::default())),
            fast,
            panics: Arc::default(),
            clock: Clock::new(),
        }
    }

    /// Has one worker answer queries by `answer`, all at one time; returns what went back, and what was counted.
    fn answered<const N: usize>(
        queries: [&[u8]; N],
        answer: impl Fn(&Asked<'_>, &mut [u8]) -> Given,
    ) -> ([Option<usize>; N], Arc<Counters>) {
        let generation = Generation::empty(1, Settings::default());
        let answering = answering(&generation, Shared::default());
        let mut ledger = Ledger::new(None);
        let now = answering.clock.now();
        let returned = queries.map(|query| {
            let place = SocketAddr::from(([127, 0, 0, 1], 53));
            let received = Received {
                query,
                client: place,
                server: place,
                transport: Transport::Udp,
                worker: Some(0),
                generation: &generation,
                now,
            };
            match answering.answer_by(&received, &mut [0; 512], || &mut ledger, &answer) {
                Return::Message(length) => Some(length),
                Return::Stream(_) | Return::Update(_) | Return::Nothing => None,
            }
        });
        (returned, ledger.counters)
    }

    #[test]
    fn who_has_a_connection_is_not_limited() {
        let limit = Some(Arc::new(RateLimit::new(Limits::default(), [0; 16])));
        let generation = Generation::empty(1, Settings::default());
        let answering = answering(&generation, Shared { limit, ..Shared::default() });
        let limited = [Transport::Udp, Transport::Tcp { idle: Duration::ZERO }]
            .map(|transport| answering.fast(transport).limit.is_some());
        assert_eq!(limited, [true, false]);
    }

    #[test]
    fn a_query_that_panics_is_dropped_and_counted_and_the_next_one_is_answered() {
        let (returned, counters) = answered([b"bad", b"good"], |asked, _| match asked.query {
            b"bad" => panic!("this query is bad"),
            good => Given::Answered(Reply::Send(good.len()).into()),
        });
        assert_eq!((returned, counters.panicked.get()), ([None, Some(4)], 1));
    }

    #[test]
    fn two_panics_in_a_second_abort_with_what_was_done_in_the_log() {
        if std::env::var_os(ABORTS).is_some() {
            return abort();
        }
        let this = std::env::current_exe().expect("a test knows where it is");
        let name = "answering::tests::two_panics_in_a_second_abort_with_what_was_done_in_the_log";
        let ended = Command::new(this).args([name, "--exact", "--nocapture"]).env(ABORTS, "1").output();
        let ended = ended.expect("the test starts again");
        let log = String::from_utf8_lossy(&ended.stderr);
        assert_eq!(ended.status.signal(), Some(6), "{log}");
        let lines: Vec<&str> = log.lines().filter(|line| line.contains("ERROR")).collect();
        let [first, second] = lines[..] else { panic!("{log}") };
        assert!(first.contains("it is dropped") && first.contains("query=\"6f6e65\""), "{first}");
        for part in ["aborting", "worker=0", "generation=0", "query=\"74776f\"", "panic=\"always\""] {
            assert!(second.contains(part), "no {part} in {second}");
        }
    }

    /// Panics twice, at one time.
    fn abort() {
        tracing_subscriber::fmt().with_ansi(false).with_writer(std::io::stderr).init();
        answered([b"one", b"two", b"end"], |asked, _| {
            if asked.query == b"end" {
                let _ = writeln!(std::io::stderr(), "the second panic did not abort");
                std::process::exit(1);
            }
            panic!("always")
        });
    }
}
