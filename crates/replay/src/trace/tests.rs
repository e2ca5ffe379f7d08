//! Captures made here and real ones, read whole.

use std::io::{Cursor, Read, Write};
use std::net::SocketAddr;
use std::path::PathBuf;
use std::time::Duration;

use etherparse::PacketBuilder;
use proptest::prelude::*;

use super::*;
use crate::schedule::timeline::Timeline;

mod pieces;

const CLIENT: ([u8; 4], u16) = ([192, 0, 2, 1], 5_000);
const SERVER: ([u8; 4], u16) = ([192, 0, 2, 53], 53);

/// A file of the folder with test data; says so where it is absent.
pub(super) fn data(file: &str) -> Option<Trace> {
    let beside = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../../../shared/data");
    let path = std::env::var_os("POINTSMAN_DATA").map_or(beside, PathBuf::from).join(file);
    if !path.exists() {
        eprintln!("skipped: {} is not here (POINTSMAN_DATA names the folder)", path.display());
        return None;
    }
    Some(Trace::open(&path, PORT).expect("it can be read"))
}

fn read(file: Vec<u8>) -> Trace {
    Trace::read(Cursor::new(file), PORT).unwrap_or_else(|error| panic!("{error}"))
}

/// The messages up to where the trace breaks off, if it does.
pub(super) fn messages(trace: &mut Trace) -> (Vec<Message>, Option<Damage>) {
    let mut messages = Vec::new();
    for message in trace {
        match message {
            Ok(message) => messages.push(message),
            Err(damage) => return (messages, Some(damage)),
        }
    }
    (messages, None)
}

/// A pcap file of packets that were captured whole, a millisecond apart.
fn pcap(link: u32, packets: &[Vec<u8>]) -> Vec<u8> {
    pcap_at(link, (0..).zip(packets))
}

/// The same, each at so many milliseconds.
fn pcap_at<'a>(link: u32, packets: impl IntoIterator<Item = (u32, &'a Vec<u8>)>) -> Vec<u8> {
    let words = |words: &[u32]| words.iter().flat_map(|word| word.to_le_bytes()).collect::<Vec<u8>>();
    let mut file = words(&[0xa1b2_c3d4, 0x0004_0002, 0, 0, 262_144, link]);
    for (millis, packet) in packets {
        let length = packet.len() as u32;
        file.extend(words(&[1_000 + millis / 1_000, millis % 1_000 * 1_000 + 5, length, length]));
        file.extend(packet);
    }
    file
}

/// The same as pcapng, one interface with nanoseconds.
fn pcapng(link: u16, packets: &[Vec<u8>]) -> Vec<u8> {
    let block = |kind: u32, body: Vec<u8>| {
        let length = (body.len() as u32 + 12).to_le_bytes();
        [&kind.to_le_bytes()[..], &length, &body, &length].concat()
    };
    let mut section = 0x1a2b_3c4d_u32.to_le_bytes().to_vec();
    section.extend([1, 0, 0, 0]);
    section.extend([0xff; 8]);
    let mut interface = link.to_le_bytes().to_vec();
    interface.extend([0, 0, 0, 0, 4, 0, 9, 0, 1, 0, 9, 0, 0, 0, 0, 0, 0, 0]);
    let mut file = [block(0x0a0d_0d0a, section), block(1, interface)].concat();
    for (millis, packet) in (0..).zip(packets) {
        let ticks = (1_000_000 + millis) * 1_000_000_u64 + 5_000;
        let mut body = 0_u32.to_le_bytes().to_vec();
        let length = packet.len() as u32;
        for word in [(ticks >> 32) as u32, ticks as u32, length, length] {
            body.extend(word.to_le_bytes());
        }
        body.extend(packet);
        body.resize(body.len().next_multiple_of(4), 0);
        file.extend(block(6, body));
    }
    file
}

/// A query in wire form whose id tells it from others.
fn query(id: u16) -> Vec<u8> {
    let mut octets = id.to_be_bytes().to_vec();
    octets.extend([1, 0, 0, 1, 0, 0, 0, 0, 0, 0, 3, b'w', b'w', b'w', 0, 0, 1, 0, 1]);
    octets
}

fn framed(message: &[u8]) -> Vec<u8> {
    [&(message.len() as u16).to_be_bytes(), message].concat()
}

fn udp(payload: &[u8]) -> Vec<u8> {
    let mut packet = Vec::new();
    let builder = PacketBuilder::ipv4(CLIENT.0, SERVER.0, 64).udp(CLIENT.1, SERVER.1);
    builder.write(&mut packet, payload).expect("it fits");
    packet
}

fn tcp(sequence: u32, is_first: bool, payload: &[u8]) -> Vec<u8> {
    let mut packet = Vec::new();
    let builder = PacketBuilder::ipv4(CLIENT.0, SERVER.0, 64).tcp(CLIENT.1, SERVER.1, sequence, 1_000);
    let builder = if is_first { builder.syn() } else { builder };
    builder.write(&mut packet, payload).expect("it fits");
    packet
}

/// The ids of the messages in raw IP packets, and what was skipped.
fn ids(packets: &[Vec<u8>]) -> (Vec<u16>, Skipped) {
    let mut trace = read(pcap(101, packets));
    let (messages, damage) = messages(&mut trace);
    assert_eq!(damage, None);
    let ids = messages.iter().map(|message| u16::from_be_bytes([message.octets[0], message.octets[1]]));
    (ids.collect(), trace.skipped().clone())
}

