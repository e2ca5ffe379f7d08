//! Messages that are passed on: a client's subnet put into a query, and taken out of the answer again (RFC 7871 §7.2); and
//! what is said from one hop to the next only taken out of either (RFC 7828, RFC 7830), or padded anew.

use std::ops::Range;

use crate::edns::{
    CLIENT_SUBNET, COOKIE, ClientSubnet, Edns, ExtendedError, OPT, OPTION, UDP_PLAIN_PAYLOAD, VERSION,
};
use crate::name::LABEL_MAX;
use crate::query::{HEADER, MESSAGE_MAX, Record};
use domain::base::iana::{OptionCode, Rtype};

/// What was put into a query, so that it is taken out of its answer.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Added {
    /// Nothing: the answer stays as it is.
    #[default]
    Nothing,
    /// An option of an OPT record that was there.
    Option,
    /// An OPT record: who asked speaks no EDNS.
    Record,
}

/// Puts a client's subnet into a query that [`Query::read`](crate::Query::read) has read; `question_end` is where its
/// question ends.
///
/// A query stays as it is where it has a client subnet already, also one that says that the client is not to be known,
/// where it is signed (the signature would not hold), where its EDNS version is not ours, and where there is no room for
/// it in a message, which has at most 65,535 octets. Octets behind the last record go.
pub fn add_subnet(
    query: &mut Vec<u8>,
    question_end: usize,
    edns: Option<&Edns>,
    subnet: &ClientSubnet,
) -> Added {
    if edns.is_some_and(|edns| edns.client_subnet.is_some() || edns.version > VERSION) {
        return Added::Nothing;
    }
    let mut option = [0; ClientSubnet::WRITTEN_MAX];
    let Some(length) = subnet.write(0, &mut option) else { return Added::Nothing };
    let option = &option[..length];
    match last_of_unsigned(query, question_end) {
        None => Added::Nothing,
        Some((end, None)) => add_opt_with(query, end, option),
        Some((end, Some(_))) if end + length > MESSAGE_MAX => Added::Nothing,
        Some((end, Some(options))) => {
            let Ok(all) = u16::try_from(options.len() + length) else { return Added::Nothing };
            query[options.start - 2..options.start].copy_from_slice(&all.to_be_bytes());
            query.truncate(end);
            query.splice(options.end..options.end, option.iter().copied());
            Added::Option
        }
    }
}

/// Puts an OPT record into a query that has none, so that there is room for padding. What stays as it is in [`add_subnet`]
/// stays here.
pub fn add_opt(query: &mut Vec<u8>, question_end: usize) -> Added {
    match last_of_unsigned(query, question_end) {
        Some((end, None)) => add_opt_with(query, end, &[]),
        _ => Added::Nothing,
    }
}

/// Where the last record of a query ends, and where the options of its OPT record are; `None` where it breaks off or is signed.
fn last_of_unsigned(query: &[u8], question_end: usize) -> Option<(usize, Option<Range<usize>>)> {
    let (mut end, mut options) = (question_end, None);
    for record in Records::of(query, question_end) {
        let record = record?;
        match record.rtype {
            Rtype::TSIG | Rtype::SIG => return None,
            Rtype::OPT => options = Some(record.end - record.rdata.len()..record.end),
            _ => {}
        }
        end = record.end;
    }
    Some((end, options))
}

/// Puts an OPT record with these options, 255 octets at most, behind the records of a query, which end here.
fn add_opt_with(query: &mut Vec<u8>, end: usize, options: &[u8]) -> Added {
    let additional = u16::from_be_bytes([query[10], query[11]]).checked_add(1);
    let Some(additional) = additional.filter(|_| end + OPT + options.len() <= MESSAGE_MAX) else {
        return Added::Nothing;
    };
    query[10..HEADER].copy_from_slice(&additional.to_be_bytes());
    query.truncate(end);
    let [kind, class] = [Rtype::OPT.to_int().to_be_bytes(), UDP_PLAIN_PAYLOAD.to_be_bytes()];
    let length = options.len() as u8;
    query.extend_from_slice(&[0, kind[0], kind[1], class[0], class[1], 0, 0, 0, 0, 0, length]);
    query.extend_from_slice(options);
    Added::Record
}

