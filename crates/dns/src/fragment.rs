//! Records that are written again and again, composed once.

use domain::base::iana::{Class, Rtype};

use crate::name::Folded;
use crate::query::{HEADER, Query};
use crate::writer::{Full, Section, Suffixes, Writer};

/// The largest fragment in octets: what is larger fits no datagram, and is composed when it is asked for.
const FRAGMENT_MAX: usize = 4096;

/// The highest bit of a pointer's target: it is in the fragment itself, not in the asked name.
const WITHIN: u16 = 0x8000;

/// Fragments, all in flat arrays.
///
/// A fragment is the AUTHORITY and ADDITIONAL sections of a response about one name, whose own names end in
/// pointers: at that name, wherever in the asked one it begins, or at a name in the fragment's AUTHORITY.
#[derive(Clone, Debug, Default)]
pub struct Fragments {
    octets: Vec<u8>,
    pointers: Vec<Pointer>,
    /// AUTHORITY and ADDITIONAL of each.
    parts: Vec<[Ends; 2]>,
}

/// Where a section of a fragment ends in the arrays, and how many records it has; it begins where the one
/// before it ends.
#[derive(Clone, Copy, Debug)]
struct Ends {
    octets: u32,
    pointers: u32,
    records: u16,
}

/// A pointer in a section.
#[derive(Clone, Copy, Debug)]
struct Pointer {
    /// Where it stands, from the section's beginning.
    place: u16,
    /// What it points at: from the beginning of the name; with [`WITHIN`], from that of AUTHORITY.
    target: u16,
}

/// One fragment.
#[derive(Clone, Copy, Debug)]
pub struct Fragment<'a> {
    sections: [Part<'a>; 2],
}

/// One section of a fragment.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Part<'a> {
    pub(crate) octets: &'a [u8],
    pointers: &'a [Pointer],
    pub(crate) records: u16,
}

impl Fragments {
    /// Composes a fragment about `owner`, which is folded; returns its index.
    ///
    /// `None` where `write` says that it is [`Full`], or what it has written holds more than can be moved about.
    pub fn add(
        &mut self,
        owner: &Folded,
        write: impl FnOnce(&mut Writer<'_>) -> Result<(), Full>,
    ) -> Option<usize> {
        let question = [&[0; HEADER], owner.wire(), &[0; 4]].concat();
        let query = Query { head: &question, name: owner, rtype: Rtype::NS, class: Class::IN, edns: None };
        let (mut out, mut suffixes) = (vec![0; question.len() + FRAGMENT_MAX], Suffixes::new());
        let mut writer = Writer::new(&mut out, &query, usize::MAX, &mut suffixes)?;
        write(&mut writer).ok()?;
        if writer.count(Section::Answer) > 0 {
            return None;
        }
        let records = [writer.count(Section::Authority), writer.count(Section::Additional)];
        let length = writer.length();
        let (octets_before, pointers_before) = (self.octets.len(), self.pointers.len());
        let mut at = question.len();
        let parts = records.map(|records| {
            let begin = at;
            for _ in 0..records {
                at = self.add_pointers(&out[..length], at, begin, question.len());
            }
            self.octets.extend_from_slice(&out[begin..at]);
            Ends { octets: self.octets.len() as u32, pointers: self.pointers.len() as u32, records }
        });
        // ADDITIONAL may come to stand elsewhere than right behind AUTHORITY.
        let authority = parts[0].octets as usize - octets_before;
        let is_movable = self.pointers[pointers_before..]
            .iter()
            .all(|pointer| pointer.target & WITHIN == 0 || usize::from(pointer.target & !WITHIN) < authority);
        if u32::try_from(self.octets.len()).is_err() || !is_movable {
            self.octets.truncate(octets_before);
            self.pointers.truncate(pointers_before);
            return None;
        }
        self.parts.push(parts);
        Some(self.parts.len() - 1)
    }

    /// The fragment of an index.
    ///
    /// # Panics
    /// Where there is none.
    #[inline]
    pub fn get(&self, index: usize) -> Fragment<'_> {
        let (mut octets, mut pointers) = match index.checked_sub(1) {
            Some(before) => (self.parts[before][1].octets as usize, self.parts[before][1].pointers as usize),
            None => (0, 0),
        };
        let sections = self.parts[index].map(|ends| {
            let part = Part {
                octets: &self.octets[octets..ends.octets as usize],
                pointers: &self.pointers[pointers..ends.pointers as usize],
                records: ends.records,
            };
            (octets, pointers) = (ends.octets as usize, ends.pointers as usize);
            part
        });
        Fragment { sections }
    }

    /// The octets that they take in memory.
    pub fn bytes(&self) -> usize {
        self.octets.capacity()
            + self.pointers.capacity() * size_of::<Pointer>()
            + self.parts.capacity() * size_of::<[Ends; 2]>()
    }

    /// Gives back the room that growing left over.
    pub fn shrink(&mut self) {
        self.octets.shrink_to_fit();
        self.pointers.shrink_to_fit();
        self.parts.shrink_to_fit();
    }

    /// Notes the pointers of the record at `at`; returns where it ends.
    fn add_pointers(&mut self, message: &[u8], at: usize, begin: usize, question: usize) -> usize {
        let head = self.add_pointer(message, at, begin, question);
        let rtype = Rtype::from_int(u16::from_be_bytes([message[head], message[head + 1]]));
        let data = head + 10;
        match rtype {
            Rtype::NS => {
                self.add_pointer(message, data, begin, question);
            }
            Rtype::SOA => {
                let mailbox = self.add_pointer(message, data, begin, question);
                self.add_pointer(message, mailbox, begin, question);
            }
            _ => {}
        }
        data + usize::from(u16::from_be_bytes([message[head + 8], message[head + 9]]))
    }

    /// Notes the pointer that the name at `at` ends with, where it does; returns where the name ends.
    fn add_pointer(&mut self, message: &[u8], mut at: usize, begin: usize, question: usize) -> usize {
        loop {
            match message[at] {
                0 => return at + 1,
                length @ 1..=63 => at += 1 + usize::from(length),
                high => {
                    let target = u16::from_be_bytes([high & 0x3f, message[at + 1]]);
                    let target = match usize::from(target).checked_sub(question) {
                        Some(within) => within as u16 | WITHIN,
                        None => target - HEADER as u16,
                    };
                    self.pointers.push(Pointer { place: (at - begin) as u16, target });
                    return at + 2;
                }
            }
        }
    }
}

impl<'a> Fragment<'a> {
    /// Its records of a section.
    #[inline]
    pub(crate) fn part(&self, section: Section) -> Part<'a> {
        self.sections[usize::from(section == Section::Additional)]
    }
}

impl Part<'_> {
    /// Writes it to `out`, which has its length, for a name that stands at `owner` in the message, and an
    /// AUTHORITY part at `authority`.
    #[inline]
    pub(crate) fn write(&self, owner: u16, authority: u16, out: &mut [u8]) {
        out.copy_from_slice(self.octets);
        for pointer in self.pointers {
            let base = if pointer.target & WITHIN == 0 { owner } else { authority };
            let target = (0xc000 | (base + (pointer.target & !WITHIN))).to_be_bytes();
            out[usize::from(pointer.place)..usize::from(pointer.place) + 2].copy_from_slice(&target);
        }
    }
}
