//! One DNS message of a trace.

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use dns::query::HEADER;
use dns::{Folded, OptRcode, Query, Rcode};

/// A query or a response, and between whom it went.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Message {
    /// Time since 1970-01-01 00:00 UTC, as precise as the trace has it: that of the packet that made the
    /// message whole.
    pub time: Duration,
    /// Who asks.
    pub client: SocketAddr,
    /// Who is asked.
    pub server: SocketAddr,
    /// How the message went.
    pub transport: Transport,
    /// The message in wire form, a header or more, without the length prefix of TCP.
    pub octets: Vec<u8>,
}

/// How a message went.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Transport {
    /// In a datagram.
    Udp,
    /// In a TCP stream (RFC 7766).
    Tcp,
}

impl From<Message> for Option<Arc<Message>> {
    fn from(message: Message) -> Self {
        Some(Arc::new(message))
    }
}

impl Message {
    /// Whether it is a response (the QR bit).
    pub fn is_response(&self) -> bool {
        self.octets.get(2).is_some_and(|flags| flags & 0x80 != 0)
    }

    /// The response code, with the upper bits that an OPT record has (RFC 6891 §6.1.3); where the records before it
    /// cannot be read, or with less than a header, that of the header alone.
    pub fn rcode(&self) -> OptRcode {
        rcode(&self.octets)
    }

    /// Name, type and EDNS of a standard query with one question; `None` for responses and for what else
    /// [`Query::read`] refuses.
    ///
    /// The name is read into `name`, as [`Query::read`] has it.
    pub fn query<'a>(&'a self, name: &'a mut Folded) -> Option<Query<'a>> {
        Query::read(&self.octets, name).ok()
    }
}

/// The response code of a message, as [`Message::rcode`] has it.
pub(crate) fn rcode(octets: &[u8]) -> OptRcode {
    let of_header = Rcode::masked_from_int(octets.get(3).copied().unwrap_or_default()).into();
    // Without additional records, as most answers are, there is nothing to go through the others for.
    if octets.get(10..12).is_none_or(|counted| counted == [0, 0]) {
        return of_header;
    }
    domain::base::Message::from_slice(octets).map_or(of_header, |message| message.opt_rcode())
}

/// A hash of the first question, without regard to case; `None` where there is none that can be read.
///
/// Each query and each answer of a replay is asked for it: words of eight octets are mixed, not octets.
pub(crate) fn question(octets: &[u8]) -> Option<u64> {
    let counted = octets.get(4..6)?;
    if counted == [0, 0] {
        return None;
    }
    let mut name = Folded::root();
    if !name.set(octets.get(HEADER..)?) {
        return None;
    }
    let end = HEADER + name.wire_length();
    let kind = octets.get(end..end + 4)?.first_chunk()?;
    let mix = |mixed: u64, word: u64| (mixed ^ word).wrapping_mul(0x9e37_79b9_7f4a_7c15).rotate_left(29);
    let (words, rest) = name.wire().as_chunks();
    let mut last = [0; 8];
    last[..rest.len()].copy_from_slice(rest);
    let words = words.iter().chain([&last]).map(|word| u64::from_le_bytes(*word));
    Some(words.fold(mix(0, u32::from_be_bytes(*kind).into()), mix))
}

impl Transport {
    /// The name in texts: `udp` or `tcp`.
    pub fn name(self) -> &'static str {
        match self {
            Transport::Udp => "udp",
            Transport::Tcp => "tcp",
        }
    }
}
