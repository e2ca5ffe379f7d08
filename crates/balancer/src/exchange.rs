//! One query to one back end on the connections' side: over a connection that it may share with others, or as a datagram.

use std::collections::HashMap;
use std::io;
use std::net::SocketAddr;
use std::pin::pin;
use std::sync::atomic::Ordering;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use tokio::net::{TcpSocket, UdpSocket};
use tokio::sync::Notify;

use crate::field::BackEnd;
use crate::pipeline::{Pipeline, UNDER_WAY_MAX};
use crate::told::Told;

/// Connections to one back end at a time (RFC 7766 §6.2.2): BIND serves 150 clients at a time if it is not told otherwise, some
/// of them others. Where all of them are full, further queries wait, which is counted.
pub const OPEN_MAX: usize = 128;

/// Of them such as are new: BIND has room for ten that it has not accepted yet. One more than that is tried again by the
/// kernel only a second later.
const NEW_MAX: usize = 8;

/// How long a connection is new, where no answer comes over it before: what a server takes to accept it.
const NEW_WAIT: Duration = Duration::from_millis(10);

/// Queries that share a connection before another one is opened: few, for a server that answers in the order in which it was
/// asked lets them wait for each other, and one with threads may have one of them alone work for each connection.
const SHARED_FEW: usize = 4;

/// Connections to back ends, each shared by several queries once an answer has come over it: before, it may be one that the
/// server has not even accepted.
#[derive(Debug, Default)]
pub struct Exchange {
    servers: Mutex<HashMap<SocketAddr, Arc<Server>>>,
}

/// The connections of one back end.
#[derive(Debug, Default)]
struct Server {
    open: Mutex<Open>,
    /// Told when there may be room for a query that found none.
    freed: Notify,
}

/// What is open.
#[derive(Debug, Default)]
struct Open {
    /// Connections that further queries may share.
    shared: Vec<Arc<Pipeline>>,
    /// How many there are in all, at most [`OPEN_MAX`].
    all: usize,
    /// How many of them are new, at most [`NEW_MAX`].
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
    server: Arc<Server>,
    among: fn(&mut Open) -> &mut usize,
}

/// A query's place in a connection, until this is dropped.
struct Place {
    server: Arc<Server>,
    pipeline: Arc<Pipeline>,
    is_answered: bool,
}

