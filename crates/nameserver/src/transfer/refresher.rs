//! The task that asks primaries for their zones: for the SOA record, and where that is newer for what changed (RFC 1995),
//! or for the zone (RFC 1034 §4.3.5), over one connection, of TCP or TLS.

use std::collections::{BTreeMap, HashMap};
use std::io;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::sync::Arc;
use std::time::Duration;

use dns::{Folded, Rtype};
use fastrand::Rng;
use net::clock::{Clock, Now};
use net::shutdown::Shutdown;
use net::tls::stream::Stream;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpSocket;
use tokio::task::{self, JoinSet};
use tokio::time::{sleep, timeout};

use super::counters::count;
use super::incoming::{self, Came, Incoming, Version};
use super::notifier::{routed, source};
use super::refresh::{Kept, Timers};
use super::serial::is_greater;
use super::signature::{Signer, Verifier};
use super::{Primary, Transfers};
use crate::book::Book;
use crate::edit::Editor;
use crate::zone::Zone;

/// How many zones are asked for at a time: each has a connection, and what has come of its zone in memory.
pub const AT_ONCE: usize = 8;

/// How long a primary may take to be connected to.
pub const CONNECT_WAIT: Duration = Duration::from_secs(10);

/// How long it may take for one message.
pub const MESSAGE_WAIT: Duration = Duration::from_secs(30);

/// How long it may take for a zone.
pub const ZONE_WAIT: Duration = Duration::from_secs(900);

/// How long it is gathered at least what primaries confirmed before it is stored: one sync of the disk for all.
pub const STORED_AFTER: Duration = Duration::from_secs(60);

/// How long zones that catalogs list and that are left alone stay so before it is looked again: whoever has put them may have
/// deleted them.
pub const LEFT_ALONE: Duration = Duration::from_secs(60);

/// How long to wait where there is nothing to do.
const LONG: Duration = Duration::from_secs(3_600);

/// Keeps the zones that the operator has chosen, before anything is answered from `book`: of those that have expired while
/// nobody was here, nothing is. `confirmed` is what the store knows of when that was, by origin, in Unix time in seconds.
pub fn begin(transfers: &Transfers, book: &mut Book, confirmed: &BTreeMap<String, u64>, now: Now) {
    keep(transfers, book, confirmed, now);
    while let Some(zone) = expired(transfers, now.monotonic) {
        book.set_expired(&zone, true);
    }
}

