//! Routes of a table in MRT (RFC 6396), as the crate bgpkit-parser reads them.
//!
//! That crate is made for archives: of a record that is damaged it tells what it could read. Here a table is whole or
//! refused, so what it left out is looked for, and its panics are faults like others.

use std::io::BufRead;
use std::net::IpAddr;
use std::panic::{AssertUnwindSafe, catch_unwind};

use bgpkit_parser::models::{
    AsPathSegment, AttrType, AttributeValue, Attributes, EntryType, MrtMessage, NetworkPrefix, Origin,
    TableDumpV2Message,
};
use bgpkit_parser::{ParserError, RawMrtRecord, chunk_mrt_record};

/// The longest body of a record of a table, in octets: one with all routes of one prefix has a tenth of it, and what
/// the crate makes of a body may take two hundred times as much memory (176 octets for an attribute of three).
pub const BODY_MAX: usize = 1 << 20;

/// A route: one entry of a table.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Route {
    /// The prefix's address; bits behind the length may be set.
    pub address: IpAddr,
    /// The prefix's length, in bits.
    pub length: u8,
    /// Whether ORIGIN is INCOMPLETE.
    pub is_incomplete: bool,
    /// The path, the origin last; a set of ASes is `None`.
    pub path: Vec<Option<u32>>,
}

/// Reads the next record, whatever it is of; `None` at the end.
///
/// # Errors
/// What is wrong with it, in words.
pub fn next(reader: &mut impl BufRead) -> Result<Option<RawMrtRecord>, String> {
    // The crate takes a packed file that is cut off between two records for one that ends there.
    if reader.fill_buf().map_err(|cause| cause.to_string())?.is_empty() {
        return Ok(None);
    }
    chunk_mrt_record(reader).map(Some).map_err(|failed| reason(failed.error))
}

/// Whether a record is part of a table.
pub fn is_table(record: &RawMrtRecord) -> bool {
    matches!(record.common_header.entry_type, EntryType::TABLE_DUMP | EntryType::TABLE_DUMP_V2)
}

/// Tells each route of a table's record.
///
/// # Errors
/// What is wrong with the record, or what `tell` says is.
pub fn routes(
    record: RawMrtRecord,
    tell: &mut dyn FnMut(&Route) -> Result<(), String>,
) -> Result<(), String> {
    match (record.common_header.entry_type, record.common_header.entry_subtype) {
        // IPv4 and IPv6 unicast, with one path a neighbour or several (RFC 6396 §4.2, §4.3.2; RFC 8050 §4).
        (EntryType::TABLE_DUMP, 1 | 2) | (EntryType::TABLE_DUMP_V2, 2 | 4 | 8 | 10) => {}
        // The collector's neighbours, multicast, and what is not known.
        _ => return Ok(()),
    }
    let body = record.message_bytes.clone();
    if body.len() > BODY_MAX {
        return Err(format!("it has {} octets, more than {BODY_MAX}", body.len()));
    }
    // What it asserts of itself hangs on the octets that it reads.
    let message = catch_unwind(AssertUnwindSafe(|| record.parse()))
        .map_err(|_| "the reader of MRT panicked over it".to_owned())?
        .map_err(reason)?
        .message;
    let mut number = 0;
    let mut entry = |prefix: &NetworkPrefix, attributes: &Attributes| {
        number += 1;
        tell(&route(prefix, attributes).map_err(|what| format!("entry {number} is damaged: {what}"))?)
    };
    match message {
        MrtMessage::TableDumpMessage(only) => entry(&only.prefix, &only.attributes),
        MrtMessage::TableDumpMessageBatch(entries) => {
            entries.iter().try_for_each(|each| entry(&each.prefix, &each.attributes))
        }
        MrtMessage::TableDumpV2Message(TableDumpV2Message::RibAfi(rib)) => {
            rib.rib_entries.iter().try_for_each(|each| entry(&rib.prefix, &each.attributes))?;
            // It stops at an entry that it cannot read, and tells those before it.
            match entry_count(&body) {
                Some(count) if count == rib.rib_entries.len() => Ok(()),
                _ => Err(format!("entry {} is damaged: it is cut off", rib.rib_entries.len() + 1)),
            }
        }
        _ => Ok(()),
    }
}

/// How many entries a record of TABLE_DUMP_V2 says that it has, behind its number and the prefix (§4.3.2).
fn entry_count(body: &[u8]) -> Option<usize> {
    let prefix = usize::from(*body.get(4)?).div_ceil(8);
    let count = body.get(5 + prefix..)?.first_chunk()?;
    Some(usize::from(u16::from_be_bytes(*count)))
}

/// One entry; or what of it is damaged.
fn route(prefix: &NetworkPrefix, attributes: &Attributes) -> Result<Route, String> {
    const READ: [AttrType; 3] = [AttrType::ORIGIN, AttrType::AS_PATH, AttrType::AS4_PATH];
    let is_kept = |kind: AttrType| attributes.iter().any(|value| value.attr_code() == u8::from(kind));
    // An attribute that is longer than what is left is noted as seen, and then left out with all behind it.
    if let Some(cut) =
        (0..=u8::MAX).map(AttrType::from).find(|kind| attributes.has_attr(*kind) && !is_kept(*kind))
    {
        return Err(format!("its attribute {cut:?} is cut off"));
    }
    let mut is_incomplete = false;
    for value in attributes {
        match value {
            // What could not be read is kept as it is.
            AttributeValue::Raw(raw) if READ.map(u8::from).contains(&raw.code) => {
                return Err(format!("its {:?} cannot be read", AttrType::from(raw.code)));
            }
            AttributeValue::Origin(origin) => is_incomplete = *origin == Origin::INCOMPLETE,
            _ => {}
        }
    }
    let mut path = Vec::new();
    for segment in attributes.effective_as_path().iter().flat_map(|path| path.segments.iter()) {
        match segment {
            AsPathSegment::AsSequence(ases) => {
                path.extend(ases.iter().map(|number| Some(u32::from(*number))))
            }
            AsPathSegment::AsSet(_) => path.push(None),
            // Members of a confederation, which is one AS to everybody else (RFC 5065 §3).
            AsPathSegment::ConfedSequence(_) | AsPathSegment::ConfedSet(_) => {}
        }
    }
    Ok(Route { address: prefix.prefix.addr(), length: prefix.prefix.prefix_len(), is_incomplete, path })
}

