//! One query to one back end: over a connection that it may share with others, or as a datagram; and why it has no answer.

use std::io;
use std::net::SocketAddr;
use std::pin::pin;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use net::client::Trouble;
use net::tls::client::Encrypted;
use net::tls::stream::Stream;
use tokio::net::{TcpSocket, UdpSocket};
use tokio::sync::Notify;

use crate::counters::Strays;
use crate::pipeline::Pipeline;
use crate::told::Told;

/// How queries share connections.
#[derive(Clone, Copy, Debug)]
struct Sharing {
    /// Connections at a time. Where all of them are full, further queries wait, which is counted.
    open_max: usize,
    /// Of them such as are new.
    new_max: usize,
    /// How long a connection is new, where no answer comes over it before.
    new_wait: Duration,
    /// Queries that share a connection before another one is opened.
    few: usize,
    /// Queries that share one at most.
    under_way_max: usize,
    /// How long a connection waits for its next query.
    idle: Duration,
}

/// Connections to one back end at a time (RFC 7766 §6.2.2): BIND serves 150 clients at a time if it is not told otherwise, some
/// of them others.
pub const OPEN_MAX: usize = 128;

/// Over TCP. BIND has room for ten connections that it has not accepted yet; one more than that is tried again by the
/// kernel only a second later. A server that answers in the order in which it was asked lets queries wait for each other,
/// and one with threads may have one of them alone work for each connection: few share one. BIND works on 23 of a
/// connection at once. Most servers close one after ten idle seconds.
const PLAIN: Sharing = Sharing {
    open_max: OPEN_MAX,
    new_max: 8,
    new_wait: Duration::from_millis(10),
    few: 4,
    under_way_max: 16,
    idle: Duration::from_secs(5),
};

/// Over TLS, where a new connection costs both ends more than many queries, and several ways there and back: queries rather
/// wait for one that is new. Unbound works on 32 of a connection at once. Who closes one earlier is asked over another.
const ENCRYPTED: Sharing = Sharing {
    open_max: 32,
    new_max: 2,
    new_wait: Duration::from_millis(250),
    few: 16,
    under_way_max: 32,
    idle: Duration::from_secs(30),
};

/// Queries that all connections to one server over TLS have room for.
pub const ENCRYPTED_MAX: usize = ENCRYPTED.open_max * ENCRYPTED.under_way_max;

/// The connections to one back end, each shared by several queries once an answer has come over it: before, it may be one that
/// the server has not even accepted.
#[derive(Debug)]
pub struct Exchange {
    address: SocketAddr,
    tls: Option<Encrypted>,
    /// Connections opened, also such as were refused.
    pub opened: AtomicU64,
    /// Queries that were sent over a connection while others were under way there.
    pub pipelined: AtomicU64,
    /// Queries that waited for room in a connection, because as many were open as may be, and all of them full.
    pub crowded: AtomicU64,
    /// What came over connections and ended nothing.
    pub strays: Arc<Strays>,
    open: Mutex<Open>,
    /// Told when there may be room for a query that found none.
    freed: Notify,
}

/// What is open.
#[derive(Debug, Default)]
struct Open {
    /// Connections that further queries may share.
    shared: Vec<Arc<Pipeline>>,
    /// How many there are in all.
    all: usize,
    /// How many of them are new.
    new: usize,
}

/// Where a query has room.
enum Room {
    /// In a connection that others use, too.
    Shared(Place),
    /// In a connection of its own: it is counted among all, and among those that are new.
    New([Counted; 2]),
}

/// A connection that is counted, until this is dropped.
struct Counted {
    exchange: Arc<Exchange>,
    among: fn(&mut Open) -> &mut usize,
}

/// A query's place in a connection, until this is dropped.
struct Place {
    exchange: Arc<Exchange>,
    pipeline: Arc<Pipeline>,
    /// Which of the connection's queries it is; 0 before it is asked.
    number: u64,
}

impl Exchange {
    /// None is open yet. The server answers here: over TLS where it is said how, else over TCP.
    pub fn new(address: SocketAddr, tls: Option<Encrypted>) -> Exchange {
        Exchange {
            address,
            tls,
            opened: AtomicU64::new(0),
            pipelined: AtomicU64::new(0),
            crowded: AtomicU64::new(0),
            strays: Arc::default(),
            open: Mutex::default(),
            freed: Notify::new(),
        }
    }

    /// Where the server answers.
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// How the server is asked over TLS, where it is.
    pub fn tls(&self) -> Option<&Encrypted> {
        self.tls.as_ref()
    }

