//! What primaries tell of their zones (RFC 1996 §3.7 to §3.11).

use dns::query::Query;
use dns::writer::End;
use dns::{Class, Folded, Opcode, Rcode, Rtype, Suffixes, Tsig};
use net::clock::Now;

use super::Transfers;
use super::answering::{Beside, Respond, as_query, opcode, plainly};
use super::counters::count;
use super::signature::Signer;
use crate::answer::Asked;
use crate::generation::Generation;

/// Whether a message is a notification, and no answer to one.
pub(super) fn is_notification(message: &[u8]) -> bool {
    opcode(message) == Some(Opcode::NOTIFY)
}

impl Transfers {
    /// Takes a notification that a zone has changed; `None` where it is about something else.
    pub(super) fn notification(
        &self,
        generation: &Generation,
        asked: &Asked<'_>,
        now: Now,
        out: &mut [u8],
    ) -> Option<Respond> {
        // It is read as the query that it looks like, and answered under the header that it has.
        let message = as_query(asked.query);
        let mut name = Folded::root();
        let query = Query::read(&message, &mut name).ok()?;
        let query = Query { head: &asked.query[..query.head.len()], ..query };
        if (query.rtype, query.class) != (Rtype::SOA, Class::IN) {
            return None;
        }
        let beside = Beside::of(generation, &query, asked, now);
        let Ok(tsig) = Tsig::read(asked.query) else {
            count(&self.counters.bad_form);
            return Some(plainly(&query, Rcode::FORMERR, &beside, out).into());
        };
        let limit = generation.size_max(asked, &query).min(out.len());
        let signer = match self.signer(tsig.as_ref(), &query, asked, now, (&beside, &mut out[..limit])) {
            Ok(signer) => signer,
            Err(reply) => return Some(reply.into()),
        };
        let rcode = self.notice(generation, query.name, asked, signer.as_ref(), now);
        let room = limit.saturating_sub(signer.as_ref().map_or(0, Signer::room));
        let mut suffixes = Suffixes::new();
        let length = beside.writer(&query, &mut suffixes, &mut out[..room]).map(|writer| {
            let authoritative = rcode == Rcode::NOERROR;
            let end = End { rcode: rcode.into(), authoritative, ..End::new(beside.udp_payload_max) };
            writer.finish(&query, end)
        });
        Some(Respond::with(length, signer, None, out, now.unix.as_secs()))
    }

    /// Has the zone asked for, where its primary tells of it; returns what is answered.
    fn notice(
        &self,
        generation: &Generation,
        zone: &Folded,
        asked: &Asked<'_>,
        signer: Option<&Signer>,
        now: Now,
    ) -> Rcode {
        let client = asked.client.to_canonical();
        let key = signer.map(|signer| &**signer.key());
        let (config, named) = (self.config(), generation.primary_zones.named_for(zone.wire()));
        match named.and_then(|named| config.primaries.of(named)) {
            None => {
                count(&self.counters.notified_no_zone);
                Rcode::NOTAUTH
            }
            Some(primary) if !primary.notifies(client, key) => {
                count(&self.counters.notified_refused);
                if self.logs_refusal(now) {
                    let key = key.map(tracing::field::debug);
                    tracing::info!(?zone, %client, key, "a notification is refused: it is not of the zone's primary");
                }
                Rcode::REFUSED
            }
            Some(_) => {
                count(&self.counters.notified);
                self.refreshes().notified(zone.wire(), client, now.monotonic);
                self.notified.notify_one();
                Rcode::NOERROR
            }
        }
    }
}
