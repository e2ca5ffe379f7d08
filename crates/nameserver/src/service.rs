//! Start and stop: sockets bound, workers at their cores, the API beside them.
//!
//! `prepared` has all of it before anything runs.

mod prepared;

use std::collections::BTreeSet;
use std::fmt;
use std::io;
use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;
use std::thread::JoinHandle;
use std::time::Duration;

use api::{Fault, Faults, Target};
use net::clock::Clock;
use net::privileges;
use net::shutdown::Shutdown;
use net::tcp::Limits;
use net::tls::identity::Identity;
use net::xdp::Attached;
use tap::{Writer, Writing};

use self::prepared::{Bound, BoundTls, Prepared};
use crate::answering::Answering;
use crate::edit::{Applied, Editor, Refused};
use crate::external;
use crate::generation::{Generation, Settings};
use crate::health::{self, Probe, Probes, prober};
use crate::http::{self, Tcp};
use crate::import::{self, Import};
use crate::rate_limit;
use crate::signing::{Key, Signing};
use crate::transfer::update::maker;
use crate::transfer::{self, Transfers, notifier, refresher};
use crate::worker::Worker;
use crate::zone::View;

/// How many zones or addresses of views a line of the log names.
const TOLD_MAX: usize = 20;

/// How often it is looked whether signatures are to be made anew.
const RENEWAL: Duration = Duration::from_secs(60);

/// What tells the draws of probes from others that begin with the same seed.
const PROBING: u64 = 0x7072_6f62_6500_0000;

/// What tells the draws of when zones are asked for from others.
const REFRESHING: u64 = 0x7265_6672_6573_6800;

/// What the operator chose for one run of a server; what it serves is in the store and the files that are imported.
#[derive(Clone, Debug)]
pub struct Options {
    /// The addresses to answer at, over UDP and TCP.
    pub listen: Vec<SocketAddr>,
    /// The address of the HTTP API.
    pub api: SocketAddr,
    /// The token that the API asks for, where it asks for one.
    pub token: Option<String>,
    /// The store: `sqlite:PATH`.
    pub store: String,
    /// Interfaces from which queries to those addresses are taken as frames, past the kernel's network stack.
    pub xdp: Vec<String>,
    /// Worker threads for each address; a thread for each core that we may use where not given.
    pub workers: Option<usize>,
    /// What holds for all answers.
    pub settings: Settings,
    /// Whether cookies are made and checked: with the secrets that are imported, else with one drawn at start.
    pub cookies: bool,
    /// What limits the rate of answers over UDP, where that is limited.
    pub rate_limit: Option<rate_limit::Limits>,
    /// The external proximity service, where there is one.
    pub external: Option<external::Config>,
    /// Who is told of queries and answers, where somebody is.
    pub tap: Option<tap::Config>,
    /// Files to import at start, all or none of them.
    pub imports: Vec<Import>,
    /// The keys of signed zones with policies, until [`Service::reload`].
    pub signing_keys: Arc<[Key]>,
    /// The user to become once all ports are bound.
    pub user: Option<String>,
    /// What all draws begin with; drawn by the system where not given.
    pub seed: Option<u64>,
    /// What TCP clients may hold.
    pub tcp: Limits,
    /// The addresses to answer at over TLS, and what is shown to clients there, until [`Service::reload`].
    pub tls: Option<(Vec<SocketAddr>, Arc<Identity>)>,
    /// Who may take zones and is told of changes, who gives us zones, and the keys for it, until [`Service::reload`].
    pub transfer: transfer::Config,
    /// The probes that policies may name.
    pub probes: Probes,
    /// Which zones are answered from at which address, until [`Service::reload`]; all at each where there are none.
    pub views: Vec<View>,
}

/// Why a server did not start.
#[derive(Debug)]
pub enum StartError {
    /// What was given is wrong.
    Faults(Faults),
    /// What is stored is wrong, such as what a program wrote to a shared store.
    Stored(Faults),
    /// An address cannot be had.
    Bind(io::Error),
    /// Queries cannot be taken from an interface as frames.
    Frames(io::Error),
    /// The store cannot be used.
    Store(String),
    /// The file for dnstap cannot be written.
    Tap(String),
    /// Privileges cannot be given away.
    User(String),
    /// The system refused a thread or a socket.
    System(io::Error),
}

