//! The view of an asked message: its question and its EDNS, found in one pass.

use domain::base::iana::{Class, Opcode, Rcode, Rtype};

use crate::edns::Edns;
use crate::name::Folded;

/// The octets of a message's header (RFC 1035 §4.1.1).
pub const HEADER: usize = 12;

/// The octets of the longest message: its length has 16 bits over TCP (RFC 1035 §4.2.2).
pub const MESSAGE_MAX: usize = u16::MAX as usize;

/// The bit of a header's third octet that says that the message is truncated (RFC 1035 §4.1.1).
pub const TRUNCATED: u8 = 0x02;

/// A well-formed standard query with one question.
#[derive(Debug)]
pub struct Query<'a> {
    /// The message from its header to the end of its question.
    ///
    /// A response begins with these octets, changed only in flags and counts, so that the name is echoed
    /// in the case in which it was asked.
    pub head: &'a [u8],
    /// The asked name, folded.
    pub name: &'a Folded,
    /// QTYPE.
    pub rtype: Rtype,
    /// QCLASS.
    pub class: Class,
    /// The OPT record, where there is one.
    pub edns: Option<Edns>,
}

/// Why a message is no query that can be answered from zones.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Refusal {
    /// It gets no answer: shorter than a header, or itself a response (answering could loop).
    Silence,
    /// It gets an answer without its question, with this rcode: FORMERR or NOTIMP.
    Rcode(Rcode),
    /// It asks nothing but what its cookie is worth (RFC 7873 §5.4): no question, and an OPT record with a
    /// cookie.
    CookieAlone(Edns),
}

impl<'a> Query<'a> {
    /// Reads a message; `name` is room for the asked name.
    ///
    /// Beyond header and question every record is walked over, so that a message that breaks off in its
    /// middle is told from a whole one; names there may be compressed. Octets after the last record are
    /// ignored.
    ///
    /// # Errors
    /// - [`Refusal::Silence`] for less than a header, or QR set.
    /// - NOTIMP for an opcode other than QUERY.
    /// - [`Refusal::CookieAlone`] for QDCOUNT 0 beside a cookie.
    /// - FORMERR for any other QDCOUNT than 1 (RFC 9619), a compressed or broken name in the question, records
    ///   that break off, more than one OPT or one that is not the root's (RFC 6891 §6.1.1), and broken
    ///   options ([`Edns::read`]).
    #[inline]
    pub fn read(message: &'a [u8], name: &'a mut Folded) -> Result<Query<'a>, Refusal> {
        let formerr = Refusal::Rcode(Rcode::FORMERR);
        let header = message.first_chunk::<HEADER>().ok_or(Refusal::Silence)?;
        if header[2] & 0x80 != 0 {
            return Err(Refusal::Silence);
        }
        if Opcode::from_int(header[2] >> 3 & 0x0f) != Opcode::QUERY {
            return Err(Refusal::Rcode(Rcode::NOTIMP));
        }
        let count = |at: usize| u32::from(u16::from_be_bytes([header[at], header[at + 1]]));
        let counts = [count(6) + count(8), count(10)];
        match count(4) {
            1 => {}
            0 => {
                let edns = find_opt(message, HEADER, counts).flatten();
                let asks = edns.filter(|edns| edns.cookie.is_some());
                return Err(asks.map_or(formerr, Refusal::CookieAlone));
            }
            _ => return Err(formerr),
        }

        if !name.set(&message[HEADER..]) {
            return Err(formerr);
        }
        let name = &*name;
        let mut at = HEADER + name.wire_length();
        let kind = message.get(at..at + 4).ok_or(formerr)?;
        at += 4;
        let mut query = Query {
            head: &message[..at],
            name,
            rtype: Rtype::from_int(u16::from_be_bytes([kind[0], kind[1]])),
            class: Class::from_int(u16::from_be_bytes([kind[2], kind[3]])),
            edns: None,
        };

        query.edns = find_opt(message, at, counts).ok_or(formerr)?;
        Ok(query)
    }

    /// The message's id.
    pub fn id(&self) -> u16 {
        u16::from_be_bytes([self.head[0], self.head[1]])
    }
}