    /// Asks over a connection, as soon as there is room in one. `query` has the id with which it is asked, and the answer one
    /// that may be another. A connection that begins with a preface is this query's alone. Who no longer waits may still find
    /// the answer in `told`, later.
    ///
    /// # Errors
    /// What the system says, that the server comes to no terms over TLS (`ConnectionRefused`), or that the connection ended
    /// before the answer came; see [`NoAnswer`].
    pub async fn ask(
        self: &Arc<Self>,
        preface: &[u8],
        query: &[u8],
        question_end: usize,
        told: &mut Told,
    ) -> io::Result<Vec<u8>> {
        let (may_share, mut few) = (preface.is_empty(), self.sharing().few);
        loop {
            match self.room(may_share, few).await {
                Room::New(counted) => {
                    return self.ask_anew(preface, query, question_end, counted, told).await;
                }
                Room::Shared(place) => match place.ask(query, question_end, told).await {
                    Some(reply) => return Ok(reply),
                    // The server may have closed it meanwhile: then a new one is tried, if there may be one.
                    None if few > 0 => few = 0,
                    None => return Err(ended()),
                },
            }
        }
    }

    fn sharing(&self) -> &'static Sharing {
        if self.tls.is_some() { &ENCRYPTED } else { &PLAIN }
    }

    /// Waits for room; `few` is how many may share a connection as long as another one may be opened.
    async fn room(self: &Arc<Self>, may_share: bool, few: usize) -> Room {
        let mut has_waited = false;
        loop {
            if let Some(room) = self.find_room(may_share, few) {
                if has_waited {
                    // There may be room for another one that waits.
                    self.freed.notify_one();
                }
                return room;
            }
            if !has_waited && self.open().all == self.sharing().open_max {
                self.crowded.fetch_add(1, Ordering::Relaxed);
            }
            has_waited = true;
            self.freed.notified().await;
        }
    }

    /// Room where the fewest are under way; the first of equals, so that others become idle.
    fn find_room(self: &Arc<Self>, may_share: bool, few: usize) -> Option<Room> {
        let sharing = self.sharing();
        let mut open = self.open();
        open.shared.retain(|pipeline| !pipeline.is_over());
        let may_open = open.all < sharing.open_max && open.new < sharing.new_max;
        let most = if may_open { few } else { sharing.under_way_max };
        let under_way = |pipeline: &&Arc<Pipeline>| pipeline.under_way.load(Ordering::Relaxed);
        let least = open.shared.iter().filter(|_| may_share).min_by_key(under_way);
        if let Some(pipeline) = least.filter(|pipeline| under_way(pipeline) < most).cloned() {
            let before = pipeline.under_way.fetch_add(1, Ordering::Relaxed);
            self.pipelined.fetch_add(u64::from(before > 0), Ordering::Relaxed);
            return Some(Room::Shared(Place { exchange: self.clone(), pipeline, number: 0 }));
        }
        if !may_open {
            return None;
        }
        open.all += 1;
        open.new += 1;
        Some(Room::New([
            Counted { exchange: self.clone(), among: |open| &mut open.all },
            Counted { exchange: self.clone(), among: |open| &mut open.new },
        ]))
    }

    /// Asks over a new connection, which others share once an answer has come, if it is not this query's alone.
    async fn ask_anew(
        self: &Arc<Self>,
        preface: &[u8],
        query: &[u8],
        question_end: usize,
        [open, new]: [Counted; 2],
        told: &mut Told,
    ) -> io::Result<Vec<u8>> {
        let stream = self.connect().await?;
        let Sharing { new_wait, under_way_max, idle, .. } = *self.sharing();
        let pipeline = Pipeline::begin(stream, preface, (under_way_max, idle), self.strays.clone(), open);
        let pipeline = Arc::new(pipeline);
        let reply = {
            let (_, answer) = pipeline.ask(query, question_end);
            let mut reply = pin!(told.over_connection(answer, pipeline.clone()));
            tokio::select! {
                biased;
                reply = &mut reply => reply,
                () = tokio::time::sleep(new_wait) => {
                    drop(new);
                    reply.await
                }
            }
        };
        let reply = reply.ok_or_else(ended)?;
        if preface.is_empty() {
            self.open().shared.push(pipeline);
            self.freed.notify_one();
        }
        Ok(reply)
    }

    async fn connect(&self) -> io::Result<Stream> {
        let socket = if self.address.is_ipv4() { TcpSocket::new_v4() } else { TcpSocket::new_v6() }?;
        // Where there was no descriptor for one, nothing is begun that the agent would look for.
        self.opened.fetch_add(1, Ordering::Relaxed);
        let stream = socket.connect(self.address).await?;
        stream.set_nodelay(true)?;
        let Some(tls) = &self.tls else { return Ok(Stream::Plain(stream)) };
        let agreed = tls.agree(stream).await;
        agreed.map_err(|why| {
            io::Error::new(io::ErrorKind::ConnectionRefused, format!("no terms over TLS: {why}"))
        })
    }

    fn open(&self) -> MutexGuard<'_, Open> {
        self.open.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Place {
    async fn ask(mut self, query: &[u8], question_end: usize, told: &mut Told) -> Option<Vec<u8>> {
        let (number, answer) = self.pipeline.ask(query, question_end);
        self.number = number;
        told.over_connection(answer, self.pipeline.clone()).await
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        let mut open = self.exchange.open();
        self.pipeline.under_way.fetch_sub(1, Ordering::Relaxed);
        if self.pipeline.last_answered() < self.number {
            // Who comes after one that waits in vain may wait for it, as long as nobody who did has an answer: those that are
            // under way go on, and no others come.
            open.shared.retain(|pipeline| !Arc::ptr_eq(pipeline, &self.pipeline));
        }
        drop(open);
        self.exchange.freed.notify_one();
    }
}