/// Takes the zones that primaries give us until `shutdown` begins, by what the operator has chosen at the time.
///
/// They are asked from the addresses in `local` where those are specific, as secondaries are told of changes: primaries know
/// us by them.
pub async fn run(
    transfers: Arc<Transfers>,
    editor: Editor,
    local: Vec<SocketAddr>,
    clock: Clock,
    mut rng: Rng,
    shutdown: Shutdown,
) {
    let (mut choices, mut changes) = (transfers.changes(), editor.published().changes());
    let mut stored_at = Duration::ZERO;
    let mut catalogs = Catalogs::default();
    let mut given = editor.book().generation.primary_zones.clone();
    let mut asking: JoinSet<Outcome> = JoinSet::new();
    let mut asked: HashMap<task::Id, Vec<u8>> = HashMap::new();
    loop {
        let now = clock.now().monotonic;
        while let Some(zone) = expired(&transfers, now) {
            set_expired(&editor, zone, true).await;
        }
        let has_followed = catalogs.follow(&transfers, &editor, now).await;
        // Who waits must not keep a generation that others have left.
        let given_now = editor.book().generation.primary_zones.clone();
        if has_followed || !Arc::ptr_eq(&given, &given_now) {
            given = given_now;
            // What is new may have been anybody's: its time begins now.
            for zone in keep(&transfers, &editor.book(), &BTreeMap::new(), clock.now()) {
                let zone = Folded::read(&zone).expect("the name of a zone is valid");
                set_expired(&editor, zone, false).await;
            }
        }
        if now >= stored_at {
            store(&transfers, &editor).await;
            stored_at = now + STORED_AFTER;
        }
        let due = || transfers.refreshes().due(now);
        while asking.len() < AT_ONCE
            && let Some((zone, told_by)) = due()
        {
            let asker = Asker { editor: editor.clone(), local: local.clone(), clock, rng: rng.fork() };
            let (name, config, given) = (zone.clone(), transfers.config(), given.clone());
            let handle = asking.spawn(async move {
                match given.named_for(&name).and_then(|named| config.primaries.of(named)) {
                    Some(primary) => asker.refresh(&name, primary, told_by).await,
                    None => Outcome::Failed("no primary gives it any more".into()),
                }
            });
            asked.insert(handle.id(), zone);
        }
        let wait = {
            let refreshes = transfers.refreshes();
            // What is due and finds no place waits for one.
            let due = refreshes.next_due().filter(|_| asking.len() < AT_ONCE);
            let stored = refreshes.unstored().next().map(|_| stored_at);
            let next =
                due.into_iter().chain(refreshes.next_expired()).chain(stored).chain(catalogs.again).min();
            next.map_or(LONG, |next| next.saturating_sub(now))
        };
        tokio::select! {
            () = shutdown.wait() => break,
            Ok(()) = choices.changed() => drop(choices.borrow_and_update()),
            // Others may have changed a catalog in the same store.
            Ok(()) = changes.changed(), if !catalogs.seen.is_empty() => drop(changes.borrow_and_update()),
            Some(ended) = asking.join_next_with_id() => {
                let (id, outcome) = match ended {
                    Ok(ended) => ended,
                    Err(cause) => (cause.id(), Outcome::Failed("asking for it has panicked: a fault of ours".into())),
                };
                let zone = asked.remove(&id).expect("each that was asked for is noted");
                note(&transfers, &editor, &zone, outcome, clock.now(), &mut rng).await;
            }
            () = transfers.notified.notified() => {}
            () = sleep(wait) => {}
        }
    }
    store(&transfers, &editor).await;
}

/// What catalogs were, as of the last time that was done what they say.
#[derive(Default)]
struct Catalogs {
    seen: Vec<Arc<Zone>>,
    /// When it is looked again, whatever they say.
    again: Option<Duration>,
}

impl Catalogs {
    /// Has those zones that catalogs list, where one is another than it was; returns whether that was so.
    async fn follow(&mut self, transfers: &Transfers, editor: &Editor, now: Duration) -> bool {
        let book = editor.book();
        let seen: Vec<Arc<Zone>> = book.catalogs().cloned().collect();
        let is_same = |(zone, seen): (&Arc<Zone>, &Arc<Zone>)| zone.has_records_of(seen);
        let are_same = seen.len() == self.seen.len() && seen.iter().zip(&self.seen).all(is_same);
        if are_same && self.again.is_none_or(|again| now < again) {
            return false;
        }
        let followed = editor.follow_catalogs().await;
        let has_failed = followed.is_err();
        match followed {
            Ok(ignored) => {
                self.seen = seen;
                for (zone, why) in transfers.ignore(ignored) {
                    let zone = Folded::read(&zone).expect("the name of a zone is valid");
                    tracing::warn!(?zone, why, "a zone that a catalog lists is left alone");
                }
            }
            // The store's own complaint is in the status.
            Err(cause) => tracing::warn!(%cause, "what catalogs list is not taken; it is tried again"),
        }
        self.again = (has_failed || !transfers.ignored().is_empty()).then(|| now + LEFT_ALONE);
        true
    }
}

/// Goes by the zones that are given; returns those that had expired and have no primary any more.
fn keep(transfers: &Transfers, book: &Book, confirmed: &BTreeMap<String, u64>, now: Now) -> Vec<Vec<u8>> {
    let zones = book.generation.primary_zones.iter().map(|zone| {
        let name = Folded::read(zone).expect("the name of a zone is valid");
        let here = book.generation.zones.all().get(&name, &book.generation.hash);
        let timers = here.and_then(|zone| Timers::of(zone.soa().data().next()?));
        (zone, Kept { timers, confirmed_at: confirmed.get(&dns::name::to_text(zone)).copied() })
    });
    transfers.refreshes().keep(zones, now)
}

