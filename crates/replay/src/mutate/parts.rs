//! A query taken apart and put together again.

use dns::Folded;
use dns::edns::{OPT, UDP_PAYLOAD};
use dns::query::HEADER;

use crate::trace::Message;

/// The root, type OPT.
const OPT_HEAD: [u8; 3] = [0, 0, 41];

/// A query with one question and at most an OPT behind it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Parts {
    id: [u8; 2],
    /// The header's third and fourth octet.
    pub(super) flags: u16,
    /// In wire form, as it was asked, in upper and lower case.
    pub(super) name: Vec<u8>,
    pub(super) rtype: u16,
    class: u16,
    pub(super) opt: Option<Opt>,
}

/// An OPT record.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Opt {
    pub(super) size: u16,
    /// Extended rcode and version.
    extended: u16,
    pub(super) flags: u16,
    pub(super) options: Vec<u8>,
}

/// What a message is, as far as it can be changed.
pub(super) enum Whole {
    Parts(Parts),
    Unreadable,
    Records,
}

impl Whole {
    pub(super) fn read(message: &Message) -> Whole {
        let mut name = Folded::root();
        let Some(query) = message.query(&mut name) else { return Whole::Unreadable };
        let (question, octets) = (query.head, &message.octets);
        let has_opt = query.edns.is_some();
        // The counts of answer and authority; that of additional.
        if octets[6..10] != [0; 4] || octets[10..12] != u16::from(has_opt).to_be_bytes() {
            return Whole::Records;
        }
        let opt = match has_opt {
            false => None,
            true => match Opt::read(&octets[question.len()..]) {
                Some(opt) => Some(opt),
                // The root may be written as a pointer, which nobody does.
                None => return Whole::Records,
            },
        };
        let word = |at: usize| u16::from_be_bytes([octets[at], octets[at + 1]]);
        let end = HEADER + query.name.wire_length();
        Whole::Parts(Parts {
            id: [octets[0], octets[1]],
            flags: word(2),
            name: octets[HEADER..end].to_vec(),
            rtype: word(end),
            class: word(end + 2),
            opt,
        })
    }
}

impl Parts {
    /// The OPT, added where there is none, with the size that fits everywhere.
    pub(super) fn opt_or_new(&mut self) -> &mut Opt {
        self.opt.get_or_insert_with(|| Opt { size: UDP_PAYLOAD, ..Opt::default() })
    }

    /// The message in wire form.
    pub(super) fn written(&self) -> Vec<u8> {
        let mut octets = Vec::with_capacity(HEADER + self.name.len() + 4 + OPT);
        octets.extend_from_slice(&self.id);
        for word in [self.flags, 1, 0, 0, self.opt.is_some().into()] {
            octets.extend_from_slice(&word.to_be_bytes());
        }
        octets.extend_from_slice(&self.name);
        octets.extend_from_slice(&self.rtype.to_be_bytes());
        octets.extend_from_slice(&self.class.to_be_bytes());
        if let Some(opt) = &self.opt {
            octets.extend_from_slice(&OPT_HEAD);
            // A query that was read has fewer octets than a length has room for, and one option more fits.
            for word in [opt.size, opt.extended, opt.flags, opt.options.len() as u16] {
                octets.extend_from_slice(&word.to_be_bytes());
            }
            octets.extend_from_slice(&opt.options);
        }
        octets
    }
}

impl Opt {
    fn read(octets: &[u8]) -> Option<Opt> {
        let (head, rest) = octets.split_first_chunk::<OPT>()?;
        let rest = head.starts_with(&OPT_HEAD).then_some(rest)?;
        let word = |at: usize| u16::from_be_bytes([head[at], head[at + 1]]);
        let options = rest.get(..usize::from(word(9)))?.to_vec();
        Some(Opt { size: word(3), extended: word(5), flags: word(7), options })
    }

    /// Removes every option of a code.
    pub(super) fn remove(&mut self, code: u16) {
        let mut kept = Vec::with_capacity(self.options.len());
        let mut rest = &self.options[..];
        while let Some((head, tail)) = rest.split_first_chunk::<4>() {
            let length = usize::from(u16::from_be_bytes([head[2], head[3]])).min(tail.len());
            if head[..2] != code.to_be_bytes() {
                kept.extend_from_slice(&rest[..4 + length]);
            }
            rest = &tail[length..];
        }
        self.options = kept;
    }
}
