//! Probes in time: each server under a probe has a task that sleeps, waits for a place, checks, and tells the table.

use std::future::Future;
use std::sync::atomic::Ordering;
use std::sync::{Arc, Weak};
use std::time::Duration;

use api::Target;
use fastrand::Rng;
use net::clock::Clock;
use net::shutdown::Shutdown;
use tokio::sync::Semaphore;
use tokio::task::JoinSet;
use tokio::time::{Instant, sleep, sleep_until, timeout};

use super::probe::{Probe, Probes};
use super::record::{Outcome, Reason};
use super::table::{Slot, Table};
use crate::edit::Editor;

/// How many probes run at a time: each takes a descriptor, and a command a process; more wait, and are counted.
pub const AT_ONCE_MAX: usize = 64;

/// Within which time after its slot a server is probed first, at random: soon, and not all at once.
const FIRST_WITHIN: Duration = Duration::from_secs(1);

/// By how much of it an interval is longer or shorter, so that probes that began together do not stay so.
const JITTER: f64 = 0.1;

/// How long changed verdicts are gathered before they are stored: one sync of the disk for all.
const KEPT_AFTER: Duration = Duration::from_secs(1);

/// How long verdicts wait that the store did not take: it may be away for hours, and each try may wait for it.
const KEPT_AGAIN_AFTER: Duration = Duration::from_secs(5);

/// What is told where a policy names a probe that is configured no more.
const NO_PROBE: &str = "the configuration has no [[probe]] of this name";

/// Probes every server of the table by `check` until the shutdown begins.
pub async fn run<C, F>(
    table: Arc<Table>,
    probes: Arc<Probes>,
    check: C,
    clock: Clock,
    mut rng: Rng,
    shutdown: Shutdown,
) where
    C: Fn(Arc<Probe>, Target) -> F + Clone + Send + 'static,
    F: Future<Output = Outcome> + Send + 'static,
{
    let places = Arc::new(Semaphore::new(AT_ONCE_MAX));
    let mut watches = JoinSet::new();
    loop {
        for slot in table.take_unwatched() {
            let Some(probe) = probes.get(&slot.key().1) else {
                let (server, probe) = slot.key();
                tracing::warn!(%server, probe, "not probed: {NO_PROBE}");
                table.give_up(&slot, NO_PROBE);
                continue;
            };
            watches.spawn(watch(Watch {
                table: table.clone(),
                server: slot.key().0.clone(),
                slot: Arc::downgrade(&slot),
                probe: probe.clone(),
                check: check.clone(),
                places: places.clone(),
                clock,
                rng: rng.fork(),
            }));
        }
        tokio::select! {
            () = shutdown.wait() => break,
            () = table.added() => {}
            Some(_) = watches.join_next() => {}
        }
    }
    // What runs ends now, commands too.
    watches.shutdown().await;
}

/// Stores changed verdicts until the shutdown begins, and once more then.
pub async fn keep(table: Arc<Table>, editor: Editor, shutdown: Shutdown) {
    let mut first = Wait::Change;
    loop {
        let is_last = shutdown.is_begun();
        for wait in [first, Wait::Gather] {
            tokio::select! {
                () = shutdown.wait() => {}
                () = wait.over(&table) => {}
            }
        }
        let unkept = table.take_unkept();
        let verdicts = unkept.iter().map(|((server, probe), record)| store::Verdict {
            server: server.clone(),
            probe: probe.clone(),
            held: record.as_ref().map(|record| store::Held {
                failing: record.verdict == api::ProbeVerdict::Failing,
                since: record.since,
            }),
        });
        let verdicts: Vec<_> = verdicts.collect();
        let remembered = if verdicts.is_empty() { Ok(()) } else { editor.remember(&verdicts).await };
        first = match remembered {
            Ok(()) => Wait::Change,
            Err(cause) => {
                // The store's own complaint is in the status.
                tracing::warn!(%cause, "the store did not take what probes found; it is asked again");
                table.put_back(unkept);
                Wait::Refused
            }
        };
        if is_last {
            return;
        }
    }
}

