//! The writer of responses: records behind an echoed question, names compressed.

use domain::base::iana::{Class, Rcode, Rtype};

use crate::edns::{self, Edns, ExtendedError, OPT, Options};
use crate::fragment::Fragment;
use crate::name::LABELS_MAX;
use crate::query::{HEADER, Query, any_opt};

/// The most name suffixes that compression remembers in one message.
///
/// A referral of thirteen servers with their glue needs about twenty; a message with more names only
/// grows longer, it stays right.
const SUFFIXES_MAX: usize = 64;

/// A section of a message (RFC 1035 §4.1).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Section {
    /// Records that answer the question.
    Answer,
    /// Records that point toward an authority.
    Authority,
    /// Records that may help.
    Additional,
}

/// The message is full: the record was not written, and nothing of it remains.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Full;

/// Composes a response to one query into a given buffer.
///
/// Sections must be written in their order. Room for the OPT record is kept free from the start, so that
/// [`Writer::finish`] cannot fail.
///
/// # Panics
/// Writing methods panic where a name or record data handed to them is malformed: those come from zones,
/// which were checked when they were read.
pub struct Writer<'a> {
    out: &'a mut [u8],
    length: usize,
    limit: usize,
    counts: [u16; 3],
    options: Option<&'a Options<'a>>,
    suffixes: &'a mut Suffixes,
    /// Those of the question come in with the first name that is to be compressed: most answers have none.
    known: usize,
    keeps_case: bool,
}

/// Room for the name suffixes that compression remembers in one message.
pub struct Suffixes([Suffix; SUFFIXES_MAX]);

impl Suffixes {
    /// Room that nothing is in.
    #[inline]
    pub fn new() -> Suffixes {
        Suffixes([Suffix { label: 0, behind: 0, at: 0 }; SUFFIXES_MAX])
    }
}

impl Default for Suffixes {
    fn default() -> Self {
        Suffixes::new()
    }
}

/// A state of the message to which it can be taken back.
#[derive(Clone, Copy, Debug)]
pub struct Mark {
    length: usize,
    counts: [u16; 3],
    known: usize,
}

/// A name, or the end of one, that stands in the message. No two that are equal are remembered, so a suffix is
/// known by its first label and by where the rest of it stands.
#[derive(Clone, Copy)]
struct Suffix {
    /// A hash of the first label.
    label: u32,
    /// Where the suffix behind the first label stands; [`ROOT`] for the root.
    behind: u16,
    /// Where it stands.
    at: u16,
}

/// How far into a message pointers reach, in octets (RFC 1035 §4.1.4).
const POINTERS_REACH: usize = 0x4000;

/// Where the root "stands": no name begins in the header.
const ROOT: u16 = 0;

