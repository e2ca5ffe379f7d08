//! A half of a pair as a DNS message in wire form.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::time::Duration;

use dns::Folded;
use dns::query::HEADER;
use minicbor::decode::{Decoder, Error};
use net::framing;

use super::block::{Block, Pair, Sections, Table};
use super::cbor::{each_entry, each_item};
use crate::trace::message::{Message, Transport};
use crate::trace::skipped::Skip;

/// `qr-sig-flags` (RFC 8618 §7.3.2.3.2).
const HAS_QUERY: u16 = 1;
const HAS_RESPONSE: u16 = 1 << 1;
const QUERY_HAS_OPT: u16 = 1 << 2;
const RESPONSE_HAS_OPT: u16 = 1 << 3;
const QUERY_HAS_NO_QUESTION: u16 = 1 << 4;
const RESPONSE_HAS_NO_QUESTION: u16 = 1 << 5;

/// `qr-dns-flags`: those of the query from bit 0 and those of the response from bit 8, each CD, AD, Z, RA, RD,
/// TC, AA upward as they stand in the header, Z being the bit above AD; bit 7 is the query's DO.
const HEADER_BITS: [u16; 7] = [0x0010, 0x0020, 0x0040, 0x0080, 0x0100, 0x0200, 0x0400];
const QUERY_DO: u16 = 1 << 7;
const RESPONSE_FLAGS_FROM: u32 = 8;

const QR: u16 = 0x8000;
const OPT: u16 = 41;

/// The UDP size of an OPT that the block tells of, but not its size: the least (RFC 6891 §6.2.3).
const SIZE_UNKNOWN: u16 = 512;

/// What many pairs have in common (RFC 8618 §7.3.2.3.2).
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Signature {
    server: Option<u64>,
    server_port: Option<u16>,
    transport: Option<u16>,
    flags: Option<u16>,
    opcode: u16,
    dns_flags: u16,
    query_rcode: u16,
    class_type: Option<u64>,
    edns_version: Option<u8>,
    udp_size: Option<u16>,
    opt_data: Option<u64>,
    response_rcode: Option<u16>,
}

impl Signature {
    pub(super) fn read(block: &Block, index: u64) -> Result<Signature, Skip> {
        let mut signature = Signature::default();
        let s = &mut signature;
        each_entry(&mut block.entry(Table::Signature, index)?, |key, value| {
            match key {
                0 => s.server = Some(value.u64()?),
                1 => s.server_port = Some(value.u16()?),
                2 => s.transport = Some(value.u16()?),
                4 => s.flags = Some(value.u16()?),
                5 => s.opcode = value.u16()?,
                6 => s.dns_flags = value.u16()?,
                7 => s.query_rcode = value.u16()?,
                8 => s.class_type = Some(value.u64()?),
                13 => s.edns_version = Some(value.u8()?),
                14 => s.udp_size = Some(value.u16()?),
                15 => s.opt_data = Some(value.u64()?),
                16 => s.response_rcode = Some(value.u16()?),
                _ => value.skip()?,
            }
            Ok(())
        })
        .map_err(|_| Skip::Damaged)?;
        Ok(signature)
    }

    /// Whether the query was seen; where nothing is said, it was.
    pub(super) fn has_query(&self) -> bool {
        self.flags.is_none_or(|flags| flags & HAS_QUERY != 0)
    }

    /// Whether the response was seen; where nothing is said, what it has tells.
    pub(super) fn has_response(&self, pair: &Pair) -> bool {
        let told = pair.response_delay.is_some() || self.response_rcode.is_some();
        self.flags.map_or(told, |flags| flags & HAS_RESPONSE != 0)
    }

    fn query_has_opt(&self) -> bool {
        let told = self.udp_size.is_some() || self.edns_version.is_some() || self.opt_data.is_some();
        self.flags.map_or(told, |flags| flags & QUERY_HAS_OPT != 0)
    }

    fn has(&self, flag: u16) -> bool {
        self.flags.is_some_and(|flags| flags & flag != 0)
    }
}

/// Rebuilds the query or the response of a pair; `port` is the server's where none was
/// stored.
///
/// What was not stored and a message can do without becomes 0: id, client's port, flags; the server's address
/// becomes the unspecified one, its port `port`.
pub(super) fn message(
    block: &Block,
    pair: &Pair,
    time: Duration,
    is_response: bool,
    port: u16,
) -> Result<Message, Skip> {
    let signature = Signature::read(block, pair.signature.ok_or(Skip::NoQuestion)?)?;
    let client = address(block, pair.client.ok_or(Skip::NoClient)?, &signature)?;
    let server = match (signature.server, client) {
        (Some(server), _) => address(block, server, &signature)?,
        (None, IpAddr::V4(_)) => Ipv4Addr::UNSPECIFIED.into(),
        (None, IpAddr::V6(_)) => Ipv6Addr::UNSPECIFIED.into(),
    };
    let octets = match is_response {
        false => query(block, pair, &signature)?,
        true => response(block, pair, &signature)?,
    };
    Ok(Message {
        time,
        client: SocketAddr::new(client, pair.client_port),
        server: SocketAddr::new(server, signature.server_port.unwrap_or(port)),
        transport: transport(signature.transport)?,
        octets,
    })
}

