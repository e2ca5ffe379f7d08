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
//!
//! `response` writes these answers, with what `chain` knows of aliases and the `proofs` that something is not there;
//! `chaos` writes what the server says of itself (`version.bind`).

mod chain;
mod chaos;
mod proofs;
mod response;

use std::net::IpAddr;
use std::time::Duration;

use dns::dnstap::Protocol;
use dns::edns::{Edns, Options, UDP_PLAIN_PAYLOAD};
use dns::query::{HEADER, MESSAGE_MAX, Query, Refusal};
use dns::writer::{End, Full, Writer, without_question};
use dns::{Class, Folded, OptRcode, Rcode, Rtype, Suffixes};
use fastrand::Rng;
use net::clock::Now;

use crate::cookies::Presented;
use crate::fast::Fast;
use crate::generation::Generation;
use crate::rate_limit::{Account, Verdict};
use crate::routed::Routed;
use response::Response;

/// The unit in which a connection's idle timeout is told, in milliseconds (RFC 7828 §3.1).
const KEEPALIVE_UNIT_MS: u128 = 100;

/// A query as it came in.
#[derive(Clone, Copy, Debug)]
pub struct Asked<'a> {
    /// The message.
    pub query: &'a [u8],
    /// Who sent it: a resolver, as a rule.
    pub client: IpAddr,
    /// The address of ours that it was sent to: the view that it is answered from.
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
    Tcp {
        /// For how long its connection may be idle from now on, as a client that asks is told.
        idle: Duration,
    },
    /// The same, encrypted.
    Tls {
        /// As of [`Transport::Tcp`].
        idle: Duration,
    },
}

impl Transport {
    /// As dnstap calls it.
    pub fn protocol(self) -> Protocol {
        match self {
            Transport::Udp => Protocol::Udp,
            Transport::Tcp { .. } => Protocol::Tcp,
            Transport::Tls { .. } => Protocol::Dot,
        }
    }
}

/// What becomes of a query.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Reply {
    /// This many octets of the buffer go back.
    Send(usize),
    /// Nothing goes back.
    Drop(Why),
}

/// What becomes of a query, with what is counted of it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Answered {
    /// What becomes of it.
    pub reply: Reply,
    /// What response rate limiting said.
    pub verdict: Verdict,
    /// What the last policy of aliases decided on the way, where there was one and the answer has it.
    pub alias: Option<Routed>,
    /// What a policy decided about addresses, where one did and the answer has it.
    pub routed: Option<Routed>,
}

impl Answered {
    /// A message of `length` octets that counts as an error to who asked, unless it `is_proven` that they did.
    pub(crate) fn error(
        length: usize,
        is_proven: bool,
        asked: &Asked<'_>,
        fast: Fast<'_>,
        now: Now,
        rng: &mut Rng,
    ) -> Answered {
        let verdict = match fast.limit {
            None => Verdict::Within,
            Some(_) if is_proven => Verdict::Exempt,
            Some(limit) => limit.count(asked.client, Account::ERROR, now.monotonic, rng),
        };
        let reply =
            if verdict == Verdict::Drop { Reply::Drop(Why::RateLimited) } else { Reply::Send(length) };
        Answered { reply, verdict, alias: None, routed: None }
    }
}

impl From<Reply> for Answered {
    /// As nothing more is known of.
    fn from(reply: Reply) -> Answered {
        Answered { reply, verdict: Verdict::Within, alias: None, routed: None }
    }
}

/// Why a message gets no answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Why {
    /// It is no query: shorter than a header, or a response.
    NoQuery,
    /// Not even its question fits into what may be sent back.
    NoRoom,
    /// Its like were answered too often to the client's network.
    RateLimited,
}

impl Generation {
    /// Answers a query into `out`.
    ///
    /// Nothing here allocates, locks or waits; the same generation, query, time and randomness give the
    /// same answer. `out` should hold 65,535 octets for TCP, [`Settings::udp_payload_max`] for UDP; in a
    /// smaller one, answers are truncated sooner.
    ///
    /// [`Settings::udp_payload_max`]: crate::generation::Settings::udp_payload_max
    pub fn answer(&self, asked: &Asked<'_>, now: Now, rng: &mut Rng, out: &mut [u8]) -> Reply {
        self.answer_counted(asked, Fast::default(), now, rng, out).reply
    }

