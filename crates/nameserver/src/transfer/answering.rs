//! What is signed or asks for a zone, answered.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use dns::edns::{ExtendedError, Options, UDP_PLAIN_PAYLOAD};
use dns::query::{HEADER, Query, TRUNCATED};
use dns::writer::End;
use dns::{Class, Folded, Opcode, Rcode, Rtype, Suffixes, Tsig, Writer};
use domain::base::Message;
use domain::rdata::Soa;
use fastrand::Rng;
use net::admission::Refusal;
use net::clock::Now;

use super::counters::count;
use super::outgoing::{self, Outgoing};
use super::signature::{self, Failed, Signer};
use super::update::{self, Accepted};
use super::{Secondaries, Transfers, notified, serial};
use crate::answer::{Answered, Asked, Reply, Transport, Why};
use crate::fast::Fast;
use crate::generation::Generation;
use crate::routed::Routed;

/// From one log line about a refusal to the next, in seconds: whoever can send a packet brings a refusal about, and a
/// worker writes the line. All are counted.
const REFUSAL_LOGGED_SECONDS: u64 = 1;

/// What a query gets.
pub enum Given {
    /// A zone, in as many messages as it takes; only over TCP.
    Outgoing(Box<Outgoing>),
    /// An update, which is answered when it is made.
    Update(Box<Accepted>),
    /// One message, or nothing.
    Answered(Answered),
}

/// What stands beside the answer in one message.
#[derive(Default)]
pub(super) struct Beside<'a> {
    /// The largest UDP payload that we take, in octets.
    pub(super) udp_payload_max: u16,
    /// What the query's own options ask for.
    pub(super) options: Options<'a>,
}

/// What is said without a record.
pub(super) struct Code {
    pub(super) rcode: Rcode,
    pub(super) why: Option<ExtendedError>,
}

impl Transfers {
    /// Answers a query into `out` that is signed, asks for a transfer, or is an update; `None` for any other, which is
    /// [`Generation::answer`]'s.
    ///
    /// A signed query is verified and its answer signed; over UDP, IXFR is answered by the SOA record alone (RFC 1995
    /// §2). Only these make it allocate. Where rates are limited, what is not proven by a right signature counts
    /// as an error, whose source may be forged.
    pub fn answer(
        &self,
        generation: &Generation,
        asked: &Asked<'_>,
        fast: Fast<'_>,
        now: Now,
        rng: &mut Rng,
        out: &mut [u8],
    ) -> Option<Given> {
        let responded =
            if notified::is_notification(asked.query) && !self.config.borrow().primaries.is_empty() {
                self.notification(generation, asked, now, out)?
            } else if update::is_update(asked.query) && !self.config.borrow().updaters.is_empty() {
                match self.update(generation, asked, now, out) {
                    Ok(accepted) => return Some(Given::Update(Box::new(accepted))),
                    Err(responded) => responded,
                }
            } else {
                if asked.transport == Transport::Udp {
                    // Both have a record behind the question: the signature, or the SOA record that is known.
                    let counts = asked.query.get(8..HEADER)?;
                    if counts == [0; 4] || counts[..2] == [0; 2] && Tsig::read(asked.query) == Ok(None) {
                        return None;
                    }
                }
                self.respond(generation, asked, fast, now, rng, out)?
            };
        let (reply, is_proven, routed) = match responded {
            Respond::Outgoing(outgoing) => return Some(Given::Outgoing(outgoing)),
            Respond::Reply(reply) => (reply, false, None),
            Respond::Signed(reply, routed) => (reply, true, routed),
        };
        Some(Given::Answered(match reply {
            Reply::Send(length) => {
                Answered { routed, ..Answered::error(length, is_proven, asked, fast, now, rng) }
            }
            Reply::Drop(_) => reply.into(),
        }))
    }

