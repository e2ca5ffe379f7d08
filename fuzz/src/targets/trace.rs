//! Recorded traffic: captures, C-DNS, dnstap, texts of queries; packed ones; and queries that are changed.

use std::io::{Cursor, Write as _};

use dns::dnstap::{Dnstap, Kind, Message as Seen, Protocol, Time};
use dns::frame_streams::{Control, DNSTAP, push_control, push_payload};
use replay::compare::Verdict;
use replay::mutate::{Mutation, Outcome};
use replay::trace::pcap::Writer;
use replay::trace::{Message, PORT, Summary, Trace, Transport, text};

/// A trace is read to its end or to a place in it; what is read writes and reads back.
pub(super) fn trace(octets: &[u8]) {
    let Ok(mut trace) = Trace::read(Cursor::new(octets.to_vec()), PORT) else { return };
    let mut summary = Summary::default();
    let mut packets = Writer::new(Vec::new()).expect("memory takes it");
    let (mut damage, mut written) = (None, 0);
    for message in trace.by_ref() {
        match message {
            Ok(message) => {
                summary.add(&message);
                if let Some(line) = text::line(&message) {
                    read_again(line.into_bytes(), 1);
                }
                // What has its own word for a server's port may have another than the capture is read for.
                if message.server.port() == PORT {
                    written += u64::from(packets.write(&message).is_ok());
                }
            }
            Err(found) => damage = Some(found),
        }
    }
    let info = summary.told(&trace, damage);
    assert!([info.gap_mean_seconds, info.gap_deviation_seconds].into_iter().flatten().all(f64::is_finite));
    read_again(packets.finish().expect("memory takes it"), written);
}

fn read_again(file: Vec<u8>, expected: u64) {
    let again = Trace::read(Cursor::new(file), PORT).expect("it was written by us");
    let messages: Vec<Message> = again.map(|message| message.expect("it was written by us")).collect();
    assert_eq!(messages.len() as u64, expected);
}

/// A text, and the same queries as packets, plain and cut.
pub(super) fn traces() -> Vec<Vec<u8>> {
    let lines = "10.5 192.0.2.1:5353 udp www.Example. A rd,edns=1232,do\n\
                 11 [2001:db8::1]:99 tcp a\\.b. TYPE65280 -\n";
    let messages = Trace::read(Cursor::new(lines.as_bytes()), PORT).expect("lines");
    let messages: Vec<Message> = messages.map(|message| message.expect("a query")).collect();
    let packets = |transport: Transport| {
        let mut packets = Writer::new(Vec::new()).expect("memory takes it");
        for message in &messages {
            packets.write(&Message { transport, ..message.clone() }).expect("memory takes it");
        }
        packets.finish().expect("memory takes it")
    };
    vec![
        lines.into(),
        b"www.example. A\nexample. MX\n".to_vec(),
        packets(Transport::Udp),
        packets(Transport::Tcp),
        pcapng(),
    ]
}

/// A section, an Ethernet interface with nanoseconds, and a packet with a VLAN tag and one fragment.
fn pcapng() -> Vec<u8> {
    let block = |kind: u32, body: &[u8]| {
        let length = (body.len() as u32 + 12).to_le_bytes();
        [&kind.to_le_bytes(), &length, body, &length].concat()
    };
    let section = [0x4d, 0x3c, 0x2b, 0x1a, 1, 0, 0, 0, 255, 255, 255, 255, 255, 255, 255, 255];
    let interface = [1, 0, 0, 0, 0, 0, 4, 0, 9, 0, 1, 0, 9, 0, 0, 0, 0, 0, 0, 0];
    let mut packet = vec![0; 12];
    packet.extend([0x81, 0, 0, 1, 8, 0]);
    packet.extend([0x45, 0, 0, 36, 0, 1, 0x20, 0, 64, 17, 0, 0, 192, 0, 2, 1, 192, 0, 2, 53]);
    packet.extend([0x13, 0x88, 0, 53, 0, 40, 0, 0, 0, 1, 1, 0, 0, 1, 0, 0]);
    let mut body = vec![0; 12];
    body.extend([packet.len() as u8, 0, 0, 0, packet.len() as u8, 0, 0, 0]);
    body.extend(&packet);
    body.resize(body.len().next_multiple_of(4), 0);
    [block(0x0a0d_0d0a, &section), block(1, &interface), block(6, &body)].concat()
}

