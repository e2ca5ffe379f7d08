//! The text of types that `domain` does not know: some look like one that it does, the fields of the others are read and
//! written here.

mod loc;

use std::fmt::Write as _;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::slice::Iter;

use dns::{Folded, Rtype};
use domain::base::iana::SecurityAlgorithm;
use domain::base::name::UncertainName;
use domain::rdata::dnssec::RtypeBitmap;
use domain::utils::{base16, base64};

/// The most octets of a record's data (RFC 1035 §3.2.1).
const DATA_MAX: usize = u16::MAX as usize;

/// What the text of a type is like.
enum Form {
    /// As that of this type, which the scanner reads; the octets are, too.
    Alike(Rtype),
    /// These fields; and an example, for faults.
    Fields(&'static [Field], &'static str),
}

/// The types that the scanner does not read.
const FORMS: &[(Rtype, Form)] = {
    use Field::{
        Address, Algorithm, Base64, Certificate, Groups, HostIdentity, Location, Name, Names, Number,
        Prefixes, Strings, Text, Types,
    };
    use Form::{Alike, Fields};
    const LOCATOR: &[Field] = &[Number(2), Groups { count: 4, octets: 2, between: ':' }];
    &[
        // RFC 1183 §1 and §3.
        (Rtype::AFSDB, Alike(Rtype::MX)),
        (Rtype::RT, Alike(Rtype::MX)),
        (Rtype::X25, Fields(&[Strings(1, 1)], "311061700956 (RFC 1183)")),
        (Rtype::ISDN, Fields(&[Strings(1, 2)], "150862028003217 004 (RFC 1183)")),
        // RFC 1712 §3.
        (Rtype::GPOS, Fields(&[Strings(3, 3)], "-32.6882 116.8652 10.0 (RFC 1712)")),
        // RFC 1876 §3.
        (Rtype::LOC, Fields(&[Location], "52 22 23 N 4 53 32 E -2m (RFC 1876)")),
        // RFC 2163 §4.
        (Rtype::PX, Fields(&[Number(2), Name, Name], "10 map822.example. mapx400.example. (RFC 2163)")),
        // RFC 2230 §3.
        (Rtype::KX, Alike(Rtype::MX)),
        // RFC 2535 §7.1.
        (Rtype::KEY, Alike(Rtype::DNSKEY)),
        // RFC 3123 §4 and §5.
        (Rtype::APL, Fields(&[Prefixes], "1:192.168.32.0/21 !1:192.168.38.0/28 (RFC 3123)")),
        // RFC 4398 §2.2.
        (Rtype::CERT, Fields(&[Certificate, Number(2), Algorithm, Base64], "PKIX 12345 8 BASE64 (RFC 4398)")),
        // RFC 4431 §2.
        (Rtype::DLV, Alike(Rtype::DS)),
        // RFC 4701 §3.2.
        (Rtype::DHCID, Alike(Rtype::OPENPGPKEY)),
        // RFC 6742 §2.
        (Rtype::NID, Fields(LOCATOR, "10 0014:4fff:ff20:ee64 (RFC 6742)")),
        (Rtype::L32, Fields(&[Number(2), Address], "10 10.1.2.0 (RFC 6742)")),
        (Rtype::L64, Fields(LOCATOR, "10 2001:0db8:1140:1000 (RFC 6742)")),
        (Rtype::LP, Alike(Rtype::MX)),
        // RFC 7043 §3 and §4.
        (
            Rtype::EUI48,
            Fields(&[Groups { count: 6, octets: 1, between: '-' }], "00-00-5e-00-53-2a (RFC 7043)"),
        ),
        (
            Rtype::EUI64,
            Fields(&[Groups { count: 8, octets: 1, between: '-' }], "00-00-5e-ef-10-00-00-2a (RFC 7043)"),
        ),
        // RFC 7208 §3.1.
        (Rtype::SPF, Alike(Rtype::TXT)),
        // RFC 7477 §2.1.
        (Rtype::CSYNC, Fields(&[Number(4), Number(2), Types], "66 3 A NS AAAA (RFC 7477)")),
        // RFC 7553 §4.
        (Rtype::URI, Fields(&[Number(2), Number(2), Text], "10 1 \"https://example.com/\" (RFC 7553)")),
        // RFC 8005 §5 and §6.
        (Rtype::HIP, Fields(&[HostIdentity, Names], "2 HEX BASE64 rvs.example. (RFC 8005)")),
        // RFC 8162 §2.
        (Rtype::SMIMEA, Alike(Rtype::TLSA)),
    ]
};