    /// Verifies, gives what is asked for, signs; `None` where nothing is signed and no zone asked for.
    fn respond(
        &self,
        generation: &Generation,
        asked: &Asked<'_>,
        fast: Fast<'_>,
        now: Now,
        rng: &mut Rng,
        out: &mut [u8],
    ) -> Option<Respond> {
        let mut name = Folded::root();
        let query = match Query::read(asked.query, &mut name) {
            Ok(query) => query,
            Err(dns::query::Refusal::Rcode(_)) => {
                return self.respond_signed(generation, asked, fast, now, rng, out);
            }
            Err(_) => return None,
        };
        let beside = Beside::of(generation, &query, asked, now);
        let Ok(tsig) = Tsig::read(asked.query) else {
            count(&self.counters.bad_form);
            return Some(plainly(&query, Rcode::FORMERR, &beside, out).into());
        };
        let knows_version = query.edns.as_ref().is_none_or(|edns| edns.version == dns::edns::VERSION);
        let is_transfer = knows_version
            && query.class == Class::IN
            && match asked.transport {
                Transport::Tcp { .. } | Transport::Tls { .. } => {
                    matches!(query.rtype, Rtype::AXFR | Rtype::IXFR)
                }
                Transport::Udp => query.rtype == Rtype::IXFR,
            };
        let limit = generation.size_max(asked, &query).min(out.len());
        let unix = now.unix.as_secs();
        if tsig.is_none() && !is_transfer {
            return None;
        }
        let mut signer = match self.signer(tsig.as_ref(), &query, asked, now, (&beside, &mut out[..limit])) {
            Ok(signer) => signer,
            Err(reply) => return Some(reply.into()),
        };
        let config = self.config();
        let plain = tsig.map(|tsig| unsigned(asked.query, &tsig));
        let asked = Asked { query: plain.as_deref().unwrap_or(asked.query), ..*asked };
        let room = limit.saturating_sub(signer.as_ref().map_or(0, Signer::room));
        let mut routed = None;
        let length = if is_transfer {
            let (who, out) = ((&config.secondaries, &mut signer), &mut out[..room]);
            match self.transfer(generation, &asked, &query, now, who, (&beside, out)) {
                Ok(Transfer::Outgoing(outgoing)) => return Some(Respond::Outgoing(outgoing)),
                Ok(Transfer::One(length)) => Some(length),
                Err(code) => coded(&query, &code, &beside, &mut out[..room]),
            }
        } else {
            // The signature proves who asks: no rate limits it.
            let fast = Fast { limit: None, ..fast };
            let answered = generation.answer_counted(&asked, fast, now, rng, &mut out[..room]);
            routed = answered.routed;
            match answered.reply {
                Reply::Send(length) => Some(length),
                dropped => return Some(dropped.into()),
            }
        };
        Some(Respond::with(length, signer, routed, out, unix))
    }