impl Drop for Counted {
    fn drop(&mut self) {
        *(self.among)(&mut self.exchange.open()) -= 1;
        self.exchange.freed.notify_one();
    }
}

/// Why a query that was to go to a back end has no answer of it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum NoAnswer {
    /// Something of this machine has run out, which others would lack, too.
    Shortage,
    /// No port of ours leads there any more; to another one there may be some.
    NoPort,
    /// Our own packet filter will not have it.
    Filtered,
    /// Nobody is there, or comes to terms: nobody has worked for it.
    Unreached,
    /// The connection ended, or something else is wrong with it.
    Ended,
}

impl NoAnswer {
    /// Tells what an error of [`Exchange::ask`] or [`ask_by_datagram`] is about.
    pub fn of(error: &io::Error) -> NoAnswer {
        match (error.kind(), Trouble::of(error)) {
            _ if net::client::is_shortage(error) => NoAnswer::Shortage,
            (io::ErrorKind::AddrNotAvailable, _) => NoAnswer::NoPort,
            (io::ErrorKind::PermissionDenied, _) => NoAnswer::Filtered,
            (io::ErrorKind::ConnectionRefused, _) | (_, Trouble::NoWay) => NoAnswer::Unreached,
            _ => NoAnswer::Ended,
        }
    }
}

fn ended() -> io::Error {
    io::ErrorKind::ConnectionAborted.into()
}

/// The longest datagram, with what stands before the query: what IPv4 has room for without options.
pub const ASKED_MAX: usize = 65_507;

/// Asks as a datagram, from a socket and a port for this query alone; `preface` stands before it. An answer that may be
/// longer than there is room for says that it is truncated. Who no longer waits may still find it in `told`, later.
///
/// # Errors
/// What the system says: also that nobody listens, and where query and preface are longer than [`ASKED_MAX`].
pub async fn ask_by_datagram(
    server: SocketAddr,
    preface: &[u8],
    query: &[u8],
    question_end: usize,
    told: &mut Told,
) -> io::Result<Vec<u8>> {
    let socket = UdpSocket::from_std(net::client::ask(server, None)?)?;
    net::client::may_be_cut(&socket, server.is_ipv4())?;
    socket.send(&[preface, query].concat()).await?;
    told.by_datagram(socket, query, question_end).await
}

#[cfg(test)]
mod tests {
    use super::*;
    use dns::query::TRUNCATED;
    use net::framing::prefix;
    use net::udp::DATAGRAM_MAX;
    use std::collections::HashSet;
    use tokio::io::{AsyncReadExt, AsyncWriteExt};
    use tokio::net::{TcpListener, TcpStream};
    use tokio::task::JoinHandle;

    const QUERY: &[u8] = b"\x12\x34\x01\0\0\x01\0\0\0\0\0\0\x01a\0\0\x01\0\x01";

    fn reply() -> Vec<u8> {
        answer_to(QUERY)
    }

    /// A query for this name of one letter; all have the same id.
    fn query(name: u8) -> Vec<u8> {
        let mut query = QUERY.to_vec();
        query[13] = name;
        query
    }

    fn answer_to(query: &[u8]) -> Vec<u8> {
        let mut reply = query.to_vec();
        reply[2] |= 0x80;
        reply
    }

    async fn read(stream: &mut TcpStream) -> Vec<u8> {
        let mut query = vec![0; usize::from(stream.read_u16().await.expect("a query"))];
        stream.read_exact(&mut query).await.expect("all of it");
        query
    }

