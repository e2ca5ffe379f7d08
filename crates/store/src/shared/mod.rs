//! The store in a database that several name servers share.
//!
//! Whoever changes what is served, a name server or another program, holds the one row of `writer` until the end of its
//! transaction, so that changes are numbered in the order in which others see them. Triggers log the changes of other
//! programs; a name server that finds them validates what there is then, and publishes it as the next generation. The
//! number of a generation is a key: of two who would publish the same, one wins, and the other is told.
//!
//! - `sql`: a connection, the same for both databases.
//! - `tables`: the versions of the tables.
//! - `apply`: a change in SQL.
//! - `failed`: how a call ended that brought nothing.
//! - `news`: what there is above a generation.
//! - `watch`: waits until there may be something.

mod apply;
mod failed;
mod news;
pub(crate) mod sql;
pub(crate) mod tables;
mod watch;

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::path::PathBuf;
use std::sync::PoisonError;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use tokio::sync::Mutex;
use tokio::sync::watch::Sender;
use tokio::time::Instant;

use self::apply::{ROWS_PER_STATEMENT, Stopped};
use self::failed::Failed;
pub use self::news::{CHANGES_KEPT, News, Parts, Seen, Standing};
use self::sql::{ALIVE_WAIT, Place, Sql, late, values};
pub use self::watch::{POLL_INTERVAL, RECONNECT_MAX, RECONNECT_MIN, Watch};
use crate::apply::GENERATIONS_KEPT;
use crate::change::{Change, describe, now};
use crate::contents::Contents;
use crate::error::{CHECK_WAIT, CommitError, OpenError, StoreError, is_deadlock, shown};
use crate::health::{Held, Verdict};

/// How many refusals are kept.
pub const REFUSALS_KEPT: i64 = 1_000;

/// The longest reason that is stored with a refusal, in bytes: a screen or two of faults.
const REASON_MAX: usize = 8_000;

/// How long a call may take in all. One that gets its answers is only slow: a large import into a database far away
/// takes a hundred thousand statements of 15 ms. Nobody else can publish meanwhile, so it is not for ever.
pub const CALL_WAIT: Duration = Duration::from_secs(30 * 60);

/// How long calls go on after [`Store::leave`](crate::Store::leave): a database that is well needs less, and who
/// stops must be done before systemd kills it, with time to tell those who wait.
pub const LEAVE_WAIT: Duration = Duration::from_secs(5);

/// How often a commit is tried that a program without our order of locks makes the database break off.
const DEADLOCKS_MAX: usize = 5;

/// A store in a database that others have open, too.
pub struct Shared {
    /// The URL without its password: what errors call the database.
    path: PathBuf,
    place: Place,
    /// What the generations of this process are signed with.
    publisher: String,
    /// Absent after a call that failed or was cancelled: what state such a connection is in is not worth
    /// finding out, and the next call makes a new one.
    connection: Mutex<Option<Link>>,
    /// Which generation this process has, and whose: a database that was put back has others under the same numbers.
    has: std::sync::Mutex<Option<(u64, u64)>>,
    /// When calls end that have no answer by then, once this process stops.
    leaving: Sender<Option<Instant>>,
}

/// A connection, and whether its open transaction has the turn to change what is served.
struct Link {
    sql: Sql,
    has_turn: bool,
}

impl fmt::Debug for Shared {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        // The place has a password.
        f.debug_struct("Shared").field("path", &self.path).finish_non_exhaustive()
    }
}