    /// What signs the answer to a message, where that is signed itself.
    ///
    /// # Errors
    /// The answer to one that is signed wrongly.
    pub(super) fn signer(
        &self,
        tsig: Option<&Tsig<'_>>,
        query: &Query<'_>,
        asked: &Asked<'_>,
        now: Now,
        (beside, out): (&Beside<'_>, &mut [u8]),
    ) -> Result<Option<Signer>, Reply> {
        let Some(tsig) = tsig else { return Ok(None) };
        let verified = signature::verify(asked.query, tsig, &self.config().keys, now.unix.as_secs());
        verified.map(Some).map_err(|failed| self.disbelieve(query, failed, tsig, now, asked, (beside, out)))
    }

    /// Signs the refusal of what is signed and no query of ours, such as UPDATE where nobody may send it: who has signed
    /// believes no other answer (RFC 8945 §5.3). `None` where no signature is right: then the one place answers that says to
    /// all what they may not.
    fn respond_signed(
        &self,
        generation: &Generation,
        asked: &Asked<'_>,
        fast: Fast<'_>,
        now: Now,
        rng: &mut Rng,
        out: &mut [u8],
    ) -> Option<Respond> {
        let tsig = Tsig::read(asked.query).ok()??;
        let unix = now.unix.as_secs();
        let mut signer = signature::verify(asked.query, &tsig, &self.config().keys, unix).ok()?;
        let limit = match asked.transport {
            Transport::Tcp { .. } | Transport::Tls { .. } => out.len(),
            // Not more than everybody takes, whatever it says of what it takes.
            Transport::Udp => out.len().min(UDP_PLAIN_PAYLOAD.into()),
        };
        let room = limit.saturating_sub(signer.room());
        let plain = unsigned(asked.query, &tsig);
        let (asked, fast) = (Asked { query: &plain, ..*asked }, Fast { limit: None, ..fast });
        let answered = generation.answer_counted(&asked, fast, now, rng, &mut out[..room]);
        let Reply::Send(length) = answered.reply else { return Some(answered.reply.into()) };
        let reply = signer.sign(out, length, unix).map_or(Reply::Drop(Why::NoRoom), Reply::Send);
        Some(Respond::Signed(reply, None))
    }

    /// A transfer, or what is given in its stead; takes the signer along where messages follow.
    fn transfer(
        &self,
        generation: &Generation,
        asked: &Asked<'_>,
        query: &Query<'_>,
        now: Now,
        (secondaries, signer): (&Secondaries, &mut Option<Signer>),
        (beside, out): (&Beside<'_>, &mut [u8]),
    ) -> Result<Transfer, Code> {
        let zone = generation.zones.at(asked.local).get(query.name, &generation.hash).ok_or_else(|| {
            count(&self.counters.refused_no_zone);
            Code { rcode: Rcode::NOTAUTH, why: Some(ExtendedError::NotAuthoritative) }
        })?;
        let key = signer.as_ref().map(|signer| &**signer.key());
        let client = asked.client.to_canonical();
        if !secondaries.allow(zone.origin(), client, key) {
            count(&self.counters.refused_not_allowed);
            if self.logs_refusal(now) {
                let key = key.map(tracing::field::debug);
                tracing::info!(zone = ?zone.origin(), %client, key, "a transfer is refused: no secondary allows it");
            }
            return Err(Code { rcode: Rcode::REFUSED, why: Some(ExtendedError::Prohibited) });
        }
        if zone.is_expired() {
            count(&self.counters.refused_expired);
            return Err(Code { rcode: Rcode::SERVFAIL, why: Some(ExtendedError::InvalidData) });
        }
        if zone.is_steered() {
            count(&self.counters.refused_steered);
            if self.logs_refusal(now) {
                tracing::warn!(zone = ?zone.origin(), %client, "a transfer is refused: the zone has steered names");
            }
            return Err(Code { rcode: Rcode::REFUSED, why: Some(ExtendedError::NotSupported) });
        }
        let mut differences = Vec::new();
        if query.rtype == Rtype::IXFR {
            let known = known_serial(asked.query).ok_or_else(|| {
                count(&self.counters.refused_malformed);
                // RFC 1995 §3: the client says which SOA record it has.
                Code { rcode: Rcode::FORMERR, why: None }
            })?;
            if asked.transport == Transport::Udp || !serial::is_greater(zone.serial(), known) {
                count(&self.counters.current);
                let written = outgoing::soa_alone(zone, query, beside, out);
                return written.map(Transfer::One).ok_or(Code { rcode: Rcode::SERVFAIL, why: None });
            }
            differences.extend_from_slice(zone.since(known).unwrap_or_default());
        }
        let place = self.admission.admit(client).map_err(|refusal| {
            count(match refusal {
                Refusal::Full => &self.counters.refused_full,
                Refusal::PerClient => &self.counters.refused_per_client,
            });
            Code { rcode: Rcode::SERVFAIL, why: None }
        })?;
        count(&self.counters.started);
        let steps = differences.len();
        if steps > 0 {
            count(&self.counters.incremental);
        }
        let key = key.map(tracing::field::debug);
        tracing::info!(zone = ?zone.origin(), serial = zone.serial(), %client, key, steps, "a transfer begins");
        let (given, counters) = ((Arc::clone(zone), differences), Arc::clone(&self.counters));
        let outgoing =
            Outgoing::new(given, asked.query.to_vec(), beside, signer.take(), counters, Some(place));
        Ok(Transfer::Outgoing(Box::new(outgoing)))
    }

    /// The answer to a message that is signed wrongly (RFC 8945 §5.3.2).
    fn disbelieve(
        &self,
        query: &Query<'_>,
        failed: Failed,
        tsig: &Tsig<'_>,
        now: Now,
        asked: &Asked<'_>,
        (beside, out): (&Beside<'_>, &mut [u8]),
    ) -> Reply {
        let (counter, why) = match failed {
            Failed::Malformed => {
                count(&self.counters.bad_form);
                return plainly(query, Rcode::FORMERR, beside, out);
            }
            Failed::BadKey => (&self.counters.bad_key, "no such key with that algorithm"),
            Failed::BadSignature => (&self.counters.bad_signature, "another secret"),
            Failed::BadTime(_) => (&self.counters.bad_time, "signed at another time"),
            Failed::BadTruncation(_) => (&self.counters.bad_truncation, "the signature is cut"),
        };
        count(counter);
        if self.logs_refusal(now) {
            let (key, client) = (dns::name::to_text(&tsig.key), asked.client.to_canonical());
            tracing::info!(key, %client, why, "a signed message is refused");
        }
        let code = Code { rcode: Rcode::NOTAUTH, why: None };
        let Some(length) = coded(query, &code, beside, out) else { return Reply::Drop(Why::NoRoom) };
        let told = signature::tell(out, length, failed, tsig, now.unix.as_secs());
        Reply::Send(told.unwrap_or_else(|| {
            // What the record has no room for is told over TCP.
            out[2] |= TRUNCATED;
            length
        }))
    }

    /// Whether a refusal is logged now: the first one, and then one in [`REFUSAL_LOGGED_SECONDS`].
    pub(super) fn logs_refusal(&self, now: Now) -> bool {
        let (second, due) = (now.monotonic.as_secs(), self.refusal_logged.load(Ordering::Relaxed));
        let next = second + REFUSAL_LOGGED_SECONDS;
        second >= due
            && self.refusal_logged.compare_exchange(due, next, Ordering::Relaxed, Ordering::Relaxed).is_ok()
    }
}

/// What becomes of a query that is signed or asks for a transfer.
pub(super) enum Respond {
    Outgoing(Box<Outgoing>),
    Reply(Reply),
    /// To a request with a right signature, with what a policy decided.
    Signed(Reply, Option<Routed>),
}

impl Respond {
    /// A message of this length in `out`, signed where the request was; without a length there was no room for it.
    pub(super) fn with(
        length: Option<usize>,
        signer: Option<Signer>,
        routed: Option<Routed>,
        out: &mut [u8],
        unix: u64,
    ) -> Respond {
        let reply = |length: Option<usize>| length.map_or(Reply::Drop(Why::NoRoom), Reply::Send);
        match signer {
            None => Respond::Reply(reply(length)),
            Some(mut signer) => {
                Respond::Signed(reply(length.and_then(|length| signer.sign(out, length, unix))), routed)
            }
        }
    }
}

impl From<Reply> for Respond {
    fn from(reply: Reply) -> Respond {
        Respond::Reply(reply)
    }
}

/// A transfer, or one message of this length in its stead.
enum Transfer {
    Outgoing(Box<Outgoing>),
    One(usize),
}

impl Beside<'_> {
    /// What stands beside the answer to a query.
    pub(super) fn of<'a>(
        generation: &'a Generation,
        query: &Query<'_>,
        asked: &Asked<'_>,
        now: Now,
    ) -> Beside<'a> {
        let mut beside = Beside { udp_payload_max: generation.settings.udp_payload_max, ..Beside::default() };
        if let Some(edns) = &query.edns {
            generation.options(edns, asked, now, &mut beside.options);
        }
        beside
    }