/// Walks over the records from `at` on: `counts` before ADDITIONAL and in it. Returns the OPT record's content.
///
/// `None` where a record breaks off, or OPT is out of place, broken, or there twice (RFC 6891 §6.1.1).
#[inline]
fn find_opt(message: &[u8], mut at: usize, counts: [u32; 2]) -> Option<Option<Edns>> {
    let mut edns = None;
    // Each record takes 11 octets or more, so that the counts cannot make this loop long.
    for index in 0..counts[0] + counts[1] {
        let record = Record::read(message, at)?;
        at = record.end;
        if record.rtype != Rtype::OPT {
            continue;
        }
        if index < counts[0] || edns.is_some() || !record.owner_is_root {
            return None;
        }
        edns = Some(Edns::read(record.class, record.ttl, record.rdata)?);
    }
    Some(edns)
}

/// The TTL field of the first OPT record in a message that may be malformed, as far as that can be walked over.
///
/// It is read whatever else is wrong with the record: an answer says by its own that EDNS is known (RFC 6891 §7).
pub(crate) fn any_opt(message: &[u8]) -> Option<u32> {
    let header = message.first_chunk::<HEADER>()?;
    let [questions, records @ ..] =
        [4, 6, 8, 10].map(|at| u32::from(u16::from_be_bytes([header[at], header[at + 1]])));
    let mut at = HEADER;
    // Questions take 5 octets or more, records 11, so that the counts cannot make these loops long.
    for _ in 0..questions {
        at = skip_name(message, at)? + 4;
    }
    for _ in 0..records.iter().sum::<u32>() {
        let record = Record::read(message, at)?;
        if record.rtype == Rtype::OPT {
            return Some(record.ttl);
        }
        at = record.end;
    }
    None
}

/// One record behind the question, as far as the walk needs it.
pub(crate) struct Record<'a> {
    pub(crate) owner_is_root: bool,
    pub(crate) rtype: Rtype,
    class: u16,
    pub(crate) ttl: u32,
    pub(crate) rdata: &'a [u8],
    pub(crate) end: usize,
}