#[test]
fn a_root_servers_minute_is_as_others_count_it() {
    let Some(mut trace) = data("replay/nsd-live.raw.pcap.xz") else { return };
    let info = Summary::of(&mut trace);
    assert_eq!(info.damage, None);
    assert_eq!((info.transports["udp"], info.transports["tcp"], info.clients), (10_326, 106, 2_491));
    // Every query over TCP has DO; of those over UDP 70.6 % have.
    let dnssec_ok = (info.dnssec_ok - 106) as f64 / 10_326.0;
    assert!((0.7055..0.7065).contains(&dnssec_ok), "{dnssec_ok}");
}

#[test]
fn a_capture_of_one_client_is_read_whole() {
    let Some(mut trace) = data("replay/gold.pcap.xz") else { return };
    let info = Summary::of(&mut trace);
    assert_eq!((info.queries, info.clients, info.damage), (999, 1, None));
}

#[test]
fn every_wrapping_gives_the_same_message() {
    let packet = udp(&query(7));
    let before = |header: &[u8]| [header, &packet].concat();
    let ethernet = |types: &[u8]| before(&[&[0; 12], types].concat());
    let sll = |length: usize, at: usize, types: [u8; 2]| {
        let mut header = vec![0; length];
        header[at..at + 2].copy_from_slice(&types);
        before(&header)
    };
    let expected = Message {
        time: Duration::new(1_000, 5_000),
        client: CLIENT.into(),
        server: SERVER.into(),
        transport: Transport::Udp,
        octets: query(7),
    };
    for (link, packet) in [
        (1, ethernet(&[8, 0])),
        (1, ethernet(&[0x81, 0, 0, 1, 8, 0])),
        (1, ethernet(&[0x88, 0xa8, 0, 1, 0x81, 0, 0, 2, 8, 0])),
        (101, packet.clone()),
        (12, packet.clone()),
        (228, packet.clone()),
        (113, sll(16, 14, [8, 0])),
        (276, sll(20, 0, [8, 0])),
        (0, before(&[2, 0, 0, 0])),
        (108, before(&[0, 0, 0, 2])),
    ] {
        let packets = [packet];
        for file in [pcap(link, &packets), pcapng(link as u16, &packets)] {
            let (found, damage) = messages(&mut read(file));
            assert_eq!((found, damage), (vec![expected.clone()], None), "link type {link}");
        }
    }
}

#[test]
fn compression_is_taken_off() {
    let plain = pcap(101, &[udp(&query(1)), udp(&query(2))]);
    let mut gzip = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::fast());
    gzip.write_all(&plain).unwrap();
    let gzip = gzip.finish().unwrap();
    let zstd = ruzstd::encoding::compress_to_vec(&plain[..], ruzstd::encoding::CompressionLevel::Fastest);
    let frame = lz4_flex::frame::FrameInfo::new().content_checksum(true);
    let mut lz4 = lz4_flex::frame::FrameEncoder::with_frame_info(frame, Vec::new());
    lz4.write_all(&plain).unwrap();
    let lz4 = lz4.finish().unwrap();
    let (expected, _) = messages(&mut read(plain));
    for (name, packed) in [("gzip", gzip), ("zstd", zstd), ("lz4", lz4)] {
        assert_eq!(messages(&mut read(packed.clone())), (expected.clone(), None), "{name}");
        // A checksum that does not come: all is read, and that it may be wrong is told.
        let cut = packed[..packed.len() - 4].to_vec();
        let (found, damage) = messages(&mut read(cut));
        assert_eq!((found.len(), damage.map(|damage| damage.packet)), (2, Some(3)), "{name}");
    }
}

#[test]
fn a_section_may_say_more_of_itself_than_is_read_at_first() {
    for length in [4_000_u16, 5_000, 65_532] {
        let mut file = pcapng(101, &[udp(&query(7))]);
        // An option with a comment, and the end of options.
        let mut options = [[1, 0], length.to_le_bytes()].concat();
        options.resize(options.len() + usize::from(length), b'x');
        options.extend([0; 4]);
        let section = 28 + options.len();
        file.splice(24..24, options);
        for at in [4, section - 4] {
            file[at..][..4].copy_from_slice(&(section as u32).to_le_bytes());
        }
        let (found, damage) = messages(&mut read(file));
        assert_eq!((found.len(), damage), (1, None), "{length} octets");
    }
    let mut file = pcapng(1, &[]);
    file[4..8].copy_from_slice(&(2_u32 << 20).to_le_bytes());
    let refused = Trace::read(Cursor::new(file), PORT).expect_err("it is too long").to_string();
    assert!(refused.contains("a block of more than"), "{refused}");
}

