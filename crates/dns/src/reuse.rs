//! Answers that are given again: which queries one answers, for how long it may be kept, and how old it is.

use domain::base::iana::{Class, Rcode, Rtype};

use crate::edns::{COOKIE, ClientSubnet, OPTION, VERSION};
use crate::query::{HEADER, Query, Record, TRUNCATED, skip_name};
use crate::relay::{OF_ONE_HOP, Records};

/// The octets of the longest key: questions with more options are rare, and each of them would be asked once.
pub const KEY_MAX: usize = 512;

/// Writes into `key`, which is emptied first, what the answer to a query depends on: queries of one key, but for their ids,
/// may have one answer. Whether there is such an answer at all; where there is none, the key stays empty.
///
/// `message` is what `query` was read from, and `subnet` what is put into it when it is passed on. The case of the name does
/// not matter, nor how long an answer may be over UDP, nor what is between neighbours: keepalive, padding, and cookies,
/// which are not passed on where answers are kept ([`take_out_cookies`](crate::relay::take_out_cookies)).
///
/// No answer is for other queries where a query is of another class than IN, of a type that is no record's (RFC 6895 §3.1),
/// of an EDNS version that is not ours, where it has further records (it may be signed), or where its key is longer than
/// [`KEY_MAX`].
pub fn key(query: &Query<'_>, message: &[u8], subnet: Option<&ClientSubnet>, key: &mut Vec<u8>) -> bool {
    key.clear();
    let is_lasting = query.class == Class::IN
        && !matches!(query.rtype, Rtype::OPT)
        && !matches!(query.rtype.to_int(), 0 | 128..=255)
        && query.edns.is_none_or(|edns| edns.version == VERSION);
    let counts = &message[6..HEADER];
    if !is_lasting || *counts != [0, 0, 0, 0, 0, u8::from(query.edns.is_some())] {
        return false;
    }
    let mut added = [0; ClientSubnet::WRITTEN_MAX];
    // A query that has a subnet already keeps its own.
    let is_added = query.edns.is_none_or(|edns| edns.client_subnet.is_none());
    let length = subnet.filter(|_| is_added).and_then(|subnet| subnet.write(0, &mut added)).unwrap_or(0);
    key.push(length as u8);
    key.extend_from_slice(&added[..length]);
    key.extend_from_slice(&message[2..4]);
    key.extend_from_slice(query.name.wire());
    key.extend_from_slice(&query.rtype.to_int().to_be_bytes());
    if let Some(Some(opt)) = Records::of(message, query.head.len()).next() {
        key.extend_from_slice(&opt.ttl.to_be_bytes());
        lasting_options(opt.rdata, key);
    }
    if key.len() > KEY_MAX {
        key.clear();
    }
    !key.is_empty()
}

/// The name that a key's queries ask for, folded and in wire form.
///
/// # Panics
/// Where it is no key.
pub fn name_of(key: &[u8]) -> &[u8] {
    // Behind the subnet and the header's flags.
    let start = 1 + usize::from(key[0]) + 2;
    let end = skip_name(key, start).expect("a key has a whole name");
    &key[start..end]
}

/// Copies options but for those between neighbours; all of them are whole.
fn lasting_options(mut options: &[u8], key: &mut Vec<u8>) {
    while let Some(head) = options.first_chunk::<OPTION>() {
        let code = u16::from_be_bytes([head[0], head[1]]);
        let length = OPTION + usize::from(u16::from_be_bytes([head[2], head[3]]));
        let (option, rest) = options.split_at_checked(length).unwrap_or((options, &[]));
        if code != COOKIE && !OF_ONE_HOP.contains(&code) {
            key.extend_from_slice(option);
        }
        options = rest;
    }
}

/// For how many seconds an answer whose question ends at `question_end` may be kept: the smallest TTL of its ANSWER section,
/// or of one that has nothing there, what its SOA record says (RFC 2308 §5); 0 where it is a failure, truncated, says nothing
/// of it, or breaks off.
///
/// # Panics
/// Where it is shorter than a header.
pub fn fresh_for(answer: &[u8], question_end: usize) -> u32 {
    least_ttl(answer, question_end, false)
}

/// The same, and no longer than any record's TTL: for so long all of it may be given again.
///
/// # Panics
/// Where it is shorter than a header.
pub fn whole_for(answer: &[u8], question_end: usize) -> u32 {
    least_ttl(answer, question_end, true)
}

