//! What everybody may read of a running service: for the log, the metrics and the status.

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError, Weak};

use net::clock::Clock;
use net::udp::UdpListener;

use crate::backend;
use crate::cache::{Verdict, Why};
use crate::face::{mmdb, stream};
use crate::front::{self, Front};

/// The counts of all parts.
#[derive(Debug)]
pub struct Numbers {
    /// The clock of the service, whose monotonic time is since the start.
    pub clock: Clock,
    /// What the back end did, and what it and the cache hold.
    pub back_end: Arc<backend::Counts>,
    /// What each upstream was asked and answered.
    pub upstreams: Vec<(SocketAddr, Arc<backend::UpstreamCounts>)>,
    /// What was written to the MMDB file, where there is one.
    pub mmdb: Option<Arc<mmdb::Counts>>,
    /// Queries that made the code panic; each was dropped.
    pub panics: Arc<AtomicU64>,
    faces: Mutex<Vec<(&'static str, Arc<front::Counts>)>>,
    connections: Mutex<Vec<(&'static str, Connections)>>,
    /// Those of the threads, which close them when they end.
    sockets: Mutex<Vec<Weak<UdpListener>>>,
}

/// What a listener for connections counts.
#[derive(Debug)]
pub enum Connections {
    /// A listener for the Redis protocol, or that of Rapid DNS.
    Stream(Arc<stream::Counters>),
    /// A listener for DNS over TCP.
    Dns(Arc<net::tcp::Counters>),
    /// A listener for HTTP.
    Http(Arc<web::Counters>),
}

impl Numbers {
    /// Numbers of a service that was started just now, without a face.
    pub fn new(
        clock: Clock,
        back_end: Arc<backend::Counts>,
        upstreams: Vec<(SocketAddr, Arc<backend::UpstreamCounts>)>,
        mmdb: Option<Arc<mmdb::Counts>>,
    ) -> Numbers {
        Numbers {
            clock,
            back_end,
            upstreams,
            mmdb,
            panics: Arc::default(),
            faces: Mutex::default(),
            connections: Mutex::default(),
            sockets: Mutex::default(),
        }
    }

    /// The counts of the faces by name, one for each thread.
    pub fn faces(&self) -> Vec<(&'static str, Arc<front::Counts>)> {
        self.faces.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// What became of connections, by face and word; `accepted` are those that were served.
    pub fn connections(&self) -> BTreeMap<(&'static str, &'static str), u64> {
        let mut sums = BTreeMap::new();
        for (face, connections) in &*self.connections.lock().unwrap_or_else(PoisonError::into_inner) {
            for (word, count) in connections.counted() {
                *sums.entry((*face, word)).or_default() += count;
            }
        }
        sums
    }

    /// Answers over HTTP by status.
    pub fn responses(&self) -> BTreeMap<usize, u64> {
        let mut sums = BTreeMap::new();
        for (_, connections) in &*self.connections.lock().unwrap_or_else(PoisonError::into_inner) {
            if let Connections::Http(of) = connections {
                for (status, count) in of.responses() {
                    *sums.entry(status).or_default() += count;
                }
            }
        }
        sums
    }

    /// Calls to receive datagrams that the system failed, over all threads of the DNS face.
    pub fn receive_failures(&self) -> u64 {
        let sockets = self.sockets.lock().unwrap_or_else(PoisonError::into_inner);
        sockets.iter().filter_map(Weak::upgrade).map(|socket| socket.receive_failures()).sum()
    }

    pub(crate) fn add(&self, face: &'static str, front: &Front) {
        self.faces.lock().unwrap_or_else(PoisonError::into_inner).push((face, front.counts().clone()));
    }

    pub(crate) fn add_connections(&self, face: &'static str, connections: Connections) {
        self.connections.lock().unwrap_or_else(PoisonError::into_inner).push((face, connections));
    }

    pub(crate) fn add_socket(&self, socket: &Arc<UdpListener>) {
        self.sockets.lock().unwrap_or_else(PoisonError::into_inner).push(Arc::downgrade(socket));
    }

    /// Logs what the paper's figures show, and what became of the questions.
    pub(crate) fn log(&self) {
        let faces = self.faces();
        let sum =
            |of: &dyn Fn(&front::Counts) -> u64| faces.iter().map(|(_, counts)| of(counts)).sum::<u64>();
        let [name, no_name, failed, not_yet] =
            [0, 1, 2, 3].map(|state| sum(&|counts| get(&counts.known[state])));
        let back_end = &self.back_end;
        tracing::info!(
            requests = name + no_name + failed + not_yet,
            hits = sum(&|counts| get(&counts.hits)),
            questions = get(&back_end.questions),
            leaks = get(&back_end.leaks),
            name,
            no_name,
            failed,
            not_yet,
            stale = sum(&|counts| get(&counts.stale)),
            refused = sum(&|counts| get(&counts.refused)),
            door_full = sum(&|counts| get(&counts.door_full)),
            back_end_hits = get(&back_end.hits),
            moved = get(&back_end.moved),
            confirmed = get(&back_end.verdicts[Verdict::Confirmed as usize]),
            mismatch = get(&back_end.verdicts[Verdict::Mismatch as usize]),
            unconfirmed = get(&back_end.verdicts[Verdict::NotYet as usize]),
            empty_prefixes = get(&back_end.empty_prefixes),
            prefixes_in_use = get(&back_end.prefixes_in_use),
            contradicted = get(&back_end.contradicted),
            ahead = get(&back_end.asked.ahead),
            samples_same = get(&back_end.staleness.same),
            samples_changed = get(&back_end.staleness.changed),
            samples_gone = get(&back_end.staleness.gone),
            depth = get(&back_end.depth),
            lanes = get(&back_end.lanes),
            in_flight = get(&back_end.in_flight),
            entries = get(&back_end.entries),
            octets = get(&back_end.octets),
            expired = get(&back_end.expired),
            evicted = get(&back_end.evicted),
            no_room = get(&back_end.no_room),
            snapshots = get(&back_end.snapshots_written),
            snapshots_failed = get(&back_end.snapshots_failed),
            receive_failures = self.receive_failures(),
            panics = get(&self.panics),
            "counts since start"
        );
        for (address, counts) in &self.upstreams {
            tracing::info!(
                upstream = %address,
                questions = get(&counts.questions),
                names = get(&counts.names),
                no_names = get(&counts.no_names),
                unusable = get(&counts.unusable),
                timeouts = get(&counts.failures[Why::Timeout as usize]),
                servfail = get(&counts.failures[Why::Servfail as usize]),
                refused = get(&counts.failures[Why::Refused as usize]),
                malformed = get(&counts.failures[Why::Malformed as usize]),
                foreign = get(&counts.foreign),
                many = get(&counts.many),
                cut = get(&counts.cut),
                not_understood = get(&counts.not_understood),
                is_without_edns = counts.is_without_edns.load(Ordering::Relaxed),
                milliseconds = counts.times.sum() / 1_000,
                "upstream since start"
            );
        }
        if let Some(counts) = &self.mmdb {
            tracing::info!(
                written = get(&counts.written),
                failed = get(&counts.failed),
                names = get(&counts.names),
                left_out = get(&counts.left_out),
                "MMDB files since start"
            );
        }
        for ((face, word), connections) in self.connections().into_iter().filter(|(_, count)| *count > 0) {
            tracing::info!(face, word, connections, "connections since start");
        }
    }
}

impl Connections {
    fn counted(&self) -> Vec<(&'static str, u64)> {
        match self {
            Connections::Stream(of) => vec![
                ("accepted", get(&of.accepted)),
                ("strangers", get(&of.strangers)),
                ("refused", get(&of.refused)),
                ("accept_failed", get(&of.accept_failed)),
                ("broken", get(&of.broken)),
                ("idle", get(&of.idle)),
                ("late", get(&of.late)),
                ("untaken", get(&of.untaken)),
                ("gave_way", get(&of.gave_way)),
                ("panics", get(&of.panics)),
            ],
            Connections::Dns(of) => vec![
                ("accepted", get(&of.accepted)),
                // Its handler closes nobody else.
                ("strangers", get(&of.ended_by_handler)),
                ("refused", get(&of.refused_full) + get(&of.refused_per_client)),
                ("accept_failed", get(&of.accept_failed)),
                ("broken", get(&of.accept_aborted) + get(&of.ended_reset)),
                ("idle", get(&of.ended_idle)),
                ("late", get(&of.ended_query_late)),
                ("untaken", get(&of.ended_answers_untaken)),
                ("lifetime", get(&of.ended_lifetime)),
                ("gave_way", get(&of.ended_gave_way)),
                ("panics", get(&of.handler_panics)),
            ],
            Connections::Http(of) => vec![
                ("accepted", get(&of.accepted)),
                ("strangers", get(&of.strangers)),
                ("accept_failed", get(&of.accept_failed)),
                ("malformed", get(&of.malformed)),
                ("late", get(&of.head_late)),
                ("untaken", get(&of.untaken)),
                ("broken", get(&of.broken)),
                ("lifetime", get(&of.lifetime)),
            ],
        }
    }
}

/// What a count has come to.
pub(crate) fn get(count: &AtomicU64) -> u64 {
    count.load(Ordering::Relaxed)
}
