//! The editor on stores of its own, and on one that another has open, too.

use std::sync::atomic::Ordering;

use store::Change;

use super::making::{REFUSED_MAX, make, surviving};
use super::*;
use crate::generation::Settings;
use crate::import::{Loading, Outcome};
use ::tests::database::{Database, Kind};
use ::tests::folder::Folder;

/// An editor of an empty store in a folder.
async fn start(folder: &Folder) -> Editor {
    let store = Store::open(&format!("sqlite:{}", folder.at("store.db"))).await.expect("a store");
    let book = Book::empty(1, Settings::default());
    let published = Arc::new(Published::new(book.generation.clone(), 2));
    Editor::start(store, book, published).expect("a thread")
}

#[tokio::test]
async fn a_check_takes_back_what_a_check_would_show() {
    let (folder, path) = (Folder::new(), std::path::PathBuf::from("store.db"));
    let editor = start(&folder).await;
    for (cause, stays) in [
        (StoreError::Locked { path: path.clone() }, false),
        (StoreError::Unreachable { path: path.clone(), cause: String::new(), way: "" }, false),
        (StoreError::Slow { path: path.clone() }, false),
        (StoreError::Full { path: path.clone() }, true),
        (StoreError::Gone { path: path.clone() }, true),
    ] {
        let told = cause.to_string();
        lock(&editor.shared.complaints).commit = Some(cause);
        assert_eq!(editor.store_complaint().as_ref(), Some(&told));
        assert_eq!(editor.check_store().await, None, "the store is well");
        assert_eq!(editor.store_complaint(), stays.then_some(told));
    }
    editor.add_region("one").await.expect("it is taken");
    assert_eq!(editor.store_complaint(), None, "a commit takes all of it back");
    editor.stop().await;
}

#[tokio::test]
async fn a_commit_that_happened_unknown_refuses_one_change_and_no_more() {
    let folder = Folder::new();
    let editor = start(&folder).await;
    editor.add_region("one").await.expect("it is taken");
    // As if neither its answer came nor the store could tell afterwards.
    let unknown = Change::AddRegion { id: 2, name: "two".into() };
    let committed = editor.shared.store.commit(1, &[unknown]).await;
    assert_eq!(committed, Ok(2));
    let refused = editor.add_region("three").await.expect_err("there is more than it is based on");
    assert!(matches!(refused, Refused::Store(_)), "{refused:?}");
    let (id, applied) = editor.add_region("three").await.expect("all was loaded again");
    assert_eq!((id, applied.generation, applied.reached), (3, 3, true));
    let names: Vec<String> = editor.regions().into_iter().map(|region| region.name).collect();
    assert_eq!(names, ["one", "two", "three"]);
    editor.stop().await;
}

/// Makes requests that wait together, on a store that refuses the region which the book would add next; returns how each
/// ended, and the editor.
async fn together(folder: &Folder, requests: Vec<Vec<Edit>>) -> (Editor, Vec<Result<u64, Refused>>) {
    let store = Store::open(&format!("sqlite:{}", folder.at("store.db"))).await.expect("a store");
    let unknown = Change::AddRegion { id: 1, name: "one".into() };
    assert_eq!(store.commit(0, &[unknown]).await, Ok(1));
    let mut book = Book::empty(1, Settings::default());
    book.generation.number = 1;
    let published = Arc::new(Published::new(book.generation.clone(), 2));
    let editor = Editor::start(store, book, published).expect("a thread");
    let ended = hand_in(&editor, requests).await;
    (editor, ended)
}

/// Makes requests that wait together; returns how each ended.
async fn hand_in(editor: &Editor, requests: Vec<Vec<Edit>>) -> Vec<Result<u64, Refused>> {
    let (mut group, mut answers) = (Vec::new(), Vec::new());
    for edits in requests {
        let (reply, answer) = oneshot::channel();
        group.push(Request { edits, reply });
        answers.push(answer);
    }
    let (shared, runtime) = (editor.shared.clone(), tokio::runtime::Handle::current());
    let making = tokio::task::spawn_blocking(move || make(&shared, group, &runtime));
    making.await.expect("it does not panic");
    let mut ended = Vec::new();
    for answer in answers {
        ended.push(answer.await.expect("each is answered").map(|done| done.generation));
    }
    ended
}

/// Adds a region, which the store of [`together`] refuses.
fn refused_region() -> Vec<Edit> {
    vec![Edit::AddRegion { name: "two".into() }]
}