fn least_ttl(answer: &[u8], question_end: usize, of_all: bool) -> u32 {
    let [answers, authorities] =
        [6, 8].map(|at| usize::from(u16::from_be_bytes([answer[at], answer[at + 1]])));
    let is_answer = matches!(Rcode::masked_from_int(answer[3]), Rcode::NOERROR | Rcode::NXDOMAIN);
    let is_truncated = answer[2] & TRUNCATED != 0;
    let (mut least, mut says) = (u32::MAX, answers > 0);
    for (place, record) in Records::of(answer, question_end).enumerate() {
        let Some(record) = record else { return 0 };
        match record.rtype {
            Rtype::OPT if place >= answers + authorities => continue,
            // Out of place (RFC 6891 §6.1.1).
            Rtype::OPT => return 0,
            _ => {}
        }
        // Beyond 2^31 it is none (RFC 2181 §8).
        let ttl = if record.ttl > i32::MAX as u32 { 0 } else { record.ttl };
        if of_all || place < answers {
            least = least.min(ttl);
        }
        if answers == 0 && record.rtype == Rtype::SOA && place < authorities {
            let minimum = record.rdata.last_chunk().map_or(0, |octets| u32::from_be_bytes(*octets));
            (least, says) = (least.min(ttl).min(minimum), true);
        }
    }
    if is_answer && says && !is_truncated { least } else { 0 }
}