/// Takes out of an answer what [`add_subnet`] or [`add_opt`] has added to its query, so that it says nothing that was not asked for; returns the
/// answer's length. `question_end` is where the question of the query ends, which the answer repeats, but for an error.
///
/// An answer stays as it is where it breaks off, and where anything follows the OPT record: names there may point to
/// each other. Nothing is added to signed queries, so that no signature is looked for there.
///
/// # Panics
/// Where it is shorter than a header.
pub fn take_out_added(reply: &mut [u8], question_end: usize, added: Added) -> usize {
    let length = reply.len();
    let records_start = records_start(reply, question_end);
    if added == Added::Nothing || length < records_start {
        return length;
    }
    let (mut opt, mut end) = (None, records_start);
    let additional = u32::from(u16::from_be_bytes([reply[10], reply[11]]));
    let mut records = Records::of(reply, records_start);
    while let Some(record) = records.next() {
        let Some(record) = record else { return length };
        // In another section it is none (RFC 6891 §6.1.1).
        let is_additional = records.left < additional;
        if opt.is_some() {
            return length;
        }
        let is_opt = record.rtype == Rtype::OPT && record.owner_is_root && is_additional;
        opt = is_opt.then_some((end, record.end));
        end = record.end;
    }
    let Some((start, end)) = opt else { return length };
    match added {
        Added::Record => {
            let additional = u16::from_be_bytes([reply[10], reply[11]]).saturating_sub(1);
            reply[10..HEADER].copy_from_slice(&additional.to_be_bytes());
            start
        }
        _ => take_out(reply, start..end, &[CLIENT_SUBNET]),
    }
}

/// The options that are from one hop to the next: keepalive of a connection, and padding.
pub(crate) const OF_ONE_HOP: [u16; 2] = [OptionCode::TCP_KEEPALIVE.to_int(), PADDING];

/// Padding (RFC 7830).
const PADDING: u16 = OptionCode::PADDING.to_int();

/// What the length of a padded query is a multiple of, in octets (RFC 8467 §4.1).
pub const QUERY_PADDED_TO: usize = 128;

/// The same of an answer.
pub const PADDED_TO: usize = 468;

/// Takes TCP keepalive and padding out of a query or an answer whose question ends at `question_end`, since the connection
/// to the next hop is another one; returns the message's length. Octets behind the last record go with it.
///
/// A message stays as it is where it breaks off, and where anything follows its OPT record: a signature (TSIG, SIG(0))
/// would not hold any more.
///
/// # Panics
/// Where the message is shorter than a header.
pub fn take_out_of_one_hop(message: &mut [u8], question_end: usize) -> usize {
    let length = message.len();
    last_opt(message, question_end).map_or(length, |opt| take_out(message, opt, &OF_ONE_HOP))
}

/// Takes cookies out of a query whose question ends at `question_end`, so that its answer has none; returns the message's
/// length. What stays as it is in [`take_out_of_one_hop`] stays here.
///
/// # Panics
/// Where the message is shorter than a header.
pub fn take_out_cookies(message: &mut [u8], question_end: usize) -> usize {
    let length = message.len();
    last_opt(message, question_end).map_or(length, |opt| take_out(message, opt, &[COOKIE]))
}

/// Whether a query whose question ends at `question_end` is padded: then its answer is to be (RFC 7830 §4).
///
/// # Panics
/// Where it is shorter than a header.
pub fn is_padded(query: &[u8], question_end: usize) -> bool {
    let Some(opt) = last_opt(query, question_end) else { return false };
    let mut options = &query[opt.start + OPT..opt.end];
    while let Some((head, rest)) = options.split_first_chunk::<OPTION>() {
        if u16::from_be_bytes([head[0], head[1]]) == PADDING {
            return true;
        }
        options = rest.get(usize::from(u16::from_be_bytes([head[2], head[3]]))..).unwrap_or_default();
    }
    false
}