#[test]
fn numbers_may_be_big_endian() {
    let block = |kind: u32, body: &[u8]| {
        let length = (body.len() as u32 + 12).to_be_bytes();
        [&kind.to_be_bytes()[..], &length, body, &length].concat()
    };
    let words = |words: &[u32]| words.iter().flat_map(|word| word.to_be_bytes()).collect::<Vec<u8>>();
    let section = words(&[0x1a2b_3c4d, 0x0001_0000, u32::MAX, u32::MAX]);
    // The link type and no limit; microseconds since ten seconds after 1970.
    let interface = words(&[101 << 16, 0, 9 << 16 | 1, 6 << 24, 14 << 16 | 8, 0, 10, 0]);
    let octets = udp(&query(7));
    let length = octets.len() as u32;
    let mut packet = [words(&[0, 0, 1_500_000, length, length]), octets].concat();
    packet.resize(packet.len().next_multiple_of(4), 0);
    let file = [block(0x0a0d_0d0a, &section), block(1, &interface), block(6, &packet)].concat();
    let (found, damage) = messages(&mut read(file));
    let times: Vec<Duration> = found.iter().map(|message| message.time).collect();
    assert_eq!((times, damage), (vec![Duration::from_millis(11_500)], None));
}

/// A pcapng file with these blocks behind its section and an interface of raw IP with nanoseconds; in either byte
/// order.
fn blocks(is_big_endian: bool, blocks: &[(u32, Vec<u8>)]) -> Vec<u8> {
    let word = |word: u32| if is_big_endian { word.to_be_bytes() } else { word.to_le_bytes() };
    let half = |half: u16| if is_big_endian { half.to_be_bytes() } else { half.to_le_bytes() };
    let section = [word(0x1a2b_3c4d).as_slice(), &half(1), &half(0), &[0xff; 8]].concat();
    let interface =
        [&half(101), &half(0), &word(0)[..], &half(9), &half(1), &[9, 0, 0, 0], &half(0), &half(0)].concat();
    let first = [(0x0a0d_0d0a, section), (1, interface)];
    let framed = first.iter().chain(blocks).map(|(kind, body)| {
        let length = word(body.len() as u32 + 12);
        [&word(*kind)[..], &length, body, &length].concat()
    });
    framed.collect::<Vec<_>>().concat()
}

/// The body of a Packet Block, as pcapng had it first, with drops that nobody counted and an option behind the
/// packet.
fn packet_block(is_big_endian: bool, interface: u16, packet: &[u8], lengths: [u32; 2]) -> Vec<u8> {
    let word = |word: u32| if is_big_endian { word.to_be_bytes() } else { word.to_le_bytes() };
    let half = |half: u16| if is_big_endian { half.to_be_bytes() } else { half.to_le_bytes() };
    let ticks = 7_000_000_009_u64;
    let mut body = [half(interface), half(u16::MAX)].concat();
    for field in [(ticks >> 32) as u32, ticks as u32, lengths[0], lengths[1]] {
        body.extend(word(field));
    }
    body.extend(packet);
    body.resize(body.len().next_multiple_of(4), 0);
    body.extend([half(2), half(4), [0; 2], [0; 2], half(0), half(0)].concat());
    body
}

#[test]
fn packets_in_blocks_of_the_first_pcapng_are_read() {
    for is_big_endian in [false, true] {
        let packet = udp(&query(7));
        let length = packet.len() as u32;
        let whole = packet_block(is_big_endian, 0, &packet, [length; 2]);
        let cut = packet_block(is_big_endian, 0, &packet[..30], [30, length]);
        let mut trace = read(blocks(is_big_endian, &[(2, whole), (2, cut)]));
        let (found, damage) = messages(&mut trace);
        let found: Vec<_> = found.iter().map(|message| (message.time, &message.octets[..2])).collect();
        assert_eq!((found, damage), (vec![(Duration::new(7, 9), &[0, 7][..])], None));
        assert_eq!(trace.skipped().iter().collect::<Vec<_>>(), [(Skip::Cut, 1)]);
        assert_eq!(trace.packets(), 2);
    }
}

#[test]
fn a_packet_block_that_cannot_be_one_is_told() {
    let packet = udp(&query(7));
    let length = packet.len() as u32;
    let block = |interface, captured| packet_block(false, interface, &packet, [captured, length]);
    let damage = |body: Vec<u8>| messages(&mut read(blocks(false, &[(2, body)]))).1.map(|damage| damage.what);
    let whole = block(0, length);
    for shorter in (0..20 + packet.len()).step_by(4) {
        let what = damage(whole[..shorter].to_vec()).expect("it is too short");
        assert!(what.contains("longer than its block"), "{what}");
    }
    // Only its options are cut.
    assert_eq!(damage(whole[..20 + packet.len().next_multiple_of(4)].to_vec()), None);
    for captured in [length + 400, u32::MAX] {
        assert!(damage(block(0, captured)).expect("it is too long").contains("longer than its block"));
    }
    assert!(damage(block(1, length)).expect("there is one").contains("of no interface"));
}

#[test]
fn blocks_of_unknown_types_are_counted() {
    let packet = packet_block(false, 0, &udp(&query(7)), [udp(&query(7)).len() as u32; 2]);
    // Statistics are known, and have no packet.
    let all = [(0x7fff_0001, vec![1; 8]), (5, vec![0; 12]), (2, packet), (0x204, vec![])];
    let mut trace = read(blocks(false, &all));
    let (found, damage) = messages(&mut trace);
    assert_eq!((found.len(), damage, trace.packets()), (1, None, 1));
    assert_eq!(trace.skipped().iter().collect::<Vec<_>>(), [(Skip::Block, 2)]);
}