fn form(rtype: Rtype) -> Option<&'static Form> {
    FORMS.iter().find(|(known, _)| *known == rtype).map(|(_, form)| form)
}

/// Whether a word is the name of a type that is read here, or the number of any.
pub(super) fn is_named(word: &[u8]) -> bool {
    let is_number = || word.get(..4).is_some_and(|start| start.eq_ignore_ascii_case(b"TYPE"));
    let is = |rtype: Rtype| rtype.to_mnemonic().is_some_and(|name| name.eq_ignore_ascii_case(word));
    FORMS.iter().any(|(rtype, _)| is(*rtype)) || is_number()
}

/// The number of a DNSSEC algorithm that a word is the mnemonic of (RFC 4034 appendix A.1).
pub(super) fn algorithm(word: &[u8]) -> Option<u8> {
    SecurityAlgorithm::from_mnemonic(word).map(SecurityAlgorithm::to_int)
}

/// A type that the scanner reads and whose data is alike, in text and in octets.
pub(super) fn alike(rtype: Rtype) -> Option<Rtype> {
    match form(rtype)? {
        Form::Alike(other) => Some(*other),
        Form::Fields(..) => None,
    }
}

/// What the data of a type looks like that is read here field by field.
pub(super) fn example(rtype: Rtype) -> Option<&'static str> {
    match form(rtype)? {
        Form::Alike(_) => None,
        Form::Fields(_, example) => Some(example),
    }
}

/// Whether data of a type's form has the fields that may not be empty, as a line that was cut leaves them: the scanner
/// takes records without (RFC 4034 §2.2 and §5.3, RFC 6698 §2.2, RFC 9460 §7.1.1). Of what is read here field by field,
/// whether it is of the form at all.
pub(super) fn is_complete(rtype: Rtype, data: &[u8]) -> bool {
    let before_last = match alike(rtype).unwrap_or(rtype) {
        Rtype::TXT | Rtype::OPENPGPKEY => 0,
        Rtype::SSHFP => 2,
        Rtype::TLSA => 3,
        // Where the flags say so there is no key (RFC 2535 §3.1.2); KEY is read as DNSKEY.
        Rtype::DNSKEY if data.first().is_some_and(|flags| flags >> 6 == 3) => return true,
        Rtype::DS | Rtype::CDS | Rtype::DNSKEY | Rtype::CDNSKEY => 4,
        Rtype::CERT => 5,
        Rtype::RRSIG => {
            let signer = data.get(SIGNER_BEGINS..).and_then(Folded::read);
            SIGNER_BEGINS + signer.map_or(0, |name| name.wire_length())
        }
        Rtype::SVCB | Rtype::HTTPS => return has_whole_parameters(data).unwrap_or(false),
        _ => return example(rtype).is_none() || text(rtype, data).is_some(),
    };
    data.len() > before_last
}

/// Where the signer's name begins in the data of RRSIG (RFC 4034 §3.1).
const SIGNER_BEGINS: usize = 18;

/// Whether the values of parameters that are known have the form of their keys (RFC 9460 §7 and §8, RFC 9461 §5), and none
/// is missing that another one needs; `None` where the data is none of SVCB.
fn has_whole_parameters(data: &[u8]) -> Option<bool> {
    let all = parameters(data)?;
    let has = |key: u64| all.iter().any(|(other, _)| *other == key);
    Some(all.iter().all(|&(key, value)| {
        let are_some_of = |octets| !value.is_empty() && value.len() % octets == 0;
        match key {
            // mandatory; alpn; no-default-alpn; port; ipv4hint; ipv6hint; dohpath.
            0 => are_some_of(2) && keys(value).all(|key| key != 0 && has(key)),
            1 => !value.is_empty() && are_protocols(value).unwrap_or(false),
            2 => value.is_empty() && has(1),
            3 => value.len() == 2,
            4 => are_some_of(4),
            6 => are_some_of(16),
            7 => is_template(value),
            _ => true,
        }
    }))
}

/// The keys that `mandatory` lists.
fn keys(value: &[u8]) -> impl Iterator<Item = u64> {
    value.chunks_exact(2).map(|octets| u64::from(octets[0]) << 8 | u64::from(octets[1]))
}

