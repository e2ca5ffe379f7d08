//! A client over TCP or TLS, with several queries under way, answered as answers come (RFC 7766 §7, RFC 7858).

use std::io;
use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;

use net::admission::Place;
use net::framing::{Assembler, prefix};
use net::linger::{LINGER_MAX, linger};
use net::shutdown::Shutdown;
use net::tls::stream::Stream;
use tokio::io::{AsyncReadExt, AsyncWrite, AsyncWriteExt};
use tokio::sync::{mpsc, oneshot};
use tokio::task::{JoinHandle, JoinSet};
use tokio::time::{Instant, sleep_until, timeout};

use crate::connections::{Connections, Way};

/// Queries of one connection that are under way; further ones are not read meanwhile.
pub const PIPELINED_MAX: usize = 64;

/// Octets that are read at once.
const PIECE: usize = 8 << 10;

/// Answers what comes over a connection, until its client, a limit or the shutdown ends it; what is under way then is
/// still answered, if the client takes it in the time that one message may take. Who gives way to a new client ends at
/// once: of all clients it is the one of which nothing has come for longest, and to which no answer has gone.
///
/// # Errors
/// What the system says where the connection is gone at once.
pub(crate) async fn converse(
    connections: Arc<Connections>,
    stream: Stream,
    way: Way,
    place: Place,
    shutdown: Shutdown,
) -> io::Result<()> {
    let limits = connections.limits;
    let ending = connections.query_time_max().saturating_add(limits.message);
    let (mut reads, writes) = tokio::io::split(stream);
    let (answered, answers) = mpsc::channel(PIPELINED_MAX);
    let (stop, stopped) = oneshot::channel();
    let writer = tokio::spawn(write(writes, answers, limits.message, stopped));
    let mut conversation = Conversation::begin(connections.clone(), way, &place, answered);
    let mut piece = vec![0; PIECE];
    // Octets in it that nobody has looked at yet, as many queries are under way as may be.
    let mut unheard = 0..0;
    let end = Instant::now() + limits.lifetime;
    let mut gives_way = pin!(place.gives_way());
    let may_be_sending = loop {
        unheard.start = unheard.end - conversation.hear(&piece[unheard.clone()]);
        let until = end.min(conversation.waits_until());
        tokio::select! {
            biased;
            () = shutdown.wait() => break true,
            // Who takes no answers is asked for no more queries.
            () = conversation.answered.closed() => break false,
            () = sleep_until(until) => break true,
            () = &mut gives_way => {
                connections.desk().counters.gave_way.add(1);
                drop(stop);
                // What the client does not take, the kernel is not to keep.
                return match writer.await {
                    Ok(writes) => reads.unsplit(writes).socket().set_zero_linger(),
                    Err(_) => Ok(()),
                };
            }
            Some(_) = conversation.under_way.join_next() => conversation.ended(),
            read = reads.read(&mut piece), if unheard.is_empty() => match read {
                Ok(length) if length > 0 => unheard = 0..length,
                _ => break false,
            },
        }
    };
    let Some(writes) = finish(conversation.end(), writer, stop, ending).await else { return Ok(()) };
    let mut stream = reads.unsplit(writes);
    // Who takes nothing more does not hear of it either.
    let _ = timeout(LINGER_MAX, stream.shutdown()).await;
    if may_be_sending {
        place.waits(true);
        tokio::select! {
            () = &mut gives_way => {}
            () = linger(&mut stream) => {}
        }
    }
    Ok(())
}

/// Waits until all has been answered and written, and no longer than `patience`: who takes each of many answers slowly
/// holds up neither a stop nor who is to have the place. Returns what was written to.
async fn finish<W>(
    answered: impl Future<Output = ()>,
    mut writer: JoinHandle<W>,
    stop: oneshot::Sender<()>,
    patience: Duration,
) -> Option<W> {
    let all = async {
        answered.await;
        (&mut writer).await
    };
    match timeout(patience, all).await {
        Ok(writes) => writes.ok(),
        Err(_) => {
            drop(stop);
            writer.await.ok()
        }
    }
}

/// Writes answers as they come, until all have come, the client takes one no more for so long, or nobody wants it any
/// more. Returns what it has written to.
async fn write<W: AsyncWrite + Unpin>(
    mut writes: W,
    mut answers: mpsc::Receiver<Vec<u8>>,
    patience: Duration,
    stopped: oneshot::Receiver<()>,
) -> W {
    let all = async {
        while let Some(answer) = answers.recv().await {
            let frame = [&prefix(answer.len())[..], &answer].concat();
            let written = async {
                writes.write_all(&frame).await?;
                writes.flush().await
            };
            if !matches!(timeout(patience, written).await, Ok(Ok(()))) {
                break;
            }
        }
    };
    tokio::select! {
        () = all => {}
        _ = stopped => {}
    }
    writes
}

