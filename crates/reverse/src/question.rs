//! The question for an address's name, and what the answer to it says.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use dns::{Folded, Rcode, Rtype};
use domain::base::iana::Class;
use domain::base::name::{Name, ParsedName, ToName};
use domain::base::{Message, MessageBuilder};
use domain::rdata::{Cname, Ptr};

use crate::cache::Why;
use crate::name::NameText;

/// The most aliases that are followed (RFC 2317 has one; a chain of more is an attempt at something).
pub const ALIASES_MAX: usize = 8;

/// The most names of one address that are looked at: some have thousands. Of those the one that sorts first is
/// taken, so that it is the same one each time, however the answer is rotated.
pub const NAMES_MAX: usize = 64;

/// The largest UDP answer that is asked for, in octets (DNS flag day 2020).
const PAYLOAD: u16 = 1232;

/// What an answer says.
#[derive(Clone, Copy, Debug)]
#[expect(clippy::large_enum_variant, reason = "most answers are names, and few are under way at a time")]
pub enum Answered {
    /// The address has this name, for so many seconds.
    Name(NameText, u32),
    /// It has none, for so many seconds.
    NoName(u32),
    /// It has names, but none that is kept, for so many seconds.
    Unusable(u32),
    /// The answer did not fit a datagram: it must be asked over TCP.
    Truncated,
    /// It is no answer that says anything.
    Failed(Why),
    /// It is none to this question: somebody else's, or forged. It is to be waited on.
    Foreign,
}

/// The name that PTR records of an address are at, in wire form (RFC 1035 §3.5, RFC 3596 §2.5).
pub fn reverse_name(address: IpAddr) -> Vec<u8> {
    let mut wire = Vec::with_capacity(74);
    let mut label = |octets: &[u8]| {
        wire.push(octets.len() as u8);
        wire.extend_from_slice(octets);
    };
    match address {
        IpAddr::V4(v4) => {
            v4.octets().iter().rev().for_each(|octet| label(octet.to_string().as_bytes()));
            label(b"in-addr");
        }
        IpAddr::V6(v6) => {
            for octet in v6.octets().iter().rev() {
                label(&[b"0123456789abcdef"[usize::from(octet & 15)]]);
                label(&[b"0123456789abcdef"[usize::from(octet >> 4)]]);
            }
            label(b"ip6");
        }
    }
    label(b"arpa");
    wire.push(0);
    wire
}

/// The address whose PTR records are at a name; `None` for names that are no whole address's.
pub fn address_of(name: &Folded) -> Option<IpAddr> {
    let digit = |depth| {
        let [1, digit] = name.label(depth) else { return None };
        u128::from_str_radix(str::from_utf8(&[*digit]).ok()?, 16).ok()
    };
    match (name.labels(), name.suffix(2.min(name.labels()))) {
        (6, b"\x07in-addr\x04arpa\0") => {
            let mut octets = [0; 4];
            for (i, octet) in octets.iter_mut().enumerate() {
                let label = &name.label(3 + i)[1..];
                let is_plain = label.iter().all(u8::is_ascii_digit) && (label.len() == 1 || label[0] != b'0');
                *octet = str::from_utf8(label).ok().filter(|_| is_plain)?.parse().ok()?;
            }
            Some(Ipv4Addr::from(octets).into())
        }
        (34, b"\x03ip6\x04arpa\0") => {
            let bits = (3..35).try_fold(0u128, |bits, depth| Some(bits << 4 | digit(depth)?))?;
            Some(Ipv6Addr::from(bits).into())
        }
        _ => None,
    }
}

/// Writes the question for an address's name.
///
/// # Panics
/// Never: it is short.
pub fn question(address: IpAddr, id: u16) -> Vec<u8> {
    let name = Name::from_octets(reverse_name(address)).expect("it was composed so");
    let mut message = MessageBuilder::new_vec();
    message.header_mut().set_id(id);
    message.header_mut().set_rd(true);
    let mut message = message.question();
    message.push((name, Rtype::PTR)).expect("there is room");
    let mut message = message.additional();
    let opt = message.opt(|opt| {
        opt.set_udp_payload_size(PAYLOAD);
        Ok(())
    });
    opt.expect("there is room");
    message.finish()
}