/// Whether a parameter has a key that got its name after RFC 9460 and RFC 9461, so that many servers, such as BIND 9.18 and
/// NSD 4.6, read it by its number only.
pub(super) fn has_new_parameter(data: &[u8]) -> bool {
    parameters(data).is_some_and(|all| all.into_iter().any(|(key, _)| (8..=NAMED_MAX).contains(&key)))
}

/// The last key of parameters that the scanner writes by a name.
const NAMED_MAX: u64 = 12;

/// The parameters of SVCB, keys and values; `None` where the data is none.
fn parameters(mut data: &[u8]) -> Option<Vec<(u64, &[u8])>> {
    take(&mut data, 2)?;
    take_name(&mut data)?;
    let mut all = Vec::new();
    while !data.is_empty() {
        let (key, length) = (take_number(&mut data, 2)?, take_number(&mut data, 2)? as usize);
        all.push((key, take(&mut data, length)?));
    }
    Some(all)
}

/// Whether octets are a path with a variable `dns` (RFC 9461 §5), in a template of RFC 6570.
fn is_template(value: &[u8]) -> bool {
    let expressions = value.split(|octet| *octet == b'{').skip(1);
    value.first() == Some(&b'/')
        && expressions.filter_map(|behind| behind.split(|octet| *octet == b'}').next()).any(|expression| {
            let variables =
                expression.strip_prefix(b"?").or(expression.strip_prefix(b"&")).unwrap_or(expression);
            variables.split(|octet| *octet == b',').any(|variable| variable == b"dns")
        })
}

/// Whether octets are identifiers of protocols, each of them behind its length, and none empty (RFC 9460 §7.1.1).
fn are_protocols(mut value: &[u8]) -> Option<bool> {
    while !value.is_empty() {
        let length = take_number(&mut value, 1)?;
        if length == 0 {
            return Some(false);
        }
        take(&mut value, length as usize)?;
    }
    Some(true)
}

/// Reads the words of a record's data field by field; `None` where they are not of the type's form, or it has no fields
/// here. Relative names are below `origin`, where there is one.
pub(super) fn read(rtype: Rtype, words: &[&[u8]], origin: Option<&[u8]>) -> Option<Vec<u8>> {
    let Form::Fields(fields, _) = form(rtype)? else { return None };
    // Octets (RFC 3597 §5) are the scanner's.
    if words.first() == Some(&&b"\\#"[..]) {
        return None;
    }
    let (mut words, mut data) = (words.iter(), Vec::new());
    for field in *fields {
        field.read(&mut words, origin, &mut data)?;
    }
    (words.next().is_none() && data.len() <= DATA_MAX).then_some(data)
}

/// Writes a record's data field by field; `None` where it is not of the type's form, or that has no fields here.
pub(super) fn text(rtype: Rtype, mut data: &[u8]) -> Option<String> {
    let Form::Fields(fields, _) = form(rtype)? else { return None };
    let mut words = Vec::new();
    for field in *fields {
        field.write(&mut data, &mut words)?;
    }
    data.is_empty().then(|| words.join(" "))
}

/// Writes record data as octets (RFC 3597 §5).
pub(super) fn generic(data: &[u8]) -> String {
    format!("\\# {} {}", data.len(), hex(data))
}

/// Octets as lower-case hexadecimal digits.
pub(crate) fn hex(octets: &[u8]) -> String {
    octets.iter().fold(String::with_capacity(2 * octets.len()), |mut text, octet| {
        write!(text, "{octet:02x}").expect("writing to a string cannot fail");
        text
    })
}

/// A part of a record's data.
enum Field {
    /// A number of so many octets, in decimal digits.
    Number(usize),
    /// An IPv4 address.
    Address,
    /// An algorithm of DNSSEC, a number of one octet.
    Algorithm,
    /// The type of a certificate (RFC 4398 §2.1), a number of two octets.
    Certificate,
    /// So many groups of hexadecimal digits.
    Groups { count: usize, octets: usize, between: char },
    /// A name.
    Name,
    /// A public key of HIP, its algorithm and the tag that hosts know it by (RFC 8005 §5).
    HostIdentity,
    /// To the end: a place on Earth.
    Location,
    /// To the end: strings, so many at least and at most.
    Strings(usize, usize),
    /// To the end: names.
    Names,
    /// To the end: prefixes of addresses (RFC 3123 §4).
    Prefixes,
    /// To the end: text, whose length is not told.
    Text,
    /// To the end: octets in base 64.
    Base64,
    /// To the end: types of records.
    Types,
}

