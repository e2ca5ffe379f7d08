//! Faces over plain TCP: octets in, octets out, in order, and a limit on everything that a client can hold.
//!
//! ```text
//! accept ─> ACL ─> admission ─> one task per connection:
//!           read ─> all requests that are whole ─> their answers with one write ─> read
//! ```
//! While answers wait to be taken, nothing more is read. A connection that we end, at a shutdown or as it was asked,
//! is left for a moment to its client, who may still be sending: see [`net::linger`]. Where all places are taken, who has
//! waited longest for its client gives way to the next one: see [`net::admission`].

use std::cell::RefCell;
use std::future::poll_fn;
use std::io::ErrorKind;
use std::net::{IpAddr, TcpListener};
use std::pin::{Pin, pin};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::task::{Context, Poll, ready};
use std::time::Duration;

use net::accept::{Acceptor, Event};
use net::admission::{Admission, Place};
use net::linger::linger;
use net::shutdown::Shutdown;
use routing::Acl;
use tokio::io::{AsyncRead, AsyncWriteExt, ReadBuf};
use tokio::net::TcpStream;
use tokio::time::{Instant, timeout, timeout_at};

/// Connections open at a time at one address; for a further one another gives way. Some hundred programs hold one each.
pub const CONNECTIONS_MAX: usize = 800;

/// Of those, from one IPv4 address or IPv6 /64: a host's worker processes hold one each.
pub const PER_CLIENT_MAX: usize = 400;

/// Octets of requests that are read ahead for a connection: a face must take something of so many.
pub const INPUT_MAX: usize = 64 << 10;

/// Octets of answers after which a face ends its batch: they are sent before more is looked at.
pub const OUTPUT_MAX: usize = 64 << 10;

/// How long a connection may be silent: programs keep connections in a pool, and open new ones when they must.
pub const IDLE: Duration = Duration::from_secs(300);

/// The same while more than half of all places are taken.
pub const IDLE_CROWDED: Duration = Duration::from_secs(10);

/// How long one request may take to arrive, and one batch of answers to be taken. One octet a second does not
/// extend it.
pub const MESSAGE: Duration = Duration::from_secs(5);

/// What is spoken on one connection. It computes and never waits.
pub trait Conversation: Send + 'static {
    /// Answers the requests at the beginning of `input` into `out`, until none is whole or [`OUTPUT_MAX`] octets
    /// are there.
    fn answer(&mut self, input: &[u8], out: &mut Vec<u8>) -> Step;
}

/// How far an answer came.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Step {
    /// Octets of the input that are done with.
    pub taken: usize,
    /// What is next, when the answers are sent.
    pub then: Then,
}

/// What comes after answers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Then {
    /// The rest is no whole request: more is needed.
    Read,
    /// The batch was full: the rest may hold whole requests.
    Again,
    /// The connection is at its end.
    Close,
}

/// What became of connections, since start.
#[derive(Debug, Default)]
pub struct Counters {
    /// Connections that were served.
    pub accepted: AtomicU64,
    /// Closed at once: who asked may not.
    pub strangers: AtomicU64,
    /// Closed at once: the client has [`PER_CLIENT_MAX`], or all places are taken and none gives way.
    pub refused: AtomicU64,
    /// Not accepted: the system had no descriptor or memory.
    pub accept_failed: AtomicU64,
    /// Gone before they could be accepted, reset or lost.
    pub broken: AtomicU64,
    /// Closed for silence.
    pub idle: AtomicU64,
    /// Closed for a request that did not arrive whole in time.
    pub late: AtomicU64,
    /// Closed for answers that were not taken in time.
    pub untaken: AtomicU64,
    /// Closed for another that came, while they waited for their clients: to ask, or to take answers.
    pub gave_way: AtomicU64,
    /// Ended by a panic: a fault of ours.
    pub panics: AtomicU64,
}

