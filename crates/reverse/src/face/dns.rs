//! DNS over UDP and TCP: any program that asks for names of addresses works unchanged.
//!
//! | known | answer |
//! |---|---|
//! | a name | PTR, for as long as it is known |
//! | no name | NXDOMAIN |
//! | not yet | no data, in a way that must not be cached: SOA with TTL 0 and MINIMUM 0; error 14 (RFC 8914) |
//! | failed | no data until it is tried again; error 22 for no answer, 13 for all else |
//!
//! Stale answers have error 3. Never SERVFAIL: resolver libraries would ask again and wait for seconds. All that is
//! no question for one address's name is refused.

use std::net::IpAddr;
use std::sync::atomic::Ordering;

use dns::edns::{ExtendedError, UDP_PAYLOAD, UDP_PLAIN_PAYLOAD};
use dns::query::{Query, Refusal};
use dns::writer::{End, Writer, without_question};
use dns::{Class, Folded, OptRcode, Rcode, Rtype, Section, Suffixes};

use crate::cache::{View, Why};
use crate::front::Front;
use crate::known::{Known, Since};
use crate::name::NameText;
use crate::question::address_of;

/// How long an absence or a failure may be cached by who asked, in seconds (RFC 2308 §5 speaks of three hours).
const NEGATIVE_MAX: u32 = 10_800;

/// SOA data of negative answers but for its last number: nobody is to transfer or mail anything.
const SOA: &[u8] =
    b"\x09pointsman\x07invalid\0\x06nobody\x07invalid\0\0\0\0\x01\0\0\x0e\x10\0\0\x0e\x10\0\x01\x51\x80";

/// What becomes of a message.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Reply {
    /// So many octets of the buffer go back.
    Send(usize),
    /// So many octets say that nothing is known of this address yet: they may be sent now, or it is asked again later.
    NotYet(usize, IpAddr),
    /// Nothing goes back.
    Drop,
}

/// Answers one message into `out`; `limit` is the largest answer without EDNS's say: 65,535 over TCP.
pub fn answer(
    front: &Front,
    view: &View,
    message: &[u8],
    client: IpAddr,
    now: u32,
    limit: Option<usize>,
    out: &mut [u8],
) -> Reply {
    let refused = || front.counts().refused.fetch_add(1, Ordering::Relaxed);
    let (mut asked, mut suffixes) = (Folded::root(), Suffixes::new());
    let mut query = match Query::read(message, &mut asked) {
        Ok(query) => query,
        Err(Refusal::Silence) => {
            refused();
            return Reply::Drop;
        }
        Err(refusal) => {
            refused();
            // There are no cookies here, and a message without a question is then malformed.
            let rcode = if let Refusal::Rcode(rcode) = refusal { rcode } else { Rcode::FORMERR };
            let length = without_question(message, rcode, UDP_PAYLOAD, out);
            return length.map_or(Reply::Drop, |length| Reply::Send(recursive(out, length)));
        }
    };
    // Client subnet is nothing to us, and is not echoed (RFC 7871 §7.2.1).
    if let Some(edns) = &mut query.edns {
        edns.client_subnet = None;
    }
    let limit = limit.unwrap_or_else(|| match query.edns {
        None => UDP_PLAIN_PAYLOAD.into(),
        Some(ref edns) => usize::from(edns.udp_payload_size.clamp(UDP_PLAIN_PAYLOAD, UDP_PAYLOAD)),
    });
    let mut end = End {
        rcode: OptRcode::NOERROR,
        authoritative: false,
        truncated: false,
        scope: 0,
        udp_payload_size: UDP_PAYLOAD,
        extended_error: None,
    };
    let Some(mut writer) = Writer::new(out, &query, limit, &mut suffixes) else { return Reply::Drop };

    let wanted =
        if query.class == Class::IN && query.rtype == Rtype::PTR { address_of(query.name) } else { None };
    let is_known_version = query.edns.as_ref().is_none_or(|edns| edns.version == dns::edns::VERSION);
    let Some(address) = wanted.filter(|_| is_known_version) else {
        end.rcode = if is_known_version { OptRcode::REFUSED } else { OptRcode::BADVERS };
        refused();
        let length = writer.finish(&query, end);
        return Reply::Send(recursive(out, length));
    };
    let mut name = NameText::EMPTY;
    let known = front.look_up(view, address, client, now, &mut name);
    let (error, written) = match known {
        Known::Name(since, _) => {
            let mut wire = [0; 255];
            let length = name.to_wire(&mut wire);
            (stale(since), writer.answer_asked(Rtype::PTR, since.left, &wire[..length]))
        }
        Known::NoName(since) => {
            end.rcode = OptRcode::NXDOMAIN;
            (stale(since), absent(&mut writer, query.name, since.left))
        }
        Known::Failed(why, since) => {
            let error = match why {
                Why::Timeout => ExtendedError::NoReachableAuthority,
                _ => ExtendedError::CachedError,
            };
            (Some(error), absent(&mut writer, query.name, since.left))
        }
        Known::NotYet => (Some(ExtendedError::NotReady), absent(&mut writer, query.name, 0)),
    };
    end.truncated = written.is_err();
    end.extended_error = error;
    let length = writer.finish(&query, end);
    let length = recursive(out, length);
    if known == Known::NotYet { Reply::NotYet(length, address) } else { Reply::Send(length) }
}

/// Says in an answer of so many octets that recursion is there (RA): it is done, if later, and some clients take no answer
/// without that flag.
fn recursive(out: &mut [u8], length: usize) -> usize {
    out[3] |= 0x80;
    length
}

fn stale(since: Since) -> Option<ExtendedError> {
    since.stale.then_some(ExtendedError::StaleAnswer)
}

fn absent(writer: &mut Writer<'_>, name: &Folded, seconds: u32) -> Result<(), dns::writer::Full> {
    let seconds = seconds.min(NEGATIVE_MAX);
    let mut soa = [0; SOA.len() + 4];
    soa[..SOA.len()].copy_from_slice(SOA);
    soa[SOA.len()..].copy_from_slice(&seconds.to_be_bytes());
    writer.push(Section::Authority, name.suffix(2), Rtype::SOA, seconds, &soa)
}

pub use serve::{Dns, Options, WAITING_MAX};

mod serve;
#[cfg(test)]
pub(super) mod tests;