    /// A writer of the message, which keeps room for the options; `None` where not even the question has any.
    pub(super) fn writer<'a>(
        &'a self,
        query: &Query<'_>,
        suffixes: &'a mut Suffixes,
        out: &'a mut [u8],
    ) -> Option<Writer<'a>> {
        let limit = out.len();
        let mut writer = Writer::new(out, query, limit, suffixes)?;
        writer.keep_room(&self.options);
        Some(writer)
    }
}

/// The bits of the opcode in the third octet of a header.
const OPCODE_BITS: u8 = 0x78;

/// The opcode of a message that is no answer.
pub(super) fn opcode(message: &[u8]) -> Option<Opcode> {
    let header = message.first_chunk::<HEADER>().filter(|header| header[2] & 0x80 == 0)?;
    Some(Opcode::from_int((header[2] & OPCODE_BITS) >> 3))
}

/// A message as the query that it looks like, whatever its opcode is.
pub(super) fn as_query(message: &[u8]) -> Vec<u8> {
    let mut query = message.to_vec();
    query[2] &= !OPCODE_BITS;
    query
}

/// The message that was signed.
pub(super) fn unsigned(message: &[u8], tsig: &Tsig<'_>) -> Vec<u8> {
    let mut plain = message[..tsig.start].to_vec();
    let count = u16::from_be_bytes([plain[10], plain[11]]).saturating_sub(1);
    plain[10..HEADER].copy_from_slice(&count.to_be_bytes());
    plain
}

/// The serial number that the asker of an IXFR has (RFC 1995 §3).
fn known_serial(message: &[u8]) -> Option<u32> {
    let message = Message::from_slice(message).ok()?;
    let mut records = message.authority().ok()?.limit_to::<Soa<_>>();
    Some(records.next()?.ok()?.data().serial().into_int())
}