impl<'a> Writer<'a> {
    /// Begins a response: the query's header and question, with room kept for OPT where it had one.
    ///
    /// `limit` is the largest message in octets; no more than `out` holds is used. `None` where not even
    /// the question and OPT fit.
    #[inline]
    pub fn new(
        out: &'a mut [u8],
        query: &Query<'_>,
        limit: usize,
        suffixes: &'a mut Suffixes,
    ) -> Option<Writer<'a>> {
        let reserved = match &query.edns {
            None => 0,
            Some(Edns { client_subnet: None, .. }) => OPT,
            Some(Edns { client_subnet: Some(subnet), .. }) => OPT + subnet.written(),
        };
        let limit = limit.min(out.len()).checked_sub(reserved)?;
        if query.head.len() > limit {
            return None;
        }
        out[..query.head.len()].copy_from_slice(query.head);
        let length = query.head.len();
        Some(Writer {
            out,
            length,
            limit,
            counts: [0; 3],
            options: None,
            suffixes,
            known: 0,
            keeps_case: false,
        })
    }

    /// Ends names with pointers only at such as are the same in case, too, as in zone transfers (RFC 5936 §3.4): a
    /// secondary would take over the spelling of the question, or of whatever name came first.
    pub fn keep_case(&mut self) {
        self.keeps_case = true;
    }

    /// Keeps room for the options with which the message is to end; for a query with EDNS, before anything is
    /// written. False where there is none: then it ends without them.
    pub fn keep_room(&mut self, options: &'a Options<'a>) -> bool {
        match self.limit.checked_sub(options.length()) {
            Some(limit) if limit >= self.length => (self.limit, self.options) = (limit, Some(options)),
            _ => return false,
        }
        true
    }

    /// Writes one record whose owner is the asked name.
    ///
    /// # Errors
    /// [`Full`] where it does not fit.
    #[inline]
    pub fn answer_asked(&mut self, rtype: Rtype, ttl: u32, rdata: &[u8]) -> Result<(), Full> {
        let mark = self.mark();
        self.bytes(&[0xc0, HEADER as u8])
            .and_then(|()| self.record(Section::Answer, rtype, ttl, rdata))
            .inspect_err(|_| self.rewind(mark))
    }

    /// Writes one record; its owner, in wire form, and the names in the data of the types of RFC 1035 are
    /// compressed (RFC 3597 §4 allows no others).
    ///
    /// # Errors
    /// [`Full`] where it does not fit.
    pub fn push(
        &mut self,
        section: Section,
        owner: &[u8],
        rtype: Rtype,
        ttl: u32,
        rdata: &[u8],
    ) -> Result<(), Full> {
        let mark = self.mark();
        self.name(owner)
            .and_then(|()| self.record(section, rtype, ttl, rdata))
            .inspect_err(|_| self.rewind(mark))
    }

    /// Writes one TXT record of one string, of the asked name and in the given class, with a TTL of 0.
    ///
    /// # Errors
    /// [`Full`] where it does not fit, or the text has more octets than a string can (255).
    pub fn answer_text(&mut self, class: Class, text: &[u8]) -> Result<(), Full> {
        let mark = self.mark();
        let length = u8::try_from(text.len()).map_err(|_| Full)?;
        let [class_high, class_low] = class.to_int().to_be_bytes();
        let txt = Rtype::TXT.to_int() as u8;
        let data = u16::from(length) + 1;
        self.bytes(&[0xc0, HEADER as u8, 0, txt, class_high, class_low, 0, 0, 0, 0])
            .and_then(|()| self.bytes(&data.to_be_bytes()))
            .and_then(|()| self.bytes(&[length]))
            .and_then(|()| self.bytes(text))
            .inspect_err(|_| self.rewind(mark))?;
        self.counts[Section::Answer as usize] += 1;
        Ok(())
    }

    /// Writes what a fragment has for a section, composed beforehand about the name that begins `offset` octets
    /// into the asked one; returns where it begins.
    ///
    /// `authority` is where the fragment's AUTHORITY was written, for its ADDITIONAL.
    ///
    /// # Errors
    /// [`Full`] where it does not fit.
    #[inline]
    pub fn push_fragment(
        &mut self,
        section: Section,
        fragment: &Fragment<'_>,
        offset: usize,
        authority: Option<u16>,
    ) -> Result<u16, Full> {
        let part = fragment.part(section);
        let (start, end) = (self.length, self.length + part.octets.len());
        // A pointer's 14 bits reach no further (RFC 1035 §4.1.4).
        if end > self.limit || end > POINTERS_REACH {
            return Err(Full);
        }
        let start_at = start as u16;
        part.write((HEADER + offset) as u16, authority.unwrap_or(start_at), &mut self.out[start..end]);
        self.length = end;
        self.counts[section as usize] += part.records;
        Ok(start_at)
    }

    /// The octets written so far.
    pub(crate) fn length(&self) -> usize {
        self.length
    }

    /// The message as it stands, to come back to.
    pub fn mark(&self) -> Mark {
        Mark { length: self.length, counts: self.counts, known: self.known }
    }

    /// Takes back all that was written since `mark`.
    pub fn rewind(&mut self, mark: Mark) {
        self.length = mark.length;
        self.counts = mark.counts;
        self.known = mark.known;
    }

    /// How many records stand in a section.
    pub fn count(&self, section: Section) -> u16 {
        self.counts[section as usize]
    }

    /// Ends the message: flags, counts and OPT. Returns its length in octets.
    ///
    /// `scope` is client subnet's SCOPE PREFIX-LENGTH, written only where the query had the option.
    #[inline]
    pub fn finish(self, query: &Query<'_>, end: End) -> usize {
        let mut length = self.length;
        let out = self.out;
        let rcode = u16::from(end.rcode);
        out[2] = 0x80 | out[2] & 0x79 | u8::from(end.authoritative) << 2 | u8::from(end.truncated) << 1;
        out[3] = rcode as u8 & 0x0f;
        for (i, count) in self.counts.iter().enumerate() {
            out[6 + 2 * i..8 + 2 * i].copy_from_slice(&count.to_be_bytes());
        }
        if let Some(asked) = &query.edns {
            let additional = self.counts[Section::Additional as usize] + 1;
            out[10..12].copy_from_slice(&additional.to_be_bytes());
            let mut options = asked.client_subnet.map_or(0, |subnet| {
                subnet.write(end.scope, &mut out[length + OPT..]).expect("room for OPT was kept")
            });
            if let Some(more) = self.options {
                options += more.write(&mut out[length + OPT + options..]);
            }
            if let Some(error) = end.extended_error {
                // What was kept for OPT and is not used is not counted: at most some octets of client subnet.
                let room = self.limit.saturating_sub(length);
                let start = length + OPT + options;
                options += error.write(&mut out[start..][..room]);
            }
            let opt = &mut out[length..length + OPT];
            write_opt(opt, end.udp_payload_size, (rcode >> 4) as u8, asked.dnssec_ok, options as u16);
            length += OPT + options;
        }
        length
    }

    /// Type to data of a record whose owner has been written.
    #[inline]
    fn record(&mut self, section: Section, rtype: Rtype, ttl: u32, rdata: &[u8]) -> Result<(), Full> {
        let start = self.length;
        self.bytes(&rtype.to_int().to_be_bytes())?;
        self.bytes(&Class::IN.to_int().to_be_bytes())?;
        self.bytes(&ttl.to_be_bytes())?;
        self.bytes(&(rdata.len() as u16).to_be_bytes())?;
        match rtype {
            Rtype::NS | Rtype::CNAME | Rtype::PTR => self.name(rdata)?,
            Rtype::MX => {
                self.bytes(&rdata[..2])?;
                self.name(&rdata[2..])?;
            }
            Rtype::SOA => {
                let (primary, rest) = rdata.split_at(wire_length(rdata));
                let (mailbox, rest) = rest.split_at(wire_length(rest));
                self.name(primary)?;
                self.name(mailbox)?;
                self.bytes(rest)?;
            }
            _ => self.bytes(rdata)?,
        }
        let written = (self.length - start - 10) as u16;
        self.out[start + 8..start + 10].copy_from_slice(&written.to_be_bytes());
        self.counts[section as usize] += 1;
        Ok(())
    }

    #[inline]
    fn bytes(&mut self, bytes: &[u8]) -> Result<(), Full> {
        let end = self.length + bytes.len();
        if end > self.limit {
            return Err(Full);
        }
        self.out[self.length..end].copy_from_slice(bytes);
        self.length = end;
        Ok(())
    }

    /// Writes a name, ending it with a pointer at the longest suffix that already stands in the message.
    ///
    /// With a name all its suffixes are remembered, so that the search can go from the root's side and end with
    /// the first suffix that does not stand there.
    fn name(&mut self, wire: &[u8]) -> Result<(), Full> {
        if self.known == 0 {
            self.remember_question();
        }
        let mut starts = [0; LABELS_MAX];
        let (mut new, length) = find_labels(wire, &mut starts);
        let (mut kept, mut behind) = (length, ROOT);
        while new > 0 {
            let start = usize::from(starts[new - 1]);
            let Some(at) = self.find(&wire[start..], behind) else { break };
            (kept, behind, new) = (start, at, new - 1);
        }
        let pointer = behind;
        for &start in starts[..new].iter().rev() {
            let start = usize::from(start);
            let Some(at) = self.remember(hash_label(&wire[start..]), behind, self.length + start) else {
                break;
            };
            behind = at;
        }
        self.bytes(&wire[..kept])?;
        if kept < length { self.bytes(&(0xc000 | pointer).to_be_bytes()) } else { Ok(()) }
    }

    /// Where the name at the front of `suffix` stands in the message, given where all behind its first label does.
    #[inline]
    fn find(&self, suffix: &[u8], behind: u16) -> Option<u16> {
        let label = hash_label(suffix);
        let octets = &suffix[..1 + usize::from(suffix[0])];
        let known = self.suffixes.0[..self.known].iter();
        known.filter(|s| s.label == label && s.behind == behind).map(|s| s.at).find(|at| {
            let at = usize::from(*at);
            self.out[at..].get(..octets.len()).is_some_and(|there| {
                if self.keeps_case { there == octets } else { there.eq_ignore_ascii_case(octets) }
            })
        })
    }

    /// Remembers a suffix that is about to stand at `at`; `None` where there is no room, or a pointer's 14 bits
    /// (RFC 1035 §4.1.4) do not reach it.
    #[inline]
    fn remember(&mut self, label: u32, behind: u16, at: usize) -> Option<u16> {
        if at >= POINTERS_REACH || self.known == SUFFIXES_MAX {
            return None;
        }
        let at = at as u16;
        self.suffixes.0[self.known] = Suffix { label, behind, at };
        self.known += 1;
        Some(at)
    }

    fn remember_question(&mut self) {
        let mut starts = [0; LABELS_MAX];
        let (labels, _) = find_labels(&self.out[HEADER..], &mut starts);
        let mut behind = ROOT;
        for &start in starts[..labels].iter().rev() {
            let at = HEADER + usize::from(start);
            let Some(known) = self.remember(hash_label(&self.out[at..]), behind, at) else { break };
            behind = known;
        }
    }
}