/// Serves connections of `listener` in so many `places` until `shutdown` begins; each speaks what `begin` makes for its
/// client. `told` hears, once a minute, why none can be accepted.
///
/// # Errors
/// Only before the first connection, when tokio cannot take the listener.
pub async fn serve<C: Conversation>(
    listener: TcpListener,
    places: Admission,
    acl: Acl,
    counters: Arc<Counters>,
    shutdown: Shutdown,
    told: impl Fn(&std::io::Error),
    mut begin: impl FnMut(IpAddr) -> C,
) -> std::io::Result<()> {
    let listener = tokio::net::TcpListener::from_std(listener)?;
    let places = Arc::new(places);
    let mut acceptor = Acceptor::new(listener, shutdown.clone());
    while let Some(event) = acceptor.next().await {
        match event {
            Event::Connected(_, client) if !acl.allows(client.ip()) => add(&counters.strangers),
            Event::Connected(stream, client) => {
                match places.admit(client.ip()) {
                    Ok(place) => {
                        add(&counters.accepted);
                        place.waits(false);
                        let (counters, shutdown) = (counters.clone(), shutdown.clone());
                        let conversation = begin(client.ip());
                        acceptor.spawn(async move {
                            converse(stream, conversation, place, &counters, &shutdown).await
                        });
                    }
                    Err(_) => add(&counters.refused),
                }
                // Who gives way is to be gone before too many others come.
                tokio::task::yield_now().await;
            }
            Event::Aborted(_) => add(&counters.broken),
            Event::Failed { cause, is_to_tell } => {
                add(&counters.accept_failed);
                if is_to_tell {
                    told(&cause);
                }
            }
            Event::Panicked => add(&counters.panics),
        }
    }
    Ok(())
}

/// Where requests are read into and answered into: room that belongs to the thread, so that a connection holds none while
/// it waits.
struct Room {
    input: Box<[u8]>,
    out: Vec<u8>,
}

thread_local! {
    static ROOM: RefCell<Room> =
        RefCell::new(Room { input: vec![0; INPUT_MAX].into_boxed_slice(), out: Vec::with_capacity(OUTPUT_MAX) });
}

/// What came of one turn of a connection.
enum Turn {
    /// So many octets of answers were made; these could not be sent at once.
    Answered { step: Step, made: usize, unsent: Vec<u8> },
    /// The client has closed the connection.
    Ended,
    /// The connection was reset or lost.
    Broken,
}

async fn converse(
    mut stream: TcpStream,
    conversation: impl Conversation,
    place: Place,
    counters: &Counters,
    shutdown: &Shutdown,
) {
    match turns(&mut stream, conversation, &place, counters, shutdown).await {
        End::Ours => part(stream, place).await,
        End::Cut => {}
        // The kernel is not to go on keeping what the client does not take: it is reset.
        End::Untaken => {
            let _ = stream.set_zero_linger();
        }
    }
}

/// Closes our side, and lets the client take what the kernel still has for it. Who needs the place gets it.
async fn part(mut stream: TcpStream, place: Place) {
    place.waits(true);
    if let Ok(Ok(())) = timeout(MESSAGE, stream.shutdown()).await {
        tokio::select! {
            () = place.gives_way() => {}
            () = linger(&mut stream) => {}
        }
    }
}

/// How a connection ends.
enum End {
    /// By us, while the client may still be sending.
    Ours,
    /// By the client, or at once, as it took too long.
    Cut,
    /// At once, as the client did not take its answers.
    Untaken,
}

impl End {
    fn counted(self, count: &AtomicU64) -> End {
        add(count);
        self
    }
}