/// Pads a message of `length` octets at the front of `out`, whose question ends at `question_end`, to a multiple of `unit`
/// octets; returns its length. One that breaks off, has no OPT record, or anything behind that, stays as it
/// is, and so does one that would not fit `out` or a message. Octets behind the last record go.
///
/// # Panics
/// Where it is shorter than a header.
pub fn pad(out: &mut [u8], length: usize, question_end: usize, unit: usize) -> usize {
    let Some(opt) = last_opt(&out[..length], question_end) else { return length };
    let padded = (opt.end + OPTION).next_multiple_of(unit);
    if padded > out.len().min(MESSAGE_MAX) {
        return length;
    }
    let (options, padding) = (opt.start + OPT, opt.end + OPTION);
    let head = [PADDING, (padded - padding) as u16].map(u16::to_be_bytes);
    out[opt.end..padding].copy_from_slice(head.as_flattened());
    out[padding..padded].fill(0);
    out[options - 2..options].copy_from_slice(&((padded - options) as u16).to_be_bytes());
    padded
}

/// Adds an extended error to an answer of `length` octets at the front of `out`, whose question ends at `question_end`;
/// returns its length. One that breaks off, has no OPT record, or anything behind that, stays as it is, and so does one for
/// which `out` has no room. Octets behind the last record go.
///
/// # Panics
/// Where it is shorter than a header.
pub fn add_extended_error(out: &mut [u8], length: usize, question_end: usize, error: ExtendedError) -> usize {
    let Some(opt) = last_opt(&out[..length], question_end) else { return length };
    let written = error.write(&mut out[opt.end..]);
    let (options, end) = (opt.start + OPT, opt.end + written);
    let Ok(all) = u16::try_from(end - options) else { return length };
    if written == 0 {
        return length;
    }
    out[options - 2..options].copy_from_slice(&all.to_be_bytes());
    end
}

/// Where the question of a message ends that has one, its name not compressed; `None` for any other.
pub fn question_end(message: &[u8]) -> Option<usize> {
    let header = message.first_chunk::<HEADER>()?;
    if header[4..6] != [0, 1] {
        return None;
    }
    let mut at = HEADER;
    loop {
        match usize::from(*message.get(at)?) {
            0 => break,
            length @ 1..=LABEL_MAX => at += 1 + length,
            _ => return None,
        }
    }
    let end = at + 5;
    (end <= message.len()).then_some(end)
}

/// Where the records of an answer begin, of whose query the question ends here: an error need not repeat it.
fn records_start(message: &[u8], question_end: usize) -> usize {
    if message[4..6] == [0, 0] { HEADER } else { question_end }
}

/// The OPT record of a message whose question ends at `question_end`, where it is the last record, and the only one.
fn last_opt(message: &[u8], question_end: usize) -> Option<Range<usize>> {
    let records_start = records_start(message, question_end);
    let (mut last, mut end) = (None, records_start);
    for record in Records::of(message, records_start) {
        let record = record?;
        if last.is_some() {
            return None;
        }
        let is_opt = record.rtype == Rtype::OPT && record.owner_is_root;
        last = is_opt.then_some(end..record.end);
        end = record.end;
    }
    last
}

/// Takes all options of these codes out of the OPT record that stands here; returns where the record ends then.
fn take_out(message: &mut [u8], opt: Range<usize>, codes: &[u16]) -> usize {
    let options = opt.start + OPT;
    let kept = keep_options(&mut message[options..opt.end], codes);
    message[options - 2..options].copy_from_slice(&(kept as u16).to_be_bytes());
    options + kept
}

/// Moves together all options but those of these codes; returns how long they are. What is no option stays.
fn keep_options(options: &mut [u8], taken_out: &[u16]) -> usize {
    let (mut from, mut to) = (0, 0);
    while let Some(head) = options.get(from..from + OPTION) {
        let code = u16::from_be_bytes([head[0], head[1]]);
        let end = from + OPTION + usize::from(u16::from_be_bytes([head[2], head[3]]));
        if end > options.len() {
            break;
        }
        if !taken_out.contains(&code) {
            options.copy_within(from..end, to);
            to += end - from;
        }
        from = end;
    }
    options.copy_within(from.., to);
    to + options.len() - from
}

