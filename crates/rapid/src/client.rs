//! The client library: one connection for each server, shared by all that ask.
//!
//! ```text
//! look_up ─> shortest queue ─> writer ─> server ─> reader ─> all who asked it for that address
//!                                  watcher ─> "not known" for who has waited long enough
//! ```
//! The paper's client has a thread for each of these; here they are tasks, and who asks puts its request on a
//! server's queue by itself.

use std::net::{Ipv4Addr, SocketAddr};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio::net::tcp::{OwnedReadHalf, OwnedWriteHalf};
use tokio::sync::{Notify, oneshot, watch};
use tokio::task::JoinSet;
use tokio::time::{Instant, sleep, sleep_until, timeout};

use crate::frame::{Responses, request};
use crate::queues::Queues;

/// How long a look-up waits for its answer, unless another time is chosen: a server answers within two
/// milliseconds, and a page is not to be late for a name.
pub const GIVE_UP: Duration = Duration::from_millis(50);

/// How long a connection may take to be made.
const CONNECT: Duration = Duration::from_secs(1);

/// How long a server that is gone is left alone at first, and at most; it doubles each time.
const PAUSES: [Duration; 2] = [Duration::from_millis(100), Duration::from_secs(5)];

/// Octets read at a time: a hundred responses or more.
const READ: usize = 8 << 10;

/// Asks servers for names. Clones share the connections, which end with the last of them.
#[derive(Clone, Debug)]
pub struct Client {
    shared: Arc<Shared>,
    _tasks: Arc<JoinSet<()>>,
}

/// What became of look-ups, since start.
#[derive(Debug, Default)]
pub struct Counts {
    /// Look-ups that were answered with a name.
    pub named: AtomicU64,
    /// Look-ups that were answered with "not known".
    pub unknown: AtomicU64,
    /// Look-ups that had no answer in time.
    pub given_up: AtomicU64,
    /// Look-ups that were not asked, or not again when a connection ended, for no server was connected, or all owed too many
    /// answers; or the address cannot be asked for.
    pub not_asked: AtomicU64,
    /// Times that a look-up was asked again of another server, for a connection ended.
    pub moved: AtomicU64,
    /// Connections that were made.
    pub connections: AtomicU64,
    /// Times that a server's responses were not where they belonged.
    pub losses: AtomicU64,
}

type Waiting = oneshot::Sender<Option<String>>;

#[derive(Debug)]
struct Shared {
    state: Mutex<State>,
    servers: Vec<Server>,
    /// Told when there may be something to watch where there was nothing.
    watcher: Notify,
    start: Instant,
    counts: Counts,
}

#[derive(Debug)]
struct State {
    queues: Queues<Waiting>,
    /// Octets for each server.
    out: Vec<Vec<u8>>,
}

#[derive(Debug)]
struct Server {
    address: SocketAddr,
    /// Told when there are octets for it.
    writer: Notify,
    /// Told when its connection is to end; only while there is one.
    stuck: Notify,
    /// Whether it was tried.
    tried: watch::Sender<bool>,
}

impl Client {
    /// Connects to `servers`, and returns when each was tried once, a second at most; those that are gone are tried
    /// again in the background. Look-ups wait for `give_up`, as a rule [`GIVE_UP`].
    ///
    /// # Panics
    /// Outside a tokio runtime with time and sockets.
    pub async fn start(servers: &[SocketAddr], give_up: Duration) -> Client {
        let shared = Arc::new(Shared::new(servers, give_up));
        let mut tasks = JoinSet::new();
        for index in 0..servers.len() {
            tasks.spawn(keep_connected(shared.clone(), index));
        }
        tasks.spawn(watch_over(shared.clone()));
        for server in &shared.servers {
            // The sender lives as long as what is waited on.
            let _ = server.tried.subscribe().wait_for(|tried| *tried).await;
        }
        Client { shared, _tasks: Arc::new(tasks) }
    }

    /// The name of an address, or `None` where it is not known, or no server says it in time.
    ///
    /// What is dropped before its end is still asked; the answer is for others who ask the same.
    pub async fn look_up(&self, address: Ipv4Addr) -> Option<String> {
        let (waiting, answer) = oneshot::channel();
        if !self.shared.ask(address, self.shared.start.elapsed(), waiting) {
            add(&self.shared.counts.not_asked, 1);
        }
        answer.await.ok().flatten()
    }