fn query(block: &Block, pair: &Pair, signature: &Signature) -> Result<Vec<u8>, Skip> {
    let mut draft = Draft::new(pair.id, signature.opcode, signature.dns_flags, signature.query_rcode);
    if !signature.has(QUERY_HAS_NO_QUESTION) {
        draft.asked(block, pair, signature)?;
    }
    let has_opt = draft.sections(block, &pair.query_sections)?;
    if signature.query_has_opt() && !has_opt {
        let data = match signature.opt_data {
            Some(index) => name_or_data(block, index)?,
            None => &[],
        };
        draft.opt(
            signature.udp_size.unwrap_or(SIZE_UNKNOWN),
            signature.query_rcode,
            signature.edns_version.unwrap_or(0),
            signature.dns_flags & QUERY_DO != 0,
            data,
        )?;
    }
    draft.finish()
}

fn response(block: &Block, pair: &Pair, signature: &Signature) -> Result<Vec<u8>, Skip> {
    let rcode = signature.response_rcode.unwrap_or(0);
    let flags = signature.dns_flags >> RESPONSE_FLAGS_FROM;
    let mut draft = Draft::new(pair.id, signature.opcode, flags, rcode);
    draft.octets[2] |= (QR >> 8) as u8;
    if !signature.has(RESPONSE_HAS_NO_QUESTION) {
        draft.asked(block, pair, signature)?;
    }
    let has_opt = draft.sections(block, &pair.response_sections)?;
    if signature.has(RESPONSE_HAS_OPT) && !has_opt {
        draft.opt(SIZE_UNKNOWN, rcode, 0, false, &[])?;
    }
    draft.finish()
}

/// A message that is being written.
struct Draft {
    octets: Vec<u8>,
    /// Of the four sections.
    counts: [u16; 4],
}

impl Draft {
    /// A header; `flags` has them from bit 0 as [`HEADER_BITS`] has it.
    fn new(id: u16, opcode: u16, flags: u16, rcode: u16) -> Draft {
        let set = (0..).zip(HEADER_BITS).filter(|(bit, _)| flags >> bit & 1 != 0);
        let flags = set.fold((opcode & 0x0f) << 11 | rcode & 0x0f, |flags, (_, bit)| flags | bit);
        let mut octets = vec![0; HEADER];
        octets[..2].copy_from_slice(&id.to_be_bytes());
        octets[2..4].copy_from_slice(&flags.to_be_bytes());
        Draft { octets, counts: [0; 4] }
    }

    /// The first question.
    fn asked(&mut self, block: &Block, pair: &Pair, signature: &Signature) -> Result<(), Skip> {
        let asked = pair.name.zip(signature.class_type).ok_or(Skip::NoQuestion)?;
        self.question(block, asked)
    }

    fn question(&mut self, block: &Block, (asked, class_type): (u64, u64)) -> Result<(), Skip> {
        self.push(name(block, asked)?)?;
        let (rtype, class) = kind(block, class_type)?;
        self.push(&rtype.to_be_bytes())?;
        self.push(&class.to_be_bytes())?;
        self.counts[0] += 1;
        Ok(())
    }

    /// Further questions, and the records; returns whether an OPT is among them.
    fn sections(&mut self, block: &Block, sections: &Sections) -> Result<bool, Skip> {
        if let Some(list) = sections.questions {
            each_index(block.entry(Table::QuestionList, list)?, |index| {
                let question = Indices::read(block.entry(Table::Question, index)?)?;
                self.question(block, question.owner_and_kind()?)
            })?;
        }
        let mut has_opt = false;
        for (section, list) in (1..).zip(sections.records) {
            let Some(list) = list else { continue };
            each_index(block.entry(Table::RecordList, list)?, |index| {
                let record = Indices::read(block.entry(Table::Record, index)?)?;
                let (owner, class_type) = record.owner_and_kind()?;
                let data = record.data.map_or(Ok(&[][..]), |index| name_or_data(block, index))?;
                let (rtype, class) = kind(block, class_type)?;
                has_opt |= rtype == OPT;
                self.counts[section] += 1;
                self.record(name(block, owner)?, rtype, class, record.ttl, data)
            })?;
        }
        Ok(has_opt)
    }

    fn opt(&mut self, size: u16, rcode: u16, version: u8, dnssec_ok: bool, data: &[u8]) -> Result<(), Skip> {
        let flags = u32::from(dnssec_ok) << 15;
        let ttl = u32::from(rcode >> 4 & 0xff) << 24 | u32::from(version) << 16 | flags;
        self.counts[3] += 1;
        self.record(&[0], OPT, size, ttl, data)
    }