impl Exchange {
    /// Asks over a connection, as soon as there is room in one. `query` has the id with which it is asked, and the answer one
    /// that may be another. A connection that begins with a preface is this query's alone. Who no longer waits may still find
    /// the answer in `told`, later.
    ///
    /// # Errors
    /// What the system says, or that the connection ended before the answer came.
    pub async fn ask(
        &self,
        back_end: &Arc<BackEnd>,
        preface: &[u8],
        query: &[u8],
        question_end: usize,
        told: &mut Told,
    ) -> io::Result<Vec<u8>> {
        let (server, may_share, mut few) = (self.server(back_end.address), preface.is_empty(), SHARED_FEW);
        loop {
            match server.room(back_end, may_share, few).await {
                Room::New(counted) => {
                    return server.ask_anew(back_end, preface, query, question_end, counted, told).await;
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

    fn server(&self, address: SocketAddr) -> Arc<Server> {
        let mut servers = self.servers.lock().unwrap_or_else(PoisonError::into_inner);
        if !servers.contains_key(&address) {
            // Those of back ends that are gone; who asks or has a connection there has it, too.
            servers.retain(|_, server| Arc::strong_count(server) > 1);
        }
        servers.entry(address).or_default().clone()
    }
}

impl Server {
    /// Waits for room; `few` is how many may share a connection as long as another one may be opened.
    async fn room(self: &Arc<Self>, back_end: &BackEnd, may_share: bool, few: usize) -> Room {
        let mut has_waited = false;
        loop {
            if let Some(room) = self.find_room(back_end, may_share, few) {
                if has_waited {
                    // There may be room for another one that waits.
                    self.freed.notify_one();
                }
                return room;
            }
            if !has_waited && self.open().all == OPEN_MAX {
                back_end.crowded.fetch_add(1, Ordering::Relaxed);
            }
            has_waited = true;
            self.freed.notified().await;
        }
    }

    /// Room where the fewest are under way; the first of equals, so that others become idle.
    fn find_room(self: &Arc<Self>, back_end: &BackEnd, may_share: bool, few: usize) -> Option<Room> {
        let mut open = self.open();
        open.shared.retain(|pipeline| !pipeline.is_over());
        let may_open = open.all < OPEN_MAX && open.new < NEW_MAX;
        let most = if may_open { few } else { UNDER_WAY_MAX };
        let under_way = |pipeline: &&Arc<Pipeline>| pipeline.under_way.load(Ordering::Relaxed);
        let least = open.shared.iter().filter(|_| may_share).min_by_key(under_way);
        if let Some(pipeline) = least.filter(|pipeline| under_way(pipeline) < most).cloned() {
            let before = pipeline.under_way.fetch_add(1, Ordering::Relaxed);
            back_end.pipelined.fetch_add(u64::from(before > 0), Ordering::Relaxed);
            return Some(Room::Shared(Place { server: self.clone(), pipeline, is_answered: false }));
        }
        if !may_open {
            return None;
        }
        open.all += 1;
        open.new += 1;
        Some(Room::New([
            Counted { server: self.clone(), among: |open| &mut open.all },
            Counted { server: self.clone(), among: |open| &mut open.new },
        ]))
    }

    /// Asks over a new connection, which others share once an answer has come, if it is not this query's alone.
    async fn ask_anew(
        self: &Arc<Self>,
        back_end: &Arc<BackEnd>,
        preface: &[u8],
        query: &[u8],
        question_end: usize,
        [open, new]: [Counted; 2],
        told: &mut Told,
    ) -> io::Result<Vec<u8>> {
        let address = back_end.address;
        let socket = if address.is_ipv4() { TcpSocket::new_v4() } else { TcpSocket::new_v6() }?;
        // Where there was no descriptor for one, nothing is begun that the agent would look for.
        back_end.connections.fetch_add(1, Ordering::Relaxed);
        let stream = socket.connect(address).await?;
        stream.set_nodelay(true)?;
        let pipeline = Arc::new(Pipeline::begin(stream, preface, back_end.clone(), open));
        let reply = {
            let answer = pipeline.ask(query, question_end);
            let mut reply = pin!(told.over_connection(answer, pipeline.clone()));
            tokio::select! {
                biased;
                reply = &mut reply => reply,
                () = tokio::time::sleep(NEW_WAIT) => {
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

    fn open(&self) -> MutexGuard<'_, Open> {
        self.open.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Place {
    async fn ask(mut self, query: &[u8], question_end: usize, told: &mut Told) -> Option<Vec<u8>> {
        let answer = self.pipeline.ask(query, question_end);
        let reply = told.over_connection(answer, self.pipeline.clone()).await;
        self.is_answered = reply.is_some();
        reply
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        let mut open = self.server.open();
        self.pipeline.under_way.fetch_sub(1, Ordering::Relaxed);
        if !self.is_answered {
            // Who comes after one that waits in vain may wait for it: those that are under way go on, and no others come.
            open.shared.retain(|pipeline| !Arc::ptr_eq(pipeline, &self.pipeline));
        }
        drop(open);
        self.server.freed.notify_one();
    }
}

impl Drop for Counted {
    fn drop(&mut self) {
        *(self.among)(&mut self.server.open()) -= 1;
        self.server.freed.notify_one();
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
    use crate::counters::Strays;
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
        back_end: Arc<BackEnd>,
        listener: TcpListener,
    }

    impl Bench {
        async fn new() -> Bench {
            let listener = TcpListener::bind("127.0.0.1:0").await.expect("loopback binds");
            let address = listener.local_addr().expect("it is bound");
            Bench { exchange: Arc::default(), back_end: Arc::new(BackEnd::new(0, address, 1, 1)), listener }
        }

        /// Asks for a name; the answer has an id of the connection.
        fn ask(&self, name: u8, preface: &'static [u8]) -> JoinHandle<io::Result<Vec<u8>>> {
            let (exchange, back_end) = (self.exchange.clone(), self.back_end.clone());
            tokio::spawn(async move {
                exchange.ask(&back_end, preface, &query(name), QUERY.len(), &mut Told::Nothing).await
            })
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
            self.back_end.connections.load(Ordering::Relaxed)
        }

        fn strays(&self) -> [u64; 3] {
            let Strays { late, alien, wrong_question } = &self.back_end.strays;
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
        let names = &b"bcde"[..SHARED_FEW];
        let asked: Vec<_> = names.iter().map(|name| bench.ask(*name, &[])).collect();
        let mut queries = Vec::new();
        for _ in names {
            queries.push(read(&mut stream).await);
        }
        let ids: HashSet<&[u8]> = queries.iter().map(|query| &query[..2]).collect();
        assert_eq!(ids.len(), names.len());
        assert_eq!(bench.back_end.pipelined.load(Ordering::Relaxed), names.len() as u64 - 1);
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
        while bench.back_end.crowded.load(Ordering::Relaxed) == 0 {
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
        // Its place is free again, and nothing is kept of who is not asked.
        let server = bench.exchange.server(bench.back_end.address);
        while server.open().all > 0 {
            tokio::task::yield_now().await;
        }
        drop(server);
        bench.exchange.server(([127, 0, 0, 1], 9).into());
        assert_eq!(bench.exchange.servers.lock().expect("nothing panics").len(), 1);
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
