//! Records of MRT (RFC 6396), as far as tables of routes need them, and the attributes of a route (RFC 4271 §4.3).
//!
//! Written here because a crate for it brings fifteen, most of them for messages that no table has.

use std::io::Read;

/// The longest body of a record, in octets: one with all routes of one prefix has a hundredth of it.
const BODY_MAX: u32 = 16 << 20;

/// Octets of a record's header: time, type, subtype, length (§2).
pub const HEADER: usize = 12;

/// The types of records that tables are made of (§4.2, §4.3).
const TABLE_DUMP: u16 = 12;
const TABLE_DUMP_V2: u16 = 13;

/// A record's header, but for the time.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Header {
    kind: u16,
    subtype: u16,
    /// Octets of the body.
    pub length: u32,
}

/// A route: one entry of a table.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Route {
    /// The prefix's octets, zeros behind its length.
    pub address: [u8; 16],
    /// Whether it is of IPv6.
    pub is_v6: bool,
    /// The prefix's length, in bits.
    pub length: u8,
    /// Whether ORIGIN is INCOMPLETE.
    pub is_incomplete: bool,
    /// The path, the origin last; a set of ASes is `None`.
    pub path: Vec<Option<u32>>,
}

impl Header {
    /// Whether the record is part of a table.
    pub fn is_table(&self) -> bool {
        matches!(self.kind, TABLE_DUMP | TABLE_DUMP_V2)
    }
}

/// Reads the next record, its body into `body`; `None` at the end.
///
/// # Errors
/// What is wrong with it, in words.
pub fn next(reader: &mut impl Read, body: &mut Vec<u8>) -> Result<Option<Header>, String> {
    body.clear();
    let read = |reader: &mut dyn Read, body: &mut Vec<u8>, length: usize| {
        reader.take(length as u64).read_to_end(body).map_err(|cause| cause.to_string())
    };
    let header = match read(reader, body, HEADER)? {
        0 => return Ok(None),
        HEADER => Cursor(&body[4..]).header().map_err(String::from)?,
        some => return Err(format!("truncated MRT header: expected {HEADER} octets, read {some}")),
    };
    if header.length > BODY_MAX {
        return Err(format!("its header claims {} octets, more than {BODY_MAX}", header.length));
    }
    body.clear();
    match read(reader, body, header.length as usize)? {
        some if some < header.length as usize => {
            Err(format!("truncated MRT body: expected {} octets, read {some}", header.length))
        }
        _ => Ok(Some(header)),
    }
}

/// Tells each route of a table's record.
///
/// # Errors
/// What is wrong with the record, or what `tell` says is.
pub fn routes(
    header: Header,
    body: &[u8],
    route: &mut Route,
    tell: &mut dyn FnMut(&Route) -> Result<(), String>,
) -> Result<(), String> {
    let mut cursor = Cursor(body);
    let damaged = |number: usize, what: &str| format!("entry {number} is damaged: {what}");
    match (header.kind, header.subtype) {
        (TABLE_DUMP, 1 | 2) => {
            route.is_v6 = header.subtype == 2;
            // View and sequence number; early writers put several entries behind them.
            cursor.take(4)?;
            let mut number = 1;
            while !cursor.0.is_empty() || number == 1 {
                cursor.entry(route).map_err(|what| damaged(number, what))?;
                tell(route)?;
                number += 1;
            }
        }
        (TABLE_DUMP_V2, 2 | 4 | 8 | 10) => {
            route.is_v6 = matches!(header.subtype, 4 | 10);
            cursor.take(4)?;
            route.length = cursor.u8()?;
            let octets = usize::from(route.length).div_ceil(8);
            route.put_prefix(cursor.take(octets)?)?;
            for number in 1..=usize::from(cursor.u16()?) {
                // The neighbour's number, the time, and the path's number where there may be several.
                cursor
                    .take(if header.subtype >= 8 { 10 } else { 6 })
                    .map_err(|what| damaged(number, what))?;
                cursor.attributes(4, route).map_err(|what| damaged(number, what))?;
                tell(route)?;
            }
        }
        // The collector's neighbours, multicast, and what is not known.
        _ => {}
    }
    Ok(())
}

impl Route {
    /// Puts the octets of a prefix of [`Route::length`] bits in.
    fn put_prefix(&mut self, octets: &[u8]) -> Result<(), &'static str> {
        let bits = if self.is_v6 { 128 } else { 32 };
        if self.length > bits || octets.len() > self.address.len() {
            return Err("a prefix is longer than an address");
        }
        self.address = [0; 16];
        self.address[..octets.len()].copy_from_slice(octets);
        Ok(())
    }
}

/// What is left to read.
struct Cursor<'a>(&'a [u8]);

impl<'a> Cursor<'a> {
    fn take(&mut self, count: usize) -> Result<&'a [u8], &'static str> {
        let (taken, left) = self.0.split_at_checked(count).ok_or("it ends too early")?;
        self.0 = left;
        Ok(taken)
    }