impl fmt::Display for StartError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            StartError::Faults(faults) => write!(f, "{faults}"),
            StartError::Stored(faults) => {
                write!(f, "the store holds what cannot be served: {faults}")?;
                let zones =
                    faults.faults.iter().filter_map(|fault| fault.source.strip_prefix("stored zone "));
                for zone in zones.collect::<BTreeSet<_>>() {
                    let quoted = zone.replace('\'', "''");
                    write!(
                        f,
                        "\nput {zone} right with the program that served it, or, while none runs, take it out of the store: \
                         DELETE FROM zone WHERE origin = '{quoted}'"
                    )?;
                }
                Ok(())
            }
            StartError::Bind(cause) | StartError::Frames(cause) => write!(f, "failed to {cause}"),
            StartError::User(what) => write!(f, "failed to {what}"),
            StartError::Tap(what) => f.write_str(what),
            StartError::Store(what) => f.write_str(what),
            StartError::System(cause) => write!(f, "the system refused a thread or a socket: {cause}"),
        }
    }
}

impl std::error::Error for StartError {}

/// A name server that serves.
pub struct Service {
    listening: Vec<SocketAddr>,
    listening_tls: Vec<SocketAddr>,
    /// What clients over TLS are shown, where there are any.
    identity: Option<Arc<Identity>>,
    api: SocketAddr,
    editor: Editor,
    clock: Clock,
    /// Whether cookies are made and checked.
    cookies: bool,
    transfers: Arc<Transfers>,
    shutdown: Shutdown,
    workers: Vec<JoinHandle<()>>,
    /// Held until the workers have ended: who lets go gives an interface's queries back to the sockets.
    attached: Vec<Attached>,
    /// The TCP ports, held until no worker has a socket any more: who takes the port then gets all of its datagrams.
    ports: Vec<std::net::TcpListener>,
    tasks: tokio::task::JoinSet<()>,
    tap: Option<Writing>,
}

impl Service {
    /// Holds the imports against what is stored, as a start would, and changes nothing; says what that is.
    ///
    /// # Errors
    /// All faults of the imports, or of what is stored; a user that there is not.
    pub async fn check(options: &Options) -> Result<String, Faults> {
        let mut faults = Faults::default();
        if let Some(Err(cause)) = options.user.as_deref().map(privileges::look_up) {
            faults.push(Fault::whole("user", format!("the server could not {cause}"), ""));
        }
        let stored = match store::Store::peek(&options.store).await {
            Ok(stored) => stored,
            Err(cause) => {
                faults.push(Fault::whole("store", cause.to_string(), ""));
                return Err(faults);
            }
        };
        if let Err(cause) = store::Store::check_rights(&options.store) {
            faults.push(Fault::whole("store", cause.to_string(), ""));
        }
        let held = if stored.is_some() { "what is stored in" } else { "nothing stored yet in" };
        let views = Import::Views(options.views.as_slice().into());
        let signing = Import::Signing(signing(&options.signing_keys, Clock::new()));
        let imports = [&options.imports[..], &[views, signing]].concat();
        let checked = import::check(&imports, &options.probes, &options.transfer, stored.unwrap_or_default())
            .map_err(|found| faults.append(found));
        let missing = checked.ok().and_then(|generation| named_missing(&generation));
        let missing = missing.map(|zones| format!("; views name zones that are not there: {zones}"));
        faults.or(format!("{held} {}{}", store::error::shown(&options.store), missing.unwrap_or_default()))
    }