/// A file of C-DNS: a query with EDNS and two questions, its response with two records, a response alone, and a
/// malformed message. The blocks stand in an array of told length.
pub(super) fn cdns() -> Vec<Vec<u8>> {
    const FILE: &str = "\
    8365432d444e53a3000101000381a100a2001903e80119138881a400a100821903e81901f402a8008244c00002014420\
    010db80182a200010101a20018290119100002854503577777004301610045000a0001ff44c000020941000382aa0000\
    0118350202040f0619509008000d000e1904d00f021003a40201040208001005048181000581a2000101000682810081\
    010782a40000010002183c0303a300040101021980000382a90018fa0100021914e903070400060207000ba100000ca2\
    01000301a6001864010104010701020903080581a10003";
    vec![crate::from_hex(FILE).expect("hexadecimal digits")]
}

/// A file of dnstap: a query, and a response with another query.
pub(super) fn dnstap() -> Vec<Vec<u8>> {
    let mut response = QUERY.to_vec();
    response[2] |= 0x80;
    let time = Some(Time { seconds: 10, nanoseconds: 5 });
    let query = Seen {
        kind: Kind::AUTH_QUERY,
        protocol: Some(Protocol::Udp),
        query_address: Some([192, 0, 2, 1].into()),
        response_address: Some([192, 0, 2, 53].into()),
        query_port: Some(5_353),
        response_port: Some(PORT),
        query_time: time,
        query: Some(QUERY),
        ..Seen::default()
    };
    let answered =
        Seen { kind: Kind::AUTH_RESPONSE, response_time: time, response: Some(&response), ..query };
    let files = [[query, answered], [answered, answered]].map(|seen| {
        let mut file = Vec::new();
        push_control(&mut file, Control::Start, Some(DNSTAP));
        for message in seen {
            let dnstap = Dnstap { message, ..Dnstap::default() };
            push_payload(&mut file, |out| dnstap.write(out));
        }
        push_control(&mut file, Control::Stop, None);
        file
    });
    files.into()
}

/// The first text in zstd and lz4, several frames each; in gzip and in xz with a window of 4 KiB.
pub(super) fn packed() -> Vec<Vec<u8>> {
    const GZIP: &str = "\
    1f8b080000000000020305c13d0e82401006d09e537c07c0c9cc6cd6b0935050d05bd818b500868e9f0d6ad6e3f39e30\
    4548526252128b2106fc3ca39442fd7f58f332133a1c5ecfbe7d5ad1a0b5ef95089eca2ce66363266f4b09df296378d1\
    48b83f6efd356ac3b854278e0132dc61000000";
    const XZ: &str = "\
    fd377a585a0000016922de360200210100000000372797d601006031302e35203139322e302e322e313a353335332075\
    6470207777772e4578616d706c652e20412072642c65646e733d313233322c646f0a3131205b323030313a6462383a3a\
    315d3a39392074637020615c2e622e20545950453635323830202d0a000000008e0132dc0001756156697b489042990d\
    010000000001595a";
    let of_others = [GZIP, XZ].map(|hex| crate::from_hex(hex).expect("hexadecimal digits"));
    let text = traces().swap_remove(0);
    let zstd = ruzstd::encoding::compress_to_vec(&text[..], ruzstd::encoding::CompressionLevel::Fastest);
    let mut lz4 = lz4_flex::frame::FrameEncoder::new(Vec::new());
    lz4.write_all(&text).expect("memory takes it");
    let lz4 = lz4.finish().expect("memory takes it");
    of_others.into_iter().chain([[&zstd[..], &zstd].concat(), [&lz4[..], &lz4].concat()]).collect()
}

