//! What is asked for an address, and what the answers say.
//!
//! Its name; whether that name leads back to it; and whether there is anything at all in a prefix that it is in.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use dns::edns::{ExtendedError, UDP_PAYLOAD};
use dns::query::HEADER;
use dns::{Folded, OptRcode, Rcode, Rtype};
use domain::base::iana::{Class, Opcode};
use domain::base::message_builder::QuestionBuilder;
use domain::base::name::{Name, ParsedName, ToName};
use domain::base::{Message, MessageBuilder, opt};
use domain::rdata::{A, Aaaa, Cname, Ptr};

use crate::cache::{Verdict, Why};
use crate::name::NameText;

/// The most aliases that are followed (RFC 2317 has one; a chain of more is an attempt at something).
pub const ALIASES_MAX: usize = 8;

/// The most names of one address that are looked at: some have thousands. Of those the one that sorts first is
/// taken, so that it is the same one each time, however the answer is rotated.
pub const NAMES_MAX: usize = 64;

/// What is asked for an address.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[expect(clippy::large_enum_variant, reason = "few are under way at a time")]
pub enum Ask {
    /// Its name: PTR.
    Name,
    /// Whether this name of it leads back to it: A of the name, or AAAA.
    Addresses(NameText),
    /// Whether there is anything in the prefix of so many bits that it is in: A of the prefix's own name, as a
    /// question that is minimised has it (RFC 9156 §2.1).
    Prefix(u8),
}