/// Changes the TTLs of all records of an answer whose question ends at `question_end`; what breaks off stays as it is.
///
/// # Panics
/// Where it is shorter than a header.
pub fn change_ttls(answer: &mut [u8], question_end: usize, change: impl Fn(u32) -> u32) {
    let counts = [6, 8, 10].map(|at| u32::from(u16::from_be_bytes([answer[at], answer[at + 1]])));
    let mut at = question_end;
    for _ in 0..counts.iter().sum() {
        let Some(Record { rtype, ttl, rdata, end, .. }) = Record::read(answer, at) else { return };
        // Before the TTL's end there are two octets for the length of the data.
        let ttl_end = end - rdata.len() - 2;
        if rtype != Rtype::OPT {
            answer[ttl_end - 4..ttl_end].copy_from_slice(&change(ttl).to_be_bytes());
        }
        at = end;
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Folded;
    use proptest::prelude::*;

    const END: usize = 29;
    const A: &[u8] = b"\xc0\x0c\0\x01\0\x01\0\0\0\x05\0\x04\xc0\0\x02\x01";
    const OPT: &[u8] = b"\0\0\x29\x04\xd0\0\0\x80\0\0\0";

    /// The question of `www.example.` and records behind it, so many of each section.
    fn message(flags: u8, counts: [u8; 3], records: &[u8]) -> Vec<u8> {
        let [answers, authorities, additional] = counts;
        let head = [0x12, 0x34, flags, 0, 0, 1, 0, answers, 0, authorities, 0, additional];
        [&head[..], b"\x03www\x07example\0\0\x01\0\x01", records].concat()
    }

    fn key_of(message: &[u8], subnet: Option<&ClientSubnet>) -> Option<Vec<u8>> {
        let (mut name, mut octets) = (Folded::root(), vec![7]);
        let query = Query::read(message, &mut name).expect("a query");
        let is_kept = key(&query, message, subnet, &mut octets);
        assert_eq!(is_kept, !octets.is_empty());
        is_kept.then_some(octets)
    }

    #[test]
    fn an_answer_is_fresh_for_as_long_as_the_first_of_its_records() {
        const NS: &[u8] = b"\xc0\x0c\0\x02\0\x01\0\0\0\x14\0\x02\xc0\x0c";
        let a = |ttl: u32| [&A[..6], &ttl.to_be_bytes(), &A[10..]].concat();
        let soa = |ttl: u32, minimum: u32| {
            let numbers = [[0; 16].as_slice(), &minimum.to_be_bytes()].concat();
            [&b"\xc0\x0c\0\x06\0\x01"[..], &ttl.to_be_bytes(), b"\0\x16\0\0", &numbers].concat()
        };
        for (flags, rcode, answers, authorities, fresh, whole) in [
            (0x81, 0, vec![a(300), a(60)], vec![], 60, 60),
            (0x81, 0, vec![a(300)], vec![NS.to_vec()], 300, 20),
            (0x81, 0, vec![a(300)], vec![soa(90, 7)], 300, 90),
            (0x81, 3, vec![], vec![soa(900, 60)], 60, 60),
            (0x81, 3, vec![], vec![soa(30, 60)], 30, 30),
            (0x81, 0, vec![], vec![NS.to_vec(), soa(30, 60)], 30, 20),
            (0x81, 0, vec![], vec![NS.to_vec()], 0, 0),
            (0x81, 0, vec![a(300), a(1 << 31)], vec![], 0, 0),
            (0x81, 0, vec![OPT.to_vec()], vec![], 0, 0),
            (0x81, 2, vec![a(300)], vec![], 0, 0),
            (0x83, 0, vec![a(300)], vec![], 0, 0),
            (0x81, 0, vec![], vec![], 0, 0),
        ] {
            let records = [&answers[..], &authorities].concat().concat();
            let counts = [answers.len() as u8, authorities.len() as u8, 1];
            let mut answer = message(flags, counts, &[&records, OPT].concat());
            answer[3] = rcode;
            let times = |answer: &[u8]| [fresh_for(answer, END), whole_for(answer, END)];
            assert_eq!(times(&answer), [fresh, whole], "{flags} {rcode} {answers:?} {authorities:?}");
            assert_eq!(times(&answer[..answer.len() - 1]), [0, 0], "it breaks off");
        }
    }

    #[test]
    fn ttls_are_changed_and_edns_flags_are_not() {
        let mut answer = message(0x81, [1, 0, 2], &[A, OPT, A].concat());
        let length = answer.len();
        change_ttls(&mut answer, END, |ttl| ttl.saturating_sub(2));
        let aged = [&A[..6], &3u32.to_be_bytes(), &A[10..]].concat();
        assert_eq!(answer[END..], [&aged, OPT, &aged].concat());
        change_ttls(&mut answer[..length - 1], END, |_| 9);
        assert_eq!(answer[length - A.len()..], aged, "it breaks off");
    }

    #[test]
    fn what_matters_to_the_answer_is_in_the_key_and_nothing_else() {
        const COOKIE: &[u8] = b"\0\0\x29\x04\xd0\0\0\x80\0\0\x0c\0\x0a\0\x0812345678";
        const PADDED: &[u8] = b"\0\0\x29\x02\0\0\0\x80\0\0\x0c\0\x0b\0\0\0\x0c\0\x04\0\0\0\0";
        const NSID: &[u8] = b"\0\0\x29\x04\xd0\0\0\x80\0\0\x04\0\x03\0\0";
        const PLAIN: &[u8] = b"\0\0\x29\x04\xd0\0\0\0\0\0\0";
        const OWN: &[u8] = b"\0\0\x29\x04\xd0\0\0\x80\0\0\x0b\0\x08\0\x07\0\x01\x18\0\xc0\0\x02";
        let with = |opt: &[u8]| message(1, [0, 0, 1], opt);
        let subnet = ClientSubnet::new([192, 0, 2, 7].into(), 24);
        let key = |message: &[u8]| key_of(message, None).expect("it may have the answer of others");
        let mut others = with(OPT);
        (others[0], others[13], others[END + 3]) = (9, b'W', 9);
        for same in [with(COOKIE), with(PADDED), others] {
            assert_eq!(key(&same), key(&with(OPT)));
        }
        let mut checking_disabled = with(OPT);
        checking_disabled[3] = 0x10;
        let all =
            [message(1, [0; 3], b""), message(0, [0; 3], b""), with(OPT), with(NSID), with(PLAIN), with(OWN)];
        let mut keys: Vec<_> = all.iter().chain([&checking_disabled]).map(|message| key(message)).collect();
        keys.push(key_of(&with(OPT), Some(&subnet)).expect("it may"));
        assert!(keys.iter().all(|key| name_of(key) == b"\x03www\x07example\0"));
        assert_eq!(key_of(&with(OWN), Some(&subnet)), Some(key(&with(OWN))), "it keeps its own");
        let count = keys.len();
        keys.sort();
        keys.dedup();
        assert_eq!(keys.len(), count);
    }

    #[test]
    fn some_queries_have_no_answer_of_others() {
        const TSIG: &[u8] = b"\0\0\xfa\0\xff\0\0\0\0\0\0";
        const VERSION_1: &[u8] = b"\0\0\x29\x04\xd0\0\x01\0\0\0\0";
        let plain = message(1, [0; 3], b"");
        let changed = |at: usize, value: u8| {
            let mut query = plain.clone();
            query[at] = value;
            query
        };
        let long = [&b"\0\0\x29\x04\xd0\0\0\0\0\x02\x04\xff\xff\x02\0"[..], &[7; 512]].concat();
        for query in [
            message(1, [0, 0, 1], TSIG),
            message(1, [0, 0, 2], &[OPT, TSIG].concat()),
            message(1, [0, 1, 0], A),
            message(1, [0, 0, 1], VERSION_1),
            message(1, [0, 0, 1], &long),
            changed(END - 1, 3),
            changed(END - 3, 255),
            changed(END - 3, 252),
            changed(END - 3, 41),
        ] {
            assert_eq!(key_of(&query, None), None, "{query:?}");
        }
    }

    proptest! {
        #[test]
        fn any_answer_is_read_without_panic(
            mut octets in proptest::collection::vec(any::<u8>(), 12..200), end in 12usize..64,
        ) {
            let length = octets.len();
            prop_assert!(whole_for(&octets, end) <= fresh_for(&octets, end));
            change_ttls(&mut octets, end, |ttl| ttl / 2);
            prop_assert_eq!(octets.len(), length);
        }

        #[test]
        fn any_query_is_read_without_panic(octets in proptest::collection::vec(any::<u8>(), 0..200)) {
            let (mut name, mut out) = (Folded::root(), Vec::new());
            if let Ok(query) = Query::read(&octets, &mut name) {
                key(&query, &octets, None, &mut out);
                prop_assert!(out.len() <= KEY_MAX);
            }
        }
    }
}