    fn record(&mut self, owner: &[u8], rtype: u16, class: u16, ttl: u32, data: &[u8]) -> Result<(), Skip> {
        let length = u16::try_from(data.len()).map_err(|_| Skip::Damaged)?;
        self.push(owner)?;
        self.push(&rtype.to_be_bytes())?;
        self.push(&class.to_be_bytes())?;
        self.push(&ttl.to_be_bytes())?;
        self.push(&length.to_be_bytes())?;
        self.push(data)
    }

    /// Appends; a message that grows too long ends every list of records, however long it is.
    fn push(&mut self, octets: &[u8]) -> Result<(), Skip> {
        if self.octets.len() + octets.len() > framing::MESSAGE_MAX {
            return Err(Skip::Damaged);
        }
        self.octets.extend_from_slice(octets);
        Ok(())
    }

    fn finish(mut self) -> Result<Vec<u8>, Skip> {
        for (at, count) in (4..).step_by(2).zip(self.counts) {
            self.octets[at..at + 2].copy_from_slice(&count.to_be_bytes());
        }
        Ok(self.octets)
    }
}

/// A question or a record: indices, and a record's TTL.
#[derive(Default)]
struct Indices {
    owner: Option<u64>,
    class_type: Option<u64>,
    ttl: u32,
    data: Option<u64>,
}

impl Indices {
    fn read(mut decoder: Decoder<'_>) -> Result<Indices, Skip> {
        let mut indices = Indices::default();
        each_entry(&mut decoder, |key, value| {
            match key {
                0 => indices.owner = Some(value.u64()?),
                1 => indices.class_type = Some(value.u64()?),
                2 => indices.ttl = value.u32()?,
                3 => indices.data = Some(value.u64()?),
                _ => value.skip()?,
            }
            Ok(())
        })
        .map_err(|_| Skip::Damaged)?;
        Ok(indices)
    }

    fn owner_and_kind(&self) -> Result<(u64, u64), Skip> {
        self.owner.zip(self.class_type).ok_or(Skip::Damaged)
    }
}

/// Gives each index of a list, up to the first that fails.
fn each_index(mut list: Decoder<'_>, mut take: impl FnMut(u64) -> Result<(), Skip>) -> Result<(), Skip> {
    let mut failed = Skip::Damaged;
    each_item(&mut list, |item| {
        take(item.u64()?).map_err(|skip| {
            failed = skip;
            Error::message("an entry that cannot be used")
        })
    })
    .map_err(|_| failed)
}

/// Type and class.
fn kind(block: &Block, index: u64) -> Result<(u16, u16), Skip> {
    let (mut rtype, mut class) = (None, None);
    each_entry(&mut block.entry(Table::ClassType, index)?, |key, value| {
        match key {
            0 => rtype = Some(value.u16()?),
            1 => class = Some(value.u16()?),
            _ => value.skip()?,
        }
        Ok(())
    })
    .map_err(|_| Skip::Damaged)?;
    rtype.zip(class).ok_or(Skip::NoQuestion)
}

fn name(block: &Block, index: u64) -> Result<&[u8], Skip> {
    let octets = name_or_data(block, index)?;
    match Folded::read(octets) {
        Some(name) if name.wire_length() == octets.len() => Ok(octets),
        _ => Err(Skip::Damaged),
    }
}

fn name_or_data(block: &Block, index: u64) -> Result<&[u8], Skip> {
    block.entry(Table::NameOrData, index)?.bytes().map_err(|_| Skip::Damaged)
}

/// An address, or the prefix of one that was stored, with zeros behind it.
fn address(block: &Block, index: u64, signature: &Signature) -> Result<IpAddr, Skip> {
    let stored = block.entry(Table::Address, index)?.bytes().map_err(|_| Skip::Damaged)?;
    let is_v6 = signature.transport.map_or(stored.len() > 4, |flags| flags & 1 != 0);
    let mut octets = [0; 16];
    let length = if is_v6 { 16 } else { 4 };
    octets[..length].get_mut(..stored.len()).ok_or(Skip::Damaged)?.copy_from_slice(stored);
    Ok(match is_v6 {
        true => Ipv6Addr::from(octets).into(),
        false => Ipv4Addr::new(octets[0], octets[1], octets[2], octets[3]).into(),
    })
}

/// `qr-transport-flags` from bit 1: UDP, TCP, TLS, DTLS, HTTPS; UDP where nothing is said.
fn transport(flags: Option<u16>) -> Result<Transport, Skip> {
    match flags.unwrap_or(0) >> 1 & 0x0f {
        0 | 3 => Ok(Transport::Udp),
        1 | 2 | 4 => Ok(Transport::Tcp),
        _ => Err(Skip::Protocol),
    }
}
