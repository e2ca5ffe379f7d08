//! What the balancer reads of back ends: replies to queries that wait.

use std::net::IpAddr;

use balancer::message::{Says, answer, answers};
use balancer::pending::{Asker, Pending, To, Unmatched};
use dns::edns::{Edns, ExtendedError};
use dns::name::{LABEL_MAX, NAME_MAX};
use dns::query::HEADER;
use dns::relay::{
    Added, PADDED_TO, add_extended_error, add_opt, add_subnet, is_padded, pad, question_end, take_out_added,
    take_out_cookies, take_out_of_one_hop,
};
use dns::reuse::{self, KEY_MAX, change_ttls, fresh_for, name_of, whole_for};
use dns::{ClientSubnet, Folded, Query, Rcode, Rtype};
use domain::base::Message;
use domain::base::name::{ParsedName, ToLabelIter};
use domain::dep::octseq::Parser;
use fastrand::Rng;

/// The query that waits, but for its id, and where its question ends.
const QUERY: &[u8] =
    b"\0\0\x01\0\0\x01\0\0\0\0\0\x01\x03www\x07example\0\0\x01\0\x01\0\0\x29\x04\xd0\0\0\0\0\0\0";
const QUESTION_END: usize = 29;

/// What stands between a record's name and the length of its data, in octets.
const TYPE_CLASS_TTL: usize = 8;

/// What the first octet of a pointer to another name begins with (RFC 1035 §4.1.4).
const POINTER: usize = 0xc0;

/// A reply matches where `domain` reads the same question behind a response's header, or an error alone, and nothing
/// else does.
pub(super) fn reply(octets: &[u8]) {
    let mut pending = Pending::new(1, 2);
    let asker = Asker {
        to: To { client: ([192, 0, 2, 1], 5353).into(), local: None, tapped: None },
        id: 7,
        counted_at: 0,
        added: Added::Nothing,
    };
    let index = pending.take(asker, QUERY, QUESTION_END, 1).expect("a place");
    pending.sent(index, 1, &mut Rng::with_seed(1)).expect("an id");
    let mut octets = octets.to_vec();
    if let Some(id) = octets.first_chunk_mut::<2>() {
        id.copy_from_slice(&pending.get(index).query[..2]);
    }
    assert_eq!(pending.matching(0, &octets), Err(Unmatched::Alien), "over another socket");
    let found = pending.matching(1, &octets);
    assert_eq!(found.is_ok(), answers(&octets, QUERY, QUESTION_END));
    if found.is_ok() {
        let message = Message::from_octets(&octets).expect("a header");
        assert!(message.header().qr() && message.header().id() == u16::from_be_bytes([octets[0], octets[1]]));
        if message.header_counts().qdcount() == 1 {
            let asked = Message::from_octets(QUERY).expect("a header");
            let (told, asked) = (message.sole_question(), asked.sole_question().expect("a question"));
            assert_eq!(told.expect("a question"), asked);
        }
    }
}

pub(super) fn replies() -> Vec<Vec<u8>> {
    let mut good = QUERY.to_vec();
    good[2] |= 0x80;
    let mut alone = good[..12].to_vec();
    (alone[3], alone[5], alone[11]) = (1, 0, 0);
    vec![good, alone, QUERY.to_vec()]
}

