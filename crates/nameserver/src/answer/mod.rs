//! The answer to one query: bytes in, bytes out (RFC 1034 §4.3.2).
//!
//! ```text
//! query ─> closest zone ─> walk down from its apex
//!            none: refused          Name ──────> answer | alias | nodata
//!                                   Delegation ─> referral
//!                                   Dname ──────> alias
//!                                   Missing ────> the wildcard as Name, else nxdomain
//! ```
//! An alias (CNAME, or the one that DNAME makes) begins the same again at its target, as long as that is in
//! a zone of ours.

mod proofs;
mod response;

use std::net::IpAddr;

use dns::query::{Query, Refusal};
use dns::writer::{End, Full, Writer, header_only};
use dns::{Folded, OptRcode, Rcode, Suffixes};
use fastrand::Rng;
use net::clock::Now;

use crate::generation::Generation;
use response::Response;

/// The largest message over TCP, in octets: its length has 16 bits (RFC 1035 §4.2.2).
const TCP_MAX: usize = 65_535;

/// The largest message over UDP to an asker without EDNS, in octets (RFC 1035 §4.2.1).
const UDP_PLAIN_MAX: usize = 512;

/// A query as it came in.
#[derive(Clone, Copy, Debug)]
pub struct Asked<'a> {
    /// The message.
    pub query: &'a [u8],
    /// Who sent it: a resolver, as a rule.
    pub client: IpAddr,
    /// The address of ours that it was sent to.
    pub local: IpAddr,
    /// What it came over.
    pub transport: Transport,
}

/// What a query came over.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Transport {
    /// A datagram: the answer must fit one.
    Udp,
    /// A stream.
    Tcp,
}

/// What becomes of a query.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Reply {
    /// This many octets of the buffer go back.
    Send(usize),
    /// Nothing goes back.
    Drop(Why),
}

/// Why a message gets no answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Why {
    /// It is no query: shorter than a header, or a response.
    NoQuery,
    /// Not even its question fits into what may be sent back.
    NoRoom,
}

impl Generation {
    /// Answers a query into `out`.
    ///
    /// Nothing here allocates, locks or waits; the same generation, query, time and randomness give the
    /// same answer. `out` should hold 65,535 octets for TCP, [`Settings::udp_payload_max`] for UDP; in a
    /// smaller one, answers are truncated sooner.
    ///
    /// [`Settings::udp_payload_max`]: crate::generation::Settings::udp_payload_max
    pub fn answer(&self, asked: &Asked<'_>, _now: Now, rng: &mut Rng, out: &mut [u8]) -> Reply {
        let (mut name, mut suffixes) = (Folded::root(), Suffixes::new());
        let query = match Query::read(asked.query, &mut name) {
            Ok(query) => query,
            Err(Refusal::Silence) => return Reply::Drop(Why::NoQuery),
            Err(Refusal::Rcode(rcode)) => return reply(header_only(asked.query, rcode, out)),
        };
        let limit = match (asked.transport, query.edns) {
            (Transport::Tcp, _) => TCP_MAX,
            (Transport::Udp, None) => UDP_PLAIN_MAX,
            (Transport::Udp, Some(edns)) => {
                usize::from(edns.udp_payload_size.min(self.settings.udp_payload_max)).max(UDP_PLAIN_MAX)
            }
        };
        let Some(writer) = Writer::new(out, &query, limit, &mut suffixes) else {
            return Reply::Drop(Why::NoRoom);
        };
        let mut response = Response::new(self, &query, asked.client, rng, writer);
        if query.edns.is_some_and(|edns| edns.version > dns::edns::VERSION) {
            response.end.rcode = OptRcode::BADVERS;
        } else if let Err(Full) = response.compose() {
            response.truncate();
        }
        Reply::Send(response.finish())
    }
}

fn reply(length: Option<usize>) -> Reply {
    length.map_or(Reply::Drop(Why::NoRoom), Reply::Send)
}

/// The header of a response before anything is known.
fn begin(generation: &Generation) -> End {
    End {
        rcode: Rcode::NOERROR.into(),
        authoritative: false,
        truncated: false,
        scope: 0,
        udp_payload_size: generation.settings.udp_payload_max,
    }
}

#[cfg(test)]
mod tests;