    /// Starts everything; returns when all workers serve the stored generation with all imports, or without any where one
    /// has a fault and zones are stored.
    ///
    /// # Errors
    /// [`StartError`]; what was started until then has ended.
    pub async fn start(mut options: Options) -> Result<Service, StartError> {
        let (imports, cookies) = (std::mem::take(&mut options.imports), options.cookies);
        let (prepared, store, book) = Prepared::new(options).await?;
        let published = prepared.answering.published.clone();
        let mut service = Service {
            listening: prepared.bound.iter().map(|bound| bound.address).collect(),
            listening_tls: prepared.bound_tls.iter().map(|bound| bound.address).collect(),
            identity: prepared.bound_tls.first().map(|bound| bound.identity.clone()),
            api: prepared.api.local_addr().map_err(StartError::System)?,
            editor: Editor::start(store, book, published).map_err(StartError::System)?,
            clock: prepared.answering.clock,
            cookies,
            transfers: prepared.answering.transfers.clone(),
            shutdown: Shutdown::new(),
            workers: Vec::new(),
            attached: Vec::new(),
            ports: Vec::new(),
            tasks: tokio::task::JoinSet::new(),
            tap: None,
        };
        match service.begin(&imports, prepared).await {
            Ok(()) => Ok(service),
            Err(cause) => {
                service.stop().await;
                Err(cause)
            }
        }
    }

    /// Imports, and starts all that serves. Where it fails, what was started goes on.
    async fn begin(&mut self, imports: &[Import], mut prepared: Prepared) -> Result<(), StartError> {
        import(&self.editor, imports).await?;
        if let Err(cause) = self.editor.make_catalogs().await {
            tracing::error!(%cause, "what catalogs list is not changed");
        }
        self.warn_of_steered();
        self.warn_of_views();
        self.warn_of_keys();
        if let Some(writer) = &mut prepared.tap {
            writer.make_file().map_err(StartError::Tap)?;
        }
        let mut metrics = prepared.metrics(&self.editor);
        let bound = std::mem::take(&mut prepared.bound);
        let listeners: Vec<_> = bound.iter().filter_map(|bound| bound.udp.first().cloned()).collect();
        for Bound { address, udp, tcp } in bound {
            for listener in udp {
                let worker = prepared.socket_worker(self.workers.len(), listener.clone());
                metrics.sockets.push(Arc::downgrade(&listener));
                self.shutdown.on_begin(move || listener.stop());
                self.work(worker, &mut metrics)?;
            }
            self.ports.push(tcp.try_clone().map_err(StartError::System)?);
            let connections = prepared.connections(address, tcp, None);
            metrics.tcp.push(Tcp::of(&connections));
            self.tasks.spawn(connections.serve(self.shutdown.clone()));
        }
        for (attached, queues) in std::mem::take(&mut prepared.attached) {
            for queue in queues {
                let watch = queue.watch();
                metrics.queues.push(watch.clone());
                self.shutdown.on_begin(move || watch.stop());
                let worker = prepared.queue_worker(self.workers.len(), queue, listeners.clone());
                self.work(worker, &mut metrics)?;
            }
            self.attached.push(attached);
        }
        for BoundTls { address, listener, identity } in std::mem::take(&mut prepared.bound_tls) {
            let connections = prepared.connections(address, listener, Some(identity));
            metrics.tcp.push(Tcp::of(&connections));
            self.tasks.spawn(connections.serve(self.shutdown.clone()));
        }
        let Prepared { api, token, answering, learning, tap, probes, seed, .. } = prepared;
        self.tap = tap.map(Writer::start).transpose().map_err(StartError::System)?;
        self.probe(&answering, probes, fastrand::Rng::with_seed(seed ^ PROBING));
        if let Some(learning) = learning {
            let (editor, clock, stop) = (self.editor.clone(), answering.clock, self.shutdown.clone());
            self.tasks.spawn(async move { learning.run(editor, clock, stop).await });
        }
        self.notify(&answering, fastrand::Rng::with_seed(seed ^ u64::MAX));
        self.refresh(&answering, fastrand::Rng::with_seed(seed ^ REFRESHING));
        self.make_updates(&answering);
        self.keep_signed();
        let requests = metrics.api.clone();
        let router = http::router(self.editor.clone(), token, metrics);
        let stop = self.shutdown.clone();
        self.tasks.spawn(async move {
            // Whoever has the token, or is on this machine, may ask: there is no list.
            web::serve(api, router, |_| true, requests, stop).await;
        });
        Ok(())
    }