/// The records behind a question; the last one is `None` where it breaks off.
pub(crate) struct Records<'a> {
    message: &'a [u8],
    at: usize,
    left: u32,
}

impl<'a> Records<'a> {
    pub(crate) fn of(message: &'a [u8], question_end: usize) -> Records<'a> {
        let count = |at: usize| u32::from(u16::from_be_bytes([message[at], message[at + 1]]));
        Records { message, at: question_end, left: count(6) + count(8) + count(10) }
    }
}

impl<'a> Iterator for Records<'a> {
    type Item = Option<Record<'a>>;

    fn next(&mut self) -> Option<Option<Record<'a>>> {
        self.left = self.left.checked_sub(1)?;
        let record = Record::read(self.message, self.at);
        match &record {
            Some(record) => self.at = record.end,
            None => self.left = 0,
        }
        Some(record)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Folded, Query};
    use proptest::prelude::*;

    /// The question of `www.example.` and records behind it, so many in ADDITIONAL.
    fn message(flags: u8, records: &[&[u8]]) -> Vec<u8> {
        let head = [0x12, 0x34, flags, 0, 0, 1, 0, 0, 0, 0, 0, records.len() as u8];
        [&head[..], b"\x03www\x07example\0\0\x01\0\x01", &records.concat()].concat()
    }

    const END: usize = 29;
    const A: &[u8] = b"\xc0\x0c\0\x01\0\x01\0\0\0\x05\0\x04\xc0\0\x02\x01";
    const OPT: &[u8] = b"\0\0\x29\x04\xd0\0\0\x80\0\0\0";
    const COOKIE: &[u8] = b"\0\0\x29\x04\xd0\0\0\x80\0\0\x0c\0\x0a\0\x0812345678";
    const TSIG: &[u8] = b"\0\0\xfa\0\xff\0\0\0\0\0\0";
    const HIDDEN: &[u8] = b"\0\0\x29\x04\xd0\0\0\x80\0\0\x08\0\x08\0\x04\0\x01\0\0";
    const VERSION_1: &[u8] = b"\0\0\x29\x04\xd0\0\x01\0\0\0\0";
    const OPTION_24: &[u8] = b"\0\x08\0\x07\0\x01\x18\0\xc0\0\x02";

    #[test]
    fn an_extended_error_stands_behind_the_other_options() {
        const STALE: &[u8] = b"\0\x0f\0\x02\0\x03";
        let told = |records: &[&[u8]], room: usize| {
            let message = message(0x81, records);
            let mut out = message.clone();
            out.resize(message.len() + room, 7);
            let length = add_extended_error(&mut out, message.len(), END, ExtendedError::StaleAnswer);
            out.truncate(length);
            (out, message)
        };
        let (out, before) = told(&[OPT], STALE.len());
        assert_eq!(out[..before.len() - 2], before[..before.len() - 2]);
        assert_eq!(out[before.len() - 2..], [b"\0\x06", STALE].concat());
        let (out, before) = told(&[COOKIE], STALE.len());
        assert_eq!(out[before.len()..], *STALE);
        assert_eq!(last_opt(&out, END), Some(END..out.len()));
        for (records, room) in [(&[OPT][..], STALE.len() - 1), (&[A], 9), (&[OPT, TSIG], 9), (&[], 9)] {
            let (out, before) = told(records, room);
            assert_eq!(out, before);
        }
    }

    #[test]
    fn cookies_go_and_other_options_stay() {
        let mut query = message(1, &[COOKIE]);
        let length = take_out_cookies(&mut query, END);
        assert_eq!(query[..length], message(1, &[OPT]));
        let mut signed = message(1, &[COOKIE, TSIG]);
        assert_eq!(take_out_cookies(&mut signed, END), message(1, &[COOKIE, TSIG]).len());
    }

