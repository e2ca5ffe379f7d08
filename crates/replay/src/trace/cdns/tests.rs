//! A real file beside the capture that it was made of, and files made here.

use std::io::{Cursor, Read};
use std::net::SocketAddr;

use dns::Folded;
use minicbor::{Encoder, encode};
use proptest::prelude::*;

use super::*;
use crate::trace::skipped::Skip;
use crate::trace::tests::{data, messages};
use crate::trace::{PORT, Summary, Trace, Transport};

type Failed = encode::Error<core::convert::Infallible>;

/// How a file made here differs from an ordinary one.
#[derive(Clone, Copy)]
struct Made {
    major: u32,
    ticks_per_second: u64,
    is_indefinite: bool,
    /// Keys of the first pair that are left out.
    without: &'static [i64],
}

const ORDINARY: Made = Made { major: 1, ticks_per_second: 1_000, is_indefinite: false, without: &[] };

/// One block: a query with EDNS and its response, then a response whose signature says little.
fn file(made: Made) -> Vec<u8> {
    let mut encoder = Encoder::new(Vec::new());
    write(&mut encoder, made).expect("memory takes it");
    encoder.into_writer()
}

fn write(e: &mut Encoder<Vec<u8>>, made: Made) -> Result<(), Failed> {
    e.array(3)?.str("C-DNS")?;
    e.map(3)?.u8(0)?.u32(made.major)?.u8(1)?.u8(0)?.u8(3)?;
    e.array(1)?.map(1)?.u8(0)?.map(2)?.u8(0)?.u64(made.ticks_per_second)?.u8(1)?.u16(5_000)?;
    if made.is_indefinite {
        e.begin_array()?
    } else {
        e.array(1)?
    };
    e.map(5)?;
    // What its writer left out for its opcode, among all it has seen.
    e.u8(1)?.map(2)?.u8(0)?.u8(9)?.u8(4)?.u8(5)?;
    e.u8(0)?.map(1)?.u8(0)?.array(2)?.u64(1_000)?.u64(500)?;
    tables(e)?;
    e.u8(3)?.array(2)?;
    let pair: [(i64, i64); 8] = [(0, 250), (1, 0), (2, 5_353), (3, 7), (4, 0), (6, 2), (7, 0), (-9, 1)];
    let kept: Vec<_> = pair.into_iter().filter(|(key, _)| !made.without.contains(key)).collect();
    e.map(kept.len() as u64 + 2)?;
    for (key, value) in kept {
        e.i64(key)?.i64(value)?;
    }
    e.u8(11)?.map(0)?;
    e.u8(12)?.map(2)?.u8(1)?.u8(0)?.u8(3)?.u8(1)?;
    e.map(6)?.u8(0)?.u8(100)?.u8(1)?.u8(1)?.u8(4)?.u8(1)?.u8(7)?.u8(1)?.u8(2)?.u8(9)?.u8(3)?.u8(8)?;
    e.u8(5)?.array(1)?.map(1)?.u8(0)?.u8(3)?;
    if made.is_indefinite {
        e.end()?;
    }
    Ok(())
}

fn tables(e: &mut Encoder<Vec<u8>>) -> Result<(), Failed> {
    e.u8(2)?.map(6)?;
    // A whole IPv4 address, and 32 bits of an IPv6 one.
    e.u8(0)?.array(2)?.bytes(&[192, 0, 2, 1])?.bytes(&[0x20, 0x01, 0x0d, 0xb8])?;
    e.u8(1)?.array(2)?.map(2)?.u8(0)?.u8(1)?.u8(1)?.u8(1)?.map(2)?.u8(0)?.u8(41)?.u8(1)?.u16(4_096)?;
    let names: [&[u8]; 4] = [b"\x03Www\x00", b"\x01a\x00", &[0, 10, 0, 1, 255], &[192, 0, 2, 9]];
    e.u8(2)?.array(5)?;
    for name in names {
        e.bytes(name)?;
    }
    e.bytes(&[0])?;
    e.u8(3)?.array(2)?;
    let first: [(u8, u16); 10] = [
        (0, 0),
        (1, 53),
        (2, 1 << 1),
        (4, 0b1111),
        (6, 1 << 4 | 1 << 7 | 1 << 12 | 1 << 14),
        (8, 0),
        (13, 0),
        (14, 1_232),
        (15, 2),
        (16, 3),
    ];
    e.map(first.len() as u64)?;
    for (key, value) in first {
        e.u8(key)?.u16(value)?;
    }
    e.map(4)?.u8(2)?.u8(1)?.u8(4)?.u8(0b10)?.u8(8)?.u8(0)?.u8(16)?.u8(16 | 5)?;
    e.u8(6)?.array(2)?.array(1)?.u8(0)?.array(1)?.u8(1)?;
    e.u8(7)?.array(2)?;
    e.map(4)?.u8(0)?.u8(0)?.u8(1)?.u8(0)?.u8(2)?.u8(60)?.u8(3)?.u8(3)?;
    e.map(3)?.u8(0)?.u8(4)?.u8(1)?.u8(1)?.u8(2)?.u32(0x8000)?;
    Ok(())
}