    /// Has a worker serve, in a thread of its own.
    fn work(&mut self, worker: Worker, metrics: &mut http::Metrics) -> Result<(), StartError> {
        metrics.udp.push(worker.ledger.counters.clone());
        let name = format!("worker-{}", worker.index);
        let thread = std::thread::Builder::new().name(name).spawn(|| worker.run());
        self.workers.push(thread.map_err(StartError::System)?);
        Ok(())
    }

    /// The addresses that are answered at, ports as they were given by the system.
    pub fn listening(&self) -> &[SocketAddr] {
        &self.listening
    }

    /// The addresses that are answered at over TLS, likewise.
    pub fn listening_tls(&self) -> &[SocketAddr] {
        &self.listening_tls
    }

    /// The address of the API.
    pub fn api_address(&self) -> SocketAddr {
        self.api
    }

    /// Where changes are made.
    pub fn editor(&self) -> &Editor {
        &self.editor
    }

    /// Imports those files whose content changed, all or none of them, and the views with them, then goes by the other keys
    /// and secondaries, and shows clients over TLS what `identity` does; begins a new file for dnstap. Transfers and
    /// connections that have begun go on as they began.
    ///
    /// # Errors
    /// [`Refused`]; then what serves goes on serving, with the views, keys and secondaries that it had.
    pub async fn reload(
        &self,
        mut imports: Vec<Import>,
        transfer: transfer::Config,
        views: Vec<View>,
        signing_keys: &Arc<[Key]>,
        identity: Option<&Identity>,
    ) -> Result<Applied, Refused> {
        if let Some(tap) = &self.tap {
            tap.reopen();
        }
        // Their secrets would bring cookies about.
        imports.retain(|import| self.cookies || !matches!(import, Import::CookieSecrets(_)));
        imports.push(Import::Secondaries(Arc::new(transfer.secondaries.clone())));
        imports.push(Import::Primaries(Arc::new(transfer.primaries.clone())));
        imports.push(Import::Views(views.into()));
        imports.push(Import::Signing(signing(signing_keys, self.clock)));
        let applied = self.editor.import(&imports).await?;
        self.transfers.choose(transfer);
        if let (Some(shown), Some(renewed)) = (&self.identity, identity) {
            shown.renew(renewed);
        }
        self.warn_of_steered();
        self.warn_of_views();
        self.warn_of_keys();
        Ok(applied)
    }

    /// Ends all of it: queries that were received are answered, changes that were taken are finished, where the store
    /// answers in time.
    pub async fn stop(mut self) {
        // From here on, and not from where the last request has ended.
        self.editor.leave();
        self.shutdown.begin();
        for worker in self.workers {
            // A worker only ends by itself; what it panicked with has been logged.
            let _ = tokio::task::spawn_blocking(move || worker.join()).await;
        }
        drop(self.ports);
        // Last, for a request may take longer than a query.
        while self.tasks.join_next().await.is_some() {}
        if let Some(tap) = self.tap {
            let _ = tokio::task::spawn_blocking(move || tap.stop()).await;
        }
        self.editor.stop().await;
    }

    /// Tells of zones that secondaries follow by name and cannot take, for they have policies.
    fn warn_of_steered(&self) {
        let (book, config) = (self.editor.book(), self.transfers.config());
        let zones = book.generation.zones.all().iter();
        for zone in zones.filter(|zone| zone.is_steered() && config.secondaries.name(zone.origin())) {
            tracing::warn!(
                zone = ?zone.origin(),
                "secondaries follow this zone and cannot take it, for it has policies; delete those, or take it out of \
                 [[secondary]]"
            );
        }
    }