impl Field {
    /// Appends the field's octets.
    fn read(&self, words: &mut Iter<'_, &[u8]>, origin: Option<&[u8]>, data: &mut Vec<u8>) -> Option<()> {
        match *self {
            Field::Number(octets) => push_number(data, number(plain(words.next()?)?)?, octets)?,
            Field::Address => data.extend(plain(words.next()?)?.parse::<Ipv4Addr>().ok()?.octets()),
            Field::Algorithm => {
                let word = plain(words.next()?)?;
                push_number(data, algorithm(word.as_bytes()).map(u64::from).or_else(|| number(word))?, 1)?;
            }
            Field::Certificate => {
                let word = plain(words.next()?)?;
                let named = CERTIFICATES.iter().find(|(_, name)| word.eq_ignore_ascii_case(name));
                push_number(data, named.map_or_else(|| number(word), |(known, _)| Some(*known))?, 2)?;
            }
            Field::Groups { count, octets, between } => {
                let groups: Vec<&str> = plain(words.next()?)?.split(between).collect();
                if groups.len() != count {
                    return None;
                }
                for group in groups {
                    // The reader of numbers takes a sign, too.
                    let is_hex = group.len() <= 2 * octets && group.bytes().all(|o| o.is_ascii_hexdigit());
                    push_number(data, u64::from_str_radix(group, 16).ok().filter(|_| is_hex)?, octets)?;
                }
            }
            Field::Name => data.extend(name(words.next()?, origin)?),
            Field::HostIdentity => {
                let algorithm = number(plain(words.next()?)?)?;
                let tag: Vec<u8> = base16::decode(plain(words.next()?)?).ok()?;
                let key: Vec<u8> = base64::decode(plain(words.next()?)?).ok()?;
                push_number(data, tag.len() as u64, 1)?;
                push_number(data, algorithm, 1)?;
                push_number(data, key.len() as u64, 2)?;
                data.extend([tag, key].concat());
            }
            Field::Location => data.extend(loc::read(words)?),
            Field::Strings(least, most) => {
                if !(least..=most).contains(&words.len()) {
                    return None;
                }
                for word in words {
                    let string = unescaped(word)?;
                    data.push(u8::try_from(string.len()).ok()?);
                    data.extend(string);
                }
            }
            Field::Names => {
                for word in words {
                    data.extend(name(word, origin)?);
                }
            }
            Field::Prefixes => {
                for word in words {
                    data.extend(prefix(plain(word)?)?);
                }
            }
            Field::Text => data.extend(unescaped(words.next()?)?),
            Field::Base64 => {
                let word: Vec<u8> = words.copied().flatten().copied().collect();
                data.extend(base64::decode::<Vec<u8>>(plain(&word)?).ok()?);
            }
            Field::Types => {
                let mut types = RtypeBitmap::<Vec<u8>>::builder();
                for word in words {
                    types.add(plain(word)?.parse().ok()?).ok()?;
                }
                data.extend(types.finalize().as_slice());
            }
        }
        Some(())
    }