    #[test]
    fn a_subnet_goes_in_and_comes_out_again() {
        let subnet = ClientSubnet::new("192.0.2.77".parse().expect("an address"), 24);
        for (what, records, added, length) in [
            ("no EDNS", &[][..], Added::Record, 11 + 11),
            ("EDNS", &[OPT], Added::Option, 11),
            ("a cookie", &[COOKIE], Added::Option, 11),
            ("a signature", &[OPT, TSIG], Added::Nothing, 0),
            ("a client that hides", &[HIDDEN], Added::Nothing, 0),
            ("another version", &[VERSION_1], Added::Nothing, 0),
        ] {
            let plain = message(1, records);
            let (mut query, mut name) = ([&plain[..], b"junk"].concat(), Folded::root());
            let edns = Query::read(&query, &mut name).expect("a query").edns;
            assert_eq!(add_subnet(&mut query, END, edns.as_ref(), &subnet), added, "{what}");
            if added == Added::Nothing {
                assert_eq!(query, [&plain[..], b"junk"].concat(), "{what}");
                continue;
            }
            assert_eq!(query.len(), plain.len() + length, "{what}");
            let read = Query::read(&query, &mut name).expect("still a query").edns.expect("EDNS");
            assert_eq!(read.client_subnet, Some(subnet), "{what}");
            assert_eq!(read.cookie, edns.and_then(|edns| edns.cookie), "{what}");
            // An answer that echoes it all.
            query[2] |= 0x80;
            let length = take_out_added(&mut query, END, added);
            let mut reply = plain.clone();
            reply[2] |= 0x80;
            assert_eq!(query[..length], reply, "{what}");
        }
    }

    #[test]
    fn an_opt_record_goes_in_where_there_is_none_and_comes_out_again() {
        for (records, added) in [
            (&[][..], Added::Record),
            (&[A], Added::Record),
            (&[OPT], Added::Nothing),
            (&[TSIG], Added::Nothing),
        ] {
            let plain = message(1, records);
            let mut query = plain.clone();
            assert_eq!(add_opt(&mut query, END), added, "{records:?}");
            let opt = if added == Added::Record { 11 } else { 0 };
            assert_eq!((query.len(), query[11]), (plain.len() + opt, plain[11] + u8::from(opt > 0)));
            let length = take_out_added(&mut query, END, added);
            assert_eq!(query[..length], plain, "{records:?}");
        }
    }

    #[test]
    fn a_query_that_would_be_longer_than_a_message_stays() {
        let subnet = ClientSubnet::new("192.0.2.77".parse().expect("an address"), 24);
        for (records, added, length) in [(&[][..], Added::Record, 11 + 11), (&[OPT][..], Added::Option, 11)] {
            let plain = message(1, records);
            for (room, added) in [(length, added), (length - 1, Added::Nothing)] {
                // Another additional record fills it up.
                let rdata = MESSAGE_MAX - plain.len() - room - 11;
                let filler =
                    [&[0, 0, 1, 0, 1, 0, 0, 0, 0][..], &(rdata as u16).to_be_bytes(), &vec![0; rdata]];
                let mut query = [&plain[..END], &filler.concat(), &plain[END..]].concat();
                query[11] += 1;
                let (mut name, before) = (Folded::root(), query.clone());
                let edns = Query::read(&query, &mut name).expect("a query").edns;
                assert_eq!(add_subnet(&mut query, END, edns.as_ref(), &subnet), added, "{room}");
                let is_as_before = query == before;
                assert_eq!((query.len() <= MESSAGE_MAX, is_as_before), (true, added == Added::Nothing));
            }
        }
    }