/// What a response says in its header and OPT record.
#[derive(Clone, Copy, Debug)]
pub struct End {
    /// The response code; extended codes need EDNS in the query.
    pub rcode: domain::base::iana::OptRcode,
    /// AA: the answer is the zone's own.
    pub authoritative: bool,
    /// TC: what belongs here did not fit.
    pub truncated: bool,
    /// Client subnet's SCOPE PREFIX-LENGTH in bits.
    pub scope: u8,
    /// The largest UDP payload that we take, in octets.
    pub udp_payload_size: u16,
    /// What the code alone does not tell; written only where the query had EDNS and there is room.
    pub extended_error: Option<ExtendedError>,
}

impl End {
    /// A response without anything to be said, from who takes payloads of so many octets.
    pub fn new(udp_payload_size: u16) -> End {
        End {
            rcode: domain::base::iana::Rcode::NOERROR.into(),
            authoritative: false,
            truncated: false,
            scope: 0,
            udp_payload_size,
            extended_error: None,
        }
    }
}

/// Writes a response of a header alone: for a message whose question cannot be echoed.
///
/// Returns its length. `None` where `message` has no header or `out` is shorter than one.
fn header_only(message: &[u8], rcode: Rcode, out: &mut [u8]) -> Option<usize> {
    let out = out.first_chunk_mut::<HEADER>()?;
    *out = [0; HEADER];
    out[..4].copy_from_slice(message.get(..4)?);
    out[2] = 0x80 | out[2] & 0x79;
    out[3] = rcode.to_int() & 0x0f;
    Some(HEADER)
}