#[test]
fn what_the_capturing_program_has_dropped_is_counted() {
    for is_big_endian in [false, true] {
        let half = |half: u16| if is_big_endian { half.to_be_bytes() } else { half.to_le_bytes() };
        let long = |long: u64| if is_big_endian { long.to_be_bytes() } else { long.to_le_bytes() };
        // Of an interface, by itself and by the system; so far.
        let statistics = |interface: u8, dropped: [u64; 2]| {
            let mut body = vec![0; 12];
            body[if is_big_endian { 3 } else { 0 }] = interface;
            for (option, count) in [5, 7].into_iter().zip(dropped) {
                body.extend([&half(option)[..], &half(8), &long(count)].concat());
            }
            body.extend([0; 4]);
            (5, body)
        };
        let packet = (2, packet_block(is_big_endian, 0, &udp(&query(7)), [udp(&query(7)).len() as u32; 2]));
        let read = |all: &[_]| {
            let mut trace = read(blocks(is_big_endian, all));
            let (found, damage) = messages(&mut trace);
            (found.len(), damage.map(|damage| damage.what), trace.skipped().iter().collect::<Vec<_>>())
        };
        let told = read(&[statistics(0, [3, 4]), packet.clone(), statistics(0, [3, 9])]);
        assert_eq!(told, (1, None, vec![(Skip::Dropped, 12)]));
        assert_eq!(read(&[packet.clone(), statistics(0, [0, 0])]), (1, None, vec![]));
        // A number that cannot be is no reason to fail.
        let told = read(&[statistics(0, [u64::MAX; 2]), packet.clone(), statistics(0, [0, 0])]);
        assert_eq!((told.0, told.2), (1, vec![(Skip::Dropped, 1 << 48)]));
        assert_eq!(read(&[packet.clone(), statistics(1, [1, 0])]), (1, None, vec![]));
    }
}

#[test]
fn a_block_of_a_process_that_is_shorter_than_its_frame_is_told() {
    for length in [0_u32, 11, 12] {
        let mut file = pcapng(1, &[]);
        let offset = file.len() as u64;
        for word in [0x8000_0001, length, 0, 0] {
            file.extend(word.to_le_bytes());
        }
        let (found, damage) = messages(&mut read(file));
        let damage = damage.map(|damage| (damage.packet, damage.offset));
        assert_eq!((found, damage), (Vec::new(), Some((1, offset))), "{length} octets");
    }
}

#[test]
fn xz_is_taken_off_too() {
    // Two lines by `xz` itself.
    let packed = b"\
        \xfd\x37\x7a\x58\x5a\x00\x00\x01\x69\x22\xde\x36\x02\x00\x21\x01\x00\x00\x00\x00\x37\x27\x97\xd6\
        \xe0\x00\x35\x00\x25\x5d\x00\x18\x8b\x82\x64\x49\x9f\x21\xa6\x38\xf4\x66\x7a\xb6\x75\x3c\xbb\x12\
        \x44\x89\xe9\x9e\xbf\xe6\x3b\xc5\xf1\xae\x13\x2c\xc7\x63\x6a\x40\xfb\xc2\x00\x00\x00\x00\x00\x00\
        \x74\x77\x04\xed\x00\x01\x3d\x36\x0c\x68\xd4\x85\x90\x42\x99\x0d\x01\x00\x00\x00\x00\x01\x59\x5a";
    let (found, damage) = messages(&mut read(packed.to_vec()));
    assert_eq!((found.len(), damage), (2, None));
    for length in [packed.len() - 4, packed.len() - 20] {
        let (found, damage) = messages(&mut read(packed[..length].to_vec()));
        assert_eq!((found.len(), damage.map(|damage| damage.packet)), (2, Some(3)), "{length}");
    }
    let mut changed = packed.to_vec();
    // The checksum of the two lines, before the index and the footer.
    changed[packed.len() - 24] ^= 1;
    assert!(messages(&mut read(changed)).1.is_some());
    // A window of 4 GiB in the block's header, with that header's checksum.
    let mut vast = packed.to_vec();
    vast[16] = 40;
    vast[20..24].copy_from_slice(&[0xe6, 0xa0, 0x11, 0xb3]);
    assert!(matches!(Trace::read(Cursor::new(vast), PORT), Err(Error::Io(_))));
}

#[test]
fn a_line_that_the_compression_breaks_off_in_is_none() {
    let lines = "a.example. AAAA\n".repeat(400);
    let mut gzip = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::none());
    gzip.write_all(lines.as_bytes()).unwrap();
    let gzip = gzip.finish().unwrap();
    for length in 100..132 {
        let (found, damage) = messages(&mut read(gzip[..length].to_vec()));
        let damage = damage.expect("it breaks off");
        assert!(found.iter().all(|query| query.octets.ends_with(b"\0\x1c\0\x01")), "{length}: not AAAA");
        assert_eq!(damage.packet, found.len() as u64 + 1);
        assert!(!damage.what.contains("type") && !damage.what.contains("expected TIME"), "{}", damage.what);
    }
}