impl Shared {
    /// The store at a URL, to be opened or read; `None` where it is not of a shared one.
    pub(crate) fn at(url: &str) -> Result<Option<Shared>, OpenError> {
        let Some(place) = Place::read(url)? else { return Ok(None) };
        let path = PathBuf::from(shown(url));
        let now = SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |since| since.as_nanos());
        let host = nix::unistd::gethostname().unwrap_or_default();
        // A process id comes again, and so does a host's name; not at the same moment, too.
        let publisher = format!("{}:{}:{now:x}", host.to_string_lossy(), std::process::id());
        Ok(Some(Shared {
            path,
            place,
            publisher,
            connection: Mutex::default(),
            has: std::sync::Mutex::default(),
            leaving: Sender::default(),
        }))
    }

    /// Connects, and brings the tables up to date.
    pub(crate) async fn open(self) -> Result<Shared, OpenError> {
        let mut sql = self.connect().await?;
        let versions = tables::versions(&sql);
        tables::migrate(&mut sql, &self.path, versions).await?;
        *self.connection.lock().await = Some(Link::new(sql));
        Ok(self)
    }

    /// Reads what the database holds and changes nothing; `None` where its tables are not there.
    pub(crate) async fn peek(&self) -> Result<Option<Contents>, OpenError> {
        let mut sql = self.connect().await?;
        let versions = tables::versions(&sql);
        if !tables::are_current(&mut sql, &self.path, versions).await? {
            return Ok(None);
        }
        let (_, contents) = self.store(news::load(&mut sql).await)?;
        Ok(Some(contents))
    }

    /// Waits for changes, on a connection of its own.
    pub fn watch(&self) -> Watch {
        Watch::new(self.place.clone())
    }

    pub(crate) async fn load(&self) -> Result<Contents, StoreError> {
        let (seen, contents) = self.store(self.lent(async |sql| news::load(sql).await).await)?;
        // Whoever loads again says by `Shared::take` whether it goes on from that.
        self.has().get_or_insert((seen.generation, seen.publisher));
        Ok(contents)
    }

    /// Says that this process goes on from a generation that was seen. One that it has published, or loaded before all
    /// else, it goes on from anyway.
    pub fn take(&self, seen: Seen) {
        *self.has() = Some((seen.generation, seen.publisher));
    }

    /// Whether a generation that was seen is another one than that of the same number which this process goes on from: the
    /// database was put back.
    pub fn is_another(&self, seen: Seen) -> bool {
        self.publisher_of(seen.generation).is_some_and(|publisher| publisher != seen.publisher)
    }

    /// Which generation and which changes there are.
    ///
    /// # Errors
    ///
    /// [`StoreError`].
    pub async fn look(&self) -> Result<Seen, StoreError> {
        self.store(self.linked(async |link| Ok(Seen::look(&mut link.sql).await?)).await)
    }

    /// Takes the turn to change what is served, so that nobody else publishes anything before the next commit of ours.
    /// It is kept for [`Shared::look`] and [`Shared::news`], and ends with any other call.
    ///
    /// # Errors
    ///
    /// [`StoreError`].
    pub async fn take_turn(&self) -> Result<(), StoreError> {
        let done = self.linked(async |link| {
            if !link.has_turn {
                link.sql.begin_writing().await?;
                link.has_turn = true;
            }
            Ok(())
        });
        self.store(done.await)
    }

    /// Ends the turn, where it was not used.
    ///
    /// # Errors
    ///
    /// [`StoreError`].
    pub async fn end_turn(&self) -> Result<(), StoreError> {
        self.store(self.lent(async |_| Ok(())).await)
    }

    /// Loads what there is above a generation; everything, where the database was put back since and has another one under
    /// its number.
    ///
    /// # Errors
    ///
    /// [`StoreError::Corrupt`] where something stored cannot be, or another [`StoreError`].
    pub async fn news(&self, above: u64) -> Result<News, StoreError> {
        let (above, publisher) = (above.cast_signed(), self.publisher_of(above));
        let done = self.linked(async |link| {
            if link.has_turn {
                return news::news(&mut link.sql, above, publisher).await;
            }
            link.sql.begin_reading().await?;
            let news = news::news(&mut link.sql, above, publisher).await?;
            link.sql.raw("COMMIT").await?;
            Ok(news)
        });
        self.store(done.await)
    }

    pub(crate) async fn commit(&self, based_on: u64, changes: &[Change]) -> Result<u64, CommitError> {
        for _ in 1..DEADLOCKS_MAX {
            match self.linked(async |link| self.publish(link, based_on, changes).await).await {
                Err(Failed::Sql(error)) if is_deadlock(&error) => {}
                done => return self.verdict(done),
            }
        }
        self.verdict(self.linked(async |link| self.publish(link, based_on, changes).await).await)
    }

    /// Publishes what the tables hold, with `changes` on top of it, as the next generation, after that was found to be
    /// servable as of `seen`. Of several who do so one wins, so that the changes are made once.
    ///
    /// # Errors
    ///
    /// [`CommitError::Conflict`] where there is more than `seen` by now, [`CommitError::Refused`] for a change that
    /// cannot be stored, or a [`StoreError`].
    pub async fn publish_direct(&self, seen: Seen, changes: &[Change]) -> Result<u64, CommitError> {
        let done = self.lent(async |sql| {
            sql.begin_writing().await?;
            let now = Seen::look(sql).await?;
            if now != seen {
                sql.raw("ROLLBACK").await?;
                return Err(Failed::Verdict(CommitError::Conflict { current: now.generation }));
            }
            let number = seen.generation.cast_signed() + 1;
            let last = make(sql, number, seen.changes.cast_signed(), changes).await?;
            sql.run("DELETE FROM zone_before", values![]).await?;
            let mut what = format!("changes {} to {} made directly", seen.published + 1, seen.changes);
            if !changes.is_empty() {
                what = format!("{what}; {}", describe(changes));
            }
            self.record(sql, number, &what, last).await?;
            sql.raw("COMMIT").await?;
            Ok(self.published(number))
        });
        self.verdict(done.await)
    }

    /// Notes that changes up to a number cannot be served, and why.
    ///
    /// # Errors
    ///
    /// [`StoreError`].
    pub async fn refuse(&self, changes: u64, why: &str) -> Result<(), StoreError> {
        let (changes, why) = (changes.cast_signed(), shortened(why));
        let done = self.lent(async |sql| {
            // Several name servers come to the same end: the first one writes it down.
            sql.begin_writing().await?;
            let text = "INSERT INTO refusal (changes, at, what) SELECT ?, ?, ? FROM writer \
                            WHERE NOT EXISTS (SELECT 1 FROM refusal WHERE changes = ?)";
            sql.run(text, values![changes, now(), why, changes]).await?;
            // The newest of them stay.
            let text = "SELECT changes FROM refusal ORDER BY changes DESC LIMIT 1 OFFSET ?";
            let last: Vec<(i64,)> = sql.rows(text, values![REFUSALS_KEPT]).await?;
            if let Some((last,)) = last.first() {
                sql.run("DELETE FROM refusal WHERE changes <= ?", values![*last]).await?;
            }
            sql.raw("COMMIT").await?;
            Ok(())
        });
        self.store(done.await)
    }

    pub(crate) async fn has_published(&self, number: u64) -> Result<bool, StoreError> {
        let (number, publisher) = (number.cast_signed(), self.publisher.as_str());
        let done = self.lent(async |sql| {
            let text = "SELECT publisher FROM generation WHERE number = ?";
            let found: Vec<(String,)> = sql.rows(text, values![number]).await?;
            let is_ours = found.first().is_some_and(|(by,)| by == publisher);
            if is_ours {
                self.published(number);
            }
            Ok(is_ours)
        });
        self.store(done.await)
    }

    pub(crate) async fn remember(&self, verdicts: &[Verdict]) -> Result<(), StoreError> {
        let done = self.lent(async |sql| {
            // One at a time, as all who write: two name servers learn of the same server. Nobody else publishes
            // meanwhile, so a statement has many of them: far away, each takes the time of a journey.
            sql.begin_writing().await?;
            for verdicts in verdicts.chunks(ROWS_PER_STATEMENT) {
                remember(sql, verdicts).await?;
            }
            sql.raw("COMMIT").await?;
            Ok(())
        });
        self.store(done.await)
    }

    pub(crate) async fn confirm(&self, times: &BTreeMap<String, u64>) -> Result<(), StoreError> {
        let done = self.lent(async |sql| {
            // As above.
            sql.begin_writing().await?;
            apply::confirm(sql, times).await?;
            sql.raw("COMMIT").await?;
            Ok(())
        });
        self.store(done.await)
    }

    pub(crate) async fn check(&self) -> Result<(), StoreError> {
        let slow = || StoreError::Slow { path: self.path.clone() };
        let checked = self.lent(async |sql| {
            sql.begin_writing().await?;
            sql.raw("ROLLBACK").await?;
            Ok(())
        });
        self.store(tokio::time::timeout(CHECK_WAIT, checked).await.map_err(|_| slow())?)
    }

    /// Has calls end within [`LEAVE_WAIT`] from the first time that this is said.
    pub(crate) fn leave(&self) {
        self.leaving.send_if_modified(|by| {
            let is_first = by.is_none();
            by.get_or_insert_with(|| Instant::now() + LEAVE_WAIT);
            is_first
        });
    }

    pub(crate) async fn close(self) -> Result<(), StoreError> {
        let Some(link) = self.connection.lock().await.take() else { return Ok(()) };
        tokio::select! {
            biased;
            closed = link.sql.close() => closed.map_err(|error| StoreError::sort_shared(&self.path, &error)),
            // It ends with its connection.
            () = self.left() => Ok(()),
        }
    }

    async fn connect(&self) -> Result<Sql, StoreError> {
        self.place.connect().await.map_err(|error| StoreError::sort_shared(&self.path, &error))
    }

    fn has(&self) -> std::sync::MutexGuard<'_, Option<(u64, u64)>> {
        self.has.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Whose a generation is that this process has; `None` where it has another.
    fn publisher_of(&self, generation: u64) -> Option<u64> {
        let has = *self.has();
        has.and_then(|(number, publisher)| (number == generation).then_some(publisher))
    }

    /// Notes that a generation of ours is in the database; returns its number.
    fn published(&self, number: i64) -> u64 {
        let number = number.cast_unsigned();
        *self.has() = Some((number, news::mark(&self.publisher)));
        number
    }

    /// Makes a call on the connection, without a turn.
    async fn lent<T>(&self, call: impl AsyncFnOnce(&mut Sql) -> Result<T, Failed>) -> Result<T, Failed> {
        let ended = self.linked(async |link| {
            if std::mem::take(&mut link.has_turn) {
                link.sql.raw("ROLLBACK").await?;
            }
            call(&mut link.sql).await
        });
        ended.await
    }

    /// Makes a call on the connection, unless this process stops before it is answered.
    async fn linked<T>(&self, call: impl AsyncFnOnce(&mut Link) -> Result<T, Failed>) -> Result<T, Failed> {
        tokio::select! {
            biased;
            // An answer that has come is told, however late it is.
            answered = self.answered(call) => answered,
            () = self.left() => Err(Failed::Left),
        }
    }

    /// Returns when calls are to end because this process stops.
    async fn left(&self) {
        let mut leaving = self.leaving.subscribe();
        let by = leaving.wait_for(Option::is_some).await.ok().and_then(|by| *by);
        match by {
            Some(by) => tokio::time::sleep_until(by).await,
            // Whose sender is gone will not be told.
            None => std::future::pending().await,
        }
    }

    /// Makes a call on the connection, which is kept where the call leaves it in a known state. A connection that was
    /// made before may have been lost without a sign; one that begins with that is made anew, once.
    async fn answered<T>(&self, call: impl AsyncFnOnce(&mut Link) -> Result<T, Failed>) -> Result<T, Failed> {
        let mut slot = self.connection.lock().await;
        let mut link = match slot.take() {
            Some(mut link) => match tokio::time::timeout(ALIVE_WAIT, link.sql.raw("SELECT 1")).await {
                Ok(Ok(())) => link,
                Ok(Err(_)) => Link::new(self.place.connect().await?),
                Err(_) => return Err(late().into()),
            },
            None => Link::new(self.place.connect().await?),
        };
        let result = tokio::time::timeout(CALL_WAIT, call(&mut link)).await.map_err(|_| late())?;
        if matches!(result, Ok(_) | Err(Failed::Verdict(_))) {
            *slot = Some(link);
        }
        result
    }

    /// The transaction of a commit: that of the turn, where there is one.
    async fn publish(&self, link: &mut Link, based_on: u64, changes: &[Change]) -> Result<u64, Failed> {
        let sql = &mut link.sql;
        let last = if std::mem::take(&mut link.has_turn) {
            sql.last_change().await?
        } else {
            sql.begin_writing().await?
        };
        let seen = Seen::look(sql).await?;
        let generation = seen.generation;
        let verdict = if generation != based_on || self.is_another(seen) {
            Some(CommitError::Conflict { current: generation })
        } else if seen.published.cast_signed() != last {
            Some(CommitError::Unpublished)
        } else {
            None
        };
        if let Some(verdict) = verdict {
            sql.raw("ROLLBACK").await?;
            return Err(Failed::Verdict(verdict));
        }
        let number = generation.cast_signed() + 1;
        let last = make(sql, number, last, changes).await?;
        self.record(sql, number, &describe(changes), last).await?;
        sql.raw("COMMIT").await?;
        Ok(self.published(number))
    }

    /// Records a generation that has the changes up to a number, and forgets the oldest of both.
    async fn record(&self, sql: &mut Sql, number: i64, what: &str, changes: i64) -> Result<(), sqlx::Error> {
        let text = "INSERT INTO generation (number, at, what, changes, publisher) VALUES (?, ?, ?, ?, ?)";
        sql.run(text, values![number, now(), what, changes, self.publisher.as_str()]).await?;
        sql.run("DELETE FROM generation WHERE number <= ?", values![number - GENERATIONS_KEPT]).await?;
        sql.run("DELETE FROM change_log WHERE number <= ?", values![changes - CHANGES_KEPT]).await?;
        Ok(())
    }

    fn verdict<T>(&self, done: Result<T, Failed>) -> Result<T, CommitError> {
        done.map_err(|failed| match failed {
            Failed::Verdict(verdict) => verdict,
            Failed::Sql(error) => StoreError::sort_shared(&self.path, &error).into(),
            Failed::Corrupt(what) => StoreError::Corrupt { path: self.path.clone(), what }.into(),
            Failed::Left => StoreError::Left { path: self.path.clone() }.into(),
        })
    }

    fn store<T>(&self, done: Result<T, Failed>) -> Result<T, StoreError> {
        self.verdict(done).map_err(|error| match error {
            CommitError::Store(error) => error,
            other => StoreError::Failed { path: self.path.clone(), cause: other.to_string() },
        })
    }
}

