//! A shared database at the end of a long line, and of one that is cut.

use std::time::Duration;

use tests::database::Database;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::tcp::{OwnedReadHalf, OwnedWriteHalf};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::watch;
use tokio::task::JoinSet;
use tokio::time::Instant;

use super::zone;
use crate::shared::LEAVE_WAIT;
use crate::shared::sql::ANSWER_WAIT;
use crate::{CommitError, Store, StoreError};

/// How long what a client sends is on its way on a long line: short enough for the making of a connection, which may
/// take five seconds.
const LONG: Duration = Duration::from_secs(4);

/// By how much a timer may be late.
const TICK: Duration = Duration::from_millis(10);

/// All that holds for every shared database.
pub(super) async fn check(database: &Database) {
    println!("a_commit_may_take_long_where_each_statement_does_not");
    a_commit_may_take_long_where_each_statement_does_not(database).await;
    println!("a_statement_without_an_answer_ends_the_call");
    a_statement_without_an_answer_ends_the_call(database).await;
    println!("who_leaves_waits_for_no_answer_for_long");
    who_leaves_waits_for_no_answer_for_long(database).await;
}

/// How a line carries what clients send.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Carries {
    /// At once.
    AtOnce,
    /// After [`LONG`].
    Late,
    /// So many pieces more, and then no other.
    Pieces(u32),
    /// Nothing any more, and there was something to be carried.
    Nothing,
}

/// A line to a database.
struct Line {
    url: String,
    carries: watch::Sender<Carries>,
    _carrying: JoinSet<()>,
}

impl Line {
    async fn to(database: &Database) -> Line {
        let url = database.url(&database.empty());
        let listener = TcpListener::bind("127.0.0.1:0").await.expect("a port");
        let (there, here) = (database.port(), listener.local_addr().expect("it is bound").port());
        let url = url.replace(&format!(":{there}/"), &format!(":{here}/"));
        let (carries, mut carrying) = (watch::Sender::new(Carries::AtOnce), JoinSet::new());
        let how = carries.clone();
        carrying.spawn(async move {
            let mut carrying = JoinSet::new();
            loop {
                let (client, _) = listener.accept().await.expect("a connection");
                let (from_client, to_client) = client.into_split();
                let server = TcpStream::connect(("127.0.0.1", there)).await.expect("the database runs");
                let (from_server, to_server) = server.into_split();
                carrying.spawn(carry(from_client, to_server, how.clone()));
                carrying.spawn(carry(from_server, to_client, watch::Sender::new(Carries::AtOnce)));
            }
        });
        Line { url, carries, _carrying: carrying }
    }

    /// Returns when the line is cut and somebody waits for its other end.
    async fn is_cut(&self) {
        let mut carries = self.carries.subscribe();
        carries.wait_for(|carries| *carries == Carries::Nothing).await.expect("it is ours");
    }
}

async fn carry(mut from: OwnedReadHalf, mut to: OwnedWriteHalf, carries: watch::Sender<Carries>) {
    let mut octets = vec![0; 1 << 16];
    while let Ok(length @ 1..) = from.read(&mut octets).await {
        let how = *carries.borrow();
        match how {
            Carries::AtOnce => {}
            Carries::Late => {
                // Only this way takes time, not the database's work.
                tokio::time::pause();
                tokio::time::advance(LONG).await;
                tokio::time::resume();
            }
            Carries::Pieces(0) | Carries::Nothing => {
                carries.send_replace(Carries::Nothing);
                std::future::pending().await
            }
            Carries::Pieces(more) => _ = carries.send_replace(Carries::Pieces(more - 1)),
        }
        if to.write_all(&octets[..length]).await.is_err() {
            return;
        }
    }
}

async fn a_commit_may_take_long_where_each_statement_does_not(database: &Database) {
    let line = Line::to(database).await;
    let store = Store::open(&line.url).await.expect("opens");
    line.carries.send_replace(Carries::Late);
    let begun = Instant::now();
    let committed = store.commit(0, &[zone("a.", "text"), zone("b.", "text")]).await;
    assert!(begun.elapsed() > ANSWER_WAIT, "{:?} is not long", begun.elapsed());
    assert_eq!(committed, Ok(1));
}

async fn a_statement_without_an_answer_ends_the_call(database: &Database) {
    let line = Line::to(database).await;
    let store = Store::open(&line.url).await.expect("opens");
    // It is alive, and the transaction begins.
    line.carries.send_replace(Carries::Pieces(2));
    let changes = [zone("a.", "text")];
    let cut = async {
        line.is_cut().await;
        tokio::time::pause();
        Instant::now()
    };
    let (committed, cut) = tokio::join!(store.commit(0, &changes), cut);
    assert!(cut.elapsed() <= ANSWER_WAIT + TICK, "{:?}", cut.elapsed());
    tokio::time::resume();
    assert!(matches!(committed, Err(CommitError::Store(StoreError::Unreachable { .. }))), "{committed:?}");
    line.carries.send_replace(Carries::AtOnce);
    assert_eq!(store.commit(0, &changes).await, Ok(1));
}

async fn who_leaves_waits_for_no_answer_for_long(database: &Database) {
    let line = Line::to(database).await;
    let store = Store::open(&line.url).await.expect("opens");
    line.carries.send_replace(Carries::Pieces(2));
    let changes = [zone("a.", "text")];
    let leave = async {
        line.is_cut().await;
        tokio::time::pause();
        store.leave();
        Instant::now()
    };
    let (committed, begun) = tokio::join!(store.commit(0, &changes), leave);
    assert!(begun.elapsed() <= LEAVE_WAIT + TICK, "{:?}", begun.elapsed());
    let Err(CommitError::Store(left @ StoreError::Left { .. })) = committed else { panic!("{committed:?}") };
    assert!(left.to_string().contains("whether it has the change is not known"), "{left}");
    // What comes later does not wait again, nor does saying it again give more time.
    store.leave();
    let now = Instant::now();
    assert_eq!(store.has_published(1).await, Err(left.clone()));
    assert_eq!(store.check().await, Err(left));
    store.close().await.expect("nothing is open");
    assert!(now.elapsed() <= TICK, "{:?}", now.elapsed());
    tokio::time::resume();
}
