//! A query and its response as they are stored: indices into tables.

use minicbor::decode::{Decoder, Error};

use super::cbor::each_entry;
use super::tables::{Table, Tables};
use crate::trace::skipped::Skip;

/// `qr-sig-flags` (RFC 8618 §7.3.2.3.2).
const HAS_QUERY: u16 = 1;
const HAS_RESPONSE: u16 = 1 << 1;
const QUERY_HAS_OPT: u16 = 1 << 2;
pub(super) const RESPONSE_HAS_OPT: u16 = 1 << 3;
pub(super) const QUERY_HAS_NO_QUESTION: u16 = 1 << 4;
pub(super) const RESPONSE_HAS_NO_QUESTION: u16 = 1 << 5;

/// A query and its response, or one of them (RFC 8618 §7.3.2.4); indices into tables.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Pair {
    pub(super) time_offset: Option<u64>,
    pub(super) client: Option<u64>,
    pub(super) client_port: u16,
    pub(super) id: u16,
    pub(super) signature: Option<u64>,
    pub(super) response_delay: Option<i64>,
    pub(super) name: Option<u64>,
    pub(super) query_sections: Sections,
    pub(super) response_sections: Sections,
}

/// Questions beyond the first, and records; indices into lists.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Sections {
    pub(super) questions: Option<u64>,
    /// Answer, authority, additional.
    pub(super) records: [Option<u64>; 3],
}

/// What many pairs have in common (RFC 8618 §7.3.2.3.2).
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Signature {
    pub(super) server: Option<u64>,
    pub(super) server_port: Option<u16>,
    pub(super) transport: Option<u16>,
    flags: Option<u16>,
    pub(super) opcode: u16,
    pub(super) dns_flags: u16,
    pub(super) query_rcode: u16,
    pub(super) class_type: Option<u64>,
    pub(super) edns_version: Option<u8>,
    pub(super) udp_size: Option<u16>,
    pub(super) opt_data: Option<u64>,
    pub(super) response_rcode: Option<u16>,
}

impl Signature {
    pub(super) fn read(tables: &Tables, index: u64) -> Result<Signature, Skip> {
        let mut signature = Signature::default();
        let s = &mut signature;
        each_entry(&mut tables.entry(Table::Signature, index)?, |key, value| {
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

    /// Whether the query had an OPT record; where nothing is said, what it has tells.
    pub(super) fn query_has_opt(&self) -> bool {
        let told = self.udp_size.is_some() || self.edns_version.is_some() || self.opt_data.is_some();
        self.flags.map_or(told, |flags| flags & QUERY_HAS_OPT != 0)
    }

    /// Whether a flag is said and set.
    pub(super) fn has(&self, flag: u16) -> bool {
        self.flags.is_some_and(|flags| flags & flag != 0)
    }
}

impl Pair {
    pub(super) fn read(decoder: &mut Decoder<'_>) -> Result<Pair, Error> {
        let mut pair = Pair::default();
        each_entry(decoder, |key, value| {
            match key {
                0 => pair.time_offset = Some(value.u64()?),
                1 => pair.client = Some(value.u64()?),
                2 => pair.client_port = value.u16()?,
                3 => pair.id = value.u16()?,
                4 => pair.signature = Some(value.u64()?),
                6 => pair.response_delay = Some(value.i64()?),
                7 => pair.name = Some(value.u64()?),
                11 => pair.query_sections = Sections::read(value)?,
                12 => pair.response_sections = Sections::read(value)?,
                _ => value.skip()?,
            }
            Ok(())
        })?;
        Ok(pair)
    }
}

impl Sections {
    fn read(decoder: &mut Decoder<'_>) -> Result<Sections, Error> {
        let mut sections = Sections::default();
        each_entry(decoder, |key, value| {
            match key {
                0 => sections.questions = Some(value.u64()?),
                1 => sections.records[0] = Some(value.u64()?),
                2 => sections.records[1] = Some(value.u64()?),
                3 => sections.records[2] = Some(value.u64()?),
                _ => value.skip()?,
            }
            Ok(())
        })?;
        Ok(sections)
    }
}