    /// Tells of what makes a view answer nothing: zones that are not there, addresses that nobody can ask.
    fn warn_of_views(&self) {
        let book = self.editor.book();
        if let Some(zones) = named_missing(&book.generation) {
            tracing::warn!(zones, "views name zones that are not there: they are refused until they are put");
        }
        let is_heard = |address: &IpAddr| {
            self.listening
                .iter()
                .map(SocketAddr::ip)
                .any(|ours| ours == *address || ours.is_unspecified() && ours.is_ipv4() == address.is_ipv4())
        };
        let addresses = book.generation.zones.views().iter().flat_map(|view| &view.addresses);
        let unheard = addresses.filter(|address| !is_heard(address)).map(IpAddr::to_string);
        if let Some(addresses) = told(unheard.collect()) {
            tracing::warn!(addresses, "views have addresses at which listen takes no queries");
        }
    }

    /// Tells of keys that sign nothing: of zones that are not there, or have other keys.
    fn warn_of_keys(&self) {
        let book = self.editor.book();
        let Some(signing) = &book.signing else { return };
        let (zones, hash) = (&book.generation.zones, &book.generation.hash);
        for key in signing.keys() {
            let zone = zones.all().get(key.zone(), hash);
            let why = match zone {
                None => "the zone is not here",
                Some(zone) if key.is_in(zone) => continue,
                Some(zone) if zone.is_signed() => "the zone has other keys",
                Some(_) => {
                    "nobody has signed the zone, and it is signed here only by a key that delegations trust (flags 257), \
                     and where no primary gives it"
                }
            };
            tracing::warn!(?key, why, "a signing key signs nothing");
        }
    }

    /// Probes the servers of policies, and has the store remember what is found.
    fn probe(&mut self, answering: &Answering, probes: Arc<Probes>, rng: fastrand::Rng) {
        let health = answering.published.current().health.clone();
        // All that is stored and imported has its slots by now.
        health.forget_others();
        let check =
            |probe: Arc<Probe>, server: Target| async move { health::check::check(&probe, &server).await };
        let (clock, shutdown) = (answering.clock, self.shutdown.clone());
        self.tasks.spawn(prober::keep(health.clone(), self.editor.clone(), shutdown.clone()));
        self.tasks.spawn(prober::run(health, probes, check, clock, rng, shutdown));
    }

    /// Takes the zones that primaries give us.
    fn refresh(&mut self, answering: &Answering, rng: fastrand::Rng) {
        let (editor, local, shutdown) = (self.editor.clone(), self.listening.clone(), self.shutdown.clone());
        let Answering { transfers, clock, .. } = answering.clone();
        self.tasks.spawn(refresher::run(transfers, editor, local, clock, rng, shutdown));
    }

    /// Makes the updates that clients send.
    fn make_updates(&mut self, answering: &Answering) {
        let (editor, shutdown) = (self.editor.clone(), self.shutdown.clone());
        let Answering { transfers, clock, .. } = answering.clone();
        self.tasks.spawn(maker::run(transfers, editor, clock, shutdown));
    }

    /// Keeps the signatures of what policies answer young.
    fn keep_signed(&mut self) {
        let (editor, clock, shutdown) = (self.editor.clone(), self.clock, self.shutdown.clone());
        self.tasks.spawn(renew_signatures(editor, clock, shutdown));
    }

    /// Tells secondaries of changes.
    fn notify(&mut self, answering: &Answering, rng: fastrand::Rng) {
        let (local, shutdown) = (self.listening.clone(), self.shutdown.clone());
        let Answering { transfers, published, clock, .. } = answering.clone();
        self.tasks.spawn(async move {
            if let Err(cause) = notifier::run(transfers, published, local, clock, rng, shutdown).await {
                tracing::error!(%cause, "secondaries are not told of changes");
            }
        });
    }
}

/// What is signed by from now on.
fn signing(keys: &Arc<[Key]>, clock: Clock) -> Arc<Signing> {
    Arc::new(Signing::new(keys.clone(), clock.now().unix.as_secs()))
}