#[derive(Clone, Copy)]
enum Wait {
    Change,
    Refused,
    Gather,
}

impl Wait {
    async fn over(self, table: &Table) {
        match self {
            Wait::Change => table.changed_verdicts().await,
            Wait::Refused => sleep(KEPT_AGAIN_AFTER).await,
            Wait::Gather => sleep(KEPT_AFTER).await,
        }
    }
}

/// One server under one probe.
struct Watch<C> {
    table: Arc<Table>,
    server: Target,
    slot: Weak<Slot>,
    probe: Arc<Probe>,
    check: C,
    places: Arc<Semaphore>,
    clock: Clock,
    rng: Rng,
}

/// Probes until nothing names the slot any more.
async fn watch<C, F>(mut watch: Watch<C>)
where
    C: Fn(Arc<Probe>, Target) -> F,
    F: Future<Output = Outcome> + Send + 'static,
{
    let (table, probe) = (watch.table.clone(), watch.probe.clone());
    let mut due = Instant::now() + probe.interval.min(FIRST_WITHIN).mul_f64(watch.rng.f64());
    loop {
        sleep_until(due).await;
        if watch.slot.strong_count() == 0 {
            return;
        }
        let place = match watch.places.try_acquire() {
            Ok(place) => place,
            Err(_) => {
                table.counters.delayed.fetch_add(1, Ordering::Relaxed);
                watch.places.acquire().await.expect("places are never closed")
            }
        };
        let begun = Instant::now();
        let outcome = one(&probe, (watch.check)(probe.clone(), watch.server.clone())).await;
        drop(place);
        // The server may have left its last policy meanwhile.
        let Some(slot) = watch.slot.upgrade() else { return };
        match outcome {
            Some(outcome) => {
                let now = watch.clock.now().unix.as_secs();
                table.note(&slot, outcome, begun.elapsed(), now, (probe.rise, probe.fall));
            }
            None => {
                table.counters.panicked.fetch_add(1, Ordering::Relaxed);
                tracing::error!(server = %watch.server, probe = probe.name, "the probe panicked; it goes on");
            }
        }
        drop(slot);
        let factor = 1.0 - JITTER + 2.0 * JITTER * watch.rng.f64();
        due = (due + probe.interval.mul_f64(factor)).max(Instant::now());
    }
}