/// What a client has asked over its connection.
struct Conversation<'a> {
    connections: Arc<Connections>,
    way: Way,
    place: &'a Place,
    assembler: Assembler,
    under_way: JoinSet<()>,
    answered: mpsc::Sender<Vec<u8>>,
    /// Since when a query, or the rest of one, is waited for: more octets of the same query are no new wait.
    since: Instant,
    has_asked: bool,
}

impl<'a> Conversation<'a> {
    fn begin(
        connections: Arc<Connections>,
        way: Way,
        place: &'a Place,
        answered: mpsc::Sender<Vec<u8>>,
    ) -> Conversation<'a> {
        Conversation {
            connections,
            way,
            place,
            assembler: Assembler::default(),
            under_way: JoinSet::new(),
            answered,
            since: Instant::now(),
            has_asked: false,
        }
    }

    /// Until when the client may be silent.
    fn waits_until(&self) -> Instant {
        let limits = &self.connections.limits;
        let wait = match (self.assembler.is_partial(), self.under_way.is_empty()) {
            (true, _) => limits.message,
            (false, true) => limits.idle_now(self.place.is_crowded()),
            // Who has queries under way is not idle.
            (false, false) => limits.lifetime,
        };
        self.since + wait
    }

    /// One query less is under way.
    fn ended(&mut self) {
        self.place.waits(self.has_asked);
        if self.under_way.is_empty() && !self.assembler.is_partial() {
            self.since = Instant::now();
        }
    }

    /// Takes octets that have come: each query that is whole with them is under way from now on. Returns how many are left
    /// for when one less is under way.
    fn hear(&mut self, mut octets: &[u8]) -> usize {
        let (all, was_partial) = (octets.len(), self.assembler.is_partial());
        let mut is_new = false;
        while self.under_way.len() < PIPELINED_MAX
            && let Some(message) = self.assembler.next(&mut octets)
        {
            let query = message.to_vec();
            (is_new, self.has_asked) = (true, true);
            self.ask(query);
        }
        if is_new || (!was_partial && octets.len() < all) {
            self.since = Instant::now();
            self.place.waits(self.has_asked);
        }
        octets.len()
    }

    fn ask(&mut self, query: Vec<u8>) {
        let (connections, way, answered) = (self.connections.clone(), self.way, self.answered.clone());
        self.under_way.spawn(async move {
            connections.answer(&query, way, &answered).await;
        });
    }

    /// Waits for what is under way; then all answers have come.
    async fn end(mut self) {
        while self.under_way.join_next().await.is_some() {}
    }
}

