//! An RRset as a zone keeps it: octets that a look-up passes over and an answer copies.
//!
//! ```text
//! octets  2      4     4        2        length
//!        +------+-----+--------+--------+------+--------+------+---
//!        | type | TTL | octets | length | data | length | data | ...
//!        +------+-----+--------+--------+------+--------+------+---
//!                      of all behind it
//! ```
//! Those of a name stand one behind the other in order of their type. Behind each come the signatures over it, an
//! RRset of their own; signatures that cover nothing are the first.

use dns::Rtype;

/// An RRset: the data of its records, each behind its length, and the signatures over it.
#[derive(Clone, Copy, Debug)]
pub struct Rrset<'a> {
    /// The type.
    pub rtype: Rtype,
    /// The TTL in seconds.
    pub ttl: u32,
    data: &'a [u8],
    signatures: &'a [u8],
    signatures_ttl: u32,
}

impl<'a> Rrset<'a> {
    /// The data of each record in wire form, names uncompressed.
    #[inline]
    pub fn data(self) -> impl Iterator<Item = &'a [u8]> {
        let mut rest = self.data;
        std::iter::from_fn(move || {
            let (length, behind) = rest.split_first_chunk::<2>()?;
            let (data, behind) = behind.split_at(usize::from(u16::from_be_bytes(*length)));
            rest = behind;
            Some(data)
        })
    }

    /// The same from a place on that this told of a record before; each with its place, which is 0 for the first of all.
    ///
    /// # Panics
    /// When there is no such place.
    pub fn data_from(self, place: usize) -> impl Iterator<Item = (usize, &'a [u8])> {
        let mut next = place;
        Rrset { data: &self.data[place..], ..self }.data().map(move |data| {
            let place = next;
            next += size_of::<u16>() + data.len();
            (place, data)
        })
    }

    /// The signatures over it, an RRset of their own that may be empty.
    #[inline]
    pub fn signatures(self) -> Rrset<'a> {
        Rrset {
            rtype: Rtype::RRSIG,
            ttl: self.signatures_ttl,
            data: self.signatures,
            signatures: &[],
            signatures_ttl: 0,
        }
    }

    /// Whether there are signatures over it.
    #[inline]
    pub fn is_signed(self) -> bool {
        !self.signatures.is_empty()
    }

    /// The RRset, and its signatures with it, with no larger TTL than this.
    #[inline]
    pub fn with_ttl_at_most(self, ttl: u32) -> Rrset<'a> {
        Rrset { ttl: self.ttl.min(ttl), signatures_ttl: self.signatures_ttl.min(ttl), ..self }
    }

    /// The RRsets of one name.
    #[inline]
    pub(super) fn all(mut octets: &'a [u8]) -> impl Iterator<Item = Rrset<'a>> {
        std::iter::from_fn(move || {
            let (mut set, mut rest) = Rrset::read(octets)?;
            if set.rtype != Rtype::RRSIG && rest.starts_with(&Rtype::RRSIG.to_int().to_be_bytes()) {
                let (signatures, behind) = Rrset::read(rest)?;
                (set.signatures, set.signatures_ttl) = (signatures.data, signatures.ttl);
                rest = behind;
            }
            octets = rest;
            Some(set)
        })
    }

    /// The RRset at the front of a name's, without its signatures, and what is behind it.
    #[inline]
    fn read(octets: &'a [u8]) -> Option<(Rrset<'a>, &'a [u8])> {
        let (head, rest) = octets.split_first_chunk::<10>()?;
        let rtype = Rtype::from_int(u16::from_be_bytes([head[0], head[1]]));
        let ttl = u32::from_be_bytes([head[2], head[3], head[4], head[5]]);
        let length = u32::from_be_bytes([head[6], head[7], head[8], head[9]]) as usize;
        let (data, rest) = rest.split_at(length);
        Some((Rrset { rtype, ttl, data, signatures: &[], signatures_ttl: 0 }, rest))
    }
}

/// Writes an RRset behind those of its name.
pub(super) fn write(rtype: Rtype, ttl: u32, data: &[&[u8]], arena: &mut Vec<u8>) {
    let length: usize = data.iter().map(|data| 2 + data.len()).sum();
    arena.extend_from_slice(&rtype.to_int().to_be_bytes());
    arena.extend_from_slice(&ttl.to_be_bytes());
    arena.extend_from_slice(&(length as u32).to_be_bytes());
    for data in data {
        arena.extend_from_slice(&(data.len() as u16).to_be_bytes());
        arena.extend_from_slice(data);
    }
}
