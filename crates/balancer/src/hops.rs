//! What is said from one hop to the next only, and so not passed on: how long a connection may be idle (RFC 7828). The
//! client's connection is ours, and so is that to the back end.

use std::ops::Range;

use dns::Rtype;

/// The option code of TCP keepalive (RFC 7828 §3.1).
const TCP_KEEPALIVE: u16 = 11;

/// The octets of an option's code and length (RFC 6891 §6.1.2).
const OPTION: usize = 4;

/// The octets of an OPT record before its options: the root's name, type, class, TTL and length.
const OPT_HEAD: usize = 11;

/// The octets of a record between its name and its data.
const RECORD_HEAD: usize = 10;

/// Takes TCP keepalive out of a query or an answer whose question ends at `question_end`; returns the message's length.
///
/// A message stays as it is where it breaks off, and where anything follows its OPT record: a signature (TSIG, SIG(0))
/// would not hold any more.
///
/// # Panics
/// Where the message is shorter than a header.
pub fn take_out_keepalive(message: &mut [u8], question_end: usize) -> usize {
    let length = message.len();
    let Some(options) = last_options(message, question_end) else { return length };
    let (mut from, mut to) = (options.start, options.start);
    while let Some(end) = option_end(&message[..options.end], from) {
        if two(message, from) != Some(TCP_KEEPALIVE) {
            message.copy_within(from..end, to);
            to += end - from;
        }
        from = end;
    }
    // What is no option stays.
    message.copy_within(from..options.end, to);
    to += options.end - from;
    let kept = (to - options.start) as u16;
    message[options.start - 2..options.start].copy_from_slice(&kept.to_be_bytes());
    to
}

/// Where the options of the OPT record are, if that is the last record.
fn last_options(message: &[u8], question_end: usize) -> Option<Range<usize>> {
    let records = [6, 8, 10].into_iter().map(|at| usize::from(two(message, at).unwrap_or(0))).sum();
    let (mut start, mut end) = (question_end, question_end);
    // Each record takes 11 octets or more, so that the counts cannot make this loop long.
    for _ in 0..records {
        start = end;
        end = record_end(message, start)?;
    }
    let is_opt = end > start && message[start] == 0 && two(message, start + 1) == Some(Rtype::OPT.to_int());
    is_opt.then_some(start + OPT_HEAD..end)
}

/// Where the record that begins at `at` ends; a compression pointer ends its name and is not followed.
fn record_end(message: &[u8], mut at: usize) -> Option<usize> {
    let name_end = loop {
        match *message.get(at)? {
            0 => break at + 1,
            label @ 1..=63 => at += 1 + usize::from(label),
            0xc0.. => break at + 2,
            _ => return None,
        }
    };
    let data = name_end + RECORD_HEAD;
    let end = data + usize::from(two(message, data - 2)?);
    (end <= message.len()).then_some(end)
}

/// Where the option that begins at `at` ends.
fn option_end(options: &[u8], at: usize) -> Option<usize> {
    let end = at + OPTION + usize::from(two(options, at + 2)?);
    (end <= options.len()).then_some(end)
}

/// The number in two octets.
fn two(message: &[u8], at: usize) -> Option<u16> {
    Some(u16::from_be_bytes(*message.get(at..)?.first_chunk()?))
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    /// The question of `a.`, an A record of the same name, and more records.
    fn message(additional: &[&[u8]]) -> Vec<u8> {
        let head = [0x12, 0x34, 0x81, 0, 0, 1, 0, 1, 0, 0, 0, additional.len() as u8];
        let a = b"\xc0\x0c\0\x01\0\x01\0\0\0\x05\0\x04\xc0\0\x02\x01";
        [&head[..], b"\x01a\0\0\x01\0\x01", a, &additional.concat()].concat()
    }

    const QUESTION_END: usize = 19;
    const KEEPALIVE: &[u8] = b"\0\x0b\0\x02\0\x64";
    const ASKED: &[u8] = b"\0\x0b\0\0";
    const COOKIE: &[u8] = b"\0\x0a\0\x0812345678";
    const TSIG: &[u8] = b"\0\0\xfa\0\xff\0\0\0\0\0\0";

    /// An OPT record with these options.
    fn opt(options: &[&[u8]]) -> Vec<u8> {
        let options = options.concat();
        [b"\0\0\x29\x04\xd0\0\0\x80\0\0", &[options.len() as u8][..], &options].concat()
    }

    #[test]
    fn keepalive_goes_and_all_else_stays() {
        let plain = opt(&[COOKIE]);
        for (what, before, after) in [
            ("an answer's", opt(&[KEEPALIVE]), opt(&[])),
            ("a query's", opt(&[ASKED]), opt(&[])),
            ("before others", opt(&[KEEPALIVE, COOKIE]), plain.clone()),
            ("between others, twice", opt(&[ASKED, COOKIE, KEEPALIVE]), plain.clone()),
            ("none", plain.clone(), plain.clone()),
            ("an option that breaks off", opt(&[KEEPALIVE, b"\0\x0b\0\x09\0"]), opt(&[b"\0\x0b\0\x09\0"])),
        ] {
            let mut found = message(&[&before]);
            let length = take_out_keepalive(&mut found, QUESTION_END);
            assert_eq!(found[..length], message(&[&after]), "{what}");
        }
        let with = opt(&[KEEPALIVE]);
        let cut_off = message(&[&with])[..40].to_vec();
        for (what, before) in [
            ("signed", message(&[&with, TSIG])),
            ("cut off", cut_off),
            ("no EDNS", message(&[])),
            ("a header alone", vec![0, 0, 0x81, 1, 0, 0, 0, 9, 0, 0, 0, 9]),
        ] {
            let mut found = before.clone();
            assert_eq!(take_out_keepalive(&mut found, QUESTION_END), before.len(), "{what}");
            assert_eq!(found, before, "{what}");
        }
    }

    proptest! {
        #[test]
        fn whatever_comes_is_no_longer_after_it(
            mut octets in proptest::collection::vec(any::<u8>(), 12..80),
            options in proptest::collection::vec(any::<u8>(), 0..40),
        ) {
            prop_assert!(take_out_keepalive(&mut octets, QUESTION_END) <= octets.len());
            let mut with = message(&[&opt(&[&options])]);
            prop_assert!(take_out_keepalive(&mut with, QUESTION_END) <= with.len());
        }
    }
}