#[test]
fn what_gives_no_message_is_counted_by_cause() {
    let mut other_port = udp(&query(1));
    other_port[22..24].copy_from_slice(&54_u16.to_be_bytes());
    let mut response = query(1);
    response[2] |= 0x80;
    let cut = udp(&query(1))[..30].to_vec();
    let mut icmp = udp(&query(1));
    icmp[9] = 1;
    let packets =
        [other_port, udp(&response), cut, icmp, udp(b"short"), vec![0x50], vec![0x45, 0], tcp(1, false, b"")];
    let (found, skipped) = ids(&packets);
    assert_eq!(found, Vec::<u16>::new());
    let expected = [
        (Skip::Network, 1),
        (Skip::Broken, 1),
        (Skip::Protocol, 1),
        (Skip::OtherPort, 1),
        (Skip::Cut, 1),
        (Skip::NotDns, 1),
        (Skip::WrongWay, 1),
        (Skip::NoData, 1),
    ];
    assert_eq!(skipped.iter().collect::<Vec<_>>(), expected);
    let mut unknown = read(pcap(147, &[udp(&query(1))]));
    assert_eq!(messages(&mut unknown), (vec![], None));
    assert_eq!(unknown.skipped().of(Skip::Link), 1);
}

/// Captures of one packet, of which so many octets were kept.
fn snapped(packet: &[u8], kept: usize) -> [Vec<u8>; 2] {
    let length = (packet.len() as u32).to_le_bytes();
    let packets = [packet[..kept].to_vec()];
    let (mut pcap, mut pcapng) = (pcap(101, &packets), pcapng(101, &packets));
    pcap[36..40].copy_from_slice(&length);
    let at = pcapng.len() - 4 - kept.next_multiple_of(4) - 4;
    pcapng[at..at + 4].copy_from_slice(&length);
    [pcap, pcapng]
}

#[test]
fn what_the_snap_length_cut_is_counted_as_that_wherever_it_was_cut() {
    let (datagram, segment) = (udp(&query(1)), tcp(1, false, &framed(&query(1))));
    let cuts = |packet| (0..Vec::len(packet)).map(move |kept| (packet, kept));
    for (packet, kept) in cuts(&datagram).chain(cuts(&segment)) {
        for file in snapped(packet, kept) {
            let mut trace = read(file);
            assert_eq!(messages(&mut trace), (vec![], None));
            // Where a message begins in it, that has no end either.
            let skipped = trace.skipped().iter().filter(|(skip, _)| *skip != Skip::Unfinished);
            assert_eq!(skipped.collect::<Vec<_>>(), [(Skip::Cut, 1)], "{kept} of {}", packet.len());
        }
    }
    // One that is ahead of what is missing in its stream is counted once, too.
    let ahead = tcp(200, false, &framed(&query(1)));
    let (found, skipped) = ids(&[tcp(99, true, b""), ahead[..45].to_vec()]);
    assert_eq!(found, Vec::<u16>::new());
    assert_eq!(skipped.iter().collect::<Vec<_>>(), [(Skip::Cut, 1), (Skip::NoData, 1), (Skip::Gap, 1)]);
}

#[test]
fn fragments_become_whole_in_any_order() {
    let whole = udp(&[query(9), vec![0; 100]].concat());
    let piece = |from: usize, to: usize, more: bool| {
        let mut packet = [&whole[..20], &whole[20 + from..20 + to]].concat();
        packet[2..4].copy_from_slice(&((20 + to - from) as u16).to_be_bytes());
        let offset = (from / 8) as u16 | u16::from(more) << 13;
        packet[6..8].copy_from_slice(&offset.to_be_bytes());
        packet
    };
    let pieces = [piece(0, 48, true), piece(48, 96, true), piece(96, whole.len() - 20, false)];
    for order in [[0, 1, 2], [2, 1, 0], [1, 0, 2]] {
        let (found, skipped) = ids(&order.map(|index| pieces[index].clone()));
        assert_eq!((found, skipped.iter().next()), (vec![9], None), "{order:?}");
    }
    let (found, skipped) = ids(&pieces[..2]);
    assert_eq!((found, skipped.of(Skip::Fragment)), (vec![], 2));

    // The same over IPv6, where a header of its own says which piece it is.
    let mut whole = Vec::new();
    let builder = PacketBuilder::ipv6([1; 16], [2; 16], 64).udp(CLIENT.1, SERVER.1);
    builder.write(&mut whole, &[query(9), vec![0; 100]].concat()).expect("it fits");
    let (header, datagram) = whole.split_at(40);
    // Options for the destination may stand before what is cut into pieces.
    let options = [17, 0, 1, 4, 0, 0, 0, 0];
    for (protocol, whole) in [(17, datagram.to_vec()), (60, [&options, datagram].concat())] {
        let piece = |from: usize, to: usize, more: bool| {
            let place = (from as u16 | u16::from(more)).to_be_bytes();
            let fragment = [protocol, 0, place[0], place[1], 0, 0, 0, 7];
            let mut packet = [header, &fragment, &whole[from..to]].concat();
            packet[4..6].copy_from_slice(&((8 + to - from) as u16).to_be_bytes());
            packet[6] = 44;
            packet
        };
        let pieces = [piece(0, 48, true), piece(48, 96, true), piece(96, whole.len(), false)];
        for order in [[0, 1, 2], [2, 0, 1]] {
            let (found, skipped) = ids(&order.map(|index| pieces[index].clone()));
            assert_eq!((found, skipped.iter().next()), (vec![9], None), "{order:?} of {protocol} over IPv6");
        }
    }
}