    /// What became of look-ups.
    pub fn counts(&self) -> &Counts {
        &self.shared.counts
    }
}

impl Shared {
    /// What is shared of `servers` before any of them is connected.
    fn new(servers: &[SocketAddr], give_up: Duration) -> Shared {
        let server = |address: &SocketAddr| Server {
            address: *address,
            writer: Notify::new(),
            stuck: Notify::new(),
            tried: watch::Sender::new(false),
        };
        Shared {
            state: Mutex::new(State {
                queues: Queues::new(servers.len(), give_up),
                out: vec![Vec::new(); servers.len()],
            }),
            servers: servers.iter().map(server).collect(),
            watcher: Notify::new(),
            start: Instant::now(),
            counts: Counts::default(),
        }
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Queues a request of who waits since `asked`; whether a server is asked. Who cannot be served is dropped, and so
    /// answered.
    fn ask(&self, address: Ipv4Addr, asked: Duration, waiting: Waiting) -> bool {
        let Some(octets) = request(address) else { return false };
        let now = self.start.elapsed();
        let mut state = self.state();
        let was_idle = state.queues.is_idle();
        let Ok(server) = state.queues.choose_since(address, asked, now, waiting) else { return false };
        state.out[server].extend_from_slice(&octets);
        drop(state);
        self.servers[server].writer.notify_one();
        if was_idle {
            self.watcher.notify_one();
        }
        true
    }

    fn answered(&self, server: usize, address: Ipv4Addr, name: Option<&str>) {
        let now = self.start.elapsed();
        let waiting = self.state().queues.answered(server, address, now);
        add(if name.is_some() { &self.counts.named } else { &self.counts.unknown }, waiting.len());
        for waiting in waiting {
            // Who asked may be gone.
            let _ = waiting.send(name.map(Into::into));
        }
    }

    /// Finds who has waited long enough at `now`, and ends connections to servers that hang.
    fn watch(&self, now: Duration) -> Vec<Waiting> {
        let mut state = self.state();
        let watched = state.queues.watch(now);
        for server in watched.stuck {
            // While the state is held, what hangs is the connection that there is, which waits for this; and one that ends by
            // itself leaves nothing behind that would end the next one.
            self.servers[server].stuck.notify_waiters();
        }
        watched.given_up
    }

    /// Ends the queue of a connection that has ended; its requests go to other servers.
    fn lost(&self, server: usize) {
        let waiting = self.state().queues.lost(server);
        let all = waiting.len();
        let again = waiting.into_iter().map(|(address, asked, waiting)| self.ask(address, asked, waiting));
        let moved = again.filter(|is_asked| *is_asked).count();
        add(&self.counts.moved, moved);
        add(&self.counts.not_asked, all - moved);
    }
}

/// Keeps a connection to one server for as long as the client lives.
async fn keep_connected(shared: Arc<Shared>, index: usize) {
    let server = &shared.servers[index];
    let [least, most] = PAUSES;
    let mut pause = least;
    loop {
        let connected = timeout(CONNECT, TcpStream::connect(server.address)).await;
        if let Ok(Ok(stream)) = connected {
            // Requests are five octets, and none is to wait for the next one.
            let _ = stream.set_nodelay(true);
            add(&shared.counts.connections, 1);
            if exchange(&shared, index, stream).await {
                pause = least;
            }
        }
        server.tried.send_replace(true);
        sleep(pause).await;
        pause = most.min(pause * 2);
    }
}

/// Asks and hears over one connection until it ends; whether the server has answered anything.
async fn exchange(shared: &Shared, index: usize, stream: TcpStream) -> bool {
    let server = &shared.servers[index];
    {
        let mut state = shared.state();
        state.out[index].clear();
        state.queues.connected(index);
    }
    server.tried.send_replace(true);
    let (reader, writer) = stream.into_split();
    let mut has_answered = false;
    tokio::select! {
        () = read(shared, index, reader, &mut has_answered) => {}
        () = write(shared, index, writer) => {}
        () = server.stuck.notified() => {}
    }
    shared.lost(index);
    has_answered
}

/// Reads responses until the connection ends, and notes that there was one.
async fn read(shared: &Shared, index: usize, mut reader: OwnedReadHalf, has_answered: &mut bool) {
    let (mut responses, mut input) = (Responses::default(), Vec::with_capacity(READ));
    // A response that is cut is short, so there is always room.
    while let Ok(1..) = reader.read_buf(&mut input).await {
        let (mut taken, losses) = (0, responses.losses());
        while let Some((address, name)) = responses.next(&input, &mut taken) {
            shared.answered(index, address, name);
            *has_answered = true;
        }
        input.drain(..taken);
        add(&shared.counts.losses, (responses.losses() - losses) as usize);
    }
}

/// Writes what is asked until the connection ends.
async fn write(shared: &Shared, index: usize, mut writer: OwnedWriteHalf) {
    loop {
        let octets = std::mem::take(&mut shared.state().out[index]);
        if octets.is_empty() {
            shared.servers[index].writer.notified().await;
        } else if writer.write_all(&octets).await.is_err() {
            return;
        }
    }
}

/// Gives up what has waited long enough.
async fn watch_over(shared: Arc<Shared>) {
    loop {
        let due = shared.state().queues.due(shared.start.elapsed());
        let Some(due) = due else {
            shared.watcher.notified().await;
            continue;
        };
        sleep_until(shared.start + due).await;
        let given_up = shared.watch(shared.start.elapsed());
        add(&shared.counts.given_up, given_up.len());
        // Dropped, they are answered.
        drop(given_up);
    }
}

fn add(count: &AtomicU64, number: usize) {
    count.fetch_add(number as u64, Ordering::Relaxed);
}

#[cfg(test)]
mod tests {
    use std::pin::pin;
    use std::task::{Context, Waker};