impl Link {
    fn new(sql: Sql) -> Link {
        Link { sql, has_turn: false }
    }
}

/// Makes the changes of what becomes a generation, and logs them behind the change of number `last`; returns the number
/// of the last. Where one is refused the transaction has ended.
async fn make(sql: &mut Sql, generation: i64, mut last: i64, changes: &[Change]) -> Result<i64, Failed> {
    match apply::apply(sql, generation, changes).await {
        Ok(()) => {}
        Err(Stopped::Sql(error)) => return Err(error.into()),
        Err(Stopped::Refused(change, what)) => {
            sql.raw("ROLLBACK").await?;
            return Err(Failed::Verdict(CommitError::Refused { change, what }));
        }
    }
    let changed: BTreeSet<_> = changes.iter().flat_map(apply::changed).collect();
    let mut rows = Vec::with_capacity(changed.len());
    for (table, name) in changed {
        last += 1;
        rows.push(values![last, now(), table, name.map(String::from)]);
    }
    apply::insert(sql, "change_log (number, at, what, name)", rows).await?;
    sql.run("UPDATE writer SET changes = ?", values![last]).await?;
    Ok(last)
}

/// Stores verdicts over those of the same server and probe, as many as one statement can have.
async fn remember(sql: &mut Sql, verdicts: &[Verdict]) -> Result<(), sqlx::Error> {
    // Of two of the same server and probe the last one holds.
    let last: BTreeMap<(String, &str), Option<Held>> =
        verdicts.iter().map(|of| ((of.server.to_string(), of.probe.as_str()), of.held)).collect();
    let (mut keys, mut rows) = (Vec::with_capacity(2 * last.len()), Vec::new());
    for ((server, probe), held) in &last {
        keys.extend(values![server.as_str(), *probe]);
        if let Some(held) = held {
            let since = held.since.cast_signed();
            rows.push(values![server.as_str(), *probe, i64::from(held.failing), since]);
        }
    }
    let list = vec!["(?, ?)"; last.len()].join(", ");
    sql.run(&format!("DELETE FROM health WHERE (server, probe) IN ({list})"), keys).await?;
    apply::insert(sql, "health (server, probe, failing, since)", rows).await
}

/// As much of a reason as is stored.
fn shortened(why: &str) -> &str {
    &why[..why.floor_char_boundary(REASON_MAX)]
}