/// What an answer says.
#[derive(Clone, Copy, Debug)]
#[expect(clippy::large_enum_variant, reason = "most answers are names, and few are under way at a time")]
pub enum Answered {
    /// The address has this name, for so many seconds.
    Name(NameText, u32),
    /// It has none, for so many seconds; or there is something in the prefix.
    NoName(u32),
    /// There is nothing at that name and below it, for so many seconds (RFC 8020).
    Nothing(u32),
    /// It has names, but none that is kept, for so many seconds.
    Unusable(u32),
    /// Whether the name leads back, for so many seconds.
    Verdict(Verdict, u32),
    /// The answer did not fit a datagram: it must be asked over TCP.
    Truncated,
    /// The question was not understood: FORMERR, NOTIMP or BADVERS. One with EDNS must be asked without (RFC 6891 §6.2.2).
    NotUnderstood,
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

/// The IPv4 address whose name a message asks for, at a glance: for what need not be right. What is malformed or unusual
/// is `None`, or some address.
pub fn glance(message: &[u8]) -> Option<IpAddr> {
    let mut rest = message.get(HEADER..)?;
    let mut octets = [0; 4];
    for octet in octets.iter_mut().rev() {
        let (length, behind) = rest.split_first()?;
        let (digits, behind) = behind.split_at_checked(usize::from(*length).min(3))?;
        *octet = digits.iter().fold(0, |sum: u8, digit| sum.wrapping_mul(10).wrapping_add(digit & 15));
        rest = behind;
    }
    rest.starts_with(b"\x07in-addr\x04arpa\0").then(|| Ipv4Addr::from(octets).into())
}

/// Writes a question, with EDNS.
///
/// # Panics
/// Never: it is short.
pub fn question(address: IpAddr, ask: &Ask, id: u16) -> Vec<u8> {
    let mut message = plain(address, ask, id).additional();
    let opt = message.opt(|opt| {
        opt.set_udp_payload_size(UDP_PAYLOAD);
        Ok(())
    });
    opt.expect("there is room");
    message.finish()
}

/// Writes the same question without EDNS, for who does not understand that.
///
/// # Panics
/// Never: it is short.
pub fn question_without_edns(address: IpAddr, ask: &Ask, id: u16) -> Vec<u8> {
    plain(address, ask, id).finish()
}

fn plain(address: IpAddr, ask: &Ask, id: u16) -> QuestionBuilder<Vec<u8>> {
    let mut message = MessageBuilder::new_vec();
    message.header_mut().set_id(id);
    message.header_mut().set_rd(true);
    let mut message = message.question();
    message.push(asked(address, ask)).expect("there is room");
    message
}

/// Reads what came back for [`question()`], or [`question_without_edns()`], with the same arguments.
pub fn read(octets: &[u8], address: IpAddr, ask: &Ask, id: u16) -> Answered {
    let Ok(message) = Message::from_slice(octets) else { return Answered::Foreign };
    let header = message.header();
    if header.id() != id || !header.qr() || header.opcode() != Opcode::QUERY {
        return Answered::Foreign;
    }
    // With the upper bits, which are in the OPT record: without them BADVERS reads as NOERROR (RFC 6891 §6.1.3).
    let rcode = message.opt_rcode();
    let is_answer = matches!(rcode, OptRcode::NOERROR | OptRcode::NXDOMAIN);
    let (name, rtype) = asked(address, ask);
    match message.sole_question() {
        Ok(question) => {
            let is_same = question.qtype() == rtype && question.qclass() == Class::IN;
            if !question.qname().name_eq(&name) || !is_same {
                return Answered::Foreign;
            }
        }
        // A server that cannot do with the question may leave it out, but only with an error, and with nothing else.
        Err(_) => {
            let counts = message.header_counts();
            if is_answer || [counts.qdcount(), counts.ancount(), counts.nscount()] != [0; 3] {
                return Answered::Foreign;
            }
        }
    }
    match rcode {
        _ if is_answer && header.tc() => Answered::Truncated,
        _ if is_answer => {
            let said = match ask {
                Ask::Name => names(message),
                Ask::Addresses(_) => addresses(message, address),
                Ask::Prefix(_) => anything(message),
            };
            said.unwrap_or(Answered::Failed(Why::Malformed))
        }
        OptRcode::FORMERR | OptRcode::NOTIMP | OptRcode::BADVERS => Answered::NotUnderstood,
        OptRcode::SERVFAIL => Answered::Failed(Why::Servfail),
        _ => Answered::Failed(Why::Refused),
    }
}

/// The name and the type of a question.
fn asked(address: IpAddr, ask: &Ask) -> (Name<Vec<u8>>, Rtype) {
    let (wire, rtype) = match ask {
        Ask::Name => (reverse_name(address), Rtype::PTR),
        Ask::Addresses(name) => {
            let mut wire = [0; 255];
            let length = name.to_wire(&mut wire);
            (wire[..length].to_vec(), if address.is_ipv4() { Rtype::A } else { Rtype::AAAA })
        }
        Ask::Prefix(bits) => (prefix_name(address, *bits), Rtype::A),
    };
    (Name::from_octets(wire).expect("it was composed so"), rtype)
}

/// The name above all PTR records of a prefix: the address's name without the labels behind so many bits.
fn prefix_name(address: IpAddr, bits: u8) -> Vec<u8> {
    let labels = match address {
        IpAddr::V4(_) => 32u8.saturating_sub(bits) / 8,
        IpAddr::V6(_) => 128u8.saturating_sub(bits) / 4,
    };
    let wire = reverse_name(address);
    let start = (0..labels).fold(0, |at, _| at + 1 + usize::from(wire[at]));
    wire[start..].to_vec()
}

/// Where aliases lead: the last name, the lowest TTL on the way, and how many there were.
struct Aliases<'a> {
    owner: ParsedName<&'a [u8]>,
    ttl: u32,
    count: usize,
}

/// Follows the aliases; `None` where they cannot be read, or are more than [`ALIASES_MAX`].
fn aliases(message: &Message<[u8]>) -> Option<Aliases<'_>> {
    let owner = message.sole_question().ok()?.into_qname();
    let mut aliases = Aliases { owner, ttl: u32::MAX, count: 0 };
    loop {
        let mut next = None;
        for record in message.answer().ok()?.limit_to_in::<Cname<_>>() {
            let record = record.ok()?;
            if record.owner().name_eq(&aliases.owner) {
                aliases.ttl = aliases.ttl.min(record.ttl().as_secs());
                next = Some(*record.data().cname());
            }
        }
        let Some(name) = next else { return Some(aliases) };
        aliases.owner = name;
        aliases.count += 1;
        if aliases.count > ALIASES_MAX {
            return None;
        }
    }
}

