//! What clients change of our zones (RFC 2136), signed by keys that may (RFC 3007).
//!
//! ```text
//! update ─> signed by a key that may change this there? ─> Accepted ─> queue ─> maker: prerequisites, the zone after it ─> editor
//!                                                                                 `─> the answer, over UDP or a connection
//! ```
//! A worker reads an update and says who may; the zone is changed elsewhere, one update after the other, and the answer goes
//! out when all workers serve what came of it. So each is made whole or not at all, on what the one before it left.
//!
//! In reading order: here, how one is taken; `reading`: what stands in it; [`maker`]: the task that makes them.

pub mod maker;
mod reading;

use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;

use dns::edns::ExtendedError;
use dns::query::Query;
use dns::{Class, Folded, Opcode, Rcode, Rtype, Tsig};
use net::clock::Now;
use net::udp::UdpListener;
use tokio::sync::{mpsc, oneshot};

use super::Transfers;
use super::answering::{Beside, Code, Respond, as_query, coded, opcode, plainly, unsigned};
use super::counters::count;
use super::signature::Signer;
use crate::answer::{Asked, Reply, Why};
use crate::generation::Generation;
use crate::zone::{Operation, Update, Zone};

/// How many updates may wait; one more is answered SERVFAIL, so that clients slow down.
pub const WAITING_MAX: usize = 256;

/// What is answered to who may not.
const PROHIBITED: Code = Code { rcode: Rcode::REFUSED, why: Some(ExtendedError::Prohibited) };

/// An update that its sender may make, with its place among those that wait.
#[derive(Debug)]
pub struct Accepted {
    place: mpsc::OwnedPermit<Waiting>,
    wanted: Wanted,
}

/// What a client wants, and how it is answered.
#[derive(Debug)]
struct Wanted {
    zone: Folded,
    update: Arc<Update>,
    client: IpAddr,
    signer: Signer,
    /// The answer that all went well, but for its signature.
    answer: Vec<u8>,
}

/// An update that waits for its turn.
#[derive(Debug)]
pub(super) struct Waiting {
    wanted: Wanted,
    back: Back,
}

/// Where the answer goes.
#[derive(Debug)]
pub enum Back {
    /// To who sent a datagram, from the address that it was sent to.
    Datagram {
        /// The socket that it came in by.
        listener: Arc<UdpListener>,
        /// Who sent it.
        client: SocketAddr,
        /// The address of ours that it was sent to.
        local: IpAddr,
    },
    /// To a connection.
    Connection(oneshot::Sender<Vec<u8>>),
}

/// Whether a message is an update, and no answer to one.
pub(super) fn is_update(message: &[u8]) -> bool {
    opcode(message) == Some(Opcode::UPDATE)
}

impl Accepted {
    /// Which zone is to be changed, and how.
    pub fn wanted(&self) -> (&Folded, &Update) {
        (&self.wanted.zone, &self.wanted.update)
    }

    /// Has it wait for its turn; its answer goes there.
    pub fn wait(self, back: Back) {
        self.place.send(Waiting { wanted: self.wanted, back });
    }
}