impl Drop for Conversation<'_> {
    /// What is under way at a back end ends by itself: before, it would be in flight there for ever.
    fn drop(&mut self) {
        self.under_way.detach_all();
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::connections::Onward;
    use crate::connections::tests::connections;
    use crate::front::{Over, serve};
    use net::tcp::Limits;
    use std::net::SocketAddr;
    use tokio::net::{TcpListener, TcpSocket, TcpStream};

    /// Answered here.
    const AXFR: &[u8] = b"\0\x13\x12\x34\x01\0\0\x01\0\0\0\0\0\0\x01a\0\0\xfc\0\x01";

    /// Asked of a back end.
    const ASKED: &[u8] = b"\0\x13\x12\x34\x01\0\0\x01\0\0\0\0\0\0\x01a\0\0\x01\0\x01";

    /// Serves clients, with these back ends; returns where, and what ends it.
    async fn start(back_ends: &[SocketAddr], limits: Limits) -> (SocketAddr, Arc<Connections>, Shutdown) {
        let connections = Arc::new(connections(back_ends, limits, Onward::Connections));
        let listener = net::tcp::bind(([127, 0, 0, 1], 0).into()).expect("loopback binds");
        let address = listener.local_addr().expect("it is bound");
        let listener = TcpListener::from_std(listener).expect("there is a runtime");
        let shutdown = Shutdown::new();
        tokio::spawn(serve(connections.clone(), listener, Over::Tcp, shutdown.clone()));
        (address, connections, shutdown)
    }

    // The clock runs by itself while everybody waits.
    #[tokio::test(start_paused = true)]
    async fn an_octet_now_and_then_does_not_keep_a_place() {
        let (address, ..) = start(&[], Limits::default()).await;
        let mut stream = TcpStream::connect(address).await.expect("it listens");
        let mut octets = 0;
        // As long as the longest message, if it may.
        while octets < 1_000 {
            let wait = tokio::time::timeout(Duration::from_secs(3), stream.read_u8()).await;
            if wait.is_ok() || stream.write_all(&[1]).await.is_err() {
                break;
            }
            octets += 1;
        }
        assert!(octets < 10, "{octets}");
    }

    #[tokio::test(start_paused = true)]
    async fn who_never_reads_is_ended() {
        let (address, ..) = start(&[], Limits::default()).await;
        let mut stream = TcpStream::connect(address).await.expect("it listens");
        let queries = AXFR.repeat(1_000);
        let mut rounds = 0;
        while rounds < 1_000 {
            let wrote = tokio::time::timeout(Duration::from_secs(60), stream.write_all(&queries)).await;
            if matches!(wrote, Ok(Err(_))) {
                break;
            }
            rounds += 1;
        }
        assert!(rounds < 1_000, "it is served for ever");
    }

    #[tokio::test(start_paused = true)]
    async fn who_takes_each_answer_slowly_is_waited_for_no_longer_than_one() {
        const ANSWER: usize = 62;
        let message = Duration::from_secs(5);
        let (mut reads, writes) = tokio::io::duplex(2 + ANSWER);
        let (answered, answers) = mpsc::channel(PIPELINED_MAX);
        for _ in 0..PIPELINED_MAX {
            answered.try_send(vec![0; ANSWER]).expect("there is room");
        }
        drop(answered);
        let (stop, stopped) = oneshot::channel();
        let writer = tokio::spawn(write(writes, answers, message, stopped));
        let client = tokio::spawn(async move {
            let mut taken = 0;
            while reads.read_exact(&mut [0; 2 + ANSWER]).await.is_ok() {
                taken += 1;
                tokio::time::sleep(Duration::from_secs(4)).await;
            }
            taken
        });
        finish(async {}, writer, stop, message).await;
        let taken = client.await.expect("it does not panic");
        assert!((1..5).contains(&taken), "{taken}");
    }

    #[tokio::test]
    async fn answers_outlive_a_connection_that_is_ended_while_its_client_sends() {
        let (address, connections, shutdown) = start(&[], Limits::default()).await;
        let stream = TcpStream::connect(address).await.expect("it listens");
        let (mut reads, mut writes) = stream.into_split();
        // It goes on whatever comes, and has read nothing yet.
        let sending = tokio::spawn(async move {
            let queries = AXFR.repeat(100);
            while writes.write_all(&queries).await.is_ok() {}
        });
        let asked = || connections.desk().counters.queries.get() as usize;
        while asked() < 2_000 {
            tokio::task::yield_now().await;
        }
        shutdown.begin();
        let mut answers = Vec::new();
        reads.read_to_end(&mut answers).await.expect("the connection ends well");
        assert_eq!(answers.len(), asked() * AXFR.len());
        sending.abort();
    }

    /// Serves one client at a time, and the first one, which has sent this; it takes little at a time.
    async fn alone(back_ends: &[SocketAddr], queries: &[u8]) -> (TcpStream, Arc<Connections>) {
        let long = Duration::from_secs(3600);
        let limits = Limits { connections_max: 1, idle: long, idle_when_crowded: long, ..Limits::default() };
        let (address, connections, _) = start(back_ends, limits).await;
        let socket = TcpSocket::new_v4().expect("a socket");
        socket.set_recv_buffer_size(4096).expect("the option can be set");
        let mut stream = socket.connect(address).await.expect("it listens");
        stream.write_all(queries).await.expect("it is taken");
        (stream, connections)
    }

    /// The queries that were heard, once no more are.
    async fn heard(connections: &Connections) -> u64 {
        let queries = || connections.desk().counters.queries.get();
        let (mut heard, mut since) = (0, 0);
        while heard == 0 || since < 1_000 {
            tokio::task::yield_now().await;
            since = if queries() == heard { since + 1 } else { 0 };
            heard = queries();
        }
        heard
    }

    /// Has another client come, for which the first one is to give way, and be gone.
    async fn gives_way(mut first: TcpStream, connections: &Connections) {
        let next = connections.admission.admit([192, 0, 2, 1].into()).expect("the first one gives way");
        assert!(next.has_replaced());
        let gone = async { while first.read(&mut [0; 64]).await.is_ok_and(|octets| octets > 0) {} };
        tokio::time::timeout(Duration::from_secs(60), gone).await.expect("it is ended");
        assert_eq!(connections.desk().counters.gave_way.get(), 1);
    }

    #[tokio::test]
    async fn who_is_silent_gives_way() {
        let (mut first, connections) = alone(&[], AXFR).await;
        first.read_exact(&mut [0; AXFR.len()]).await.expect("an answer");
        gives_way(first, &connections).await;
    }

    #[tokio::test]
    async fn who_takes_no_answers_gives_way() {
        let queries = 20_000;
        let (first, connections) = alone(&[], &AXFR.repeat(queries)).await;
        let heard = heard(&connections).await;
        assert!(heard < queries as u64, "{heard}: all answers fit the system's buffers");
        gives_way(first, &connections).await;
    }

    #[tokio::test]
    async fn who_waits_for_a_back_end_gives_way() {
        let silent = net::tcp::bind(([127, 0, 0, 1], 0).into()).expect("loopback binds");
        let (first, connections) = alone(&[silent.local_addr().expect("it is bound")], ASKED).await;
        assert_eq!(heard(&connections).await, 1);
        gives_way(first, &connections).await;
        // It is measured on, and not in flight for ever.
        let field = connections.field.load();
        let cells = &field.iter().next().expect("it is there").cells[0];
        tokio::time::pause();
        tokio::time::sleep(connections.query_time_max()).await;
        assert_eq!((cells.in_flight(), cells.timeouts.get()), (0, 1));
    }
}