/// Reads and answers until the connection is at its end.
async fn turns(
    stream: &mut TcpStream,
    mut conversation: impl Conversation,
    place: &Place,
    counters: &Counters,
    shutdown: &Shutdown,
) -> End {
    // Requests that are not answered yet, and since when the first of them is under way.
    let (mut kept, mut begun) = (Vec::new(), None);
    let (mut then, mut has_served) = (Then::Read, false);
    let mut gives_way = pin!(place.gives_way());
    loop {
        let turn = if then == Then::Again {
            ROOM.with_borrow_mut(|room| answer(stream, &mut conversation, &mut kept, 0, room))
        } else {
            let deadline = match begun {
                None => Instant::now() + if place.is_crowded() { IDLE_CROWDED } else { IDLE },
                Some(begun) => begun + MESSAGE,
            };
            let turn = poll_fn(|context| read(stream, context, &mut conversation, &mut kept));
            tokio::select! {
                biased;
                () = shutdown.wait() => return End::Ours,
                () = &mut gives_way => return End::Cut.counted(&counters.gave_way),
                turn = timeout_at(deadline, turn) => match turn {
                    Ok(turn) => turn,
                    Err(_) => {
                        return End::Cut.counted(if begun.is_none() { &counters.idle } else { &counters.late });
                    }
                },
            }
        };
        let (step, made, unsent) = match turn {
            Turn::Answered { step, made, unsent } => (step, made, unsent),
            Turn::Ended => return End::Cut,
            Turn::Broken => return End::Cut.counted(&counters.broken),
        };
        has_served |= made > 0;
        // More of the same request is no new wait: its time counts from its first octets.
        if step.taken > 0 || begun.is_none() {
            begun = (!kept.is_empty()).then(Instant::now);
            place.waits(has_served);
        }
        let deadline = Instant::now() + MESSAGE;
        let mut unsent = &unsent[..];
        while !unsent.is_empty() {
            let sent = tokio::select! {
                biased;
                () = &mut gives_way => return End::Untaken.counted(&counters.gave_way),
                sent = timeout_at(deadline, stream.write(unsent)) => sent,
            };
            match sent {
                Ok(Ok(count)) if count > 0 => unsent = &unsent[count..],
                Ok(_) => return End::Cut.counted(&counters.broken),
                Err(_) => return End::Untaken.counted(&counters.untaken),
            }
            place.waits(true);
        }
        then = step.then;
        if then == Then::Close {
            return End::Ours;
        }
    }
}

/// Reads what is there behind what is kept, and answers it.
fn read(
    stream: &mut TcpStream,
    context: &mut Context<'_>,
    conversation: &mut impl Conversation,
    kept: &mut Vec<u8>,
) -> Poll<Turn> {
    ROOM.with_borrow_mut(|room| {
        let mut behind = ReadBuf::new(&mut room.input[kept.len()..]);
        let read = ready!(Pin::new(&mut *stream).poll_read(context, &mut behind));
        let count = behind.filled().len();
        Poll::Ready(match read {
            Ok(()) if count > 0 => answer(stream, conversation, kept, count, room),
            Ok(()) => Turn::Ended,
            Err(_) => Turn::Broken,
        })
    })
}

/// Answers what is kept and so many octets that were read behind it, and sends what the system takes at once.
fn answer(
    stream: &TcpStream,
    conversation: &mut impl Conversation,
    kept: &mut Vec<u8>,
    count: usize,
    Room { input, out }: &mut Room,
) -> Turn {
    let held = kept.len();
    input[..held].copy_from_slice(kept);
    let input = &input[..held + count];
    out.clear();
    let step = conversation.answer(input, out);
    // Idle connections hold no room.
    *kept = input[step.taken..].to_vec();
    let sent = match out.is_empty() {
        true => 0,
        false => match stream.try_write(out) {
            Ok(sent) => sent,
            Err(cause) if cause.kind() == ErrorKind::WouldBlock => 0,
            Err(_) => return Turn::Broken,
        },
    };
    Turn::Answered { step, made: out.len(), unsent: out[sent..].to_vec() }
}