/// Reads what came back for [`question()`] with the same address and id.
pub fn read(octets: &[u8], address: IpAddr, id: u16) -> Answered {
    let Ok(message) = Message::from_slice(octets) else { return Answered::Foreign };
    let header = message.header();
    if header.id() != id || !header.qr() {
        return Answered::Foreign;
    }
    let asked = Name::from_octets(reverse_name(address)).expect("it was composed so");
    // A server that cannot do with the question may leave it out, but only with an error.
    match message.sole_question() {
        Ok(question) => {
            let (rtype, class) = (question.qtype(), question.qclass());
            if !question.qname().name_eq(&asked) || rtype != Rtype::PTR || class != Class::IN {
                return Answered::Foreign;
            }
        }
        Err(_) => return Answered::Foreign,
    }
    match header.rcode() {
        Rcode::NOERROR | Rcode::NXDOMAIN if header.tc() => Answered::Truncated,
        Rcode::NOERROR | Rcode::NXDOMAIN => said(message).unwrap_or(Answered::Failed(Why::Malformed)),
        Rcode::SERVFAIL => Answered::Failed(Why::Servfail),
        _ => Answered::Failed(Why::Refused),
    }
}

/// What the records say; `None` where they cannot be read.
fn said(message: &Message<[u8]>) -> Option<Answered> {
    let mut owner = message.sole_question().ok()?.into_qname();
    let mut ttl = u32::MAX;
    for _ in 0..ALIASES_MAX {
        let mut next = None;
        for record in message.answer().ok()?.limit_to_in::<Cname<_>>() {
            let record = record.ok()?;
            if record.owner().name_eq(&owner) {
                ttl = ttl.min(record.ttl().as_secs());
                next = Some(*record.data().cname());
            }
        }
        match next {
            Some(name) => owner = name,
            None => break,
        }
    }
    let (mut best, mut seen): (Option<NameText>, usize) = (None, 0);
    for record in message.answer().ok()?.limit_to_in::<Ptr<_>>() {
        let record = record.ok()?;
        if !record.owner().name_eq(&owner) {
            continue;
        }
        seen += 1;
        if seen > NAMES_MAX {
            break;
        }
        ttl = ttl.min(record.ttl().as_secs());
        let name: Name<Vec<u8>> = record.data().ptrdname().to_name();
        let Some(name) = NameText::from_wire(name.as_slice()) else { continue };
        if best.as_ref().is_none_or(|best| name.octets() < best.octets()) {
            best = Some(name);
        }
    }
    Some(match (best, seen) {
        (Some(name), _) => Answered::Name(name, ttl),
        (None, 1..) => Answered::Unusable(ttl),
        (None, 0) => Answered::NoName(negative_ttl(message)),
    })
}