    #[test]
    fn answers_that_are_not_as_servers_write_them_stay() {
        let with_subnet = [&OPT[..10], &[11], OPTION_24].concat();
        let good = message(0x80, &[A, &with_subnet]);
        let mut elsewhere = message(0x80, &[&with_subnet]);
        elsewhere.swap(7, 11);
        for (what, mut reply, added, length) in [
            ("good, its option", good.clone(), Added::Option, good.len() - 11),
            ("good, its record", good.clone(), Added::Record, good.len() - 22),
            ("nothing was added", good.clone(), Added::Nothing, good.len()),
            ("without EDNS", message(0x80, &[A]), Added::Record, good.len() - 22),
            ("cut off", good[..good.len() - 1].to_vec(), Added::Record, good.len() - 1),
            ("records behind", message(0x80, &[&with_subnet, A]), Added::Option, good.len()),
            (
                "two OPT records",
                message(0x80, &[OPT, &with_subnet]),
                Added::Record,
                good.len() - A.len() + OPT.len(),
            ),
            ("no OPT record, for it is in ANSWER", elsewhere, Added::Record, END + with_subnet.len()),
            ("a header alone", vec![0, 0, 0x81, 1, 0, 0, 0, 0, 0, 0, 0, 0], Added::Record, 12),
            (
                "an option that breaks off",
                message(0x80, &[b"\0\0\x29\0\0\0\0\0\0\0\x03\0\x08\0"]),
                Added::Option,
                43,
            ),
        ] {
            assert_eq!(take_out_added(&mut reply, END, added), length, "{what}");
        }
    }

    const KEEPALIVE: &[u8] = b"\0\x0b\0\x02\0\x64";
    const ASKED: &[u8] = b"\0\x0b\0\0";
    const COOKIE_ALONE: &[u8] = b"\0\x0a\0\x0812345678";

    /// An OPT record with these options.
    fn opt(options: &[&[u8]]) -> Vec<u8> {
        let options = options.concat();
        [&OPT[..10], &[options.len() as u8], &options].concat()
    }

    #[test]
    fn keepalive_goes_and_all_else_stays() {
        let plain = opt(&[COOKIE_ALONE]);
        for (what, before, after) in [
            ("an answer's", opt(&[KEEPALIVE]), opt(&[])),
            ("a query's", opt(&[ASKED]), opt(&[])),
            ("before others", opt(&[KEEPALIVE, COOKIE_ALONE]), plain.clone()),
            ("between others, twice", opt(&[ASKED, COOKIE_ALONE, KEEPALIVE]), plain.clone()),
            ("none", plain.clone(), plain.clone()),
            ("an option that breaks off", opt(&[KEEPALIVE, b"\0\x0b\0\x09\0"]), opt(&[b"\0\x0b\0\x09\0"])),
        ] {
            let mut found = message(0x81, &[A, &before]);
            let length = take_out_of_one_hop(&mut found, END);
            assert_eq!(found[..length], message(0x81, &[A, &after]), "{what}");
        }
        let with = opt(&[KEEPALIVE]);
        let cut_off = message(0x81, &[A, &with])[..50].to_vec();
        for (what, before) in [
            ("signed", message(0x81, &[A, &with, TSIG])),
            ("cut off", cut_off),
            ("no EDNS", message(0x81, &[A])),
            ("a header alone", vec![0, 0, 0x81, 1, 0, 0, 0, 9, 0, 0, 0, 9]),
        ] {
            let mut found = before.clone();
            assert_eq!(take_out_of_one_hop(&mut found, END), before.len(), "{what}");
            assert_eq!(found, before, "{what}");
        }
    }

    #[test]
    fn an_error_without_the_question_is_passed_on_as_well() {
        // The options reach beyond where the question would end, and look like records there.
        let options = [KEEPALIVE, b"\0\x0a\0\x18ABCDEFG", OPT, b"\0\x0c\0\x02\0\0"];
        let error =
            |options: &[&[u8]]| [&[0x12, 0x34, 0x81, 1, 0, 0, 0, 0, 0, 0, 0, 1][..], &opt(options)].concat();
        let (mut found, expected) = (error(&options), error(&options[1..]));
        let length = take_out_of_one_hop(&mut found, END);
        assert_eq!(found[..length], expected);
        let mut found = error(&options);
        assert_eq!(take_out_added(&mut found, END, Added::Record), HEADER);
        assert_eq!(found[..HEADER], [0x12, 0x34, 0x81, 1, 0, 0, 0, 0, 0, 0, 0, 0]);
        let length = expected.len();
        let mut padded = [expected, vec![7; 2 * PADDED_TO]].concat();
        assert_eq!(pad(&mut padded, length, END, PADDED_TO), PADDED_TO);
        let padding = (PADDED_TO - length - OPTION) as u16;
        assert_eq!(
            padded[length..length + OPTION],
            [[0, 12], padding.to_be_bytes()].concat(),
            "behind all others"
        );
    }