    /// Takes the field's octets and appends its words.
    fn write(&self, data: &mut &[u8], words: &mut Vec<String>) -> Option<()> {
        match *self {
            Field::Number(octets) => words.push(take_number(data, octets)?.to_string()),
            Field::Address => words.push(Ipv4Addr::from(take(data, 4)?.as_array().copied()?).to_string()),
            Field::Algorithm => words.push(take_number(data, 1)?.to_string()),
            Field::Certificate => {
                let number = take_number(data, 2)?;
                let named = CERTIFICATES.iter().find(|(known, _)| *known == number);
                words.push(named.map_or_else(|| number.to_string(), |(_, name)| (*name).to_owned()));
            }
            Field::Groups { count, octets, between } => {
                let groups = take(data, count * octets)?.chunks(octets).map(hex);
                words.push(groups.collect::<Vec<_>>().join(&between.to_string()));
            }
            Field::Name => words.push(take_name(data)?),
            Field::HostIdentity => {
                let (tag, algorithm) = (take_number(data, 1)?, take_number(data, 1)?);
                let key = take_number(data, 2)?;
                words.push(algorithm.to_string());
                words.push(hex(take(data, tag as usize)?));
                words.push(base64::encode_string(take(data, key as usize)?));
            }
            Field::Location => words.push(loc::text(take(data, loc::LENGTH)?)?),
            Field::Strings(least, most) => {
                let before = words.len();
                while !data.is_empty() {
                    let length = take_number(data, 1)?;
                    words.push(quoted(take(data, length as usize)?));
                }
                (least..=most).contains(&(words.len() - before)).then_some(())?;
            }
            Field::Names => {
                while !data.is_empty() {
                    words.push(take_name(data)?);
                }
            }
            Field::Prefixes => {
                while !data.is_empty() {
                    words.push(take_prefix(data)?);
                }
            }
            Field::Text => words.push(quoted(std::mem::take(data))),
            Field::Base64 => words.push(base64::encode_string(std::mem::take(data))),
            Field::Types => {
                let types = RtypeBitmap::from_octets(std::mem::take(data)).ok()?;
                words.extend(types.iter().map(|rtype| rtype.to_string()));
            }
        }
        Some(())
    }
}

/// Types of certificates by name (RFC 4398 §2.1).
const CERTIFICATES: &[(u64, &str)] = &[
    (1, "PKIX"),
    (2, "SPKI"),
    (3, "PGP"),
    (4, "IPKIX"),
    (5, "ISPKI"),
    (6, "IPGP"),
    (7, "ACPKIX"),
    (8, "IACPKIX"),
    (253, "URI"),
    (254, "OID"),
];

/// Reads decimal digits, without a sign.
fn number(word: &str) -> Option<u64> {
    word.parse().ok().filter(|_| word.starts_with(|first: char| first.is_ascii_digit()))
}

fn push_number(data: &mut Vec<u8>, number: u64, octets: usize) -> Option<()> {
    let number = number.to_be_bytes();
    let (upper, lower) = number.split_at(number.len() - octets);
    if upper.iter().any(|octet| *octet != 0) {
        return None;
    }
    data.extend(lower);
    Some(())
}

fn take<'a>(data: &mut &'a [u8], octets: usize) -> Option<&'a [u8]> {
    data.split_off(..octets)
}

fn take_number(data: &mut &[u8], octets: usize) -> Option<u64> {
    let octets = take(data, octets)?;
    Some(octets.iter().fold(0, |number, octet| number << 8 | u64::from(*octet)))
}

/// Reads a name into its wire form; one that does not end with a dot is below the origin.
pub(super) fn name(word: &[u8], origin: Option<&[u8]>) -> Option<Vec<u8>> {
    let text = std::str::from_utf8(word).ok().filter(|word| !word.starts_with('"'))?;
    let wire = match text {
        "@" => origin?.to_vec(),
        "." => vec![0],
        _ => match text.parse::<UncertainName<Vec<u8>>>().ok()? {
            UncertainName::Absolute(name) => name.into_octets(),
            UncertainName::Relative(name) => [name.as_slice(), origin?].concat(),
        },
    };
    Folded::read(&wire).is_some_and(|name| name.wire_length() == wire.len()).then_some(wire)
}

fn take_name(data: &mut &[u8]) -> Option<String> {
    let length = Folded::read(data)?.wire_length();
    Some(dns::name::to_text(take(data, length)?))
}

/// In the octet of an item's length: the prefix is left out of the list (RFC 3123 §4).
const NEGATION: u8 = 0x80;

/// Reads an item of an APL record, `[!]FAMILY:ADDRESS/PREFIX` (RFC 3123 §5).
fn prefix(word: &str) -> Option<Vec<u8>> {
    let (negation, word) = word.strip_prefix('!').map_or((0, word), |rest| (NEGATION, rest));
    let (family, word) = word.split_once(':')?;
    let (address, bits) = word.split_once('/')?;
    let (family, address, most) = match number(family)? {
        1 => (1, address.parse::<Ipv4Addr>().ok()?.octets().to_vec(), 32),
        2 => (2, address.parse::<Ipv6Addr>().ok()?.octets().to_vec(), 128),
        _ => return None,
    };
    let bits = u8::try_from(number(bits)?).ok().filter(|bits| *bits <= most)?;
    // Zeros at the end are not sent.
    let length = address.iter().rposition(|octet| *octet != 0).map_or(0, |last| last + 1);
    Some([&[0, family, bits, negation | length as u8][..], &address[..length]].concat())
}