impl<'a> Record<'a> {
    pub(crate) fn read(message: &'a [u8], start: usize) -> Option<Record<'a>> {
        let fixed = skip_name(message, start)?;
        let head = message.get(fixed..fixed + 10)?;
        let length = usize::from(u16::from_be_bytes([head[8], head[9]]));
        let end = fixed + 10 + length;
        Some(Record {
            owner_is_root: message[start] == 0,
            rtype: Rtype::from_int(u16::from_be_bytes([head[0], head[1]])),
            class: u16::from_be_bytes([head[2], head[3]]),
            ttl: u32::from_be_bytes([head[4], head[5], head[6], head[7]]),
            rdata: message.get(fixed + 10..end)?,
            end,
        })
    }
}

/// Where the name that begins at `at` ends; a compression pointer ends it and is not followed.
pub(crate) fn skip_name(message: &[u8], mut at: usize) -> Option<usize> {
    loop {
        match *message.get(at)? {
            0 => return Some(at + 1),
            length @ 1..=63 => at += 1 + usize::from(length),
            0xc0.. => return (at + 2 <= message.len()).then_some(at + 2),
            _ => return None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use domain::base::{Message, MessageBuilder, Name, ToName};
    use domain::rdata::AllRecordData;
    use proptest::prelude::*;

    fn built(edns: bool) -> Vec<u8> {
        let mut builder = MessageBuilder::new_vec();
        builder.header_mut().set_id(0x1234);
        let mut builder = builder.question();
        builder.push((&"WWW.example.com".parse::<Name<Vec<u8>>>().unwrap(), Rtype::AAAA)).unwrap();
        let mut builder = builder.additional();
        if edns {
            builder
                .opt(|opt| {
                    opt.set_udp_payload_size(4096);
                    opt.set_dnssec_ok(true);
                    Ok(())
                })
                .unwrap();
        }
        builder.finish()
    }

    #[test]
    fn a_query_is_read() {
        let message = built(true);
        let mut name = Folded::root();
        let query = Query::read(&message, &mut name).unwrap();
        assert_eq!((query.id(), query.rtype, query.class), (0x1234, Rtype::AAAA, Class::IN));
        assert_eq!(query.name.wire(), b"\x03www\x07example\x03com\0");
        assert_eq!(&query.head[HEADER..HEADER + 4], b"\x03WWW");
        let edns = query.edns.unwrap();
        assert_eq!((edns.udp_payload_size, edns.dnssec_ok, edns.version), (4096, true, 0));
        assert!(Query::read(&built(false), &mut name).unwrap().edns.is_none());
    }

    #[test]
    fn what_is_no_query_is_refused_by_cause() {
        let good = built(true);
        let with = |change: &dyn Fn(&mut Vec<u8>)| {
            let mut message = good.clone();
            change(&mut message);
            Query::read(&message, &mut Folded::root()).map(|_| ()).unwrap_err()
        };
        let formerr = Refusal::Rcode(Rcode::FORMERR);
        let opt = good.len() - 11;
        assert_eq!(with(&|m| m.truncate(11)), Refusal::Silence);
        assert_eq!(with(&|m| m.clear()), Refusal::Silence);
        assert_eq!(with(&|m| m[2] |= 0x80), Refusal::Silence);
        assert_eq!(with(&|m| m[2] = 5 << 3), Refusal::Rcode(Rcode::NOTIMP));
        assert_eq!(with(&|m| m[5] = 0), formerr, "no question");
        assert_eq!(with(&|m| m[5] = 2), formerr, "two questions");
        assert_eq!(with(&|m| m[HEADER] = 0xc0), formerr, "a compressed question");
        assert_eq!(with(&|m| m.truncate(opt + 5)), formerr, "a record that breaks off");
        assert_eq!(with(&|m| m[opt] = 1), formerr, "an OPT that is not the root's");
        let twice = |m: &mut Vec<u8>| {
            m[11] = 2;
            m.extend_from_within(opt..);
        };
        assert_eq!(with(&twice), formerr, "two OPTs");
        let in_answer = |m: &mut Vec<u8>| {
            m[7] = 1;
            m[11] = 0;
        };
        assert_eq!(with(&in_answer), formerr, "an OPT among the answers");
    }

    #[test]
    fn a_cookie_may_be_asked_for_alone() {
        let mut message =
            vec![0, 1, 0, 0, 0, 0, 0, 0, 0, 0, 0, 1, 0, 0, 41, 4, 208, 0, 0, 0, 0, 0, 12, 0, 10, 0, 8];
        message.extend_from_slice(&[7; 8]);
        let refusal = Query::read(&message, &mut Folded::root()).map(|_| ()).unwrap_err();
        let Refusal::CookieAlone(edns) = refusal else { panic!("{refusal:?}") };
        assert_eq!(edns.cookie.unwrap().client, [7; 8]);
        message[24] = 9;
        let refusal = Query::read(&message, &mut Folded::root()).map(|_| ()).unwrap_err();
        assert_eq!(refusal, Refusal::Rcode(Rcode::FORMERR), "an OPT record without a cookie");
    }

    #[test]
    fn octets_after_the_message_are_ignored() {
        let mut message = built(true);
        message.extend_from_slice(b"junk");
        assert!(Query::read(&message, &mut Folded::root()).is_ok());
    }

    #[test]
    fn the_root_is_asked_for_too() {
        let mut message = built(false);
        message[HEADER] = 0;
        agree(&message);
    }

    /// Holds the view against `domain`'s reading of the same bytes.
    fn agree(bytes: &[u8]) {
        let mut name = Folded::root();
        let Ok(ours) = Query::read(bytes, &mut name) else { return };
        let theirs = Message::from_slice(bytes).expect("a header is there");
        let question = theirs.first_question().expect("one question");
        assert_eq!(question.qname().to_vec().as_slice().to_ascii_lowercase(), ours.name.wire());
        assert_eq!((question.qtype(), question.qclass()), (ours.rtype, ours.class));
        if let (Some(edns), Some(opt)) = (ours.edns, theirs.opt()) {
            assert_eq!(edns.udp_payload_size, opt.udp_payload_size());
            assert_eq!(edns.version, opt.version());
            assert_eq!(edns.dnssec_ok, opt.dnssec_ok());
        }
        for record in theirs.additional().into_iter().flatten().flatten() {
            let _ = record.to_any_record::<AllRecordData<_, _>>();
        }
    }

    proptest! {
        #[test]
        fn any_bytes_are_read_without_panic(bytes in proptest::collection::vec(any::<u8>(), 0..600)) {
            agree(&bytes);
        }

        #[test]
        fn damaged_queries_read_as_domain_reads_them(
            edns in any::<bool>(), changes in proptest::collection::vec((any::<prop::sample::Index>(), any::<u8>()), 0..4),
        ) {
            let mut message = built(edns);
            for (at, value) in changes {
                let at = at.index(message.len());
                message[at] = value;
            }
            agree(&message);
        }
    }
}
