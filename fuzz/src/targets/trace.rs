//! Recorded traffic: captures and texts of queries.

use std::io::Cursor;

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
                written += u64::from(packets.write(&message).is_ok());
            }
            Err(found) => damage = Some(found),
        }
    }
    let info = summary.told(&trace, damage);
    assert!(info.gap_mean_seconds.is_finite() && info.gap_deviation_seconds.is_finite());
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