fn take_prefix(data: &mut &[u8]) -> Option<String> {
    let (family, bits) = (take_number(data, 2)?, take_number(data, 1)?);
    let length = take_number(data, 1)? as u8;
    let sent = take(data, usize::from(length & !NEGATION))?;
    let mut octets = [0; 16];
    octets.get_mut(..sent.len())?.copy_from_slice(sent);
    let address: IpAddr = match family {
        1 => Ipv4Addr::new(octets[0], octets[1], octets[2], octets[3]).into(),
        2 => Ipv6Addr::from(octets).into(),
        _ => return None,
    };
    let negation = if length & NEGATION == 0 { "" } else { "!" };
    Some(format!("{negation}{family}:{address}/{bits}"))
}

/// A word in which nothing is quoted or escaped.
fn plain(word: &[u8]) -> Option<&str> {
    let is_plain = word.iter().all(|octet| octet.is_ascii_graphic() && !matches!(octet, b'"' | b'\\'));
    std::str::from_utf8(word).ok().filter(|_| is_plain)
}

/// The octets of a word that may be quoted, with escapes (RFC 1035 §5.1).
pub(super) fn unescaped(word: &[u8]) -> Option<Vec<u8>> {
    let inner = match word.strip_prefix(b"\"") {
        Some(rest) => rest.strip_suffix(b"\"")?,
        None => word,
    };
    let (mut octets, mut rest) = (Vec::with_capacity(inner.len()), inner.iter().copied());
    while let Some(octet) = rest.next() {
        octets.push(match octet {
            b'\\' => match rest.next()? {
                digit @ b'0'..=b'9' => {
                    let digits = [digit, rest.next()?, rest.next()?];
                    std::str::from_utf8(&digits).ok()?.parse().ok()?
                }
                escaped => escaped,
            },
            b' '..=b'~' => octet,
            _ => return None,
        });
    }
    Some(octets)
}

fn quoted(octets: &[u8]) -> String {
    let mut text = String::from("\"");
    for &octet in octets {
        match octet {
            b'"' | b'\\' => text.extend(['\\', char::from(octet)]),
            b' '..=b'~' => text.push(char::from(octet)),
            _ => write!(text, "\\{octet:03}").expect("writing to a string cannot fail"),
        }
    }
    text + "\""
}

/// The types that are read here, field by field or as another.
#[cfg(test)]
pub(super) fn types() -> impl Iterator<Item = Rtype> + Clone {
    FORMS.iter().map(|(rtype, _)| *rtype)
}

#[cfg(test)]
mod tests {
    use super::super::Zone;
    use super::super::tests::{HEAD, build};
    use super::*;

    /// The zone of some records at `x`.
    fn zone(records: &str) -> Zone {
        build(&format!("{HEAD}{records}"))
    }

