//! A half of a pair as a DNS message in wire form.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::time::Duration;

use dns::Folded;
use dns::query::HEADER;
use minicbor::decode::{Decoder, Error};
use net::framing;

use super::cbor::{each_entry, each_item};
use super::pair::{
    Pair, QUERY_HAS_NO_QUESTION, RESPONSE_HAS_NO_QUESTION, RESPONSE_HAS_OPT, Sections, Signature,
};
use super::tables::{Table, Tables};
use crate::trace::message::{Message, Transport};
use crate::trace::skipped::Skip;

/// `qr-dns-flags`: those of the query from bit 0 and those of the response from bit 8, each CD, AD, Z, RA, RD,
/// TC, AA upward as they stand in the header, Z being the bit above AD; bit 7 is the query's DO.
const HEADER_BITS: [u16; 7] = [0x0010, 0x0020, 0x0040, 0x0080, 0x0100, 0x0200, 0x0400];
const QUERY_DO: u16 = 1 << 7;
const RESPONSE_FLAGS_FROM: u32 = 8;

const QR: u16 = 0x8000;
const OPT: u16 = 41;

/// The UDP size of an OPT that the block tells of, but not its size: the least (RFC 6891 §6.2.3).
const SIZE_UNKNOWN: u16 = 512;

/// Rebuilds the query or the response of a pair; `port` is the server's where none was
/// stored.
///
/// What was not stored and a message can do without becomes 0: id, client's port, flags; the server's address
/// becomes the unspecified one, its port `port`.
pub(super) fn message(
    tables: &Tables,
    pair: &Pair,
    time: Duration,
    is_response: bool,
    port: u16,
) -> Result<Message, Skip> {
    let signature = Signature::read(tables, pair.signature.ok_or(Skip::NoQuestion)?)?;
    let client = address(tables, pair.client.ok_or(Skip::NoClient)?, &signature)?;
    let server = match (signature.server, client) {
        (Some(server), _) => address(tables, server, &signature)?,
        (None, IpAddr::V4(_)) => Ipv4Addr::UNSPECIFIED.into(),
        (None, IpAddr::V6(_)) => Ipv6Addr::UNSPECIFIED.into(),
    };
    let octets = match is_response {
        false => query(tables, pair, &signature)?,
        true => response(tables, pair, &signature)?,
    };
    Ok(Message {
        time,
        client: SocketAddr::new(client, pair.client_port),
        server: SocketAddr::new(server, signature.server_port.unwrap_or(port)),
        transport: transport(signature.transport)?,
        octets,
    })
}

fn query(tables: &Tables, pair: &Pair, signature: &Signature) -> Result<Vec<u8>, Skip> {
    let mut draft = Draft::new(pair.id, signature.opcode, signature.dns_flags, signature.query_rcode);
    if !signature.has(QUERY_HAS_NO_QUESTION) {
        draft.asked(tables, pair, signature)?;
    }
    let has_opt = draft.sections(tables, &pair.query_sections)?;
    if signature.query_has_opt() && !has_opt {
        let data = match signature.opt_data {
            Some(index) => name_or_data(tables, index)?,
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

fn response(tables: &Tables, pair: &Pair, signature: &Signature) -> Result<Vec<u8>, Skip> {
    let rcode = signature.response_rcode.unwrap_or(0);
    let flags = signature.dns_flags >> RESPONSE_FLAGS_FROM;
    let mut draft = Draft::new(pair.id, signature.opcode, flags, rcode);
    draft.octets[2] |= (QR >> 8) as u8;
    if !signature.has(RESPONSE_HAS_NO_QUESTION) {
        draft.asked(tables, pair, signature)?;
    }
    let has_opt = draft.sections(tables, &pair.response_sections)?;
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
    fn asked(&mut self, tables: &Tables, pair: &Pair, signature: &Signature) -> Result<(), Skip> {
        let asked = pair.name.zip(signature.class_type).ok_or(Skip::NoQuestion)?;
        self.question(tables, asked)
    }

    fn question(&mut self, tables: &Tables, (asked, class_type): (u64, u64)) -> Result<(), Skip> {
        self.push(name(tables, asked)?)?;
        let (rtype, class) = kind(tables, class_type)?;
        self.push(&rtype.to_be_bytes())?;
        self.push(&class.to_be_bytes())?;
        self.counts[0] += 1;
        Ok(())
    }

    /// Further questions, and the records; returns whether an OPT is among them.
    fn sections(&mut self, tables: &Tables, sections: &Sections) -> Result<bool, Skip> {
        if let Some(list) = sections.questions {
            each_index(tables.entry(Table::QuestionList, list)?, |index| {
                let question = Indices::read(tables.entry(Table::Question, index)?)?;
                self.question(tables, question.owner_and_kind()?)
            })?;
        }
        let mut has_opt = false;
        for (section, list) in (1..).zip(sections.records) {
            let Some(list) = list else { continue };
            each_index(tables.entry(Table::RecordList, list)?, |index| {
                let record = Indices::read(tables.entry(Table::Record, index)?)?;
                let (owner, class_type) = record.owner_and_kind()?;
                let data = record.data.map_or(Ok(&[][..]), |index| name_or_data(tables, index))?;
                let (rtype, class) = kind(tables, class_type)?;
                has_opt |= rtype == OPT;
                self.counts[section] += 1;
                self.record(name(tables, owner)?, rtype, class, record.ttl, data)
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
fn kind(tables: &Tables, index: u64) -> Result<(u16, u16), Skip> {
    let (mut rtype, mut class) = (None, None);
    each_entry(&mut tables.entry(Table::ClassType, index)?, |key, value| {
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

fn name(tables: &Tables, index: u64) -> Result<&[u8], Skip> {
    let octets = name_or_data(tables, index)?;
    match Folded::read(octets) {
        Some(name) if name.wire_length() == octets.len() => Ok(octets),
        _ => Err(Skip::Damaged),
    }
}

fn name_or_data(tables: &Tables, index: u64) -> Result<&[u8], Skip> {
    tables.entry(Table::NameOrData, index)?.bytes().map_err(|_| Skip::Damaged)
}

/// An address, or the prefix of one that was stored, with zeros behind it.
fn address(tables: &Tables, index: u64, signature: &Signature) -> Result<IpAddr, Skip> {
    let stored = tables.entry(Table::Address, index)?.bytes().map_err(|_| Skip::Damaged)?;
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