    /// Answers a query into `out` as [`Generation::answer`] does, with the fast state, and says what is counted of it.
    ///
    /// Where rates are limited, the answer is counted; over the rate it goes out without its records, or not at all.
    pub fn answer_counted(
        &self,
        asked: &Asked<'_>,
        fast: Fast<'_>,
        now: Now,
        rng: &mut Rng,
        out: &mut [u8],
    ) -> Answered {
        let (mut name, mut suffixes) = (Folded::root(), Suffixes::new());
        let query = match Query::read(asked.query, &mut name) {
            Ok(query) => query,
            Err(refusal) => return self.refuse(refusal, asked, fast, now, rng, out),
        };
        let Some(mut writer) = Writer::new(out, &query, self.size_max(asked, &query), &mut suffixes) else {
            return Reply::Drop(Why::NoRoom).into();
        };
        let mut presented = None;
        let mut options;
        if let Some(edns) = &query.edns
            && edns.asks()
        {
            options = Options::default();
            presented = self.options(edns, asked, now, &mut options);
            // Where there is no room the answer is worth more than what stands beside it.
            writer.keep_room(&options);
        }
        let mut response = Response::new(self, &query, asked, (fast, now), rng, writer);
        let unproven = matches!(presented, Some(Presented::ClientOnly | Presented::Invalid));
        if query.edns.as_ref().is_some_and(|edns| edns.version > dns::edns::VERSION) {
            response.end.rcode = OptRcode::BADVERS;
        } else if unproven && self.settings.require_cookies && asked.transport == Transport::Udp {
            response.end.rcode = OptRcode::BADCOOKIE;
        } else if let Err(Full) = response.compose() {
            response.truncate();
        }
        let verdict = match (fast.limit, presented) {
            (None, _) => Verdict::Within,
            (Some(_), Some(Presented::Valid)) => Verdict::Exempt,
            (Some(limit), _) => limit.count(asked.client, response.account(), now.monotonic, response.rng),
        };
        match verdict {
            Verdict::Drop => {
                return Answered { reply: Reply::Drop(Why::RateLimited), verdict, alias: None, routed: None };
            }
            // Whoever knows cookies comes again with the one that it gets now; all others over TCP.
            Verdict::Slip if unproven => response.ask_for_cookie(),
            Verdict::Slip => response.truncate(),
            Verdict::Within | Verdict::Exempt => {}
        }
        let (alias, routed) = (response.alias, response.routed);
        Answered { reply: Reply::Send(response.finish()), verdict, alias, routed }
    }

    /// The largest response that the asker takes, in octets.
    #[inline]
    pub(crate) fn size_max(&self, asked: &Asked<'_>, query: &Query<'_>) -> usize {
        match (asked.transport, &query.edns) {
            (Transport::Tcp { .. } | Transport::Tls { .. }, _) => MESSAGE_MAX,
            (Transport::Udp, None) => UDP_PLAIN_PAYLOAD.into(),
            (Transport::Udp, Some(edns)) => {
                edns.udp_payload_size.min(self.settings.udp_payload_max).max(UDP_PLAIN_PAYLOAD).into()
            }
        }
    }

    /// Fills in what the query's options ask for; returns what its cookie is worth.
    pub(crate) fn options<'a>(
        &'a self,
        edns: &Edns,
        asked: &Asked<'_>,
        now: Now,
        options: &mut Options<'a>,
    ) -> Option<Presented> {
        let mut presented = None;
        if let Some(cookie) = &edns.cookie
            && let Some((worth, server)) = self.secrets.check(cookie, asked.client, now.unix.as_secs())
        {
            presented = Some(worth);
            options.cookie = Some((cookie.client, server));
        }
        if edns.nsid {
            options.nsid = self.settings.nsid.as_ref().map(|nsid| nsid.as_bytes());
        }
        if let Transport::Tcp { idle } | Transport::Tls { idle } = asked.transport
            && edns.tcp_keepalive
        {
            let units = idle.as_millis() / KEEPALIVE_UNIT_MS;
            options.tcp_keepalive = Some(u16::try_from(units).unwrap_or(u16::MAX));
        }
        presented
    }

    /// Responds to what is no question.
    #[cold]
    fn refuse(
        &self,
        refusal: Refusal,
        asked: &Asked<'_>,
        fast: Fast<'_>,
        now: Now,
        rng: &mut Rng,
        out: &mut [u8],
    ) -> Answered {
        let payload = self.settings.udp_payload_max;
        let (length, presented) = match refusal {
            Refusal::Silence => return Reply::Drop(Why::NoQuery).into(),
            Refusal::Rcode(rcode) => (without_question(asked.query, rcode, payload, out), None),
            Refusal::CookieAlone(edns) => self.cookie_alone(edns, asked, now, out),
        };
        let Some(length) = length else { return Reply::Drop(Why::NoRoom).into() };
        Answered::error(length, presented == Some(Presented::Valid), asked, fast, now, rng)
    }

    /// Says what a cookie is worth, and gives a good one, without a question (RFC 7873 §5.4).
    fn cookie_alone(
        &self,
        edns: Edns,
        asked: &Asked<'_>,
        now: Now,
        out: &mut [u8],
    ) -> (Option<usize>, Option<Presented>) {
        let (name, mut suffixes) = (Folded::root(), Suffixes::new());
        if !self.secrets.are_given() || edns.version > dns::edns::VERSION {
            let payload = self.settings.udp_payload_max;
            return (without_question(asked.query, Rcode::FORMERR, payload, out), None);
        }
        let head = &asked.query[..HEADER];
        let query =
            Query { head, name: &name, rtype: Rtype::from_int(0), class: Class::IN, edns: Some(edns) };
        let limit = self.size_max(asked, &query);
        let Some(mut writer) = Writer::new(out, &query, limit, &mut suffixes) else { return (None, None) };
        let mut options = Options::default();
        let presented = self.options(&edns, asked, now, &mut options);
        writer.keep_room(&options);
        let mut end = begin(self);
        if presented == Some(Presented::Invalid) {
            end.rcode = OptRcode::BADCOOKIE;
        }
        (Some(writer.finish(&query, end)), presented)
    }
}

/// The header of a response before anything is known.
fn begin(generation: &Generation) -> End {
    End::new(generation.settings.udp_payload_max)
}

#[cfg(test)]
mod tests;
