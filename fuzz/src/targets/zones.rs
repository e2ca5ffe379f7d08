//! Zones that are made of responses.

use std::net::{Ipv4Addr, SocketAddr};
use std::time::Duration;

use dns::Rtype;
use nameserver::names::NameHash;
use nameserver::zone::{Zone, read};
use replay::trace::{Message, PORT, Transport};
use replay::zones::{Made, Seen};

/// Servers that responses are from, by turns.
const SERVERS: usize = 2;

/// Responses, each behind its length, of servers by turns: each zone that is made of them has the records that a zone must
/// have, none that is not its own, and a text that is read, but for data that is no zone's.
pub(super) fn made(octets: &[u8]) {
    for hierarchy in [false, true] {
        for zone in Made::of(seen(octets), hierarchy).zones {
            let is_apex = |rtype| move |record: &replay::zones::Record| record.rtype == rtype;
            let of_apex: Vec<_> = zone.records.iter().filter(|record| record.owner == zone.origin).collect();
            assert!(
                zone.records
                    .first()
                    .is_some_and(|first| first.owner == zone.origin && is_apex(Rtype::SOA)(first))
            );
            assert!(of_apex.iter().any(|record| is_apex(Rtype::NS)(record)));
            assert!(zone.records.iter().all(|record| dns::name::is_within(&record.owner, &zone.origin)));
            let text = zone.master();
            assert_eq!(text.lines().count(), zone.records.len());
            let include = |_: &str| Err("a record includes nothing".to_owned());
            let source =
                read::Source { name: "made", text: text.as_bytes(), origin: None, include: &include };
            // Faults have a line, so that what has them can be left out.
            let read = read::read(&source).and_then(|read| Zone::build(&read, "made", &NameHash::new(1)));
            if let Err(faults) = read {
                assert!(faults.faults.iter().all(|fault| fault.line.is_some()), "{faults}\n{text}");
            }
        }
    }
}

/// What they show.
fn seen(mut octets: &[u8]) -> Seen {
    let mut seen = Seen::default();
    let mut turn = 0;
    while let Some((length, rest)) = octets.split_first_chunk().map(|(length, rest)| (*length, rest)) {
        let (message, rest) = rest.split_at(rest.len().min(u16::from_be_bytes(length).into()));
        (octets, turn) = (rest, (turn + 1) % SERVERS);
        let mut message = message.to_vec();
        if let Some(flags) = message.get_mut(2) {
            *flags |= 0x80;
        }
        seen.add(&Message {
            time: Duration::ZERO,
            client: SocketAddr::from(([203, 0, 113, 1], 5353)),
            server: SocketAddr::from((Ipv4Addr::new(192, 0, 2, turn as u8), PORT)),
            transport: Transport::Udp,
            octets: message,
        });
    }
    seen
}

/// A referral, an answer with an alias, and that there is no such type.
pub(super) fn responses() -> Vec<Vec<u8>> {
    // Of a.b.: NS of b. with an address; CNAME b. and its address; SOA of b.
    let referral = b"\0\x01\x80\0\0\x01\0\0\0\x01\0\x01\x01a\x01b\0\0\x01\0\x01\xc0\x0e\0\x02\0\x01\0\0\0\x3c\0\x04\x01n\xc0\x0e\
                     \xc0\x21\0\x01\0\x01\0\0\0\x3c\0\x04\xc0\0\x02\x01";
    let answer = b"\0\x01\x84\0\0\x01\0\x02\0\0\0\0\x01a\x01b\0\0\x01\0\x01\xc0\x0c\0\x05\0\x01\0\0\0\x3c\0\x02\xc0\x0e\
                   \xc0\x0e\0\x01\0\x01\0\0\0\x3c\0\x04\xc0\0\x02\x02";
    let none = b"\0\x01\x84\0\0\x01\0\0\0\x01\0\0\x01c\x01b\0\0\x10\0\x01\xc0\x0e\0\x06\0\x01\0\0\0\x3c\0\x18\xc0\x0e\xc0\x0e\
                 \0\0\0\x01\0\0\0\x01\0\0\0\x01\0\0\0\x01\0\0\0\x01";
    let behind_length = |message: &[u8]| [&net::framing::prefix(message.len())[..], message].concat();
    let messages = [&referral[..], answer, none].map(behind_length);
    let mut seeds = messages.to_vec();
    seeds.push(messages.concat());
    seeds.push([&messages[2][..], &messages[0], &messages[1]].concat());
    seeds
}