/// A zone whose time is over; it is told once.
fn expired(transfers: &Transfers, now: Duration) -> Option<Folded> {
    let zone = transfers.refreshes().expired(now)?;
    let name = Folded::read(&zone).expect("the name of a zone is valid");
    tracing::error!(zone = ?name, "the zone has expired: its primary does not confirm it; it is answered SERVFAIL until it does");
    count(&transfers.counters().expired);
    Some(name)
}

/// Has the store know when zones were confirmed.
async fn store(transfers: &Transfers, editor: &Editor) {
    let unstored: Vec<(Vec<u8>, u64)> =
        transfers.refreshes().unstored().map(|(zone, at)| (zone.to_vec(), at)).collect();
    if unstored.is_empty() {
        return;
    }
    let times = unstored.iter().map(|(zone, at)| (dns::name::to_text(zone), *at)).collect();
    match editor.confirm(&times).await {
        Ok(()) => {
            let mut refreshes = transfers.refreshes();
            unstored.iter().for_each(|(zone, at)| refreshes.stored(zone, *at));
        }
        // The store's own complaint is in the status.
        Err(cause) => {
            tracing::warn!(%cause, "the store did not take when zones were confirmed; it is asked again");
        }
    }
}

async fn set_expired(editor: &Editor, zone: Folded, expired: bool) {
    if let Err(cause) = editor.set_expired(zone.clone(), expired).await {
        tracing::error!(?zone, %cause, expired, "whether the zone has expired could not be published");
    }
}

/// Notes how asking for a zone has ended.
async fn note(
    transfers: &Transfers,
    editor: &Editor,
    zone: &[u8],
    outcome: Outcome,
    now: Now,
    rng: &mut Rng,
) {
    let counters = transfers.counters();
    let name = Folded::read(zone).expect("the name of a zone is valid");
    match outcome {
        Outcome::Confirmed(timers) => {
            count(&counters.confirmed);
            if transfers.refreshes().confirmed(zone, timers, now, rng) {
                tracing::info!(zone = ?name, "the zone's primary confirms it again");
                set_expired(editor, name, false).await;
            }
        }
        Outcome::Taken { version, primary, records, steps } => {
            count(&counters.taken);
            if steps > 0 {
                count(&counters.taken_incrementally);
            }
            let serial = version.serial;
            tracing::info!(zone = ?name, serial, records, steps, %primary, "a zone was taken from its primary");
            transfers.refreshes().confirmed(zone, version.timers, now, rng);
        }
        Outcome::Failed(why) => {
            count(&counters.failed);
            let is_new = transfers.refreshes().failed(zone, why.clone(), now.monotonic, rng);
            if is_new {
                tracing::warn!(zone = ?name, why, "a zone cannot be had of its primary");
            }
            // Another name server on the same store may have put it since.
            let book = editor.book();
            let here = book.generation.zones.all().get(&name, &book.generation.hash);
            if transfers.refreshes().is_expired(zone) && here.is_some_and(|zone| !zone.is_expired()) {
                set_expired(editor, name, true).await;
            }
        }
    }
}

/// How asking for a zone has ended.
enum Outcome {
    /// It is as it was.
    Confirmed(Timers),
    /// It is here now.
    Taken { version: Version, primary: SocketAddr, records: usize, steps: usize },
    /// Nobody gives it; why, by address.
    Failed(String),
}

/// Asks for one zone.
struct Asker {
    editor: Editor,
    local: Vec<SocketAddr>,
    clock: Clock,
    rng: Rng,
}

/// A version of a zone that is not here yet.
struct Newer {
    version: Version,
    came: Came,
    /// The version that is here, where what changed since was asked for.
    since: Option<Arc<Zone>>,
}