/// Puts a partition without regions.
fn partition(name: &str) -> Vec<Edit> {
    let text = b"10.0.0.0/8,-\n".to_vec();
    vec![Edit::partition(name, "body", text, Condition::Always, Arc::default()).expect("it is right")]
}

#[tokio::test]
async fn a_change_that_the_store_refuses_is_refused_alone() {
    let folder = Folder::new();
    let requests = vec![partition("a"), refused_region(), partition("b")];
    let (editor, ended) = together(&folder, requests).await;
    assert!(matches!(&ended[1], Err(Refused::Store(what)) if what.contains("region id 1")), "{ended:?}");
    assert_eq!((&ended[0], &ended[2]), (&Ok(2), &Ok(2)));
    assert_eq!(editor.book().generation.number, 2);
    editor.stop().await;
    let store = Store::open(&format!("sqlite:{}", folder.at("store.db"))).await.expect("a store");
    let stored = store.load().await.expect("it is read");
    let partitions: Vec<&str> = stored.partitions.keys().map(String::as_str).collect();
    assert_eq!((stored.generation, partitions), (2, vec!["a", "b"]));
}

#[tokio::test]
async fn what_depends_on_a_change_that_the_store_refuses_is_told_its_own_fault() {
    let folder = Folder::new();
    let requests = vec![refused_region(), vec![Edit::RemoveRegion { id: 1 }]];
    let (editor, ended) = together(&folder, requests).await;
    assert!(matches!(ended[..], [Err(Refused::Store(_)), Err(Refused::NotFound(_))]), "{ended:?}");
    editor.stop().await;
}

#[tokio::test]
async fn where_the_store_fails_nothing_is_refused_for_what_was_not_stored() {
    let folder = Folder::new();
    let editor = start(&folder).await;
    std::fs::rename(folder.at("store.db"), folder.at("aside.db")).expect("it is there");
    let region = || vec![Edit::AddRegion { name: "one".into() }];
    let ended = hand_in(&editor, vec![vec![Edit::RemoveRegion { id: 7 }], region(), region()]).await;
    assert!(matches!(ended[0], Err(Refused::NotFound(_))), "it stands on nobody's: {ended:?}");
    for ended in &ended[1..] {
        assert!(matches!(ended, Err(Refused::Store(what)) if what.contains("was deleted")), "{ended:?}");
    }
    editor.stop().await;
}

#[tokio::test]
async fn so_many_changes_are_taken_out_and_no_more() {
    let folder = Folder::new();
    // Each is the first that the book adds once those before it are out.
    let region = |number| vec![Edit::AddRegion { name: format!("r{number}") }];
    let mut requests: Vec<Vec<Edit>> = (0..=REFUSED_MAX).map(region).collect();
    requests.push(partition("a"));
    let (editor, ended) = together(&folder, requests).await;
    assert!(ended.iter().all(|ended| matches!(ended, Err(Refused::Store(_)))), "{ended:?}");
    assert_eq!(editor.book().generation.number, 1);
    editor.stop().await;
}

#[tokio::test]
async fn a_change_that_panics_is_refused_alone() {
    let folder = Folder::new();
    let requests = vec![partition("a"), vec![Edit::Panic], partition("b")];
    let editor = start(&folder).await;
    let ended = hand_in(&editor, requests).await;
    assert_eq!(ended, [Ok(1), Err(Refused::Broken), Ok(1)]);
    assert_eq!(editor.panicked().load(Ordering::Relaxed), 1);
    assert_eq!(editor.store_complaint(), None, "one is survived");
    // The thread goes on, and a change says that it does.
    assert_eq!(editor.apply(vec![Edit::Panic]).await, Err(Refused::Broken));
    for _ in 0..2 {
        editor.shared.panicked.suffered(1, &"as the test wants it", Duration::from_secs(100));
    }
    let told = "two panics in a row while changes were made: as the test wants it";
    assert_eq!(editor.store_complaint().as_deref(), Some(told));
    assert!(!editor.status().store.ok);
    editor.add_region("one").await.expect("it is taken");
    assert_eq!(editor.store_complaint(), None);
    assert_eq!(editor.panicked().load(Ordering::Relaxed), 4);
    editor.stop().await;
}