impl Transfers {
    /// Takes an update, of which the signature says whose it is.
    ///
    /// # Errors
    /// The answer to one that is not made.
    pub(super) fn update(
        &self,
        generation: &Generation,
        asked: &Asked<'_>,
        now: Now,
        out: &mut [u8],
    ) -> Result<Accepted, Respond> {
        // It is read as the query that it looks like, and answered under the header that it has.
        let message = as_query(asked.query);
        let mut name = Folded::root();
        let query = Query::read(&message, &mut name).map_err(|_| {
            count(&self.counters.updates_malformed);
            let udp_payload_max = generation.settings.udp_payload_max;
            Respond::with(
                dns::writer::without_question(asked.query, Rcode::FORMERR, udp_payload_max, out),
                None,
                None,
                out,
                now.unix.as_secs(),
            )
        })?;
        let query = Query { head: &asked.query[..query.head.len()], ..query };
        let beside = Beside::of(generation, &query, asked, now);
        let Ok(tsig) = Tsig::read(asked.query) else {
            count(&self.counters.bad_form);
            return Err(plainly(&query, Rcode::FORMERR, &beside, out).into());
        };
        let limit = generation.size_max(asked, &query).min(out.len());
        let signer = self.signer(tsig.as_ref(), &query, asked, now, (&beside, &mut out[..limit]))?;
        let respond = |signer: Option<Signer>, code: Code, out: &mut [u8]| {
            let room = limit.saturating_sub(signer.as_ref().map_or(0, Signer::room));
            let length = coded(&query, &code, &beside, &mut out[..room]);
            Respond::with(length, signer, None, out, now.unix.as_secs())
        };
        let (Some(signer), Some(tsig)) = (signer, tsig) else {
            count(&self.counters.updates_refused);
            return Err(respond(None, PROHIBITED, out));
        };
        let taken = self.taken(generation, &query, asked, &unsigned(asked.query, &tsig), (&signer, now));
        let (update, place) = match taken {
            Ok(taken) => taken,
            Err(code) => return Err(respond(Some(signer), code, out)),
        };
        let (room, well) = (limit.saturating_sub(signer.room()), Code { rcode: Rcode::NOERROR, why: None });
        let Some(length) = coded(&query, &well, &beside, &mut out[..room]) else {
            return Err(Reply::Drop(Why::NoRoom).into());
        };
        let wanted = Wanted {
            zone: query.name.clone(),
            update: Arc::new(update),
            client: asked.client.to_canonical(),
            signer,
            answer: out[..length].to_vec(),
        };
        Ok(Accepted { place, wanted })
    }

    /// What is wanted, and a place among what waits, where it may be made as far as can be told at once.
    fn taken(
        &self,
        generation: &Generation,
        query: &Query<'_>,
        asked: &Asked<'_>,
        message: &[u8],
        (signer, now): (&Signer, Now),
    ) -> Result<(Update, mpsc::OwnedPermit<Waiting>), Code> {
        let malformed = |rcode| {
            count(&self.counters.updates_malformed);
            Code { rcode, why: None }
        };
        if (query.rtype, query.class) != (Rtype::SOA, Class::IN) {
            return Err(malformed(Rcode::FORMERR));
        }
        let client = asked.client.to_canonical();
        let update = reading::read(query.name, message).map_err(malformed)?;
        let refused = |why: &str, code: Code| {
            count(&self.counters.updates_refused);
            if self.logs_refusal(now) {
                tracing::info!(zone = ?query.name, %client, key = ?signer.key(), "an update is refused: {why}");
            }
            code
        };
        // Who may not change a zone is not told whether it is here.
        self.config().updaters.allow(query.name, client, signer.key(), &update).map_err(|denied| {
            let of = denied.map(|denied| format!(" to change {}", told(denied))).unwrap_or_default();
            refused(&format!("no updater allows it{of}"), PROHIBITED)
        })?;
        let zone = generation.zones.at(asked.local).get(query.name, &generation.hash);
        let zone = zone.ok_or_else(|| {
            let why = Some(ExtendedError::NotAuthoritative);
            refused("it is not here", Code { rcode: Rcode::NOTAUTH, why })
        })?;
        if let Some(why) = unchangeable(generation, zone) {
            let code = Code { rcode: Rcode::REFUSED, why: Some(ExtendedError::NotSupported) };
            return Err(refused(why, code));
        }
        let place = self.waiting.clone().try_reserve_owned().map_err(|_| {
            count(&self.counters.updates_full);
            Code { rcode: Rcode::SERVFAIL, why: None }
        })?;
        Ok((update, place))
    }
}

/// Why a zone cannot be changed here; `None` where it can.
fn unchangeable(generation: &Generation, zone: &Zone) -> Option<&'static str> {
    if generation.primary_zones.have(zone.origin()) {
        return Some("its primary gives the zone");
    }
    if zone.is_catalog() {
        return Some("it is a catalog, which is made of the zones that there are");
    }
    zone.is_sealed().then_some("others have signed the zone, or its digest is in it")
}

/// A change, as the log tells of it.
fn told(operation: &Operation) -> String {
    let owner = dns::name::to_text(operation.owner());
    match operation.rtype() {
        Some(rtype) => format!("{owner} {rtype}"),
        None => format!("all of {owner}"),
    }
}