    async fn write(stream: &mut TcpStream, reply: &[u8]) {
        stream.write_all(&[&prefix(reply.len())[..], reply].concat()).await.expect("it is taken");
    }

    /// Answers what comes over a connection, as long as it comes.
    async fn serve(mut stream: TcpStream) {
        let mut query = [0; 2 + QUERY.len()];
        while stream.read_exact(&mut query).await.is_ok() {
            query[4] |= 0x80;
            if stream.write_all(&query).await.is_err() {
                return;
            }
        }
    }

    /// Who asks a server, and the server.
    struct Bench {
        exchange: Arc<Exchange>,
        listener: TcpListener,
    }

    impl Bench {
        async fn new() -> Bench {
            let listener = TcpListener::bind("127.0.0.1:0").await.expect("loopback binds");
            let address = listener.local_addr().expect("it is bound");
            Bench { exchange: Arc::new(Exchange::new(address, None)), listener }
        }

        /// Asks for a name; the answer has an id of the connection.
        fn ask(&self, name: u8, preface: &'static [u8]) -> JoinHandle<io::Result<Vec<u8>>> {
            let exchange = self.exchange.clone();
            tokio::spawn(
                async move { exchange.ask(preface, &query(name), QUERY.len(), &mut Told::Nothing).await },
            )
        }

        async fn accept(&self) -> TcpStream {
            self.listener.accept().await.expect("one comes").0
        }

        /// A connection over which one query was answered.
        async fn proven(&self) -> TcpStream {
            let asked = self.ask(b'a', &[]);
            let mut stream = self.accept().await;
            let query = read(&mut stream).await;
            write(&mut stream, &answer_to(&query)).await;
            is_answered(asked, b'a').await;
            stream
        }

        fn connections(&self) -> u64 {
            self.exchange.opened.load(Ordering::Relaxed)
        }

        fn strays(&self) -> [u64; 3] {
            let Strays { late, alien, wrong_question } = &*self.exchange.strays;
            [late, alien, wrong_question].map(|count| count.load(Ordering::Relaxed))
        }
    }

    async fn is_answered(asked: JoinHandle<io::Result<Vec<u8>>>, name: u8) {
        let reply = asked.await.expect("no panic").expect("an answer");
        assert_eq!(reply[2..], answer_to(&query(name))[2..]);
    }

    #[tokio::test]
    async fn queries_share_a_connection_and_are_answered_in_any_order() {
        let bench = Bench::new().await;
        let mut stream = bench.proven().await;
        let names = &b"bcde"[..PLAIN.few];
        let asked: Vec<_> = names.iter().map(|name| bench.ask(*name, &[])).collect();
        let mut queries = Vec::new();
        for _ in names {
            queries.push(read(&mut stream).await);
        }
        let ids: HashSet<&[u8]> = queries.iter().map(|query| &query[..2]).collect();
        assert_eq!(ids.len(), names.len());
        assert_eq!(bench.exchange.pipelined.load(Ordering::Relaxed), names.len() as u64 - 1);
        // One more than are to wait for each other.
        let more = bench.ask(b'f', &[]);
        tokio::spawn(serve(bench.accept().await));
        is_answered(more, b'f').await;
        for query in queries.iter().rev() {
            write(&mut stream, &answer_to(query)).await;
        }
        for (asked, name) in asked.into_iter().zip(names) {
            is_answered(asked, *name).await;
        }
        assert_eq!((bench.connections(), bench.strays()), (2, [0, 0, 0]));
    }

    #[tokio::test]
    async fn queries_share_so_many_connections() {
        let bench = Bench::new().await;
        let mut asked: Vec<_> = (0..2 * OPEN_MAX).map(|_| bench.ask(b'a', &[])).collect();
        let mut accepted = Vec::new();
        while accepted.len() < OPEN_MAX {
            accepted.push(bench.accept().await);
        }
        // Nobody is answered yet, and all others wait; as many as may be open are only now.
        asked.push(bench.ask(b'a', &[]));
        while bench.exchange.crowded.load(Ordering::Relaxed) == 0 {
            tokio::task::yield_now().await;
        }
        accepted.into_iter().for_each(|stream| drop(tokio::spawn(serve(stream))));
        for asked in asked {
            is_answered(asked, b'a').await;
        }
        assert_eq!(bench.connections(), OPEN_MAX as u64);
    }