/// Writes a response without the question, which cannot be echoed: a header, and OPT where the message has one that can
/// be found (RFC 6891 §6.1.1) and there is room.
///
/// Returns its length. `udp_payload_size` is the largest UDP payload that we take, in octets. `None` where `message`
/// has no header or `out` is shorter than one.
pub fn without_question(
    message: &[u8],
    rcode: Rcode,
    udp_payload_size: u16,
    out: &mut [u8],
) -> Option<usize> {
    let length = header_only(message, rcode, out)?;
    let Some(asked) = any_opt(message) else { return Some(length) };
    let Some(opt) = out.get_mut(length..length + OPT) else { return Some(length) };
    write_opt(opt, udp_payload_size, 0, asked & edns::DNSSEC_OK != 0, 0);
    out[11] = 1;
    Some(length + OPT)
}

/// Writes an OPT record up to its options, of which so many octets follow (RFC 6891 §6.1.2).
#[inline]
fn write_opt(out: &mut [u8], udp_payload_size: u16, extended_rcode: u8, dnssec_ok: bool, options: u16) {
    out[..3].copy_from_slice(&[0, 0, Rtype::OPT.to_int() as u8]);
    out[3..5].copy_from_slice(&udp_payload_size.to_be_bytes());
    out[5..9].copy_from_slice(&[extended_rcode, edns::VERSION, u8::from(dnssec_ok) << 7, 0]);
    out[9..].copy_from_slice(&options.to_be_bytes());
}