    #[test]
    fn records_have_the_octets_that_bind_gives_them() {
        // The texts are those of the RFCs and their limits, the octets those of named-rrchecker -u.
        let mut types = Vec::new();
        for (record, hex) in [
            ("LOC 42 21 54 N 71 06 18 W -24m 30m", "0033161389172dd070be15f000988d20"),
            ("LOC 42 21 43.952 N 71 5 6.344 W -24m 1m 200m", "001224138917069070bf2dd800988d20"),
            ("LOC 52 14 05 N 00 08 50 E 10m", "001216138b3556c88008165000989a68"),
            ("LOC 32 7 19 S 116 2 25 E 10m", "00121613791b7d2898e6486800989a68"),
            ("LOC 42 21 28.764 N 71 00 51.617 W -44m 2000m", "002516138916cb3c70c310df00988550"),
            ("LOC 90 N 180 W 42849672.95m 0m 90000000m 0.09m", "00009990934fd90059604e00ffffffff"),
            ("LOC 0 S 0 E -100000 35m 1.5 0.99", "00331291800000008000000000000000"),
            (
                r#"URI 10 1 "ftp://ftp1.example.com/public""#,
                "000a00016674703a2f2f667470312e6578616d706c652e636f6d2f7075626c6963",
            ),
            (r#"URI 1 2 "a \"b\" \195 c;""#, "00010002612022622220c320633b"),
            ("KX 10 kx.example.", "000a026b78076578616d706c6500"),
            ("AFSDB 1 afs.example.", "000103616673076578616d706c6500"),
            ("RT 2 relay.prime.com.", "00020572656c6179057072696d6503636f6d00"),
            ("X25 311061700956", "0c333131303631373030393536"),
            ("ISDN 150862028003217 004", "0f31353038363230323830303332313703303034"),
            ("ISDN 150862028003217", "0f313530383632303238303033323137"),
            (r#"SPF "v=spf1 -all" "b""#, "0b763d73706631202d616c6c0162"),
            ("EUI48 00-00-5e-00-53-2a", "00005e00532a"),
            ("EUI64 00-00-5e-ef-10-00-00-2a", "00005eef1000002a"),
            ("NID 10 0014:4fff:ff20:ee64", "000a00144fffff20ee64"),
            ("L32 10 10.1.2.0", "000a0a010200"),
            ("L64 10 2001:0DB8:1140:1000", "000a20010db811401000"),
            ("LP 10 l64-subnet1.example.com.", "000a0b6c36342d7375626e657431076578616d706c6503636f6d00"),
            ("CERT PKIX 12345 8 AQIDBA==", "000130390801020304"),
            ("CERT 65534 65535 254 AQIDBA==", "fffefffffe01020304"),
            ("CSYNC 66 3 A NS AAAA", "000000420003000460000008"),
            ("SMIMEA 3 0 0 aabbcc", "030000aabbcc"),
            (
                "DHCID AAIBY2/AuCccgoJbsaxcQc9TUapptP69lOjxfNuVAA2kjEA=",
                "000201636fc0b8271c82825bb1ac5c41cf5351aa69b4febd94e8f17cdb95000da48c40",
            ),
            ("GPOS -32.6882 116.8652 10.0", "082d33322e36383832083131362e383635320431302e30"),
            (
                "PX 10 map822.example. mapx400.example.",
                "000a066d6170383232076578616d706c6500076d617078343030076578616d706c6500",
            ),
            ("APL 1:192.168.32.0/21 !1:192.168.38.0/28", "00011503c0a82000011c83c0a826"),
            ("APL 1:224.0.0.0/4 2:FF00:0:0:0:0:0:0:0/8", "00010401e000020801ff"),
            (
                "APL !2:2001:db8::1/128 1:0.0.0.0/0 1:10.0.0.1/08",
                "0002809020010db800000000000000000000000100010000000108040a000001",
            ),
            (
                "HIP 2 200100107B1A74DF365639CC39F1D578 AwEAAbdx rvs1.example.com. RVS2.example.com.",
                "10020006200100107b1a74df365639cc39f1d57803010001b7710472767331076578616d706c6503636f6d000452565332\
                 076578616d706c6503636f6d00",
            ),
            ("HIP ( 2 2001\n AQIDBA== )", "02020004200101020304"),
            ("KEY 256 3 8 AQIDBA==", "0100030801020304"),
            (
                "DLV 1 8 1 aabbccddeeff00112233aabbccddeeff00112233",
                "00010801aabbccddeeff00112233aabbccddeeff00112233",
            ),
        ] {
            let (rtype, _) = record.split_once(' ').expect("a type and data");
            let octets = zone(&format!("x {rtype} \\# {} {hex}\n", hex.len() / 2)).to_text();
            let read = zone(&format!("x {record}\n")).to_text();
            assert_eq!(read, octets, "{record}");
            assert!(!read.contains("\\#"), "{read}");
            assert_eq!(zone(&read).to_text(), read);
            types.push(rtype.parse::<Rtype>().expect("a type"));
        }
        types.dedup();
        types.sort();
        let mut all: Vec<Rtype> = super::types().collect();
        all.sort();
        assert_eq!(types, all);
    }

    #[test]
    fn what_is_not_of_the_form_is_refused() {
        let refused = |record: &str| {
            let mut words = record.split(' ');
            let rtype = words.next().and_then(|word| word.parse().ok()).expect("a type");
            let words: Vec<&[u8]> = words.map(str::as_bytes).collect();
            assert_eq!(read(rtype, &words, None), None, "{record}");
        };
        for record in [
            "LOC",
            "LOC N 4 E 0m",
            "LOC 52 N 4 E",
            "LOC 91 N 4 E 0m",
            "LOC 90 0 0.001 N 4 E 0m",
            "LOC 52 60 N 4 E 0m",
            "LOC 52 1.5 N 4 E 0m",
            "LOC 52 1 2.0005 N 4 E 0m",
            "LOC 52 1 2 3 N 4 E 0m",
            "LOC 52 E 4 N 0m",
            "LOC 52 N 181 E 0m",
            "LOC 52 N 4 E 92233720368547758.07m",
            "LOC 52 N 4 E -100000.01m",
            "LOC 52 N 4 E 42849672.96m",
            "LOC 52 N 4 E 99999999999999999999m",
            "LOC 52 N 4 E 0m 90000000.01m",
            "LOC 52 N 4 E 0m 1m 1m 1m 1m",
            "LOC 52 N 4 E 0m -1m",
            "URI 1 2",
            "URI 1 65536 a",
            "URI 1 +2 a",
            "URI 1 2 \"a",
            "URI 1 2 \\25",
            "URI 1 2 \\256",
            "URI 1 2 a b",
            "EUI48 00-00-5e-00-53",
            "EUI48 00-00-5e-00-53-2aa",
            "EUI48 00-00-5e-00-53-+a",
            "EUI64 00-00-5e-00-53--00-00",
            "NID 1 ::1",
            "L32 1 10.1.2",
            "X25 1 2",
            "X25",
            "ISDN 1 2 3",
            "CERT PKI 1 1 AQID",
            "CERT 1 1 1 A",
            "CSYNC 1 1 NONE",
            "GPOS 1 2",
            "GPOS 1 2 3 4",
            "PX 1 a.",
            "PX 1 a. b. c.",
            "PX 1 a. b",
            "PX 1 a. @",
            "PX 1 a. b..c.",
            "PX 1 a. \"b.\"",
            "APL 1:10.0.0.0",
            "APL 1:10.0.0/8",
            "APL 1:10.0.0.0/33",
            "APL 2:::/129",
            "APL 3:1/2",
            "APL !!1:10.0.0.0/8",
            "APL +1:10.0.0.0/8",
            "HIP 256 2001 AQIDBA==",
            "HIP 2 200 AQIDBA==",
            "HIP 2 \"\" AQIDBA==",
            "HIP 2 2001",
            "HIP 2 2001 AQIDBA== b",
        ] {
            refused(record);
        }
        refused(&format!("X25 {}", "1".repeat(256)));
        refused(&format!("URI 1 2 {}", "a".repeat(DATA_MAX)));
        refused(&format!("HIP 2 {} AQIDBA==", "00".repeat(256)));
        refused(&format!("PX 1 a. {}.", ["a"; 128].join(".")));
    }

    #[test]
    fn records_stand_beside_those_of_other_types() {
        let text = "; AFSDB\nx 1h AFSDB ( 1 ; a comment\n @ )\n\n MX 2 @\n LOC ( 52 ; degrees\n 22 N\n 4 E 0m )\n\
                    $ORIGIN y.example.\nx KX 3 x\n  URI 1 2 \"( ;\"\n  TXT LOC\ntype18 TYPE18 4 @\n\
                    h HIP 2 2001 AQIDBA== ( rvs ; a comment\n @ . )\n$ORIGIN z\np PX 1 @ a\\.b\n";
        let text = zone(text).to_text();
        let mut lines = text.lines().filter(|line| !line.starts_with("example.")).collect::<Vec<_>>();
        lines.sort_unstable();
        assert_eq!(
            lines,
            [
                "h.y.example. 60 IN HIP 2 2001 AQIDBA== rvs.y.example. y.example. .",
                "p.z.y.example. 60 IN PX 1 z.y.example. a\\.b.z.y.example.",
                "type18.y.example. 60 IN AFSDB 4 y.example.",
                "x.example. 3600 IN AFSDB 1 example.",
                "x.example. 60 IN LOC 52 22 0.000 N 4 0 0.000 E 0m 1m 10000m 10m",
                "x.example. 60 IN MX 2 example.",
                "x.y.example. 60 IN KX 3 x.y.example.",
                "x.y.example. 60 IN TXT \"LOC\"",
                "x.y.example. 60 IN URI 1 2 \"( ;\"",
            ]
        );
    }
}