/// A query for A of a name of one label.
const QUERY: &[u8] = b"\0\x01\x01\0\0\x01\0\0\0\0\0\0\x01a\0\0\x01\0\x01";

/// Two responses, the length of the first in front: it makes no difference which is held against which, and none
/// differs from itself.
pub(super) fn compare(octets: &[u8]) {
    let Some((recorded, given)) = net::framing::split_first(octets) else { return };
    let verdict = replay::compare::compare(recorded, given);
    assert_eq!(verdict, replay::compare::compare(given, recorded));
    for message in [recorded, given] {
        let same = replay::compare::compare(message, message);
        assert!(matches!(same, Verdict::Same | Verdict::Truncated | Verdict::Unreadable), "{same:?}");
    }
}

pub(super) fn compared() -> Vec<Vec<u8>> {
    // Of a.: an address; a referral with a compressed name; nothing, cut.
    let answer = b"\0\x01\x84\0\0\x01\0\x01\0\0\0\0\x01a\0\0\x01\0\x01\xc0\x0c\0\x01\0\x01\0\0\0\x3c\0\x04\xc0\0\x02\x01";
    let referral = b"\0\x01\x80\0\0\x01\0\0\0\x01\0\0\x01a\0\0\x01\0\x01\xc0\x0c\0\x02\0\x01\0\0\0\x3c\0\x05\x02NS\xc0\x0c";
    let cut = b"\0\x01\x86\0\0\x01\0\0\0\0\0\0\x01a\0\0\x01\0\x01";
    let messages = [&answer[..], referral, cut];
    let pair = |one: &[u8], other: &[u8]| [&net::framing::prefix(one.len())[..], one, other].concat();
    messages.iter().flat_map(|one| messages.map(|other| pair(one, other))).collect()
}

/// A list of changes, a zero octet and a message: what is read as changes is written and read as the same, and
/// a query stays one.
pub(super) fn mutate(octets: &[u8]) {
    let Some(end) = octets.iter().position(|octet| *octet == 0) else { return };
    let Ok(text) = str::from_utf8(&octets[..end]) else { return };
    let Ok(mutation) = Mutation::parse(text, 7) else { return };
    let words: Vec<String> = mutation.changes().iter().map(ToString::to_string).collect();
    let again = Mutation::parse(&words.join(","), 7).expect("it was written by us");
    let again: Vec<String> = again.changes().iter().map(ToString::to_string).collect();
    assert_eq!(words, again);

    let client = ([192, 0, 2, 1], 5_353).into();
    let server = ([192, 0, 2, 53], PORT).into();
    let message = Message {
        time: std::time::Duration::ZERO,
        client,
        server,
        transport: Transport::Udp,
        octets: octets[end + 1..].to_vec(),
    };
    let (after, outcome) = mutation.apply(1, message.clone());
    match outcome {
        Outcome::Query(_) => assert!(after.query(&mut dns::Folded::root()).is_some(), "it was a query"),
        _ => assert_eq!(after, message),
    }
}

pub(super) fn mutations() -> Vec<Vec<u8>> {
    let lists = [
        "do=100%,edns=1232@50%,ecs=client,unique",
        "edns=none,rd=0%,prefix=a.b,type=MX@10%",
        "suffix=a:example.net,ecs=2001:db8::/32,ad=100%,cd=50%,ecs=none@50%",
    ];
    let opt = b"\0\0\x29\x10\0\0\0\x80\0\0\x08\0\x0a\0\x04abcd";
    let mut with_opt = [QUERY, opt].concat();
    with_opt[11] = 1;
    lists
        .iter()
        .flat_map(|list| [QUERY, &with_opt].map(|query| [list.as_bytes(), b"\0", query].concat()))
        .collect()
}