/// What is answered here to whatever is a query reads. A subnet goes into it, which is then one with the subnet, an OPT record
/// into one without EDNS, and keepalive and padding out of it, which leaves a query that is all else. What is taken out of whatever may be an answer, and has no names that depend on it, leaves
/// a message that `domain` reads as before, but for the OPT record, and so does padding; and it is fresh no longer than any
/// record that it has for an answer. Older, it is the same but for its TTLs, also where it says that it is stale.
pub(super) fn relay(octets: &[u8]) {
    let (mut query, mut name) = (octets.to_vec(), Folded::root());
    let subnet = ClientSubnet::new([192, 0, 2, 77].into(), 24);
    if let Ok(read) = Query::read(octets, &mut name) {
        let (end, edns) = (read.head.len(), read.edns);
        assert_eq!(question_end(octets), Some(end));
        let _ = is_padded(octets, end);
        ours(octets, end, edns.as_ref());
        let added = add_subnet(&mut query, end, edns.as_ref(), &subnet);
        if added == Added::Nothing {
            assert_eq!(query, octets);
        } else {
            let read = Query::read(&query, &mut name).expect("it was a query").edns.expect("EDNS");
            assert_eq!(read.client_subnet, Some(subnet));
            assert_eq!(edns.is_none(), added == Added::Record);
        }
        let mut with_opt = octets.to_vec();
        let added = add_opt(&mut with_opt, end);
        let read = Query::read(&with_opt, &mut name).expect("it was a query").edns;
        match added {
            Added::Record => assert!(edns.is_none() && read.is_some()),
            _ => assert_eq!(with_opt, octets),
        }
        let mut onward = octets.to_vec();
        let length = take_out_of_one_hop(&mut onward, end);
        let left = Query::read(&onward[..length], &mut name).expect("it was a query").edns;
        let is_kept = left.is_some_and(|edns| edns.tcp_keepalive);
        assert!(!is_kept || onward == octets);
        assert_eq!(left, edns.map(|edns| Edns { tcp_keepalive: is_kept, ..edns }));
        let mut without = octets.to_vec();
        let length = take_out_cookies(&mut without, end);
        let left = Query::read(&without[..length], &mut name).expect("it was a query").edns;
        let is_kept = left.is_some_and(|edns| edns.cookie.is_some());
        assert!(!is_kept || without == octets);
        let (mut key, mut same) = (Vec::new(), Vec::new());
        let read = Query::read(octets, &mut name).expect("it was a query");
        if reuse::key(&read, octets, Some(&subnet), &mut key) {
            assert!(key.len() <= KEY_MAX && name_of(&key) == read.name.wire());
            // What is not passed on does not matter to the answer.
            let read = Query::read(&without[..length], &mut name).expect("it was a query");
            assert!(reuse::key(&read, &without[..length], Some(&subnet), &mut same) && same == key);
        }
    }
    if !answers(octets, QUERY, QUESTION_END) || has_entangled(octets) {
        return;
    }
    // Nothing was added: keepalive and padding are taken out alone.
    for added in [Added::Option, Added::Record, Added::Nothing] {
        let mut reply = octets.to_vec();
        let length = match added {
            Added::Nothing => take_out_of_one_hop(&mut reply, QUESTION_END),
            _ => take_out_added(&mut reply, QUESTION_END, added),
        };
        let (before, after) = (Message::from_slice(octets), Message::from_slice(&reply[..length]));
        let (Ok(before), Ok(after)) = (before, after) else { panic!("a header is there before and after") };
        assert_eq!(all_but_opt(before), all_but_opt(after), "{added:?}");
        assert!(length == octets.len() || added != Added::Record || !has_opt(after));
    }
    let mut padded = [octets, &[0xff; 2 * PADDED_TO]].concat();
    let length = pad(&mut padded, octets.len(), QUESTION_END, PADDED_TO);
    let (before, after) = (Message::from_slice(octets), Message::from_slice(&padded[..length]));
    let (Ok(before), Ok(after)) = (before, after) else { panic!("a header is there before and after") };
    assert_eq!(all_but_opt(before), all_but_opt(after));
    assert!(length == octets.len() || length.is_multiple_of(PADDED_TO));
    let fresh = question_end(octets).map_or(0, |end| fresh_for(octets, end));
    if fresh > 0 && whole_for(octets, QUESTION_END) > 0 {
        let mut aged = octets.to_vec();
        change_ttls(&mut aged, QUESTION_END, |ttl| ttl - 1);
        let mut stale = aged.clone();
        stale.extend([0xff; 6]);
        let length = add_extended_error(&mut stale, octets.len(), QUESTION_END, ExtendedError::StaleAnswer);
        for changed in [&aged[..], &stale[..length]] {
            let after = Message::from_slice(changed).expect("a header");
            assert_eq!(all_but_opt(before), all_but_opt(after));
            let ttls = |of| ttls_but_opt(of).collect::<Vec<u32>>();
            assert_eq!(ttls(after), ttls_but_opt(before).map(|ttl| ttl - 1).collect::<Vec<u32>>());
        }
    }
    // What it cannot read, as for a name that leads nowhere, is nobody's answer.
    if let Ok(answered) = before.answer() {
        let mut ttls = answered.map_while(Result::ok).map(|record| record.ttl().as_secs());
        assert!(
            whole_for(octets, QUESTION_END) <= fresh
                && fresh <= i32::MAX as u32
                && (fresh == 0 || ttls.all(|ttl| fresh <= ttl))
        );
    }
}