/// Which name an answer gives; `None` where it cannot be read.
fn names(message: &Message<[u8]>) -> Option<Answered> {
    let aliases = aliases(message)?;
    let mut ttl = aliases.ttl;
    let (mut best, mut seen): (Option<NameText>, usize) = (None, 0);
    for record in message.answer().ok()?.limit_to_in::<Ptr<_>>() {
        let record = record.ok()?;
        if !record.owner().name_eq(&aliases.owner) {
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
        (None, 0) if is_unresolved(message, &aliases) => Answered::Failed(Why::Refused),
        (None, 0) => absence(message, &aliases),
    })
}

/// Whether the address is among those that an answer gives; `None` where it cannot be read.
fn addresses(message: &Message<[u8]>, address: IpAddr) -> Option<Answered> {
    let aliases = aliases(message)?;
    let (mut ttl, mut seen, mut found) = (aliases.ttl, 0, false);
    let mut one = |owner: &ParsedName<&[u8]>, other: IpAddr, seconds: u32| {
        if owner.name_eq(&aliases.owner) {
            (seen, ttl, found) = (seen + 1, ttl.min(seconds), found || other == address);
        }
    };
    let answer = message.answer().ok()?;
    if address.is_ipv4() {
        for record in answer.limit_to_in::<A>() {
            let record = record.ok()?;
            one(record.owner(), record.data().addr().into(), record.ttl().as_secs());
        }
    } else {
        for record in answer.limit_to_in::<Aaaa>() {
            let record = record.ok()?;
            one(record.owner(), record.data().addr().into(), record.ttl().as_secs());
        }
    }
    Some(match (found, seen) {
        (true, _) => Answered::Verdict(Verdict::Confirmed, ttl),
        (false, 0) if is_unresolved(message, &aliases) => Answered::Failed(Why::Refused),
        (false, 0) => Answered::Verdict(Verdict::Mismatch, ttl.min(negative_ttl(message))),
        (false, _) => Answered::Verdict(Verdict::Mismatch, ttl),
    })
}

/// Whether there is anything at the name or below it; `None` where the answer cannot be read.
fn anything(message: &Message<[u8]>) -> Option<Answered> {
    Some(absence(message, &aliases(message)?))
}

/// What an answer without the wanted records says. One that says NXDOMAIN behind an alias says it of the alias's
/// target alone (RFC 6604 §2).
fn absence(message: &Message<[u8]>, aliases: &Aliases<'_>) -> Answered {
    let ttl = aliases.ttl.min(negative_ttl(message));
    match message.header().rcode() {
        Rcode::NXDOMAIN if aliases.count == 0 => Answered::Nothing(ttl),
        _ => Answered::NoName(ttl),
    }
}

/// Whether an answer without the wanted records does not say that there are none: where it only says who would know, or under
/// which other name (RFC 2308 §2.2), its server does not resolve for us. Of an alias's target that has none of them, an SOA
/// record would say so. Where it says with an extended error that this is not known, another such service was asked.
fn is_unresolved(message: &Message<[u8]>, aliases: &Aliases<'_>) -> bool {
    let Ok(authority) = message.authority() else { return false };
    let has = |rtype| authority.flatten().any(|record| record.rtype() == rtype);
    let leads_on = aliases.count > 0 || has(Rtype::NS);
    let only_leads_on = leads_on && !has(Rtype::SOA);
    message.header().rcode() == Rcode::NOERROR && (only_leads_on || is_not_known(message))
}