/// A hash of the label at the front of `suffix`, its length octet included.
///
/// Setting the bit by which small letters differ from large ones folds letters, and some other octets together
/// that are not the same; what has one hash is compared all the same.
#[inline]
fn hash_label(suffix: &[u8]) -> u32 {
    let label = &suffix[..1 + usize::from(suffix[0])];
    let mut hash = 0u64;
    for chunk in label.chunks(8) {
        let mut word = [0; 8];
        word[..chunk.len()].copy_from_slice(chunk);
        let word = u64::from_le_bytes(word) | 0x2020_2020_2020_2020;
        hash = (hash ^ word).wrapping_mul(0x9e37_79b9_7f4a_7c15);
        hash ^= hash >> 32;
    }
    hash as u32
}

/// Finds where the labels of the name at the front of `wire` begin; returns their number and the name's length.
#[inline]
fn find_labels(wire: &[u8], starts: &mut [u8; LABELS_MAX]) -> (usize, usize) {
    let (mut at, mut labels) = (0, 0);
    while wire[at] != 0 {
        starts[labels] = at as u8;
        labels += 1;
        at += 1 + usize::from(wire[at]);
    }
    (labels, at + 1)
}

/// The octets of the uncompressed name at the front of `wire`.
pub fn wire_length(wire: &[u8]) -> usize {
    let mut at = 0;
    while wire[at] != 0 {
        at += 1 + usize::from(wire[at]);
    }
    at + 1
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fragment::Fragments;
    use crate::name::{Folded, from_text};
    use domain::base::{Message, MessageBuilder, Name};
    use domain::rdata::AllRecordData;
    use proptest::prelude::*;

    fn asked(name: &str, edns: bool) -> Vec<u8> {
        let mut builder = MessageBuilder::new_vec();
        builder.header_mut().set_rd(true);
        let mut builder = builder.question();
        builder.push((&name.parse::<Name<Vec<u8>>>().unwrap(), Rtype::A)).unwrap();
        let mut builder = builder.additional();
        if edns {
            builder
                .opt(|opt| {
                    opt.set_udp_payload_size(1400);
                    Ok(())
                })
                .unwrap();
        }
        builder.finish()
    }

    const END: End = End {
        rcode: domain::base::iana::OptRcode::NOERROR,
        authoritative: true,
        truncated: false,
        scope: 0,
        udp_payload_size: 1232,
        extended_error: None,
    };

    fn text(message: &[u8]) -> Vec<String> {
        let message = Message::from_octets(message.to_vec()).unwrap();
        let (_, answer, authority, additional) = message.sections().unwrap();
        [answer, authority, additional]
            .into_iter()
            .flat_map(|section| section.limit_to::<AllRecordData<_, _>>().collect::<Vec<_>>())
            .map(|record| record.map(|r| format!("{} {} {}", r.owner(), r.rtype(), r.data())).unwrap())
            .collect()
    }

    #[test]
    fn names_are_compressed_and_read_back() {
        let message = asked("WWW.example.com", true);
        let mut name = Folded::root();
        let query = Query::read(&message, &mut name).unwrap();
        let mut out = [0; 512];
        let mut suffixes = Suffixes::new();
        let mut writer = Writer::new(&mut out, &query, 512, &mut suffixes).unwrap();
        let wire = |name| from_text(name).unwrap();
        writer.answer_asked(Rtype::A, 60, &[192, 0, 2, 1]).unwrap();
        writer
            .push(Section::Authority, &wire("example.com"), Rtype::NS, 60, &wire("ns1.example.com"))
            .unwrap();
        writer
            .push(Section::Authority, &wire("example.com"), Rtype::NS, 60, &wire("ns2.Example.com"))
            .unwrap();
        writer.push(Section::Additional, &wire("NS1.example.com"), Rtype::A, 60, &[192, 0, 2, 53]).unwrap();
        let length = writer.finish(&query, END);
        // 33 of header and question; 16 of A; 12 + 6 for each NS; 16 of glue; 11 of OPT.
        assert_eq!(length, 33 + 16 + 18 + 18 + 16 + 11);
        assert_eq!(
            text(&out[..length])[..4],
            [
                "WWW.example.com A 192.0.2.1",
                "example.com NS ns1.example.com.",
                "example.com NS ns2.example.com.",
                "ns1.example.com A 192.0.2.53"
            ]
            .map(String::from)
        );
        let read = Message::from_slice(&out[..length]).unwrap();
        assert!(read.header().qr() && read.header().aa() && read.header().rd() && !read.header().ra());
        assert_eq!(read.opt().unwrap().udp_payload_size(), 1232);
    }

    #[test]
    fn a_fragment_is_the_records_that_it_was_made_of() {
        let wire = |name| from_text(name).unwrap();
        let numbers: Vec<u8> = [7u32, 2, 3, 4, 5].iter().flat_map(|n| n.to_be_bytes()).collect();
        for (origin, primary, mailbox) in [
            ("example.com", "ns.Example.com", "hm.other.net"),
            ("example.com", "example.com", "a.b.example.com"),
            ("com", "ns.net", "hm.net"),
            (".", "ns.net", "hm.com"),
        ] {
            let soa = [wire(primary), wire(mailbox), numbers.clone()].concat();
            let (owner, mut fragments) = (Folded::read(&wire(origin)).unwrap(), Fragments::default());
            fragments
                .add(&owner, |writer| {
                    writer.push(Section::Authority, owner.wire(), Rtype::SOA, 60, &soa)?;
                    writer.push(Section::Authority, owner.wire(), Rtype::NS, 60, &wire(primary))?;
                    writer.push(Section::Additional, &wire(primary), Rtype::A, 60, &[192, 0, 2, 1])
                })
                .unwrap();
            let fragment = fragments.get(0);
            let message = asked("www.Example.com", false);
            let mut name = Folded::root();
            let query = Query::read(&message, &mut name).unwrap();
            let labels = owner.labels();
            let composed = |whole: bool| {
                let mut out = [0; 512];
                let mut suffixes = Suffixes::new();
                let mut writer = Writer::new(&mut out, &query, 512, &mut suffixes).unwrap();
                let between = wire("between.net");
                if whole {
                    writer.push(Section::Authority, &wire(origin), Rtype::SOA, 60, &soa).unwrap();
                    writer.push(Section::Authority, &wire(origin), Rtype::NS, 60, &wire(primary)).unwrap();
                    writer.push(Section::Authority, &between, Rtype::NS, 60, &between).unwrap();
                    writer.push(Section::Additional, &wire(primary), Rtype::A, 60, &[192, 0, 2, 1]).unwrap();
                } else {
                    let offset = query.name.suffix_start(labels);
                    let at = writer.push_fragment(Section::Authority, &fragment, offset, None).unwrap();
                    writer.push(Section::Authority, &between, Rtype::NS, 60, &between).unwrap();
                    writer.push_fragment(Section::Additional, &fragment, offset, Some(at)).unwrap();
                }
                let length = writer.finish(&query, END);
                text(&out[..length]).join("\n").to_lowercase()
            };
            assert_eq!(composed(false), composed(true), "{origin}");
        }
    }

    #[test]
    fn a_full_message_keeps_nothing_of_what_did_not_fit() {
        let message = asked("a.example", false);
        let mut name = Folded::root();
        let query = Query::read(&message, &mut name).unwrap();
        let mut out = [0; 512];
        let mut suffixes = Suffixes::new();
        let mut writer = Writer::new(&mut out, &query, message.len() + 20, &mut suffixes).unwrap();
        writer.answer_asked(Rtype::A, 1, &[1; 4]).unwrap();
        assert_eq!(writer.answer_asked(Rtype::A, 1, &[2; 4]), Err(Full));
        assert_eq!(writer.push(Section::Authority, b"\x03new\0", Rtype::NS, 1, b"\x03new\0"), Err(Full));
        let length = writer.finish(&query, END);
        assert_eq!(text(&out[..length]), ["a.example A 1.1.1.1"]);
        assert!(Writer::new(&mut [0; 20], &query, 512, &mut Suffixes::new()).is_none());
    }

    #[test]
    fn options_and_errors_end_the_message_where_there_is_room() {
        let message = asked("a.example", true);
        let mut name = Folded::root();
        let query = Query::read(&message, &mut name).unwrap();
        let options = Options { nsid: Some(b"fra1"), ..Options::default() };
        let end = End { extended_error: Some(ExtendedError::NotAuthoritative), ..END };
        // 27 of header and question, 11 of OPT, 8 of NSID, 6 of the error.
        for (limit, expected) in [(38, 38), (45, 44), (46, 46), (51, 46), (52, 52), (512, 52)] {
            let (mut out, mut suffixes) = ([0; 512], Suffixes::new());
            let mut writer = Writer::new(&mut out, &query, limit, &mut suffixes).unwrap();
            assert_eq!(writer.keep_room(&options), limit >= 46, "{limit}");
            let length = writer.finish(&query, end);
            assert_eq!(length, expected, "{limit}");
            let read = Message::from_slice(&out[..length]).unwrap();
            let opt = read.opt().unwrap();
            assert_eq!(opt.opt().nsid().is_some(), limit >= 46, "{limit}");
        }
    }

    #[test]
    fn a_text_of_another_class() {
        let message = asked("version.bind", false);
        let mut name = Folded::root();
        let query = Query::read(&message, &mut name).unwrap();
        let (mut out, mut suffixes) = ([0; 512], Suffixes::new());
        let mut writer = Writer::new(&mut out, &query, 512, &mut suffixes).unwrap();
        assert_eq!(writer.answer_text(Class::CH, &[b'a'; 256]), Err(Full));
        writer.answer_text(Class::CH, b"pointsman").unwrap();
        let length = writer.finish(&query, END);
        assert_eq!(text(&out[..length]), ["version.bind TXT \"pointsman\""]);
        let read = Message::from_slice(&out[..length]).unwrap();
        assert_eq!(read.answer().unwrap().next().unwrap().unwrap().class(), Class::CH);
    }

    #[test]
    fn a_header_alone() {
        let mut out = [0xff; 64];
        let message = asked("a", false);
        let length = header_only(&message, Rcode::FORMERR, &mut out).unwrap();
        let read = Message::from_slice(&out[..length]).unwrap();
        assert!(read.header().qr() && read.header().rd());
        assert_eq!((read.header().rcode(), read.header_counts().qdcount()), (Rcode::FORMERR, 0));
        assert!(header_only(&[1, 2], Rcode::FORMERR, &mut out).is_none());
    }

    #[test]
    fn opt_goes_with_an_answer_without_the_question_where_there_is_room() {
        let mut out = [0xff; 64];
        let mut message = asked("a", true);
        let length = without_question(&message, Rcode::NOTIMP, 1232, &mut out).unwrap();
        let read = Message::from_slice(&out[..length]).unwrap();
        let opt = read.opt().unwrap();
        let asked_opt = Message::from_slice(&message).unwrap().opt().unwrap().dnssec_ok();
        assert_eq!((read.header().rcode(), opt.udp_payload_size()), (Rcode::NOTIMP, 1232));
        assert_eq!(opt.dnssec_ok(), asked_opt);
        for room in 0..64 {
            let told = without_question(&message, Rcode::NOTIMP, 1232, &mut out[..room]);
            assert_eq!(told, [None, Some(12), Some(23)][usize::from(room >= 12) + usize::from(room >= 23)]);
        }
        // A count is only what the asker says.
        message[4..HEADER].fill(0xff);
        assert_eq!(without_question(&message, Rcode::FORMERR, 1232, &mut out), Some(HEADER));
    }

    fn names() -> impl Strategy<Value = Vec<String>> {
        proptest::collection::vec("([abAB]{1,2}\\.){1,4}(x|y|example)", 1..60)
    }

    proptest! {
        #[test]
        fn whatever_is_written_reads_back(names in names(), limit in 60usize..1500) {
            let message = asked(&names[0], true);
            let mut name = Folded::root();
        let query = Query::read(&message, &mut name).unwrap();
            let mut out = [0; 1500];
            let mut suffixes = Suffixes::new();
        let mut writer = Writer::new(&mut out, &query, limit, &mut suffixes).unwrap();
            let mut expected = vec![];
            for pair in names.windows(2) {
                let (owner, target) = (from_text(&pair[0]).unwrap(), from_text(&pair[1]).unwrap());
                if writer.push(Section::Answer, &owner, Rtype::NS, 5, &target).is_ok() {
                    expected.push(format!("{} NS {}.", pair[0], pair[1]).to_lowercase());
                }
            }
            let length = writer.finish(&query, END);
            prop_assert!(length <= limit);
            let mut read = text(&out[..length]);
            read.pop();
            prop_assert_eq!(read.into_iter().map(|r| r.to_lowercase()).collect::<Vec<_>>(), expected);
        }
    }
}