/// How long an absence may be believed: the lower of the SOA's TTL and MINIMUM (RFC 2308 §5); 0 without one.
fn negative_ttl(message: &Message<[u8]>) -> u32 {
    let Ok(authority) = message.authority() else { return 0 };
    let mut records = authority.limit_to_in::<domain::rdata::Soa<ParsedName<_>>>();
    match records.next() {
        Some(Ok(record)) => record.ttl().min(record.data().minimum()).as_secs(),
        _ => 0,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const ADDRESS: &str = "192.0.2.7";

    fn name(text: &str) -> Name<Vec<u8>> {
        text.parse().expect("a name")
    }

    /// An answer with these records: `owner CNAME target` or `owner PTR target`.
    fn answer(rcode: Rcode, records: &[(&str, &str, &str)]) -> Vec<u8> {
        let asked = question(ADDRESS.parse().unwrap(), 77);
        let mut message =
            MessageBuilder::new_vec().start_answer(Message::from_slice(&asked).unwrap(), rcode).unwrap();
        for (owner, kind, target) in records {
            match *kind {
                "CNAME" => message.push((name(owner), 300, Cname::new(name(target)))).unwrap(),
                _ => message.push((name(owner), 600, Ptr::new(name(target)))).unwrap(),
            }
        }
        message.finish()
    }

    fn told(octets: &[u8]) -> String {
        match read(octets, ADDRESS.parse().unwrap(), 77) {
            Answered::Name(name, ttl) => format!("{} {ttl}", name.as_str()),
            Answered::NoName(ttl) => format!("none {ttl}"),
            other => format!("{other:?}"),
        }
    }

    const PTR: &str = "7.2.0.192.in-addr.arpa";

    #[test]
    fn names_are_read() {
        for (records, expected) in [
            (vec![(PTR, "PTR", "Www.Example")], "www.example 600"),
            (vec![(PTR, "PTR", "b.example"), (PTR, "PTR", "a.example")], "a.example 600"),
            (vec![(PTR, "PTR", "192.0.2.7"), (PTR, "PTR", "z.example")], "z.example 600"),
            (vec![(PTR, "PTR", "192.0.2.7")], "Unusable(600)"),
            (vec![("8.2.0.192.in-addr.arpa", "PTR", "other.example")], "none 0"),
            (vec![], "none 0"),
            // RFC 2317, and the same in another order.
            (vec![(PTR, "CNAME", "7.0/25.example"), ("7.0/25.example", "PTR", "c.example")], "c.example 300"),
            (vec![("7.0/25.example", "PTR", "c.example"), (PTR, "CNAME", "7.0/25.example")], "c.example 300"),
            (vec![(PTR, "CNAME", "a.example"), ("a.example", "CNAME", PTR)], "none 0"),
        ] {
            assert_eq!(told(&answer(Rcode::NOERROR, &records)), expected, "{records:?}");
        }
        assert_eq!(told(&answer(Rcode::NXDOMAIN, &[])), "none 0");
        assert_eq!(told(&answer(Rcode::SERVFAIL, &[])), "Failed(Servfail)");
        assert_eq!(told(&answer(Rcode::REFUSED, &[])), "Failed(Refused)");
    }

    #[test]
    fn thousands_of_names_are_not_all_looked_at() {
        let names: Vec<String> = (0..2000).map(|i| format!("n{:04}.example", 9999 - i)).collect();
        let records: Vec<_> = names.iter().map(|name| (PTR, "PTR", name.as_str())).collect();
        assert_eq!(told(&answer(Rcode::NOERROR, &records)), format!("n{}.example 600", 9999 - 63));
    }

    #[test]
    fn answers_to_other_questions_are_foreign() {
        let good = answer(Rcode::NOERROR, &[(PTR, "PTR", "a.example")]);
        for (at, what) in [(0, "id"), (2, "QR"), (13, "name"), (5, "questions")] {
            let mut other = good.clone();
            other[at] ^= if at == 2 { 0x80 } else { 1 };
            assert_eq!(told(&other), "Foreign", "{what}");
        }
        let mut truncated = good.clone();
        truncated[2] |= 2;
        assert_eq!(told(&truncated), "Truncated");
        assert_eq!(told(&good[..good.len() - 20]), "Failed(Malformed)");
    }

    #[test]
    fn names_of_addresses_and_back() {
        for (text, there) in [
            ("1.2.0.192.in-addr.arpa", Some("192.0.2.1")),
            ("1.2.0.192.IN-ADDR.ARPA", Some("192.0.2.1")),
            ("01.2.0.192.in-addr.arpa", None),
            ("256.2.0.192.in-addr.arpa", None),
            ("+1.2.0.192.in-addr.arpa", None),
            ("2.0.192.in-addr.arpa", None),
            ("0.1.2.0.192.in-addr.arpa", None),
            ("arpa", None),
            (".", None),
            ("www.example.com", None),
        ] {
            let wire = dns::name::from_text(text).unwrap();
            let read = address_of(&Folded::read(&wire).unwrap());
            assert_eq!(read, there.map(|text| text.parse().unwrap()), "{text}");
        }
    }

    proptest! {
        #[test]
        fn every_address_is_found_again(bits: u128, six: bool) {
            let address = if six { IpAddr::V6(bits.into()) } else { IpAddr::V4((bits as u32).into()) };
            let wire = reverse_name(address);
            prop_assert_eq!(address_of(&Folded::read(&wire).unwrap()), Some(address));
        }

        #[test]
        fn damaged_answers_are_read(changes in proptest::collection::vec((any::<prop::sample::Index>(), any::<u8>()), 0..5)) {
            let mut octets = answer(Rcode::NOERROR, &[(PTR, "CNAME", "a.example"), ("a.example", "PTR", "b.example")]);
            for (at, value) in changes {
                let at = at.index(octets.len());
                octets[at] = value;
            }
            told(&octets);
        }
    }
}