/// Whether an extended error says that it is not known what is there.
fn is_not_known(message: &Message<[u8]>) -> bool {
    const CODES: [ExtendedError; 3] =
        [ExtendedError::CachedError, ExtendedError::NotReady, ExtendedError::NoReachableAuthority];
    let Some(record) = message.opt() else { return false };
    let mut errors = record.opt().iter::<opt::ExtendedError<_>>().flatten();
    errors.any(|error| CODES.into_iter().any(|code| code as u16 == error.code().to_int()))
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
    use domain::base::Ttl;
    use domain::rdata::{Ns, Soa};
    use proptest::prelude::*;

    const ADDRESS: &str = "192.0.2.7";

    fn name(text: &str) -> Name<Vec<u8>> {
        text.parse().expect("a name")
    }

    /// An answer with these records: `owner CNAME target` or `owner PTR target`.
    fn answer(rcode: Rcode, records: &[(&str, &str, &str)]) -> Vec<u8> {
        let asked = question(ADDRESS.parse().unwrap(), &Ask::Name, 77);
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
        match read(octets, ADDRESS.parse().unwrap(), &Ask::Name, 77) {
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
            (vec![(PTR, "CNAME", "a.example"), ("a.example", "CNAME", PTR)], "Failed(Malformed)"),
            // Its target was left out, which is not to say that this has no name.
            (vec![(PTR, "CNAME", "a.example")], "Failed(Refused)"),
        ] {
            assert_eq!(told(&answer(Rcode::NOERROR, &records)), expected, "{records:?}");
        }
        assert_eq!(told(&answer(Rcode::NXDOMAIN, &[])), "Nothing(0)");
        assert_eq!(told(&answer(Rcode::NXDOMAIN, &[(PTR, "CNAME", "a.example")])), "none 0");
        assert_eq!(told(&answer(Rcode::SERVFAIL, &[])), "Failed(Servfail)");
        assert_eq!(told(&answer(Rcode::REFUSED, &[])), "Failed(Refused)");
    }

    #[test]
    fn an_alias_whose_target_has_no_name_is_an_answer() {
        let asked = question(ADDRESS.parse().unwrap(), &Ask::Name, 77);
        let message =
            MessageBuilder::new_vec().start_answer(Message::from_slice(&asked).unwrap(), Rcode::NOERROR);
        let mut message = message.unwrap();
        message.push((name(PTR), 300, Cname::new(name("7.0/25.example")))).unwrap();
        let mut message = message.authority();
        let (zone, time) = (name("0/25.example"), Ttl::from_secs(60));
        let soa = Soa::new(zone.clone(), zone.clone(), 1.into(), time, time, time, time);
        message.push((zone, 300, soa)).unwrap();
        assert_eq!(told(&message.finish()), "none 60");
    }

    #[test]
    fn a_referral_is_no_answer() {
        let address = ADDRESS.parse().unwrap();
        let host = Ask::Addresses(NameText::from_text(b"www.example").unwrap());
        let zone = name("192.in-addr.arpa");
        let told = |ask: &Ask, rcode, has_soa| {
            let asked = question(address, ask, 77);
            let message = MessageBuilder::new_vec().start_answer(Message::from_slice(&asked).unwrap(), rcode);
            let mut message = message.unwrap().authority();
            message.push((zone.clone(), 300, Ns::new(name("ns.example")))).unwrap();
            if has_soa {
                let time = Ttl::from_secs(60);
                let soa = Soa::new(zone.clone(), zone.clone(), 1.into(), time, time, time, time);
                message.push((zone.clone(), 300, soa)).unwrap();
            }
            format!("{:?}", read(&message.finish(), address, ask, 77))
        };
        for (ask, absent, missing) in
            [(Ask::Name, "NoName(60)", "Nothing(0)"), (host, "Verdict(Mismatch, 60)", "Verdict(Mismatch, 0)")]
        {
            assert_eq!(told(&ask, Rcode::NOERROR, false), "Failed(Refused)", "{ask:?}");
            assert_eq!(told(&ask, Rcode::NOERROR, true), absent);
            assert_eq!(told(&ask, Rcode::NXDOMAIN, false), missing);
        }
        // Something is there, or servers would not be named for it.
        assert_eq!(told(&Ask::Prefix(24), Rcode::NOERROR, false), "NoName(0)");
    }

    #[test]
    fn a_glance_finds_the_address() {
        for address in ["192.0.2.7", "0.0.0.0", "255.255.255.255"] {
            let address = address.parse().unwrap();
            let asked = question(address, &Ask::Name, 77);
            assert_eq!(glance(&asked), Some(address));
            // Cut in the name, it is none.
            (0..asked.len() - 17).for_each(|length| assert_eq!(glance(&asked[..length]), None));
        }
        assert_eq!(glance(&question("2001:db8::1".parse().unwrap(), &Ask::Name, 77)), None);
        assert_eq!(glance(&question(ADDRESS.parse().unwrap(), &Ask::Prefix(24), 77)), None);
    }

    #[test]
    fn thousands_of_names_are_not_all_looked_at() {
        let names: Vec<String> = (0..2000).map(|i| format!("n{:04}.example", 9999 - i)).collect();
        let records: Vec<_> = names.iter().map(|name| (PTR, "PTR", name.as_str())).collect();
        assert_eq!(told(&answer(Rcode::NOERROR, &records)), format!("n{}.example 600", 9999 - 63));
    }

    #[test]
    fn as_many_aliases_as_are_allowed_are_followed() {
        let name_of = |i: usize| if i == 0 { PTR.to_owned() } else { format!("a{i}.example") };
        let chain = |length| -> Vec<(String, &str, String)> {
            let aliases = (0..length).map(|i| (name_of(i), "CNAME", name_of(i + 1)));
            aliases.chain([(name_of(length), "PTR", "end.example".to_owned())]).collect()
        };
        for (length, expected) in [(ALIASES_MAX, "end.example 300"), (ALIASES_MAX + 1, "Failed(Malformed)")] {
            let records = chain(length);
            let records: Vec<_> =
                records.iter().map(|(owner, kind, to)| (&owner[..], *kind, &to[..])).collect();
            assert_eq!(told(&answer(Rcode::NOERROR, &records)), expected);
        }
    }

    #[test]
    fn what_leads_back_and_what_is_in_a_prefix() {
        let host = NameText::from_text(b"www.example").unwrap();
        let told = |address: &str, ask: &Ask, rcode, records: &[(&str, &str, &str)]| {
            let address = address.parse().unwrap();
            let asked = question(address, ask, 7);
            let mut message =
                MessageBuilder::new_vec().start_answer(Message::from_slice(&asked).unwrap(), rcode).unwrap();
            for (owner, kind, data) in records {
                match *kind {
                    "CNAME" => message.push((name(owner), 50, Cname::new(name(data)))).unwrap(),
                    "A" => message.push((name(owner), 60, A::new(data.parse().unwrap()))).unwrap(),
                    _ => message.push((name(owner), 60, Aaaa::new(data.parse().unwrap()))).unwrap(),
                }
            }
            format!("{:?}", read(&message.finish(), address, ask, 7))
        };
        let leads = |address: &str, records: &[(&str, &str, &str)]| {
            told(address, &Ask::Addresses(host), Rcode::NOERROR, records)
        };
        let www = "www.example";
        assert_eq!(
            leads("192.0.2.7", &[(www, "A", "192.0.2.8"), (www, "A", "192.0.2.7")]),
            "Verdict(Confirmed, 60)"
        );
        assert_eq!(leads("192.0.2.7", &[(www, "A", "192.0.2.8")]), "Verdict(Mismatch, 60)");
        assert_eq!(leads("192.0.2.7", &[("b.example", "A", "192.0.2.7")]), "Verdict(Mismatch, 0)");
        assert_eq!(leads("192.0.2.7", &[]), "Verdict(Mismatch, 0)");
        assert_eq!(leads("2001:db8::7", &[(www, "AAAA", "2001:db8::7")]), "Verdict(Confirmed, 60)");
        assert_eq!(leads("2001:db8::7", &[(www, "A", "192.0.2.7")]), "Verdict(Mismatch, 0)");
        let aliased = [(www, "CNAME", "b.example"), ("b.example", "A", "192.0.2.7")];
        assert_eq!(leads("192.0.2.7", &aliased), "Verdict(Confirmed, 50)");
        assert_eq!(leads("192.0.2.7", &aliased[..1]), "Failed(Refused)");

        let prefix = |bits, rcode| told("192.0.2.7", &Ask::Prefix(bits), rcode, &[]);
        assert_eq!([prefix(24, Rcode::NXDOMAIN), prefix(24, Rcode::NOERROR)], ["Nothing(0)", "NoName(0)"]);
        assert_eq!(prefix(8, Rcode::SERVFAIL), "Failed(Servfail)");
    }

    #[test]
    fn names_of_prefixes() {
        for (address, bits, expected) in [
            ("192.0.2.7", 24, "2.0.192.in-addr.arpa."),
            ("192.0.2.7", 16, "0.192.in-addr.arpa."),
            ("192.0.2.7", 8, "192.in-addr.arpa."),
            ("2001:db8::7", 32, "8.b.d.0.1.0.0.2.ip6.arpa."),
        ] {
            let wire = prefix_name(address.parse().unwrap(), bits);
            assert_eq!(dns::name::to_text(&wire), expected);
        }
    }

    #[test]
    fn answers_to_other_questions_are_foreign() {
        let good = answer(Rcode::NOERROR, &[(PTR, "PTR", "a.example")]);
        for (at, bits, what) in
            [(0, 1, "id"), (2, 0x80, "QR"), (2, 0x10, "opcode"), (13, 1, "name"), (5, 1, "questions")]
        {
            let mut other = good.clone();
            other[at] ^= bits;
            assert_eq!(told(&other), "Foreign", "{what}");
        }
        // Without the question, an error is an answer, and nothing else is.
        for (rcode, expected) in [
            (0, "Foreign"),
            (3, "Foreign"),
            (2, "Failed(Servfail)"),
            (5, "Failed(Refused)"),
            (1, "NotUnderstood"),
        ] {
            let mut header = good[..12].to_vec();
            (header[3], header[5], header[7]) = (header[3] & 0xf0 | rcode, 0, 0);
            assert_eq!(told(&header), expected, "{rcode}");
            // And only with nothing else in it.
            for count in [7, 9] {
                header[count] = 1;
                assert_eq!(told(&header), "Foreign", "{rcode}");
                header[count] = 0;
            }
        }
        let mut truncated = good.clone();
        truncated[2] |= 2;
        assert_eq!(told(&truncated), "Truncated");
        assert_eq!(told(&good[..good.len() - 20]), "Failed(Malformed)");
    }

    #[test]
    fn what_was_not_understood_is_told_apart_from_what_is_not_there() {
        // The upper bits of a code are in the OPT record: those of BADVERS are all that it has.
        let coded = |rcode: u16| {
            let mut octets = question(ADDRESS.parse().unwrap(), &Ask::Name, 77);
            octets[2] |= 0x80;
            octets[3] |= (rcode & 15) as u8;
            let upper = octets.len() - 6;
            octets[upper] = (rcode >> 4) as u8;
            told(&octets)
        };
        for (rcode, expected) in [
            (0, "none 0"),
            (1, "NotUnderstood"),
            (2, "Failed(Servfail)"),
            (3, "Nothing(0)"),
            (4, "NotUnderstood"),
            (5, "Failed(Refused)"),
            (16, "NotUnderstood"),
            (19, "Failed(Refused)"),
            (23, "Failed(Refused)"),
        ] {
            assert_eq!(coded(rcode), expected, "{rcode}");
        }
    }

    #[test]
    fn a_question_without_edns_is_the_same_but_for_its_last_record() {
        let address = ADDRESS.parse().unwrap();
        let with = question(address, &Ask::Name, 77);
        let mut without = question_without_edns(address, &Ask::Name, 77);
        assert_eq!((without[11], with[11]), (0, 1));
        without[11] = 1;
        assert_eq!(without, with[..with.len() - 11]);
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