#[test]
fn a_stream_is_put_in_order() {
    let octets: Vec<u8> = (1..=3).flat_map(|id| framed(&query(id))).collect();
    // Near the end of sequence numbers, so that they begin anew within the stream.
    let first = u32::MAX - 10;
    let at = |from: usize, to: usize| tcp(first.wrapping_add(1 + from as u32), false, &octets[from..to]);
    let syn = tcp(first, true, b"");
    let end = octets.len();
    let cases: [&[(usize, usize)]; 6] = [
        &[(0, end)],
        &[(0, 1), (1, 30), (30, end)],
        &[(30, end), (0, 30)],
        &[(40, end), (20, 40), (0, 20)],
        &[(0, 30), (10, 40), (0, end)],
        &[(0, 30), (0, 30), (30, end), (40, end)],
    ];
    for pieces in cases {
        let mut packets = vec![syn.clone()];
        packets.extend(pieces.iter().map(|(from, to)| at(*from, *to)));
        packets.push(syn.clone());
        let (found, skipped) = ids(&packets);
        assert_eq!(found, [1, 2, 3], "{pieces:?}");
        assert_eq!((skipped.of(Skip::Stream), skipped.of(Skip::Unfinished)), (0, 0), "{pieces:?}");
    }
    // Without its start, a stream is read from where a message begins.
    let (found, skipped) = ids(&[at(5, 23), at(23, 46), at(46, end)]);
    assert_eq!((found, skipped.of(Skip::Stream)), (vec![2, 3], 1));
    // What breaks off is counted, and so is what is of no use behind what never comes.
    let (found, skipped) = ids(&[syn.clone(), at(0, 30), at(50, end)]);
    assert_eq!((found, skipped.of(Skip::AfterGap), skipped.of(Skip::Unfinished)), (vec![1], 1, 1));
    // Another SYN is another connection on the same ports.
    let again = tcp(77, true, b"");
    let (found, _) = ids(&[syn, at(0, 23), again, tcp(78, false, &octets[23..46])]);
    assert_eq!(found, [1, 2]);
    // Numbers far below are another connection's, too, whose SYN is not in the capture; those just below came again.
    let (found, skipped) = ids(&[
        tcp(100_000, true, b""),
        tcp(100_001, false, &octets[..30]),
        tcp(78, false, &octets[..23]),
        tcp(101, false, &octets[23..46]),
        tcp(78, false, &octets[..23]),
    ]);
    let told = (skipped.of(Skip::Repeated), skipped.of(Skip::Unfinished));
    assert_eq!((found, told), (vec![1, 1, 2], (1, 1)));
}

#[test]
fn behind_a_gap_a_stream_goes_on_where_a_message_begins() {
    // Each query is a segment of its own; those numbered here are missing. 300 are more than may be ahead of a gap.
    for (count, missing, is_split, gaps) in [
        (60, &[1_usize][..], false, 1),
        (60, &[0], false, 1),
        (60, &[0, 1, 30, 59], false, 2),
        (300, &[1], false, 1),
        (300, &[1, 2, 150, 290], false, 3),
        (60, &[1], true, 1),
    ] {
        let octets: Vec<u8> = (0..count).flat_map(|id| framed(&query(id))).collect();
        let length = octets.len() / usize::from(count);
        let first = u32::MAX - 100;
        let mut packets = vec![tcp(first, true, b"")];
        for (at, segment) in octets.chunks(length).enumerate().filter(|(at, _)| !missing.contains(at)) {
            let sequence = first.wrapping_add(1 + (at * length) as u32);
            // Of one message the beginning is missing, too.
            let cut = if is_split && at == missing[0] + 1 { 5 } else { 0 };
            packets.push(tcp(sequence.wrapping_add(cut as u32), false, &segment[cut..]));
        }
        let gone = |id: &u16| missing.contains(&usize::from(*id)) || is_split && *id == 2;
        let expected: Vec<u16> = (0..count).filter(|id| !gone(id)).collect();
        let (found, skipped) = ids(&packets);
        assert_eq!(found, expected, "{count} without {missing:?}");
        let told = [Skip::Gap, Skip::AfterGap, Skip::Unfinished].map(|skip| skipped.of(skip));
        assert_eq!(told, [gaps, u64::from(is_split), 0], "{count} without {missing:?}");
        // The same before damage, which is told last.
        let mut file = pcap(101, &packets);
        file.extend([0; 5]);
        let (found, damage) = messages(&mut read(file));
        assert_eq!((found.len(), damage.is_some()), (expected.len(), true));
    }
    // Several streams that end together do so in one order.
    let of = |port: u16, sequence, is_first, payload: &[u8]| {
        let mut packet = tcp(sequence, is_first, payload);
        packet[20..22].copy_from_slice(&port.to_be_bytes());
        packet
    };
    let packets: Vec<Vec<u8>> = (1..=50)
        .rev()
        .flat_map(|port| [of(port, 0, true, b""), of(port, 100, false, &framed(&query(port)))])
        .collect();
    assert_eq!(ids(&packets).0, (1..=50).collect::<Vec<u16>>());
}