fn read(file: Vec<u8>) -> Trace {
    Trace::read(Cursor::new(file), PORT).unwrap_or_else(|error| panic!("{error}"))
}

#[test]
fn a_capture_and_the_same_as_c_dns_have_the_same_messages() {
    let (Some(mut packets), Some(mut pairs)) = (data("replay/gold.pcap.xz"), data("replay/gold.cbor.xz"))
    else {
        return;
    };
    let (packets, pairs) = (messages(&mut packets), messages(&mut pairs));
    assert_eq!((packets.1, pairs.1), (None, None));
    let queries = |messages: &[Message]| -> Vec<Message> {
        messages.iter().filter(|message| !message.is_response()).cloned().collect()
    };
    let told = |message: &Message| {
        let mut name = Folded::root();
        let query = message.query(&mut name).expect("a plain query");
        // The microsecond, the client, the name as it was asked, type, class, flags and EDNS.
        let (head, flags) = (query.head.to_vec(), [message.octets[2], message.octets[3]]);
        (message.time.as_micros(), message.client, message.server, message.transport, head, flags, query.edns)
    };
    let (first, second) = (queries(&packets.0), queries(&pairs.0));
    assert_eq!((first.len(), second.len()), (999, 999));
    for (packet, pair) in first.iter().zip(&second) {
        assert_eq!(told(packet), told(pair));
    }
    // Responses: the same times, header flags and codes.
    let responses = |messages: &[Message]| -> Vec<_> {
        let responses = messages.iter().filter(|message| message.is_response());
        responses.map(|message| (message.time.as_micros(), message.octets[..8].to_vec())).collect()
    };
    assert_eq!(responses(&packets.0), responses(&pairs.0));
}

#[test]
fn pairs_become_messages() {
    for is_indefinite in [false, true] {
        let mut trace = read(file(Made { is_indefinite, ..ORDINARY }));
        let (found, damage) = messages(&mut trace);
        assert_eq!((found.len(), damage, trace.format(), trace.packets()), (3, None, "C-DNS", 2));
        assert_eq!(trace.skipped().iter().collect::<Vec<_>>(), [(Skip::Dropped, 5), (Skip::Malformed, 1)]);

        // The second pair is the earlier one: a response without its query, over TCP as the flags are not set.
        let client: SocketAddr = "[2001:db8::]:9".parse().expect("an address");
        assert_eq!((found[0].client, found[0].server), (client, "[::]:53".parse().expect("an address")));
        assert_eq!((found[0].time.as_millis(), found[0].rcode()), (1_000_600, dns::OptRcode::REFUSED));
        assert_eq!(found[0].octets, b"\x00\x08\x80\x05\0\x01\0\0\0\0\0\0\x01a\x00\0\x01\0\x01");

        assert_eq!((found[1].time.as_millis(), found[2].time.as_millis()), (1_000_750, 1_000_752));
        assert_eq!(found[1].transport, Transport::Tcp);
        assert_eq!(found[1].client, "192.0.2.1:5353".parse().expect("an address"));
        let question = b"\x03Www\x00\0\x01\0\x01";
        let opt = b"\0\0\x29\x04\xd0\0\0\x80\0\0\x05\0\x0a\0\x01\xff";
        let query = [b"\0\x07\x01\0\0\x01\0\0\0\0\0\x01", &question[..], opt].concat();
        assert_eq!(found[1].octets, query);
        let records = b"\x03Www\x00\0\x01\0\x01\0\0\0\x3c\0\x04\xc0\0\x02\x09\0\0\x29\x10\0\0\0\x80\0\0\0";
        let response = [b"\0\x07\x85\x03\0\x01\0\x01\0\0\0\x01", &question[..], records].concat();
        assert_eq!(found[2].octets, response);
    }
}

