//! dnstap streams, from files and sockets.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use dns::dnstap::{Dnstap, Kind, Message, OVERHEAD_MAX, Protocol, Time};
use dns::frame_streams::{
    Control, DNSTAP, Decoder, FRAME_MAX, Frame, Next, push_control, push_payload, split_first,
};

/// A stream is read to its end or to a place in it; frames and messages that are read write and read back.
pub(super) fn dnstap(octets: &[u8]) {
    let mut rest = octets;
    while let Ok(Some((frame, after))) = split_first(rest) {
        assert!(rest.len() - after.len() <= FRAME_MAX);
        if let Frame::Control(_, types) = frame {
            assert!(types.iter().all(|content_type| types.has(content_type)));
        }
        rest = after;
    }
    let (mut decoder, mut rest) = (Decoder::new(DNSTAP), octets);
    while let Ok(Next::Payload(payload)) = decoder.next(&mut rest) {
        message(payload);
    }
    // Without a stream around it, damage reaches the message itself more often.
    message(octets);
}

fn message(octets: &[u8]) {
    let Ok(read) = Dnstap::read(octets) else { return };
    let mut written = Vec::new();
    read.write(&mut written);
    assert!(written.len() <= octets.len() + OVERHEAD_MAX);
    assert_eq!(Dnstap::read(&written), Ok(read));
}

/// A message of each family, each alone and both in a stream.
pub(super) fn streams() -> Vec<Vec<u8>> {
    let message = |address: IpAddr, kind, protocol| Message {
        kind,
        protocol: Some(protocol),
        query_address: Some(address),
        response_address: Some(address),
        query_port: Some(5300),
        response_port: Some(53),
        query_time: Some(Time { seconds: 1_700_000_000, nanoseconds: 5 }),
        query: Some(b"\x12\x34\x01\0\0\x01\0\0\0\0\0\0\x03www\x07example\0\0\x01\0\x01"),
        ..Message::default()
    };
    let asked = message(Ipv4Addr::LOCALHOST.into(), Kind::AUTH_QUERY, Protocol::Udp);
    let answered = Message {
        response_time: asked.query_time,
        response: asked.query,
        ..message(Ipv6Addr::LOCALHOST.into(), Kind::AUTH_RESPONSE, Protocol::Tcp)
    };
    let seeds = [asked, answered].map(|message| {
        let mut out = Vec::new();
        Dnstap { identity: b"ns1", version: b"pointsman", message }.write(&mut out);
        out
    });
    let mut stream = Vec::new();
    push_control(&mut stream, Control::Ready, Some(DNSTAP));
    let start = stream.len();
    push_control(&mut stream, Control::Start, Some(DNSTAP));
    for seed in &seeds {
        push_payload(&mut stream, |out| out.extend_from_slice(seed));
    }
    push_control(&mut stream, Control::Stop, None);
    let one_way = stream[start..].to_vec();
    seeds.into_iter().chain([stream, one_way]).collect()
}