impl Asker {
    /// Asks one address after the other, who told of a change first, until one has the zone and it can be served.
    async fn refresh(mut self, zone: &[u8], primary: &Primary, told_by: Option<IpAddr>) -> Outcome {
        let zone = Folded::read(zone).expect("the name of a zone is valid");
        let mut failed = Vec::new();
        let mut addresses = primary.addresses.clone();
        addresses.sort_by_key(|address| Some(address.ip().to_canonical()) != told_by);
        for address in addresses {
            match timeout(ZONE_WAIT, self.ask(&zone, primary, address)).await {
                Ok(Ok(outcome)) => return outcome,
                Ok(Err(why)) => failed.push(format!("{address}: {why}")),
                Err(_) => failed.push(format!("{address}: it takes longer than {} s", ZONE_WAIT.as_secs())),
            }
        }
        Outcome::Failed(failed.join("; "))
    }

    async fn ask(
        &mut self,
        zone: &Folded,
        primary: &Primary,
        address: SocketAddr,
    ) -> Result<Outcome, String> {
        let mut stream = connect(&self.local, primary, address).await?;
        let version = self.version(&mut stream, zone, primary).await?;
        if let Some(here) = self.here(zone) {
            if !is_greater(version.serial, here.serial()) {
                if version.serial != here.serial() {
                    let (ours, theirs) = (here.serial(), version.serial);
                    tracing::warn!(?zone, %address, ours, theirs, "the primary has an older zone; ours is kept");
                }
                return Ok(Outcome::Confirmed(version.timers));
            }
            let why = match self.transfer(&mut stream, zone, primary, Some(here)).await {
                Ok(newer) => {
                    let came_whole = matches!(newer.came, Came::Zone(_));
                    match self.serve(zone, newer, address).await {
                        Err(why) if !came_whole => why,
                        served => return served,
                    }
                }
                Err(why) => why,
            };
            tracing::info!(?zone, %address, why, "what changed in a zone cannot be had; it is asked for whole");
            // What is left of that answer may still come.
            stream = connect(&self.local, primary, address).await?;
        }
        let newer = self.transfer(&mut stream, zone, primary, None).await?;
        self.serve(zone, newer, address).await
    }

    /// What an address has of the zone.
    async fn version(
        &mut self,
        stream: &mut Stream,
        zone: &Folded,
        primary: &Primary,
    ) -> Result<Version, String> {
        let mut message = Vec::new();
        let id = self.rng.u16(..);
        let question = incoming::question(zone, Rtype::SOA, id);
        let mut verifier = self.send(stream, question, primary).await?;
        receive(stream, &mut message).await?;
        let version = incoming::version(zone, id, &message)?;
        self.believe(&mut verifier, &message)?;
        Ok(version)
    }

    /// Takes the zone, or what changed since the version that is here.
    async fn transfer(
        &mut self,
        stream: &mut Stream,
        zone: &Folded,
        primary: &Primary,
        here: Option<Arc<Zone>>,
    ) -> Result<Newer, String> {
        let id = self.rng.u16(..);
        let question = match here.as_ref().and_then(|here| here.soa().data().next()) {
            Some(soa) => incoming::question_since(zone, soa, id),
            None => incoming::question(zone, Rtype::AXFR, id),
        };
        let mut verifier = self.send(stream, question, primary).await?;
        let mut coming = Incoming::new(zone.clone(), here.as_ref().map(|here| here.serial()));
        let mut message = Vec::new();
        loop {
            receive(stream, &mut message).await?;
            let is_whole = coming.take(id, &message)?;
            self.believe(&mut verifier, &message)?;
            if is_whole {
                break;
            }
        }
        if verifier.is_some_and(|verifier| !verifier.is_whole()) {
            return Err("the last message of the zone is not signed".into());
        }
        let (came, version) = coming.finish().ok_or("the data of the SOA record is malformed")?;
        Ok(Newer { version, came, since: here })
    }