#[test]
fn messages_tell_which_pair_they_are_of() {
    let mut trace = read(file(ORDINARY));
    // The response alone, which is the second pair, was seen before the first pair.
    let pairs: Vec<u64> = std::iter::from_fn(|| trace.next().map(|_| trace.packet())).collect();
    assert_eq!(pairs, [2, 1, 1]);
    assert_eq!(trace.packets(), 2);
}

#[test]
fn what_cannot_be_rebuilt_is_counted_by_cause() {
    let cases: [(&'static [i64], Skip, u64); 4] = [
        (&[0], Skip::NoTime, 1),
        (&[1], Skip::NoClient, 2),
        (&[4], Skip::NoQuestion, 1),
        (&[7], Skip::NoQuestion, 2),
    ];
    for (without, skip, count) in cases {
        let mut trace = read(file(Made { without, ..ORDINARY }));
        let (found, damage) = messages(&mut trace);
        assert_eq!((found.len(), damage), (1, None), "without {without:?}");
        assert_eq!(trace.skipped().of(skip), count, "without {without:?}");
    }
    // Neither id nor port is needed.
    assert_eq!(messages(&mut read(file(Made { without: &[2, 3], ..ORDINARY }))).0.len(), 3);
}

#[test]
fn a_file_that_is_not_as_the_format_has_it_is_told() {
    let header = |made| match Trace::read(Cursor::new(file(made)), PORT) {
        Ok(_) => panic!("it is read"),
        Err(error) => error.to_string(),
    };
    assert!(header(Made { major: 2, ..ORDINARY }).contains("version 2 of C-DNS is not read"));
    assert!(header(Made { ticks_per_second: 0, ..ORDINARY }).contains("no ticks per second"));

    let whole = file(Made { is_indefinite: true, ..ORDINARY });
    let (found, damage) = messages(&mut read(whole[..whole.len() - 1].to_vec()));
    let damage = damage.expect("the end of the blocks is missing");
    assert_eq!((found.len(), damage.packet, damage.offset), (3, 3, whole.len() as u64 - 1));
    let (found, damage) = messages(&mut read(whole[..whole.len() - 9].to_vec()));
    assert_eq!((found.len(), damage.map(|damage| damage.packet)), (0, Some(1)));

    // Two files one behind the other are no file.
    for is_indefinite in [false, true] {
        let one = file(Made { is_indefinite, ..ORDINARY });
        let (found, damage) = messages(&mut read([&one[..], &one].concat()));
        let damage = damage.expect("something follows");
        assert!(found.len() == 3 && damage.what.contains("something follows the last block"), "{damage}");
    }

    // A byte string that is longer than any block: as much is read as a block may have, no more.
    let mut huge = whole[..whole.len() - 1].to_vec();
    huge.extend([0xa1, 0, 0x5b, 0, 0, 0xff, 0, 0, 0, 0, 0]);
    let endless = Cursor::new(huge).chain(std::io::repeat(0));
    let mut trace = Trace::read(endless, PORT).expect("its beginning is right");
    let (found, damage) = messages(&mut trace);
    let damage = damage.expect("no block is so long");
    assert!(found.len() == 3 && damage.what.contains("an item of more than"), "{damage}");
    // Nor does what is nested without end.
    let mut deep = whole[..whole.len() - 1].to_vec();
    deep.extend([0x9f; 100_000]);
    let (_, damage) = messages(&mut read(deep));
    assert!(damage.expect("too deep").what.contains("too deep"));
}

proptest! {
    #[test]
    fn no_damage_makes_the_reader_panic(
        changes in proptest::collection::vec((any::<prop::sample::Index>(), any::<u8>()), 0..10),
        length in any::<prop::sample::Index>(),
    ) {
        let mut file = file(ORDINARY);
        for (at, value) in changes {
            let at = at.index(file.len());
            file[at] = value;
        }
        file.truncate(length.index(file.len() + 1));
        let size = file.len();
        if let Ok(mut trace) = Trace::read(Cursor::new(file), PORT) {
            let info = Summary::of(&mut trace);
            prop_assert!(info.damage.is_none_or(|damage| damage.offset <= size as u64));
        }
    }
}