/// Has signatures made anew before they are old.
async fn renew_signatures(editor: Editor, clock: Clock, shutdown: Shutdown) {
    loop {
        tokio::select! {
            () = shutdown.wait() => return,
            () = tokio::time::sleep(RENEWAL) => {}
        }
        let book = editor.book();
        let now = clock.now().unix.as_secs();
        if let Some(renewed) = book.signing.as_ref().and_then(|signing| signing.renewed(now))
            && let Err(cause) = editor.sign(renewed).await
        {
            tracing::error!(%cause, "signatures are not made anew");
        }
    }
}

/// The zones that views name and that are not there, as a log names them; `None` where there are none.
fn named_missing(generation: &Generation) -> Option<String> {
    told(generation.zones.missing(&generation.hash))
}

/// The first of some names, and how many more there are; `None` where there are none.
fn told(names: Vec<String>) -> Option<String> {
    let shown = &names[..names.len().min(TOLD_MAX)];
    let more = match names.len() - shown.len() {
        0 => String::new(),
        more => format!(" and {more} more"),
    };
    (!names.is_empty()).then(|| shown.join(", ") + &more)
}

/// Imports at start. A fault ends the program where no zone is stored; else what is stored goes on, as at a reload: nobody
/// is to lose a name server that has served for months because a machine starts again after a file was broken.
async fn import(editor: &Editor, imports: &[Import]) -> Result<(), StartError> {
    let refused = |refused| match refused {
        Refused::Faults(faults) => StartError::Faults(faults),
        other => StartError::Store(other.to_string()),
    };
    let goes_on = !editor.book().generation.zones.all().is_empty();
    let faults = match editor.import(imports).await.map_err(refused) {
        Err(StartError::Faults(faults)) if goes_on => faults,
        done => return done.map(|_| ()),
    };
    // The store has no secrets, and one drawn here would be none of the servers' behind the same address.
    let is_secret = |import: &&Import| matches!(import, Import::CookieSecrets(_));
    let secrets: Vec<Import> = imports.iter().filter(is_secret).cloned().collect();
    if let Err(why) = editor.import_some(&secrets).await.map_err(refused) {
        return Err(if matches!(why, StartError::Faults(_)) { StartError::Faults(faults) } else { why });
    }
    let count = faults.faults.len() as u64 + faults.omitted;
    for fault in &faults.in_order().faults {
        tracing::error!("{fault}");
    }
    tracing::error!(faults = count, "not imported; what is stored goes on");
    Ok(())
}

#[cfg(test)]
mod tests {
    use ::tests::folder::Folder;

    use super::*;
    use crate::cookies::Secrets;

    /// Free ports, and a store in a folder.
    fn options(folder: &Folder) -> Options {
        let loopback = SocketAddr::from(([127, 0, 0, 1], 0));
        Options {
            listen: vec![loopback],
            api: loopback,
            token: None,
            store: format!("sqlite:{}", folder.at("store.db")),
            workers: Some(1),
            settings: Settings::default(),
            cookies: false,
            rate_limit: None,
            external: None,
            tap: None,
            imports: Vec::new(),
            signing_keys: Arc::default(),
            user: None,
            xdp: Vec::new(),
            seed: Some(1),
            tcp: Limits::default(),
            tls: None,
            transfer: transfer::Config::default(),
            probes: Probes::new(),
            views: Vec::new(),
        }
    }