#[tokio::test]
async fn after_a_panic_what_the_store_holds_is_served() {
    let folder = Folder::new();
    let editor = start(&folder).await;
    // As if it came between the commit and what follows it.
    let unknown = Change::AddRegion { id: 1, name: "one".into() };
    assert_eq!(editor.shared.store.commit(0, &[unknown]).await, Ok(1));
    let (shared, runtime) = (editor.shared.clone(), tokio::runtime::Handle::current());
    let seen = tokio::task::spawn_blocking(move || {
        let panicked = surviving(&shared, || panic!("as the test wants it"));
        follow::see_again(&shared, &runtime);
        panicked
    });
    assert_eq!(seen.await.expect("it is survived"), Err::<(), _>("as the test wants it".to_owned()));
    assert_eq!(editor.book().generation.number, 1);
    editor.add_region("two").await.expect("it is based on what there is");
    editor.stop().await;
}

/// What the tests have of PostgreSQL.
const POSTGRES: &str = "/usr/lib/postgresql/15/bin/postgres";

/// An editor of a shared store, who learns of others' changes only where it looks for them.
async fn alone(url: &str) -> Editor {
    let store = Store::open(url).await.expect("a store");
    let contents = store.load().await.expect("it is read");
    let book = Book::load(contents, 1, Settings::default()).expect("it is served");
    let published = Arc::new(Published::new(book.generation.clone(), 2));
    let editor = Editor::start(store, book, published).expect("a thread");
    let following = lock(&editor.shared.following.task).take().expect("the store is shared");
    following.abort();
    let _ = following.await;
    editor
}

/// What was logged.
#[derive(Clone, Default)]
struct Lines(Arc<Mutex<Vec<u8>>>);