    #[test]
    fn a_question_ends_behind_its_class() {
        let whole = message(1, &[A]);
        assert_eq!(question_end(&whole), Some(END));
        let with = |at: usize, octet: u8| {
            let mut message = whole.clone();
            message[at] = octet;
            question_end(&message)
        };
        assert_eq!([with(5, 0), with(5, 2), with(12, 0xc0), with(12, 63)], [None; 4]);
        assert!((0..END).all(|length| question_end(&whole[..length]).is_none()));
    }

    #[test]
    fn padding_goes_and_comes_anew() {
        let padding = |octets: usize| [&[0, 12, 0, octets as u8][..], &vec![0; octets]].concat();
        let padded = message(0x81, &[A, &opt(&[COOKIE_ALONE, &padding(20)])]);
        assert!(is_padded(&padded, END) && is_padded(&message(1, &[&opt(&[&padding(0)])]), END));
        let mut found = padded.clone();
        let length = take_out_of_one_hop(&mut found, END);
        found.truncate(length);
        let plain = message(0x81, &[A, &opt(&[COOKIE_ALONE])]);
        assert_eq!(found, plain);
        assert!(!is_padded(&plain, END) && !is_padded(&message(1, &[A]), END));

        let pad_all = |answer: &mut Vec<u8>| {
            let length = answer.len();
            answer.resize(2 * (length + PADDED_TO), 7);
            let padded = pad(answer, length, END, PADDED_TO);
            answer.truncate(padded);
        };
        let length = found.len();
        assert_eq!(pad(&mut found.clone(), length, END, PADDED_TO), length, "there is no room");
        pad_all(&mut found);
        assert_eq!((found.len(), is_padded(&found, END)), (PADDED_TO, true));
        let back = take_out_of_one_hop(&mut found, END);
        assert_eq!(found[..back], plain, "nothing else has changed");
        for (what, answer) in [
            ("no EDNS", message(0x81, &[A])),
            ("signed", message(0x81, &[&opt(&[]), TSIG])),
            ("cut off", plain[..50].to_vec()),
            ("as long as a message may be", {
                let txt = [&b"\xc0\x0c\0\x10\0\x01\0\0\0\x05\xff\xbe"[..], &[b'x'; 0xffbe]].concat();
                message(0x81, &[&txt, &opt(&[])])
            }),
        ] {
            let mut found = answer.clone();
            pad_all(&mut found);
            assert!(found == answer, "{what}");
        }
        // From the last length that has room for the option to the first that has not.
        for more in 0..2 * PADDED_TO {
            let txt = [&b"\xc0\x0c\0\x10\0\x01\0\0\0\x05"[..], &(more as u16).to_be_bytes(), &vec![0; more]]
                .concat();
            let mut found = message(0x81, &[&txt, &opt(&[])]);
            let least = found.len() + OPTION;
            pad_all(&mut found);
            assert!(found.len().is_multiple_of(PADDED_TO) && found.len() - least < PADDED_TO, "{more}");
            assert!(is_padded(&found, END));
        }
    }

    proptest! {
        #[test]
        fn whatever_comes_is_no_longer_after_it(
            mut octets in proptest::collection::vec(any::<u8>(), HEADER..80),
            options in proptest::collection::vec(any::<u8>(), 0..40),
        ) {
            prop_assert!(take_out_of_one_hop(&mut octets, END) <= octets.len());
            let mut with = message(0x81, &[A, &opt(&[&options])]);
            prop_assert!(take_out_of_one_hop(&mut with, END) <= with.len());
            for mut message in [octets, with] {
                let length = message.len();
                message.resize(2 * PADDED_TO, 0);
                let padded = pad(&mut message, length, END, PADDED_TO);
                prop_assert!(padded == length || padded.is_multiple_of(PADDED_TO));
                let _ = question_end(&message[..padded]);
            }
        }
    }
}