    use tokio::net::TcpListener;
    use tokio::sync::oneshot::error::TryRecvError;

    use super::*;
    use crate::frame::{Requests, response};
    use crate::queues::STUCK;

    /// Waits long enough for a machine under load.
    const PATIENCE: Duration = Duration::from_secs(60);

    fn address(last: u8) -> Ipv4Addr {
        Ipv4Addr::new(192, 0, 2, last)
    }

    async fn listener() -> (TcpListener, SocketAddr) {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        (listener, address)
    }

    /// Answers each request on one connection with the server's own name, until `end` requests are answered.
    async fn serve(listener: TcpListener, name: &'static str, end: usize) {
        let (mut stream, _) = listener.accept().await.unwrap();
        let (mut requests, mut input, mut answered) = (Requests::default(), Vec::new(), 0);
        while answered < end && matches!(stream.read_buf(&mut input).await, Ok(1..)) {
            let (mut taken, mut out) = (0, Vec::new());
            while let Some(address) = requests.next(&input, &mut taken) {
                response(address, name.as_bytes(), &mut out);
                answered += 1;
            }
            input.drain(..taken);
            stream.write_all(&out).await.unwrap();
        }
    }

    #[tokio::test]
    async fn names_come_back_and_what_cannot_be_asked_is_not_known() {
        let (one, at) = listener().await;
        let server = tokio::spawn(serve(one, "a.example", usize::MAX));
        let client = Client::start(&[at], PATIENCE).await;
        assert_eq!(client.look_up(address(1)).await.as_deref(), Some("a.example"));
        assert_eq!(client.look_up(Ipv4Addr::BROADCAST).await, None);
        drop(client);
        server.await.unwrap();
    }

    #[tokio::test]
    async fn nobody_waits_for_a_server_that_hangs_or_is_not_there() {
        let (silent, at) = listener().await;
        let client = Client::start(&[at], GIVE_UP).await;
        assert_eq!(client.look_up(address(1)).await, None);
        assert_eq!(client.counts().given_up.load(Ordering::Relaxed), 1);
        drop(silent);
        let nobody = Client::start(&[], GIVE_UP).await;
        assert_eq!(nobody.look_up(address(1)).await, None);
        assert_eq!(nobody.counts().not_asked.load(Ordering::Relaxed), 1);
    }