impl io::Write for Lines {
    fn write(&mut self, octets: &[u8]) -> io::Result<usize> {
        lock(&self.0).write(octets)
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

#[tokio::test]
async fn what_was_counted_in_a_partition_is_logged_in_plain_fields() {
    let folder = Folder::new();
    let editor = start(&folder).await;
    let counts = vec![("records", 115_521), ("ranks_deep", 3)];
    let loading = Loading { name: "edge".into(), sources: vec!["mrt"], outcome: Outcome::Read(counts) };
    let log = Lines::default();
    let lines = log.clone();
    let lines = tracing_subscriber::fmt().with_ansi(false).with_writer(move || lines.clone());
    tracing::subscriber::with_default(lines.finish(), || editor.note(vec![loading], true));
    let log = String::from_utf8(lock(&log.0).clone()).expect("it is text");
    let told = "the partition was read: records=115521 ranks_deep=3 partition=\"edge\"";
    assert!(log.contains(told), "{log}");
    editor.stop().await;
}

/// A PostgreSQL, and the name of an empty database in it; `None` where there is none, or no driver.
async fn postgres() -> Option<(Database, String)> {
    if !std::path::Path::new(POSTGRES).exists() {
        eprintln!("skipped: there is no {POSTGRES}");
        return None;
    }
    let database = Database::start(Kind::Postgres);
    let name = database.empty();
    // This crate by itself has no driver; with the program or the store it has.
    if let Err(store::OpenError::Unsupported { .. }) = Store::open(&database.url(&name)).await {
        eprintln!("skipped: the store is built without PostgreSQL; test it together with this crate");
        return None;
    }
    Some((database, name))
}

#[tokio::test]
async fn what_cannot_be_loaded_is_told_and_tried_again_after_a_pause() {
    let Some((database, name)) = postgres().await else { return };
    let editor = alone(&database.url(&name)).await;
    let catch_up = async || {
        let (shared, runtime) = (editor.shared.clone(), tokio::runtime::Handle::current());
        tokio::task::spawn_blocking(move || follow::catch_up(&shared, &runtime)).await.expect("it ends");
        editor.following().failed.load(Ordering::Relaxed)
    };
    // It can be looked at, and not be loaded.
    database.sql(&name, "ALTER TABLE import RENAME TO aside");
    database.sql(&name, r#"INSERT INTO "partition" (name, text) VALUES ('edge', '10.0.0.0/8,-')"#);
    assert_eq!(catch_up().await, 1);
    let later = |by: Duration| lock(&editor.shared.following.stuck).as_mut().expect("it is").wait(by);
    later(Duration::from_secs(100));
    assert_eq!(catch_up().await, 1, "it is too early");
    let state = editor.status().store;
    assert!(!state.ok && state.stuck_since.is_some_and(|since| since > 1_700_000_000), "{state:?}");
    let told = state.message.unwrap_or_default();
    assert!(told.starts_with("what others changed could not be loaded, tried once"), "{told}");
    assert!(told.contains("\"import\" does not exist"), "{told}");
    // Nor does a change that would be on top of it have it tried.
    let refused = editor.add_region("one").await;
    assert!(
        matches!(&refused, Err(Refused::Store(why)) if why.contains("could not be loaded")),
        "{refused:?}"
    );
    assert_eq!(editor.following().failed.load(Ordering::Relaxed), 1);

    later(Duration::ZERO);
    assert_eq!(catch_up().await, 2);
    database.sql(&name, "ALTER TABLE aside RENAME TO import");
    later(Duration::ZERO);
    assert_eq!(catch_up().await, 2);
    assert_eq!(editor.status().store, api::StoreState { ok: true, message: None, stuck_since: None });
    assert!(editor.book().partition("edge").is_some());
    editor.add_region("one").await.expect("it is taken");
    editor.stop().await;
}

#[tokio::test]
async fn tables_that_were_mended_are_served_and_the_log_says_so_once() {
    let Some((database, name)) = postgres().await else { return };
    let editor = alone(&database.url(&name)).await;
    let caught_up = async || {
        let (shared, runtime) = (editor.shared.clone(), tokio::runtime::Handle::current());
        let log = Lines::default();
        let lines = log.clone();
        let lines = tracing_subscriber::fmt().with_ansi(false).with_writer(move || lines.clone());
        let subscriber = lines.finish();
        let work = move || {
            tracing::subscriber::with_default(subscriber, || follow::catch_up(&shared, &runtime));
        };
        tokio::task::spawn_blocking(work).await.expect("it ends");
        String::from_utf8(lock(&log.0).clone()).expect("it is text")
    };
    const AGAIN: &str = "INFO nameserver::edit::follow: what the store holds can be served again, and is";
    let put = |text: &str| {
        database.sql(&name, "DELETE FROM \"partition\"");
        let text = format!("INSERT INTO \"partition\" (name, text) VALUES ('edge', '{text}')");
        database.sql(&name, &text);
    };
    for generation in 1..3 {
        for wrong in ["10.0.0.0/8,one", "10.0.0.0/33,-"] {
            put(wrong);
            let log = caught_up().await;
            assert!(log.contains("what the store holds is not served") && !log.contains(AGAIN), "{log}");
            assert!(editor.store_complaint().is_some());
            assert_eq!(caught_up().await, "");
        }
        put("10.0.0.0/8,-");
        let log = caught_up().await;
        assert!(log.contains(&format!("{AGAIN} generation={generation}")), "{log}");
        assert_eq!((editor.store_complaint(), editor.book().generation.number), (None, generation));
        // What goes on needs no word.
        assert_eq!(caught_up().await, "");
    }
    put("10.1.0.0/16,-");
    let log = caught_up().await;
    assert!(!log.contains(AGAIN), "{log}");
    editor.stop().await;
}

#[tokio::test]
async fn a_shared_store_decides_what_is_refused() {
    let Some((mut database, name)) = postgres().await else { return };
    let url = database.url(&name);
    let (first, second) = (alone(&url).await, alone(&url).await);
    let text = |regions: &str| format!("10.0.0.0/8,{regions}\n").into_bytes();
    let tag = |editor: &Editor| editor.book().partition("edge").expect("it is there").1;

    // What the other has put is there, and what it has deleted is not.
    first.add_region("one").await.expect("it is taken");
    first.put_partition("edge", text("one"), Condition::Always).await.expect("it is taken");
    let before = tag(&first);
    second.delete_partition("edge", Condition::Is(before)).await.expect("it is there");
    let gone = first.delete_partition("edge", Condition::Always).await;
    assert!(matches!(gone, Err(Refused::NotFound(_))), "{gone:?}");
    // What is based on an older state is told the tag of the newer.
    first.put_partition("edge", text("one"), Condition::Always).await.expect("it is taken");
    let before = tag(&first);
    second.put_partition("edge", text("-"), Condition::Always).await.expect("it is taken");
    let refused = second.delete_partition("edge", Condition::Is(before)).await;
    assert_eq!(refused, Err(Refused::Precondition { current: Some(tag(&second)) }));

    // Of many that wait together each gets what holds for it.
    let (there, missing) = (first.remove_region(1), first.remove_region(7));
    let (there, missing) = tokio::join!(there, missing);
    assert!(there.is_ok() && matches!(missing, Err(Refused::NotFound(_))), "{there:?} {missing:?}");

    // A store that cannot be asked refuses nothing. Whoever is connecting just then goes on meanwhile: the database waits for
    // a minute for what a new client has to say first.
    tokio::task::spawn_blocking(move || database.kill()).await.expect("it runs");
    let unknown = second.delete_partition("none", Condition::Always).await;
    assert!(matches!(unknown, Err(Refused::Store(_))), "{unknown:?}");
    first.stop().await;
    second.stop().await;
}