/// Answers with a code alone, and no reason.
pub(super) fn plainly(query: &Query<'_>, rcode: Rcode, beside: &Beside<'_>, out: &mut [u8]) -> Reply {
    let length = coded(query, &Code { rcode, why: None }, beside, out);
    length.map_or(Reply::Drop(Why::NoRoom), Reply::Send)
}

/// Answers with a code alone, and says why where the asker has EDNS (RFC 8914); `None` where there is no room.
pub(super) fn coded(query: &Query<'_>, code: &Code, beside: &Beside<'_>, out: &mut [u8]) -> Option<usize> {
    let mut suffixes = Suffixes::new();
    let (rcode, extended_error) = (code.rcode.into(), code.why);
    let end = End { rcode, extended_error, ..End::new(beside.udp_payload_max) };
    Some(beside.writer(query, &mut suffixes, out)?.finish(query, end))
}

#[cfg(test)]
mod tests {
    use std::net::IpAddr;
    use std::time::Duration;

    use super::*;
    use crate::book::{Book, Condition, Edit};
    use crate::fast::Shared;
    use crate::generation::Settings;
    use crate::transfer::{Config, Keys, Secondary};
    use net::tcp::Next;

    #[test]
    fn a_transfer_ends_with_the_key_that_it_began_with() {
        let mut book = Book::empty(1, Settings::default());
        let many: String = (0..2_000).map(|i| format!("a{i} 60 TXT \"{i:0100}\"\n")).collect();
        let text = format!("@ 60 SOA ns hm 9 2 3 4 5\n@ 60 NS ns\n{many}");
        let edit = Edit::zone("a", text.as_bytes(), Condition::Always, &book.generation.hash);
        book.apply(edit.expect("the zone is right")).expect("it is the first");
        let mut keys = Keys::default();
        keys.read("k", "hmac-sha256:k:MDEyMzQ1Njc4OWFiY2RlZg==").expect("the key is right");
        let key = keys.named("k").expect("it was read").clone();
        let follower = Secondary { key: Some(key.clone()), ..Secondary::default() };
        let config = Config { keys, secondaries: Secondaries(vec![follower]), ..Config::default() };
        let transfers = Transfers::new(config);

        let question = [0, 7, 0, 0, 0, 1, 0, 0, 0, 0, 0, 0, 1, b'a', 0, 0, 252, 0, 1];
        let mut signer = Signer::request(key);
        let mut query = vec![0; question.len() + signer.room()];
        query[..question.len()].copy_from_slice(&question);
        assert_eq!(signer.sign(&mut query, question.len(), 0), Some(query.len()));
        let (shared, now) = (Shared::default(), Now { monotonic: Duration::ZERO, unix: Duration::ZERO });
        let client = IpAddr::from([127, 0, 0, 1]);
        let asked = Asked {
            query: &query,
            client,
            local: client,
            transport: Transport::Tcp { idle: Duration::ZERO },
        };
        let mut out = vec![0; 65_535];
        let ask = |out: &mut [u8]| {
            transfers.answer(&book.generation, &asked, shared.fast(), now, &mut Rng::with_seed(1), out)
        };
        let Some(Given::Outgoing(mut outgoing)) = ask(&mut out) else { panic!("the key opens the zone") };
        transfers.choose(Config::default());
        let mut messages = 0;
        while let Next::Message(length) = outgoing.next(0, &mut out) {
            let tsig = Tsig::read(&out[..length]).expect("it is well-formed").expect("it is signed");
            if messages == 0 {
                assert!(signer.verify_answer(&out[..length], &tsig, 0).is_ok());
            }
            messages += 1;
        }
        assert!(messages > 5, "{messages}");
        assert!(matches!(ask(&mut out), Some(Given::Answered(_))), "the key is known no more");
    }

    #[test]
    fn one_refusal_a_second_is_logged() {
        let transfers = Transfers::new(Config::default());
        let logged: Vec<u64> = [0, 0, 999, 1_000, 1_500, 1_999, 2_000, 7_300, 7_999, 8_000]
            .into_iter()
            .filter(|at| {
                let monotonic = Duration::from_millis(*at);
                transfers.logs_refusal(Now { monotonic, unix: Duration::ZERO })
            })
            .collect();
        assert_eq!(logged, [0, 1_000, 2_000, 7_300, 8_000]);
    }
}