/// What is answered here to a query is a message that `domain` reads whole, and no longer than any client takes.
fn ours(query: &[u8], question_end: usize, edns: Option<&Edns>) {
    let addresses: [IpAddr; 2] =
        [[192, 0, 2, 1].into(), [0x20, 1, 0xd, 0xb8, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 1].into()];
    let blocked = Says::Barred(Rcode::NXDOMAIN, ExtendedError::Blocked);
    for says in [Says::Addresses(&addresses), blocked, Says::Truncated] {
        let mut out = [0; 512];
        let length = answer(query, question_end, edns, 7, says, &mut out);
        let message = Message::from_slice(&out[..length]).expect("a header");
        assert!(message.header().qr() && message.sole_question().is_ok());
        assert!(all_but_opt(message).1 && message.opt().is_some() == edns.is_some());
    }
}

/// Whether the owner's name of a record leads through the header, or octets at or behind its own place: it changes with what
/// stands there.
fn has_entangled(octets: &[u8]) -> bool {
    let mut parser = Parser::from_ref(octets);
    let start = if octets[4..6] == [0, 0] { HEADER } else { QUESTION_END };
    let mut at = parser.advance(start).is_ok().then_some(start);
    while let Some(start) = at {
        if leads_past(octets, start) {
            return true;
        }
        at = behind_record(&mut parser);
    }
    false
}

/// Where the record ends that the parser stands before.
fn behind_record(parser: &mut Parser<'_, [u8]>) -> Option<usize> {
    ParsedName::skip(parser).ok()?;
    parser.advance(TYPE_CLASS_TTL).ok()?;
    let length = parser.parse_u16_be().ok()?;
    parser.advance(length.into()).ok()?;
    Some(parser.pos())
}

fn leads_past(octets: &[u8], start: usize) -> bool {
    let (mut at, mut has_jumped) = (start, false);
    for _ in 0..NAME_MAX {
        match octets.get(at).copied().map(usize::from) {
            Some(length @ 1..=LABEL_MAX) => at += 1 + length,
            Some(upper @ POINTER..) => {
                let Some(lower) = octets.get(at + 1) else { return false };
                (at, has_jumped) = ((upper - POINTER) << 8 | usize::from(*lower), true);
            }
            _ => return false,
        }
        if has_jumped && !(HEADER..start).contains(&at) {
            return true;
        }
    }
    // Round and round.
    true
}

/// Whether a message has an OPT record, whose owner is the root (RFC 6891 §6.1.2).
fn has_opt(message: &Message<[u8]>) -> bool {
    let mut records = message.additional().into_iter().flatten().map_while(Result::ok);
    records.any(|record| record.rtype() == Rtype::OPT && record.owner().iter_labels().count() == 1)
}

/// The types of a message's records but OPT, and whether all of them read, as far as they do.
fn all_but_opt(message: &Message<[u8]>) -> (Vec<Rtype>, bool) {
    let mut types = Vec::new();
    for record in message.iter() {
        let Ok((record, _)) = record else { return (types, false) };
        if record.rtype() != Rtype::OPT {
            types.push(record.rtype());
        }
    }
    (types, true)
}

/// The TTLs of a message's records but OPT, as far as they read.
fn ttls_but_opt(message: &Message<[u8]>) -> impl Iterator<Item = u32> {
    let records = message.iter().map_while(Result::ok).map(|(record, _)| record);
    records.filter(|record| record.rtype() != Rtype::OPT).map(|record| record.ttl().as_secs())
}

pub(super) fn relayed() -> Vec<Vec<u8>> {
    let subnet = ClientSubnet::new([192, 0, 2, 77].into(), 24);
    let mut with = QUERY.to_vec();
    let mut name = Folded::root();
    let edns = Query::read(QUERY, &mut name).expect("a query").edns;
    add_subnet(&mut with, QUESTION_END, edns.as_ref(), &subnet);
    let mut reply = with.clone();
    reply[2] |= 0x80;
    let mut asks = [QUERY, b"\0\x0b\0\0"].concat();
    asks[QUERY.len() - 1] = 4;
    let mut answered = QUERY[..QUESTION_END].to_vec();
    (answered[2], answered[7], answered[11]) = (0x81, 1, 0);
    answered.extend(b"\xc0\x0c\0\x01\0\x01\0\0\0\x05\0\x04\xc0\0\x02\x01");
    let mut with_cookie = [QUERY, b"\0\x0a\0\x0812345678"].concat();
    with_cookie[QUERY.len() - 1] = 12;
    let mut with_edns = [&answered, &QUERY[QUESTION_END..]].concat();
    with_edns[11] = 1;
    vec![QUERY.to_vec(), with, reply, asks, answered, with_cookie, with_edns]
}