/// What the crate says is wrong, without the word "Error" before it.
fn reason(error: ParserError) -> String {
    match error {
        ParserError::EofError(_) => "its header is cut off".to_owned(),
        ParserError::IoError(cause) => cause.to_string(),
        ParserError::ParseError(what) | ParserError::TruncatedMsg(what) | ParserError::Unsupported(what) => {
            what
        }
        ParserError::OversizedRecord { length } => format!("its header claims {length} octets"),
        other => other.to_string(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn told(kind: u8, subtype: u8, body: &[u8]) -> Result<Vec<Route>, String> {
        let header = [0, 0, 0, 0, 0, kind, 0, subtype];
        let octets = [&header[..], &(body.len() as u32).to_be_bytes(), body].concat();
        let mut reader = octets.as_slice();
        let record = next(&mut reader)?.ok_or("no record")?;
        assert!(next(&mut reader)?.is_none(), "one record, and what it did not want");
        let mut told = Vec::new();
        routes(record, &mut |route| {
            told.push(route.clone());
            Ok(())
        })?;
        Ok(told)
    }

    /// An entry of the first form, with AS_PATH 1 23456 {9} and AS4_PATH 70000 {9}, of long lengths.
    fn entry(third: u8) -> Vec<u8> {
        let path = [2, 2, 0, 1, 0x5b, 0xa0, 1, 1, 0, 9];
        let wide = [2, 1, 0, 1, 0x11, 0x70, 1, 1, 0, 0, 0, 9];
        let attributes = [
            &[0x40, 1, 1, 2, 0x50, 2, 0, path.len() as u8][..],
            &path,
            &[0xd0, 17, 0, wide.len() as u8],
            &wide,
        ]
        .concat();
        let fixed = [10, 1, third, 0, 24, 1, 0, 0, 0, 0, 192, 0, 2, 1, 0, 1, 0, attributes.len() as u8];
        [&fixed[..], &attributes].concat()
    }

    #[test]
    fn several_entries_of_the_first_form_and_paths_of_two_widths() {
        let body = [&[0, 0, 0, 1][..], &entry(7), &entry(8)].concat();
        let routes = told(12, 1, &body).unwrap();
        assert_eq!(routes.len(), 2);
        assert_eq!((routes[1].address, routes[1].length), ([10, 1, 8, 0].into(), 24));
        assert_eq!(routes[0].path, [Some(1), Some(70_000), None]);
        assert!(routes[0].is_incomplete);
        for length in 0..body.len() {
            let cut = told(12, 1, &body[..length]);
            assert_eq!(cut.is_ok(), length == 4 + entry(7).len(), "{length}: {cut:?}");
        }
        assert_eq!(told(16, 4, &body), Ok(vec![]));
    }

    #[test]
    fn what_the_crate_leaves_out_is_a_fault() {
        let rib = |count: u8, attributes: &[u8]| {
            let entry = [&[0; 7][..], &[attributes.len() as u8], attributes].concat();
            told(13, 2, &[&[0, 0, 0, 1, 8, 10, 0, count][..], &entry].concat())
        };
        let good = [0x40, 1, 1, 0, 0x40, 2, 6, 2, 1, 0, 0, 0, 7];
        let told = rib(1, &good).unwrap();
        assert_eq!((told.len(), &told[0].path[..]), (1, &[Some(7)][..]));
        let with = |at: usize, octet: u8| {
            let mut attributes = good;
            attributes[at] = octet;
            rib(1, &attributes)
        };
        // Attributes that are longer than all that is left, behind what is used.
        let before = |cut: &[u8]| rib(1, &[&good[..], cut].concat());
        let damaged = |what: &str| Err(format!("entry 1 is damaged: {what}"));
        assert_eq!(rib(2, &good), Err("entry 2 is damaged: it is cut off".into()));
        assert_eq!(with(3, 9), damaged("its ORIGIN cannot be read"));
        assert_eq!(with(6, 7), damaged("its attribute AS_PATH is cut off"));
        assert_eq!(with(7, 9), damaged("its AS_PATH cannot be read"));
        assert_eq!(with(8, 2), damaged("its AS_PATH cannot be read"));
        assert_eq!(before(&[0xc0, 8, 4, 0]), damaged("its attribute COMMUNITIES is cut off"));
        assert_eq!(before(&[0xc0, 99, 4, 0]), damaged("its attribute Unknown(99) is cut off"));
    }

    #[test]
    fn a_body_beyond_the_limit_is_refused() {
        let body = vec![0; BODY_MAX + 1];
        assert_eq!(told(13, 2, &body), Err(format!("it has {} octets, more than {BODY_MAX}", body.len())));
    }
}