#[test]
fn what_is_missing_in_a_stream_is_waited_for_up_to_a_second() {
    // What of a stream was captured when, and what is read: ids with the times of their messages, in milliseconds.
    let check = |packets: &[(u32, Vec<u8>)], expected: &[(u16, u64)]| {
        let syn = tcp(0, true, b"");
        let packets = std::iter::once((0, &syn)).chain(packets.iter().map(|(at, packet)| (*at, packet)));
        let (found, damage) = messages(&mut read(pcap_at(101, packets)));
        let seen = |message: &Message| {
            let id = u16::from_be_bytes([message.octets[0], message.octets[1]]);
            (id, message.time.as_millis() as u64 - 1_000_000)
        };
        assert_eq!((found.iter().map(seen).collect::<Vec<_>>(), damage), (expected.to_vec(), None));
        let mut timeline = Timeline::default();
        for message in found {
            timeline.place(message.time);
        }
        assert_eq!(timeline.jumps, 0, "no clock was set");
    };
    let segment = |id: u16| tcp(1 + u32::from(id) * 23, false, &framed(&query(id)));
    let other = |id: u16| udp(&query(id));
    // It never comes: those behind it have their own times.
    check(
        &[(20, segment(0)), (30, segment(2)), (900, other(9)), (1_031, other(10))],
        &[(0, 20), (9, 900), (2, 30), (10, 1_031)],
    );
    check(&[(20, segment(0)), (30, segment(2)), (900, other(9))], &[(0, 20), (9, 900), (2, 30)]);
    // It comes in time: all behind it is whole then.
    check(
        &[(20, segment(1)), (30, segment(2)), (900, segment(0)), (2_000, other(9))],
        &[(0, 900), (1, 900), (2, 900), (9, 2_000)],
    );
    // What is missing later is waited for anew.
    check(
        &[(20, segment(1)), (800, segment(3)), (1_200, segment(2)), (1_300, other(9))],
        &[(1, 20), (2, 1_200), (3, 1_200), (9, 1_300)],
    );
}

#[test]
fn gaps_that_are_waited_for_are_bounded() {
    // All at once, each of another stream; the last is the first in the order in which streams end together.
    let count = 70_000_u32;
    let segment = |client: u32, sequence, is_first, payload: &[u8]| {
        let mut packet = Vec::new();
        let address = (u32::MAX - client).to_be_bytes();
        let builder = PacketBuilder::ipv4(address, SERVER.0, 64).tcp(CLIENT.1, 53, sequence, 1);
        let builder = if is_first { builder.syn() } else { builder };
        builder.write(&mut packet, payload).expect("it fits");
        packet
    };
    let packets: Vec<Vec<u8>> = (1..=count)
        .flat_map(|client| {
            let early = framed(&query(client as u16));
            [segment(client, 0, true, b""), segment(client, 100, false, &early)]
        })
        .collect();
    let mut trace = read(pcap_at(101, packets.iter().map(|packet| (0, packet))));
    let found = messages(&mut trace).0;
    let ids = found.iter().map(|message| u16::from_be_bytes([message.octets[0], message.octets[1]]));
    assert_eq!(found.len(), count as usize);
    // What is beyond the limit when the next packet comes is told then.
    assert!(ids.take(4_463).eq(1..=4_463));
}

#[test]
fn a_trace_that_breaks_off_gives_what_stands_before() {
    let file = pcap(101, &[udp(&query(1)), udp(&query(2)), udp(&query(3))]);
    let record = 16 + udp(&query(1)).len();
    let (found, damage) = messages(&mut read(file[..file.len() - 3].to_vec()));
    assert_eq!(found.len(), 2);
    let damage = damage.expect("the last packet is not whole");
    assert_eq!((damage.packet, damage.offset), (3, 24 + 2 * record as u64));
    assert_eq!(damage.what, "the file ends within this block");

    // A block may be larger than the buffer is at first.
    let (found, damage) = messages(&mut read(pcap(101, &[vec![0x50; 200_000], udp(&query(1))])));
    assert_eq!((found.len(), damage), (1, None));

    let mut huge = file;
    huge[24 + record + 8..24 + record + 12].copy_from_slice(&u32::MAX.to_le_bytes());
    let (found, damage) = messages(&mut read(huge));
    assert_eq!((found.len(), damage.map(|damage| damage.packet)), (1, Some(2)));
}

#[test]
fn a_written_capture_reads_back_the_same() {
    let from: [(SocketAddr, SocketAddr); 2] = [
        (CLIENT.into(), SERVER.into()),
        ("[2001:db8::1]:99".parse().unwrap(), "[2001:db8::53]:53".parse().unwrap()),
    ];
    let mut sent = Vec::new();
    for (second, (client, server)) in (0..).zip(from) {
        for transport in [Transport::Udp, Transport::Tcp, Transport::Tcp] {
            let time = Duration::new(1_000 + second, 123_456_789);
            sent.push(Message { time, client, server, transport, octets: query(second as u16) });
            let mut octets = [query(5), vec![0; 40_000]].concat();
            octets[2] |= 0x80;
            sent.push(Message { time, client, server, transport, octets });
        }
    }
    let mut longest = sent[2].clone();
    longest.octets.resize(65_535, 0);
    sent.push(longest);
    let mut writer = pcap::Writer::new(Vec::new()).unwrap();
    for message in &sent {
        writer.write(message).unwrap();
    }
    let file = writer.finish().unwrap();
    let mut trace = read(file);
    assert_eq!(messages(&mut trace), (sent, None));
    assert_eq!(trace.skipped().iter().map(|(skip, _)| skip).collect::<Vec<_>>(), [Skip::NoData]);
}