    #[tokio::test(flavor = "multi_thread")]
    async fn a_start_with_a_fault_goes_on_with_what_is_stored_and_the_secrets_that_are_given() {
        let folder = Folder::new();
        let text = "$ORIGIN example.com.\n@ 60 SOA ns hm 1 2 3 4 5\n@ 60 NS ns\n";
        let zone = Import::Zone(folder.write("one.zone", text).into());
        let line = "e5e973e5a6b2a43f48e7dc849e37bfcf";
        let secrets = Import::CookieSecrets(folder.write_secret("secrets", line).into());
        let imports = vec![zone, secrets];
        let options = Options { imports: imports.clone(), cookies: true, ..options(&folder) };
        Service::start(options.clone()).await.expect("all is right").stop().await;
        folder.write("one.zone", format!("{text}www A here\n"));
        let service = Service::start(options).await.expect("a zone is stored");
        let generation = service.editor().book().generation.clone();
        assert_eq!(generation.zones.all().len(), 1);
        let given = Secrets::read("secrets", line.as_bytes()).expect("it is right");
        assert!(*generation.secrets == given, "none is drawn");
        let told = service.editor().status().imports;
        let [fault] = &told.first[..] else { panic!("{told:?}") };
        assert_eq!((told.faults, fault.line, fault.column), (1, Some(4), Some(7)), "{told:?}");
        assert!(fault.source.ends_with("one.zone"), "{told:?}");
        folder.write("one.zone", format!("{text}{}", "www A here\n".repeat(20)));
        let told = service
            .reload(imports.clone(), transfer::Config::default(), Vec::new(), &Arc::default(), None)
            .await
            .expect_err("it is wrong");
        assert!(matches!(told, Refused::Faults(_)), "{told:?}");
        let told = service.editor().status().imports;
        assert_eq!((told.faults, told.first.len(), told.first[9].line), (20, 10, Some(13)));
        folder.write("one.zone", text);
        let wrong = Faults::from(Fault::whole("the file", "it is no configuration", ""));
        let imports = [&imports[..], &[Import::Faults(wrong)]].concat();
        service
            .reload(imports.clone(), transfer::Config::default(), Vec::new(), &Arc::default(), None)
            .await
            .expect_err("it is wrong");
        let told = service.editor().status().imports;
        assert_eq!((told.faults, &*told.first[0].what), (1, "it is no configuration"));
        service
            .reload(imports[..2].to_vec(), transfer::Config::default(), Vec::new(), &Arc::default(), None)
            .await
            .expect("it is right");
        assert_eq!(service.editor().status().imports, api::ImportState::default());
        service.stop().await;
    }

    #[test]
    fn a_stored_zone_that_cannot_be_served_is_named_with_what_helps() {
        let mut faults = Faults::default();
        for source in ["stored zone o'b.", "stored zone o'b.", "policy a."] {
            faults.push(Fault::whole(source, "it is wrong", ""));
        }
        let told = StartError::Stored(faults).to_string();
        let helps: Vec<&str> =
            told.lines().filter_map(|line| line.split_once("the store: ")).map(|l| l.1).collect();
        assert_eq!(helps, ["DELETE FROM zone WHERE origin = 'o''b.'"], "{told}");
    }

    #[tokio::test(flavor = "multi_thread")]
    async fn what_was_started_ends_where_the_rest_cannot_be() {
        let folder = Folder::new();
        let policy = folder.write("policy.json", "{");
        let options = options(&folder);
        let imports = vec![Import::Policy(policy.into())];
        let wrong = Options { imports, ..options.clone() };
        assert!(matches!(Service::start(wrong).await, Err(StartError::Faults(_))));
        let tap = tap::Config {
            destination: tap::Destination::File(folder.at("nowhere/tap").into()),
            file_max: 1 << 20,
            sample: 1,
            queries: true,
            responses: true,
            identity: String::new(),
        };
        let wrong = Options { tap: Some(tap), ..options.clone() };
        assert!(matches!(Service::start(wrong).await, Err(StartError::Tap(_))));
        // Nor does what is stored go on without the secrets that it is to have.
        let zone = "$ORIGIN example.com.\n@ 60 SOA ns hm 1 2 3 4 5\n@ 60 NS ns\n";
        let zone = Import::Zone(folder.write("one.zone", zone).into());
        let good = Options { imports: vec![zone.clone()], ..options.clone() };
        Service::start(good).await.expect("it is right").stop().await;
        let missing = Import::CookieSecrets(folder.at("missing").into());
        let wrong = Options { imports: vec![zone, missing], cookies: true, ..options.clone() };
        assert!(matches!(Service::start(wrong).await, Err(StartError::Faults(_))));
        // Whoever has a store open keeps all others from it.
        Service::start(options).await.expect("nobody has the store").stop().await;
    }
}