    #[tokio::test]
    async fn requests_of_a_lost_connection_go_to_another_server() {
        let ((dies, first), (lives, second)) = (listener().await, listener().await);
        let server = tokio::spawn(serve(lives, "b.example", usize::MAX));
        let (asked, dead) = oneshot::channel();
        tokio::spawn(async move {
            let (mut stream, _) = dies.accept().await.unwrap();
            let mut octets = [0; 5];
            stream.read_exact(&mut octets).await.unwrap();
            asked.send(octets).unwrap();
        });
        let client = Client::start(&[first, second], PATIENCE).await;
        assert_eq!(client.look_up(address(7)).await.as_deref(), Some("b.example"));
        assert_eq!(dead.await.unwrap(), [192, 0, 2, 7, 255]);
        assert_eq!(client.counts().moved.load(Ordering::Relaxed), 1);
        drop(client);
        server.await.unwrap();
    }

    #[test]
    fn a_server_that_hangs_ends_the_connection_that_there_is_and_no_later_one() {
        let shared = Shared::new(&["192.0.2.1:4242".parse().unwrap()], GIVE_UP);
        shared.state().queues.connected(0);
        let (waiting, answer) = oneshot::channel();
        shared.ask(address(1), shared.start.elapsed(), waiting);
        let hangs = shared.start.elapsed() + GIVE_UP * STUCK;
        let mut context = Context::from_waker(Waker::noop());
        let mut connection = pin!(shared.servers[0].stuck.notified());
        assert!(connection.as_mut().poll(&mut context).is_pending());
        assert_eq!(shared.watch(hangs).len(), 1);
        assert!(connection.poll(&mut context).is_ready());
        // It is found to hang once more, as its connection has ended and is not noted to be lost yet.
        shared.watch(hangs);
        shared.lost(0);
        let next = pin!(shared.servers[0].stuck.notified());
        assert!(next.poll(&mut context).is_pending());
        drop(answer);
    }

    #[test]
    fn only_who_is_asked_again_is_counted_as_moved() {
        let servers = ["192.0.2.1:4242", "192.0.2.2:4242"].map(|server| server.parse().unwrap());
        let shared = Shared::new(&servers, GIVE_UP);
        (0..servers.len()).for_each(|server| shared.state().queues.connected(server));
        let (waiting, mut answer) = oneshot::channel();
        assert!(shared.ask(address(1), shared.start.elapsed(), waiting));
        for (server, moved, not_asked) in [(0, 1, 0), (1, 1, 1)] {
            shared.lost(server);
            let counts = [&shared.counts.moved, &shared.counts.not_asked];
            assert_eq!(counts.map(|count| count.load(Ordering::Relaxed)), [moved, not_asked]);
        }
        assert!(answer.try_recv().is_err_and(|why| why == TryRecvError::Closed), "it waits no longer");
    }

    #[tokio::test]
    async fn a_server_that_has_answered_has_whatever_ends_its_connection() {
        for answers in [0, 1] {
            let (listens, at) = listener().await;
            let shared = Arc::new(Shared::new(&[at], PATIENCE));
            let stream = TcpStream::connect(at).await.unwrap();
            let begun = shared.clone();
            let connection = tokio::spawn(async move { exchange(&begun, 0, stream).await });
            assert!(*shared.servers[0].tried.subscribe().wait_for(|tried| *tried).await.unwrap());
            let (mut server, _) = listens.accept().await.unwrap();
            for last in 0..answers {
                let (waiting, name) = oneshot::channel();
                assert!(shared.ask(address(last), shared.start.elapsed(), waiting));
                let mut out = Vec::new();
                response(address(last), b"a.example", &mut out);
                server.write_all(&out).await.unwrap();
                assert_eq!(name.await.unwrap().as_deref(), Some("a.example"));
            }
            shared.servers[0].stuck.notify_waiters();
            assert_eq!(connection.await.unwrap(), answers > 0);
        }
    }

    #[tokio::test]
    async fn a_server_that_comes_back_is_asked_again() {
        let (first, at) = listener().await;
        let client = Client::start(&[at], PATIENCE).await;
        let asked = client.clone();
        let name = tokio::spawn(async move { asked.look_up(address(1)).await });
        serve(first, "a.example", 1).await;
        assert_eq!(name.await.unwrap().as_deref(), Some("a.example"));
        let again = tokio::spawn(serve(TcpListener::bind(at).await.unwrap(), "b.example", usize::MAX));
        // It is not known until the connection is there again.
        let name = loop {
            if let Some(name) = client.look_up(address(1)).await {
                break name;
            }
            tokio::task::yield_now().await;
        };
        assert_eq!(name, "b.example");
        drop(client);
        again.await.unwrap();
    }
}