fn add(count: &AtomicU64) {
    count.fetch_add(1, Ordering::Relaxed);
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::net::SocketAddr;
    use tokio::io::AsyncReadExt;

    /// Answers each line with itself so many times, and counts the octets.
    struct Echo(usize, Arc<AtomicU64>);

    impl Conversation for Echo {
        fn answer(&mut self, input: &[u8], out: &mut Vec<u8>) -> Step {
            let Some(end) = input.iter().position(|octet| *octet == b'\n') else {
                return Step { taken: 0, then: Then::Read };
            };
            let line = &input[..=end];
            assert_ne!(line, b"panic\n");
            for _ in 0..self.0 {
                out.extend_from_slice(line);
            }
            self.1.fetch_add(out.len() as u64, Ordering::Relaxed);
            Step { taken: line.len(), then: if line == b"quit\n" { Then::Close } else { Then::Again } }
        }
    }

    struct Served {
        address: SocketAddr,
        counters: Arc<Counters>,
        /// Octets of answers that were made.
        made: Arc<AtomicU64>,
        shutdown: Shutdown,
        task: tokio::task::JoinHandle<std::io::Result<()>>,
    }

    fn start(times: usize) -> Served {
        start_with(times, Admission::new(CONNECTIONS_MAX, PER_CLIENT_MAX))
    }

    fn start_with(times: usize, places: Admission) -> Served {
        let listener = net::tcp::bind("127.0.0.1:0".parse().unwrap()).unwrap();
        let address = listener.local_addr().unwrap();
        let (counters, shutdown) = (Arc::<Counters>::default(), Shutdown::new());
        let made = Arc::<AtomicU64>::default();
        let counted = made.clone();
        let begin = move |_| Echo(times, counted.clone());
        let serving =
            serve(listener, places, Acl::default(), counters.clone(), shutdown.clone(), |_| {}, begin);
        Served { address, counters, made, shutdown, task: tokio::spawn(serving) }
    }

    async fn until(is: impl Fn() -> bool) {
        let waiting = async {
            while !is() {
                tokio::task::yield_now().await;
            }
        };
        tokio::time::timeout(Duration::from_secs(10), waiting).await.expect("it becomes so");
    }

    #[tokio::test]
    async fn lines_are_answered_in_order_until_the_end() {
        let served = start(2);
        let mut client = TcpStream::connect(served.address).await.unwrap();
        client.write_all(b"a\nb\nquit\nnever\n").await.unwrap();
        let mut answers = [0; 18];
        client.read_exact(&mut answers).await.unwrap();
        assert_eq!(&answers, b"a\na\nb\nb\nquit\nquit\n");
        drop(client);
        let mut panics = TcpStream::connect(served.address).await.unwrap();
        panics.write_all(b"panic\n").await.unwrap();
        assert_eq!(panics.read(&mut answers).await.unwrap_or(0), 0);
        served.shutdown.begin();
        served.task.await.unwrap().unwrap();
        let count = |count: &AtomicU64| count.load(Ordering::Relaxed);
        assert_eq!((count(&served.counters.accepted), count(&served.counters.panics)), (2, 1));
    }

    #[tokio::test]
    async fn one_client_gets_so_many_connections() {
        let served = start(1);
        let mut open = Vec::new();
        for _ in 0..PER_CLIENT_MAX {
            let mut client = TcpStream::connect(served.address).await.unwrap();
            client.write_all(b"a\n").await.unwrap();
            assert_eq!(client.read_u8().await.unwrap(), b'a');
            open.push(client);
        }
        let mut refused = TcpStream::connect(served.address).await.unwrap();
        assert!(refused.read_u8().await.is_err());
        assert_eq!(served.counters.refused.load(Ordering::Relaxed), 1);
        served.shutdown.begin();
        drop(open);
        served.task.await.unwrap().unwrap();
    }

    #[tokio::test]
    async fn whatever_a_crowd_does_a_client_is_answered() {
        // Answers that no buffers hold, so that there is something to take.
        const TIMES: usize = 1 << 20;
        for sent in [&b""[..], b"half", b"x\n"] {
            let served = start_with(TIMES, Admission::new(4, 100));
            let count = |count: &AtomicU64| count.load(Ordering::Relaxed);
            let mut crowd = Vec::new();
            for number in 1..=12 {
                let mut member = TcpStream::connect(served.address).await.unwrap();
                member.write_all(sent).await.unwrap();
                crowd.push(member);
                let made = if sent.ends_with(b"\n") { number * 2 * TIMES as u64 } else { 0 };
                until(|| count(&served.counters.accepted) == number && count(&served.made) == made).await;
            }
            let mut client = TcpStream::connect(served.address).await.unwrap();
            client.write_all(b"a\n").await.unwrap();
            assert_eq!(client.read_u8().await.expect("an answer comes"), b'a');
            until(|| count(&served.counters.gave_way) == 9).await;
            assert_eq!(count(&served.counters.refused), 0);
            drop((crowd, client));
            served.shutdown.begin();
            served.task.await.unwrap().unwrap();
        }
    }

    #[tokio::test]
    async fn who_was_answered_outlives_those_that_ask_nothing() {
        let served = start_with(1, Admission::new(4, 100));
        let mut client = TcpStream::connect(served.address).await.unwrap();
        let mut ask = async || {
            client.write_all(b"a\n").await.unwrap();
            client.read_exact(&mut [0; 2]).await.expect("an answer comes");
        };
        ask().await;
        let mut crowd = Vec::new();
        for number in 1..=4 {
            crowd.push(TcpStream::connect(served.address).await.unwrap());
            until(|| served.counters.accepted.load(Ordering::Relaxed) == 1 + number).await;
        }
        until(|| served.counters.gave_way.load(Ordering::Relaxed) == 1).await;
        ask().await;
        served.shutdown.begin();
        drop((crowd, client));
        served.task.await.unwrap().unwrap();
    }

    #[tokio::test]
    async fn a_reset_is_counted_and_an_end_is_not() {
        let served = start(1);
        for is_read in [true, false] {
            let mut client = TcpStream::connect(served.address).await.unwrap();
            client.write_all(b"a\n").await.unwrap();
            // A connection that is closed with something unread is reset.
            let mut answer = [0; 2];
            match is_read {
                true => client.read_exact(&mut answer).await.unwrap(),
                false => client.peek(&mut answer).await.unwrap(),
            };
        }
        let broken = || served.counters.broken.load(Ordering::Relaxed);
        until(|| broken() > 0).await;
        served.shutdown.begin();
        served.task.await.unwrap().unwrap();
        assert_eq!(broken(), 1);
    }

    #[tokio::test]
    async fn answers_outlive_a_connection_that_is_ended_while_its_client_sends() {
        const LINE: &[u8] = &{
            let mut line = [b'a'; 1000];
            line[999] = b'\n';
            line
        };
        for quits in [true, false] {
            let served = start(1);
            let (mut reads, mut writes) = TcpStream::connect(served.address).await.unwrap().into_split();
            // It goes on whatever it has said, and has read nothing yet.
            let sending = tokio::spawn(async move {
                for number in 0.. {
                    let line = if quits && number == 200 { b"quit\n" } else { LINE };
                    if writes.write_all(line).await.is_err() {
                        break;
                    }
                }
            });
            let made = || served.made.load(Ordering::Relaxed);
            until(|| made() > 100_000).await;
            if !quits {
                served.shutdown.begin();
            }
            let mut answers = Vec::new();
            reads.read_to_end(&mut answers).await.expect("the connection ends well");
            assert_eq!(answers.len() as u64, made(), "quits: {quits}");
            assert_eq!(answers.ends_with(b"quit\n"), quits);
            sending.abort();
            assert!(sending.await.is_err_and(|why| why.is_cancelled()), "the client could send to the end");
            drop(reads);
            served.shutdown.begin();
            served.task.await.unwrap().unwrap();
        }
    }

    // The clock runs by itself while everybody waits, so the limits come at once.
    #[tokio::test(start_paused = true)]
    async fn who_is_silent_late_or_never_reads_is_ended() {
        // (what is sent, times it comes back)
        let served = start(16 << 20);
        let mut ended = Vec::new();
        for sent in [&b""[..], b"half", b"x\n"] {
            let mut client = TcpStream::connect(served.address).await.unwrap();
            client.write_all(sent).await.unwrap();
            ended.push(client);
        }
        let counts = || {
            let counters = &served.counters;
            [&counters.idle, &counters.late, &counters.untaken].map(|count| count.load(Ordering::Relaxed))
        };
        while counts() != [1, 1, 1] {
            tokio::time::sleep(Duration::from_secs(1)).await;
        }
        served.shutdown.begin();
        served.task.await.unwrap().unwrap();
    }
}