/// One check within its time; `None` where it panicked.
async fn one(probe: &Probe, check: impl Future<Output = Outcome> + Send + 'static) -> Option<Outcome> {
    let mut running = JoinSet::new();
    running.spawn(check);
    match timeout(probe.timeout, running.join_next()).await {
        Ok(Some(Ok(outcome))) => Some(outcome),
        Ok(_) => None,
        Err(_) => {
            running.shutdown().await;
            let within = probe.timeout.as_millis();
            Some(Outcome::failed(Reason::Timeout, format!("not done within {within} ms")))
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Mutex;

    use ::tests::folder::Folder;
    use api::ProbeVerdict;

    use super::super::probe::Check;
    use super::*;
    use crate::book::Book;
    use crate::generation::Settings;
    use crate::publish::Published;

    /// What a test's check does with the probe of a server.
    type Doing = Arc<Mutex<Vec<(Target, Duration)>>>;

    const INTERVAL: Duration = Duration::from_secs(10);

    fn probes(timeout: Duration) -> Arc<Probes> {
        let probe = |name: &str| Probe {
            name: name.into(),
            check: Check::Tcp(1),
            interval: INTERVAL,
            timeout,
            rise: 2,
            fall: 3,
        };
        Arc::new(["web"].map(|name| (name.to_string(), Arc::new(probe(name)))).into())
    }

    fn server(number: u32) -> Target {
        std::net::IpAddr::from((0x0A00_0000 + number).to_be_bytes()).into()
    }

    /// Runs a prober whose checks do this; returns its shutdown.
    fn start<F>(
        table: &Arc<Table>,
        timeout: Duration,
        check: impl Fn(Target) -> F + Clone + Send + 'static,
    ) -> Shutdown
    where
        F: Future<Output = Outcome> + Send + 'static,
    {
        let shutdown = Shutdown::new();
        let check = move |_: Arc<Probe>, server| check(server);
        let rng = Rng::with_seed(7);
        tokio::spawn(run(table.clone(), probes(timeout), check, Clock::new(), rng, shutdown.clone()));
        shutdown
    }

    fn passed() -> Outcome {
        Outcome::passed(Reason::Connected, "")
    }

    #[tokio::test(start_paused = true)]
    async fn servers_are_probed_apart_and_at_intervals_until_they_leave() {
        const SERVERS: u32 = 200;
        let (table, done) = (Arc::new(Table::default()), Doing::default());
        let begun = Instant::now();
        let noted = done.clone();
        start(&table, INTERVAL, move |server| {
            noted.lock().expect("nobody panics").push((server, begun.elapsed()));
            async { passed() }
        });
        let mut slots: Vec<_> = (0..SERVERS).map(|n| table.slot(&server(n), "web").expect("room")).collect();
        sleep(Duration::from_secs(1000)).await;
        {
            let done = done.lock().expect("nobody panics");
            let mut first: Vec<Duration> = done[..SERVERS as usize].iter().map(|(_, at)| *at).collect();
            assert!(first.iter().all(|at| *at <= FIRST_WITHIN));
            first.dedup();
            assert!(
                first.len() > SERVERS as usize / 4,
                "not all at once, to the clock's millisecond: {}",
                first.len()
            );
            let of = |n: u32| done.iter().filter(move |(probed, _)| *probed == server(n)).map(|(_, at)| *at);
            for n in 0..SERVERS {
                let times: Vec<Duration> = of(n).collect();
                assert!((91..=111).contains(&times.len()), "{}", times.len());
                for pair in times.windows(2) {
                    let apart = (pair[1] - pair[0]).as_secs_f64();
                    assert!((8.99..=11.01).contains(&apart), "{apart}");
                }
            }
        }
        assert_eq!(table.status().passing, u64::from(SERVERS));
        slots.truncate(1);
        done.lock().expect("nobody panics").clear();
        sleep(Duration::from_secs(100)).await;
        assert!(done.lock().expect("nobody panics").iter().all(|(probed, _)| *probed == server(0)));
        assert_eq!(table.states().len(), 1);
    }

    #[tokio::test(start_paused = true)]
    async fn a_server_falls_and_rises_and_slow_probes_time_out() {
        let table = Arc::new(Table::default());
        let well = Arc::new(Mutex::new(Duration::ZERO));
        let takes = well.clone();
        start(&table, Duration::from_secs(2), move |_| {
            let takes = *takes.lock().expect("nobody panics");
            async move {
                sleep(takes).await;
                passed()
            }
        });
        let slot = table.slot(&server(1), "web").expect("room");
        let begun = Instant::now();
        let verdict_at = async |wanted| {
            while table.verdict(&slot) != wanted {
                sleep(Duration::from_millis(100)).await;
            }
            begun.elapsed().as_secs()
        };
        assert!(verdict_at(ProbeVerdict::Passing).await <= 1);
        *well.lock().expect("nobody panics") = Duration::from_secs(3);
        // Three probes, the first within an interval, each of which takes its timeout.
        let fell = verdict_at(ProbeVerdict::Failing).await;
        assert!((28..=36).contains(&fell), "{fell}");
        let last = table.states()[0].last.clone().expect("a result");
        assert_eq!((last.reason.as_str(), last.detail.as_str()), ("timeout", "not done within 2000 ms"));
        assert_eq!(last.took_ms, 2_000);
        *well.lock().expect("nobody panics") = Duration::ZERO;
        let rose = verdict_at(ProbeVerdict::Passing).await - fell;
        assert!((14..=22).contains(&rose), "{rose}");
    }

    /// An editor of an empty store in a folder.
    async fn editor(folder: &Folder) -> Editor {
        let store = open(folder).await;
        let book = Book::empty(1, Settings::default());
        let published = Arc::new(Published::new(book.generation.clone(), 1));
        Editor::start(store, book, published).expect("an editor")
    }

    async fn open(folder: &Folder) -> store::Store {
        store::Store::open(&format!("sqlite:{}", folder.at("store.db"))).await.expect("a store")
    }

    #[tokio::test(start_paused = true)]
    async fn what_the_store_did_not_take_is_stored_without_another_change() {
        let folder = Folder::new();
        let editor = editor(&folder).await;
        let (table, shutdown) = (Arc::new(Table::default()), Shutdown::new());
        let (there, away) = (folder.at("store.db"), folder.at("away.db"));
        std::fs::rename(&there, &away).expect("it is there");
        let slot = table.slot(&server(1), "web").expect("room");
        let failed = Outcome::failed(Reason::Refused, String::new());
        table.note(&slot, failed, Duration::ZERO, 5, (1, 1));
        let keeping = tokio::spawn(keep(table.clone(), editor.clone(), shutdown.clone()));
        sleep(KEPT_AFTER * 2).await;
        let unkept = table.take_unkept();
        assert_eq!(unkept.len(), 1, "the store did not take it");
        table.put_back(unkept);
        std::fs::rename(&away, &there).expect("it is there");
        sleep(KEPT_AFTER + KEPT_AGAIN_AFTER).await;
        assert!(table.take_unkept().is_empty());
        shutdown.begin();
        keeping.await.expect("it ends");
        editor.stop().await;
        let held = open(&folder).await.load().await.expect("it is read").health;
        assert!(held[&(server(1), "web".into())].failing);
    }

    #[tokio::test]
    async fn what_was_found_before_the_shutdown_is_stored() {
        let folder = Folder::new();
        let editor = editor(&folder).await;
        let (table, shutdown) = (Arc::new(Table::default()), Shutdown::new());
        let slot = table.slot(&server(1), "web").expect("room");
        table.note(&slot, passed(), Duration::ZERO, 5, (1, 1));
        shutdown.begin();
        keep(table.clone(), editor.clone(), shutdown).await;
        assert!(table.take_unkept().is_empty());
        editor.stop().await;
    }

    #[tokio::test(start_paused = true)]
    async fn so_many_at_once_and_no_more_and_a_panic_ends_nothing() {
        let table = Arc::new(Table::default());
        let (running, most) = (Arc::new(Mutex::new(0)), Arc::new(Mutex::new(0)));
        let counted = (running.clone(), most.clone());
        start(&table, INTERVAL, move |probed| {
            let (running, most) = counted.clone();
            async move {
                assert!(probed != server(0), "this one panics");
                let now = {
                    let mut running = running.lock().expect("the panic is before it");
                    *running += 1;
                    *running
                };
                {
                    let mut most = most.lock().expect("the panic is before it");
                    *most = now.max(*most);
                }
                sleep(Duration::from_secs(3)).await;
                *running.lock().expect("the panic is before it") -= 1;
                passed()
            }
        });
        let slots: Vec<_> = (0..150).map(|n| table.slot(&server(n), "web").expect("room")).collect();
        sleep(Duration::from_secs(60)).await;
        assert_eq!(*most.lock().expect("nobody panics"), AT_ONCE_MAX);
        let read = |counter: &std::sync::atomic::AtomicU64| counter.load(Ordering::Relaxed);
        assert!(read(&table.counters.delayed) > 80, "{}", read(&table.counters.delayed));
        assert!(read(&table.counters.panicked) > 3, "{}", read(&table.counters.panicked));
        assert_eq!((table.status().passing, table.status().unknown), (149, 1));
        drop(slots);
    }

    #[tokio::test(start_paused = true)]
    async fn a_probe_that_is_configured_no_more_takes_nobody_out() {
        let key = (server(1), "old".to_string());
        let held = super::super::record::Record::remembered(true, 1);
        let table = Arc::new(Table::remembering([(key, held)]));
        let slot = table.slot(&server(1), "old").expect("room");
        assert!(table.health().is_failing(slot.id()));
        start(&table, INTERVAL, |_| async { passed() });
        sleep(Duration::from_secs(1)).await;
        assert!(!table.health().any_failing());
        assert_eq!(table.states()[0].message.as_deref(), Some(NO_PROBE));
    }
}