/// A capture without an end: streams that never finish a message, datagrams that never become whole.
struct Endless {
    rng: fastrand::Rng,
    left: usize,
    packet: Cursor<Vec<u8>>,
}

impl Read for Endless {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        if self.packet.position() == self.packet.get_ref().len() as u64 {
            let Some(left) = self.left.checked_sub(1) else { return Ok(0) };
            self.left = left;
            let client = self.rng.u32(..).to_be_bytes();
            let mut packet = Vec::new();
            let payload = [u8::MAX; 1_400];
            if self.rng.bool() {
                let sequence = self.rng.u32(..);
                let builder = PacketBuilder::ipv4(client, SERVER.0, 64).tcp(CLIENT.1, 53, sequence, 1).syn();
                builder.write(&mut packet, &payload).expect("it fits");
            } else {
                let builder = PacketBuilder::ipv4(client, SERVER.0, 64).udp(CLIENT.1, 53);
                builder.write(&mut packet, &payload).expect("it fits");
                // A fragment near the end of the longest datagram.
                packet[6..8].copy_from_slice(&0x3f00_u16.to_be_bytes());
                packet.truncate(20 + 1_400);
                packet[2..4].copy_from_slice(&1_420_u16.to_be_bytes());
            }
            let record = pcap(101, &[packet]).split_off(24);
            self.packet = Cursor::new(record);
        }
        self.packet.read(buffer)
    }
}

#[test]
fn memory_does_not_grow_with_the_trace() {
    let held = |packets: usize| {
        let header = Cursor::new(pcap(101, &[]));
        let endless = Endless { rng: fastrand::Rng::with_seed(1), left: packets, packet: Cursor::default() };
        let mut trace = Trace::read(header.chain(endless), PORT).expect("the header is right");
        let Input::Capture(capture) = &mut trace.input else { panic!("it is a capture") };
        let mut most = 0;
        while capture.next(|packet| trace.dissector.packet(packet.expect("it is read"))) == Ok(true) {
            if capture.packets().is_multiple_of(1_000) {
                most = most.max(trace.dissector.fragments.held() + trace.dissector.streams.held());
            }
        }
        assert_eq!(capture.packets(), packets as u64);
        assert!(trace.dissector.ready.is_empty());
        most
    };
    let limit = (64 << 20) + 2 * 256 * (64 << 10) * 2;
    assert!(held(150_000) <= limit);
}

proptest! {
    #[test]
    fn no_damage_makes_a_reader_panic(
        kind in 0..3,
        changes in proptest::collection::vec((any::<prop::sample::Index>(), any::<u8>()), 0..20),
        length in any::<prop::sample::Index>(),
    ) {
        let packets = [udp(&query(1)), tcp(1, true, b""), tcp(2, false, &framed(&query(2)))];
        let mut file = match kind {
            0 => pcap(101, &packets),
            1 => pcapng(101, &packets),
            _ => {
                let body = |packet: &Vec<u8>| packet_block(false, 0, packet, [packet.len() as u32; 2]);
                blocks(false, &packets.each_ref().map(|packet| (2, body(packet))))
            }
        };
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

#[test]
fn what_a_pcap_file_has_no_room_for_leaves_nothing_in_it() {
    let lines = b"4294967296 192.0.2.1:5353 tcp a. A -\n\
                  4294967296 192.0.2.1:5353 udp b. A -\n\
                  4294967295 192.0.2.1:5353 tcp c. A -\n";
    let messages: Vec<Message> = read(lines.to_vec()).map(|message| message.expect("a query")).collect();
    let mut writer = pcap::Writer::new(Vec::new()).unwrap();
    let written: Vec<bool> = messages.iter().map(|message| writer.write(message).is_ok()).collect();
    assert_eq!(written, [false, false, true]);
    let again: Vec<Message> =
        read(writer.finish().unwrap()).map(|message| message.expect("a query")).collect();
    assert_eq!(again.len(), 1);
    assert_eq!((again[0].time, &again[0].octets), (messages[2].time, &messages[2].octets));
}

#[test]
fn no_stream_in_a_written_capture_is_taken_for_one_before() {
    // One client's two queries, with as many of another between them as come with a power of two.
    let lines = (0..=1_u32 << 15).map(|at| {
        let client = if at == 0 || at == 1 << 15 { 1 } else { 2 };
        format!("10.{at:09} 192.0.2.{client}:5353 tcp a. A -\n")
    });
    let sent = messages(&mut read(lines.collect::<String>().into_bytes())).0;
    let mut writer = pcap::Writer::new(Vec::new()).unwrap();
    sent.iter().for_each(|message| writer.write(message).unwrap());
    let mut trace = read(writer.finish().unwrap());
    assert_eq!(messages(&mut trace).0.len(), sent.len(), "{:?}", trace.skipped());
}

#[test]
fn a_stretch_without_messages_is_read_in_steps() {
    let lines = "#\n".repeat(3 * STEP_MAX) + "a. A\n";
    let mut trace = read(lines.into_bytes());
    for _ in 0..3 {
        assert_eq!(trace.step(), Some(Ok(None)));
    }
    assert!(matches!(trace.step(), Some(Ok(Some(_)))));
    assert_eq!((trace.packets(), trace.step()), (3 * STEP_MAX as u64 + 1, None));
}