    #[tokio::test]
    async fn what_is_under_way_over_a_connection_that_ends_goes_over_new_ones() {
        let bench = Bench::new().await;
        let mut stream = bench.proven().await;
        let asked = [b'b', b'c'].map(|name| (bench.ask(name, &[]), name));
        for _ in &asked {
            read(&mut stream).await;
        }
        drop(stream);
        for _ in &asked {
            tokio::spawn(serve(bench.accept().await));
        }
        for (asked, name) in asked {
            is_answered(asked, name).await;
        }
        assert_eq!(bench.connections(), 3);
        // Over a new one it is told.
        let bench = Bench::new().await;
        let asked = bench.ask(b'a', &[]);
        drop(bench.accept().await);
        asked.await.expect("no panic").expect_err("it has ended");
        assert_eq!(bench.connections(), 1);
    }

    #[tokio::test]
    async fn where_one_waits_in_vain_no_others_come_and_its_answer_is_late() {
        let bench = Bench::new().await;
        let mut stream = bench.proven().await;
        let (vain, other) = (bench.ask(b'v', &[]), bench.ask(b'o', &[]));
        let queries = [read(&mut stream).await, read(&mut stream).await];
        vain.abort();
        vain.await.expect_err("nobody waits for it");
        let after = bench.ask(b'n', &[]);
        tokio::spawn(serve(bench.accept().await));
        is_answered(after, b'n').await;
        for query in &queries {
            write(&mut stream, &answer_to(query)).await;
        }
        is_answered(other, b'o').await;
        assert_eq!(bench.strays(), [1, 0, 0]);
        assert_eq!(stream.read(&mut [0]).await.expect("it has ended"), 0);
    }

    #[tokio::test]
    async fn a_connection_with_a_preface_carries_one_query() {
        const PREFACE: &[u8] = b"for";
        let bench = Bench::new().await;
        for _ in 0..2 {
            let asked = bench.ask(b'a', PREFACE);
            let mut stream = bench.accept().await;
            let mut preface = [0; PREFACE.len()];
            stream.read_exact(&mut preface).await.expect("it comes first");
            assert_eq!(preface, PREFACE);
            let query = read(&mut stream).await;
            write(&mut stream, &answer_to(&query)).await;
            is_answered(asked, b'a').await;
            assert_eq!(stream.read(&mut [0]).await.expect("it has ended"), 0);
        }
        assert_eq!(bench.connections(), 2);
    }

    #[tokio::test]
    async fn answers_to_what_was_not_asked_are_counted_and_end_it_after_some() {
        let bench = Bench::new().await;
        let mut stream = bench.proven().await;
        let asked = bench.ask(b'b', &[]);
        let query = read(&mut stream).await;
        let (mut alien, mut wrong) = (answer_to(&query), answer_to(&query));
        alien[0] ^= 1;
        wrong[13] = b'w';
        for reply in [&alien, &wrong, &answer_to(&query)] {
            write(&mut stream, reply).await;
        }
        is_answered(asked, b'b').await;
        assert_eq!(bench.strays(), [0, 1, 1]);
        for _ in 0..100 {
            if stream.write_all(&[&prefix(alien.len())[..], &alien].concat()).await.is_err() {
                break;
            }
        }
        // Reset, for not all was read.
        let _ = stream.read(&mut [0]).await;
        let again = bench.ask(b'c', &[]);
        tokio::spawn(serve(bench.accept().await));
        is_answered(again, b'c').await;
    }

    // The clock runs by itself while everybody waits.
    #[tokio::test(start_paused = true)]
    async fn connections_that_wait_for_too_long_are_closed() {
        let bench = Bench::new().await;
        let mut stream = bench.proven().await;
        assert_eq!(stream.read(&mut [0]).await.expect("it has ended"), 0);
        // Its place is free again.
        while bench.exchange.open().all > 0 {
            tokio::task::yield_now().await;
        }
    }

    #[tokio::test]
    async fn a_datagram_that_may_be_cut_says_so() {
        let server = UdpSocket::bind("127.0.0.1:0").await.expect("loopback binds");
        let address = server.local_addr().expect("it is bound");
        for (length, is_truncated) in
            [(DATAGRAM_MAX - 1, false), (DATAGRAM_MAX, true), (DATAGRAM_MAX + 1, true)]
        {
            let answers = async {
                let (_, from) = server.recv_from(&mut [0; 64]).await.expect("it comes");
                let mut reply = reply();
                reply.resize(length, 0);
                server.send_to(&reply, from).await.expect("loopback sends")
            };
            let mut told = Told::Nothing;
            let asked = ask_by_datagram(address, &[], QUERY, QUERY.len(), &mut told);
            let reply = tokio::join!(asked, answers).0.expect("an answer");
            assert_eq!(reply[2] & TRUNCATED != 0, is_truncated, "{length}");
            assert_eq!(reply.len(), length.min(DATAGRAM_MAX));
        }
    }
}
