//! A shared database at the end of a long line, and of one that is cut.

use std::net::Ipv4Addr;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use tests::database::Database;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::tcp::{OwnedReadHalf, OwnedWriteHalf};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::watch;
use tokio::task::JoinSet;
use tokio::time::Instant;

use super::{policy, refused, region, zone};
use crate::shared::LEAVE_WAIT;
use crate::shared::sql::ANSWER_WAIT;
use crate::{Change, CommitError, Contents, Store, StoreError};

/// How long what a client sends is on its way on a long line: short enough for the making of a connection, which may
/// take five seconds.
const LONG: Duration = Duration::from_secs(4);

/// How many times a commit of hundreds of changes of five kinds waits for an answer, at most: a dozen for the
/// transaction, and six for each kind. One by one they would be thousands.
const JOURNEYS_MAX: u32 = 80;

/// By how much a timer may be late.
const TICK: Duration = Duration::from_millis(10);

/// All that holds for every shared database.
pub(super) async fn check(database: &Database) {
    println!("a_commit_may_take_long_where_each_statement_does_not");
    a_commit_may_take_long_where_each_statement_does_not(database).await;
    println!("many_changes_take_few_journeys");
    many_changes_take_few_journeys(database).await;
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
    /// How many pieces clients have sent: about as many as they have waited for answers.
    sent: Arc<AtomicU32>,
    _carrying: JoinSet<()>,
}

impl Line {
    async fn to(database: &Database) -> Line {
        let url = database.url(&database.empty());
        let listener = TcpListener::bind("127.0.0.1:0").await.expect("a port");
        let (there, here) = (database.port(), listener.local_addr().expect("it is bound").port());
        let url = url.replace(&format!(":{there}/"), &format!(":{here}/"));
        let (carries, mut carrying) = (watch::Sender::new(Carries::AtOnce), JoinSet::new());
        let (how, sent) = (carries.clone(), Arc::<AtomicU32>::default());
        let counted = sent.clone();
        carrying.spawn(async move {
            let mut carrying = JoinSet::new();
            loop {
                let (client, _) = listener.accept().await.expect("a connection");
                let (from_client, to_client) = client.into_split();
                let server = TcpStream::connect(("127.0.0.1", there)).await.expect("the database runs");
                let (from_server, to_server) = server.into_split();
                carrying.spawn(carry(from_client, to_server, how.clone(), counted.clone()));
                let at_once = watch::Sender::new(Carries::AtOnce);
                carrying.spawn(carry(from_server, to_client, at_once, Arc::default()));
            }
        });
        Line { url, carries, sent, _carrying: carrying }
    }

    /// Returns when the line is cut and somebody waits for its other end.
    async fn is_cut(&self) {
        let mut carries = self.carries.subscribe();
        carries.wait_for(|carries| *carries == Carries::Nothing).await.expect("it is ours");
    }
}

async fn carry(
    mut from: OwnedReadHalf,
    mut to: OwnedWriteHalf,
    carries: watch::Sender<Carries>,
    sent: Arc<AtomicU32>,
) {
    let mut octets = vec![0; 1 << 16];
    while let Ok(length @ 1..) = from.read(&mut octets).await {
        sent.fetch_add(1, Ordering::Relaxed);
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

/// A commit has half an hour, and each statement to a database far away takes a tenth of a second.
async fn many_changes_take_few_journeys(database: &Database) {
    let line = Line::to(database).await;
    let store = Store::open(&line.url).await.expect("opens");
    let mut generation = 0;
    let mut expected = Contents::default();
    // As much again that is there already takes as long.
    for round in 0..2_u32 {
        let mut changes: Vec<Change> = Vec::new();
        for number in 0..100_u32 {
            let origin = format!("z{number}.");
            changes.push(zone(&origin, &round.to_string()));
            changes.push(Change::Imported { path: origin, digest: round.to_string() });
            if round == 0 {
                changes.push(region(number + 1, &format!("r{number}")));
            }
            let mut policy = policy(&[&format!("w{number:03}.a.")], &[&format!("r{number}"), "r0"]);
            policy.answers = ((number + round) % 7) as u16;
            changes.push(Change::PutPolicy(policy.into()));
            changes.push(Change::SetServer { server: Ipv4Addr::from(number).into(), up: round == 1 });
        }
        let before = line.sent.load(Ordering::Relaxed);
        generation = store.commit(generation, &changes).await.expect("commits");
        let sent = line.sent.load(Ordering::Relaxed) - before;
        assert!(sent <= JOURNEYS_MAX, "{sent} journeys for {} changes", changes.len());

        expected.generation = generation;
        for change in changes {
            match change {
                Change::AddRegion { id, name } => {
                    expected.next_region_id = id + 1;
                    expected.regions.insert(id, name);
                }
                Change::PutZone { origin, text } => _ = expected.zones.insert(origin, text),
                Change::Imported { path, digest } => _ = expected.imports.insert(path, digest),
                Change::SetServer { server: address, up } => _ = expected.servers.insert(address, up),
                Change::PutPolicy(policy) => {
                    expected.policies.retain(|other| other.names != policy.names);
                    expected.policies.push((*policy).clone());
                }
                other => panic!("{other:?}"),
            }
        }
        assert_eq!(store.load().await.as_ref(), Ok(&expected));
    }

    // One that is refused is found among them, and what only its order allows is made.
    let mut changes: Vec<Change> = (0..100)
        .map(|number| Change::PutPolicy(policy(&[&format!("n{number}.a.")], &["r1"]).into()))
        .collect();
    let free = Change::DeletePolicy { key: "w000.a.".into() };
    let take = Change::PutPolicy(policy(&["n0.a.", "w000.a."], &[]).into());
    changes.extend([free, take, zone("z.", ""), zone("z.", "last")]);
    for (spoilt, most) in [(Some((71, "W.")), 8 * JOURNEYS_MAX), (None, 2 * JOURNEYS_MAX)] {
        let mut changes = changes.clone();
        if let Some((change, name)) = spoilt {
            changes[change] = Change::PutPolicy(policy(&[name], &[]).into());
            changes[change + 1] = zone("Z.", "");
        }
        let before = line.sent.load(Ordering::Relaxed);
        let committed = store.commit(generation, &changes).await;
        match spoilt {
            Some((change, _)) => assert_eq!(refused(committed).0, change),
            None => assert_eq!(committed, Ok(generation + 1)),
        }
        let sent = line.sent.load(Ordering::Relaxed) - before;
        assert!(sent <= most, "{sent} journeys, {spoilt:?}");
    }
    let contents = store.load().await.expect("loads");
    assert_eq!(contents.zones["z."], "last");
    assert_eq!(contents.policies.len(), 199);
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