    /// Puts a version in the place of the one that is here.
    async fn serve(&self, zone: &Folded, newer: Newer, primary: SocketAddr) -> Result<Outcome, String> {
        let Newer { version, came, since } = newer;
        let source = format!("{zone:?} from {primary}");
        let (steps, served) = match (came, since) {
            (Came::Changes(differences), Some(since)) => {
                (differences.len(), self.editor.take_changes(source, since, differences).await)
            }
            (Came::Zone(text), _) => (0, self.editor.take_zone(source, zone.clone(), text).await),
            (Came::Changes(_), None) => unreachable!("they come where they are asked for"),
        };
        served.map_err(|refused| format!("it cannot be served: {refused}"))?;
        let records = self.here(zone).map_or(0, |zone| zone.records());
        Ok(Outcome::Taken { version, primary, records, steps })
    }

    /// Sends a question; returns what verifies the answer where that is to be signed.
    async fn send(
        &mut self,
        stream: &mut Stream,
        mut question: Vec<u8>,
        primary: &Primary,
    ) -> Result<Option<Verifier>, String> {
        let signer = primary.key.clone().map(|key| {
            let (mut signer, length) = (Signer::request(key), question.len());
            question.resize(length + signer.room(), 0);
            signer.sign(&mut question, length, self.clock.now().unix.as_secs()).expect("there is room");
            signer
        });
        let frame = [&net::framing::prefix(question.len())[..], &question].concat();
        let sending = timeout(MESSAGE_WAIT, async {
            stream.write_all(&frame).await?;
            stream.flush().await
        })
        .await;
        sending.map_err(|_| "it takes no question".to_string())?.map_err(cut)?;
        Ok(signer.map(|signer| signer.verifier()))
    }

    fn believe(&self, verifier: &mut Option<Verifier>, message: &[u8]) -> Result<(), String> {
        let Some(verifier) = verifier else { return Ok(()) };
        let unix = self.clock.now().unix.as_secs();
        verifier.take(message, unix).map_err(|why| format!("its answer {why}"))
    }

    /// The zone as it is served.
    fn here(&self, zone: &Folded) -> Option<Arc<Zone>> {
        let book = self.editor.book();
        book.generation.zones.all().get(zone, &book.generation.hash).cloned()
    }
}

/// Connects from the address by which the primary knows us.
async fn connect(local: &[SocketAddr], primary: &Primary, address: SocketAddr) -> Result<Stream, String> {
    let connecting = async {
        let (socket, any): (TcpSocket, IpAddr) = match address {
            SocketAddr::V4(_) => (TcpSocket::new_v4()?, Ipv4Addr::UNSPECIFIED.into()),
            SocketAddr::V6(_) => (TcpSocket::new_v6()?, Ipv6Addr::UNSPECIFIED.into()),
        };
        let from = source(local, &[address], routed, any);
        if !from.is_unspecified() {
            socket.bind(SocketAddr::new(from, 0))?;
        }
        socket.connect(address).await
    };
    let connected = async {
        let stream = connecting.await.map_err(|cause: io::Error| format!("no connection: {cause}"))?;
        let Some(tls) = &primary.tls else { return Ok(Stream::Plain(stream)) };
        tls.agree(stream).await.map_err(|why| format!("no terms over TLS: {why}"))
    };
    let connected = timeout(CONNECT_WAIT, connected).await;
    connected.map_err(|_| format!("no connection within {} s", CONNECT_WAIT.as_secs()))?
}

/// Receives one message.
async fn receive(stream: &mut Stream, message: &mut Vec<u8>) -> Result<(), String> {
    let receiving = timeout(MESSAGE_WAIT, async {
        let length = stream.read_u16().await?;
        message.resize(length.into(), 0);
        stream.read_exact(message).await
    });
    let received = receiving.await.map_err(|_| format!("no answer within {} s", MESSAGE_WAIT.as_secs()))?;
    received.map(drop).map_err(cut)
}

fn cut(cause: io::Error) -> String {
    match cause.kind() {
        io::ErrorKind::UnexpectedEof => "it closes the connection before its answer is whole".into(),
        _ => format!("the connection fails: {cause}"),
    }
}