    fn u8(&mut self) -> Result<u8, &'static str> {
        Ok(self.take(1)?[0])
    }

    fn u16(&mut self) -> Result<u16, &'static str> {
        let octets = self.take(2)?;
        Ok(u16::from_be_bytes([octets[0], octets[1]]))
    }

    fn header(&mut self) -> Result<Header, &'static str> {
        let (kind, subtype, high, low) = (self.u16()?, self.u16()?, self.u16()?, self.u16()?);
        Ok(Header { kind, subtype, length: u32::from(high) << 16 | u32::from(low) })
    }

    /// An entry of TABLE_DUMP.
    fn entry(&mut self, route: &mut Route) -> Result<(), &'static str> {
        let octets = if route.is_v6 { 16 } else { 4 };
        let address = self.take(octets)?;
        route.length = self.u8()?;
        route.put_prefix(address)?;
        // Status and time, the neighbour's address, its AS.
        self.take(5 + octets + 2)?;
        self.attributes(2, route)
    }

    /// The attributes of a route, in whose path an AS has `width` octets.
    fn attributes(&mut self, width: usize, route: &mut Route) -> Result<(), &'static str> {
        const LONG: u8 = 0x10;
        const ORIGIN: u8 = 1;
        const INCOMPLETE: u8 = 2;
        const AS_PATH: u8 = 2;
        const AS4_PATH: u8 = 17;
        route.is_incomplete = false;
        route.path.clear();
        let mut wide = Vec::new();
        let length = self.u16()?;
        let mut attributes = Cursor(self.take(usize::from(length))?);
        while !attributes.0.is_empty() {
            let (flags, kind) = (attributes.u8()?, attributes.u8()?);
            let length = if flags & LONG == 0 { u16::from(attributes.u8()?) } else { attributes.u16()? };
            let mut value = Cursor(attributes.take(usize::from(length))?);
            match kind {
                ORIGIN => route.is_incomplete = value.u8()? == INCOMPLETE,
                AS_PATH => value.path(width, &mut route.path)?,
                AS4_PATH => value.path(4, &mut wide)?,
                _ => {}
            }
        }
        // What old routers could not write stands in a path of its own, which is as long or shorter (RFC 6793 §4.2.3).
        if wide.len() <= route.path.len() {
            route.path.truncate(route.path.len() - wide.len());
            route.path.append(&mut wide);
        }
        Ok(())
    }

    /// The segments of a path, one after the other.
    fn path(&mut self, width: usize, path: &mut Vec<Option<u32>>) -> Result<(), &'static str> {
        const SET: u8 = 1;
        const SEQUENCE: u8 = 2;
        // Members of a confederation, which is one AS to everybody else (RFC 5065 §3).
        const CONFEDERATION: std::ops::RangeInclusive<u8> = 3..=4;
        while !self.0.is_empty() {
            let (kind, count) = (self.u8()?, self.u8()?);
            let ases = self.take(usize::from(count) * width)?;
            match kind {
                SET => path.push(None),
                SEQUENCE => path.extend(ases.chunks(width).map(|number| {
                    Some(number.iter().fold(0, |number, octet| number << 8 | u32::from(*octet)))
                })),
                kind if CONFEDERATION.contains(&kind) => {}
                _ => return Err("a path has a segment of no known type"),
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn told(kind: u16, subtype: u16, body: &[u8]) -> Result<Vec<Route>, String> {
        let mut routes = Vec::new();
        let header = Header { kind, subtype, length: body.len() as u32 };
        super::routes(header, body, &mut Route::default(), &mut |route| {
            routes.push(route.clone());
            Ok(())
        })?;
        Ok(routes)
    }

    #[test]
    fn several_entries_of_the_first_form_and_paths_of_two_widths() {
        // AS_PATH 1 23456 {9}, AS4_PATH 70000 {9}, with long lengths; ORIGIN INCOMPLETE.
        let path = [2, 2, 0, 1, 0x5b, 0xa0, 1, 1, 0, 9];
        let wide = [2, 1, 0, 1, 0x11, 0x70, 1, 1, 0, 0, 0, 9];
        let attributes = [
            &[0x40, 1, 1, 2, 0x50, 2, 0, path.len() as u8][..],
            &path,
            &[0xd0, 17, 0, wide.len() as u8],
            &wide,
        ]
        .concat();
        let entry = |third: u8| {
            let fixed = [10, 1, third, 0, 24, 1, 0, 0, 0, 0, 192, 0, 2, 1, 0, 1, 0, attributes.len() as u8];
            [&fixed[..], &attributes].concat()
        };
        let body = [&[0, 0, 0, 1][..], &entry(7), &entry(8)].concat();
        let routes = told(12, 1, &body).unwrap();
        assert_eq!(routes.len(), 2);
        assert_eq!((routes[1].address[..4].to_vec(), routes[1].length), (vec![10, 1, 8, 0], 24));
        assert_eq!(routes[0].path, [Some(1), Some(70_000), None]);
        assert!(routes[0].is_incomplete);
        for length in 0..body.len() {
            let cut = told(12, 1, &body[..length]);
            assert_eq!(cut.is_ok(), length == 4 + entry(7).len(), "{length}: {cut:?}");
        }
        assert_eq!(told(12, 1, &[0; 4]), Err("entry 1 is damaged: it ends too early".into()));
        assert_eq!(told(16, 4, &body), Ok(vec![]));
    }
}
