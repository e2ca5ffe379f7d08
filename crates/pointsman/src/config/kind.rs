//! What a key's value may be, and how it is read from the file or from a flag.

use std::net::{IpAddr, SocketAddr};
use std::ops::RangeInclusive;
use std::path::PathBuf;
use std::time::Duration;

use api::Target;
use balancer::field::WEIGHT_MAX;
use dns::Folded;
use nameserver::as_path;
use net::tls::client;
use routing::Prefix;
use rustls::pki_types::ServerName;
use store::{OpenError, Store};
use toml::de::DeValue;

use super::spec::{BackEndSpec, Place, Placed, Version};

const MIB: u64 = 1 << 20;

/// Longer times are told in days.
const DAY: Duration = Duration::from_secs(86_400);

/// Finds the field of a key that holds one value.
type Slot<S, T> = fn(&mut S) -> &mut Option<Placed<T>>;

/// Finds the field of a key that holds a list.
type Slots<S, T> = fn(&mut S) -> &mut Vec<Placed<T>>;

/// What a value may be, with the field of `S` that it goes to.
#[derive(Debug)]
pub(crate) enum Kind<S> {
    /// The form of the file.
    Version(Slot<S, Version>),
    /// True or false.
    Boolean(Slot<S, bool>),
    /// A whole number within a range.
    Integer(Slot<S, u64>, RangeInclusive<u64>),
    /// A number within a range.
    Number(Slot<S, f64>, RangeInclusive<f64>),
    /// A number of octets within a range, given with its unit.
    Octets(Slot<S, u64>, RangeInclusive<u64>),
    /// A time within a range, given with its unit.
    Duration(Slot<S, Duration>, RangeInclusive<Duration>),
    /// An IP address and a port.
    Address(Slot<S, SocketAddr>),
    /// Several of them.
    Addresses(Slots<S, SocketAddr>),
    /// Several, each with how long those who ask there wait, within a range, where that is given.
    Waiting(Slots<S, (SocketAddr, Option<Duration>)>, RangeInclusive<Duration>),
    /// Several, whose port is DNS's where none is given.
    Resolvers(Slots<S, SocketAddr>),
    /// Several, each with the name of its certificate where it is asked over TLS, and with a weight where one is given.
    BackEnds(Slots<S, BackEndSpec>),
    /// What a server is answered as: an IP address, or a name.
    Target(Slot<S, Target>),
    /// IP addresses alone.
    Ips(Slots<S, IpAddr>),
    /// A file.
    Path(Slot<S, PathBuf>),
    /// Several of them.
    Paths(Slots<S, PathBuf>),
    /// The store's URL.
    Store(Slot<S, String>),
    /// A name of something.
    Name(Slot<S, String>, &'static str),
    /// Several texts of any kind.
    Texts(Slots<S, String>, &'static str),
    /// Whole numbers from 1 on by name: a table in the file.
    Ranks(Slots<S, (String, u32)>),
    /// The names of zones.
    Zones(Slots<S, Folded>),
    /// Names, in which a label `*` may stand for any.
    Names(Slots<S, Folded>),
    /// Prefixes of addresses.
    Prefixes(Slots<S, Prefix>),
    /// Servers, each with its AS where that is not to be looked up.
    Servers(Slots<S, as_path::Server>),
    /// Some of a few words.
    Words(Slots<S, &'static str>, &'static [&'static str]),
    /// One of a few words.
    Choice(Slot<S, &'static str>, &'static [&'static str]),
}

/// A value before it is read.
pub(crate) enum Given<'a> {
    /// From the file.
    File(&'a DeValue<'a>),
    /// What stands behind a flag, from which any kind is read.
    Flag(&'a str),
}

/// Why a value is none of its kind: what was given instead, in words.
type Wrong = String;

impl<S> Kind<S> {
    /// Says what is expected, in the words of faults and of the manual.
    pub(crate) fn expected(&self) -> String {
        match self {
            Kind::Version(_) => "\"v1\"".into(),
            Kind::Boolean(_) => "true or false".into(),
            Kind::Integer(_, range) if *range.end() == i64::MAX as u64 => {
                format!("a whole number of at least {}", range.start())
            }
            Kind::Integer(_, range) => format!("a whole number from {} to {}", range.start(), range.end()),
            Kind::Number(_, range) if *range.end() == f64::MAX && *range.start() == f64::MIN_POSITIVE => {
                "a number above 0".into()
            }
            Kind::Number(_, range) if *range.end() == f64::MAX => {
                format!("a number of at least {}", range.start())
            }
            Kind::Number(_, range) if *range.start() == f64::MIN_POSITIVE => {
                format!("a number above 0, at most {}", range.end())
            }
            Kind::Number(_, range) => format!("a number from {} to {}", range.start(), range.end()),
            Kind::Octets(_, range) if *range.end() < MIB => {
                format!("a size from {} B to {} B, in B or KiB", range.start(), range.end())
            }
            Kind::Octets(_, range) => format!(
                "a size from {} to {}, in KiB, MiB or GiB",
                written_size(*range.start()),
                written_size(*range.end())
            ),
            Kind::Duration(_, range) => times(range),
            Kind::Address(_) => "an IP address and a port, such as 127.0.0.1:53 or [::1]:53".into(),
            Kind::Addresses(_) => "IP addresses and ports, such as 127.0.0.1:53 or [::1]:53".into(),
            Kind::Waiting(_, range) => format!(
                "IP addresses and ports, such as 127.0.0.1:53, or 127.0.0.1:53+200ms to wait so long, {} at most",
                written(*range.end())
            ),
            Kind::Resolvers(_) => "IP addresses, with a port where it is not 53".into(),
            Kind::BackEnds(_) => format!(
                "IP addresses, with a port where it is not 53, #NAME of the certificate over TLS (port 853), and =WEIGHT \
                 where it is not 1 (from 1 to {WEIGHT_MAX})"
            ),
            Kind::Target(_) => "an IP address such as 192.0.2.1 or 2001:db8::1, or a name".into(),
            Kind::Ips(_) => "IP addresses, such as 192.0.2.1 or 2001:db8::1".into(),
            Kind::Path(_) => "the path of a file".into(),
            Kind::Paths(_) => "paths of files".into(),
            Kind::Store(_) => {
                "sqlite:PATH, postgres://USER@HOST/DATABASE or mysql://USER@HOST/DATABASE".into()
            }
            Kind::Name(_, expected) | Kind::Texts(_, expected) => (*expected).into(),
            Kind::Ranks(_) => "a table of regions with a whole number from 1 on each".into(),
            Kind::Zones(_) => "names of zones, such as example.com".into(),
            Kind::Names(_) => "names, such as www.example.com".into(),
            Kind::Prefixes(_) => "addresses or prefixes, such as 192.0.2.1 or 2001:db8::/32".into(),
            Kind::Servers(_) => {
                "addresses of servers, with =AS64496 where its AS is not to be looked up".into()
            }
            Kind::Choice(_, words) | Kind::Words(_, words) => one_of(words),
        }
    }

    /// The words of which the value is one; none where there are too many to list.
    pub(crate) fn words(&self) -> &'static [&'static str] {
        match self {
            Kind::Boolean(_) => &["true", "false"],
            Kind::Choice(_, words) | Kind::Words(_, words) => words,
            _ => &[],
        }
    }

    /// What stands for the value in a flag's usage.
    pub(crate) fn value_name(&self) -> &'static str {
        match self {
            Kind::Version(_) => "VERSION",
            Kind::Boolean(_) => "BOOL",
            Kind::Integer(..) | Kind::Number(..) | Kind::Ranks(_) => "N",
            Kind::Octets(..) => "SIZE",
            Kind::Duration(..) => "TIME",
            Kind::Address(_) | Kind::Addresses(_) | Kind::Resolvers(_) => "ADDR",
            Kind::BackEnds(_) => "ADDR[#NAME][=WEIGHT]",
            Kind::Target(_) | Kind::Ips(_) => "ADDR",
            Kind::Waiting(..) => "ADDR[+TIME]",
            Kind::Path(_) | Kind::Paths(_) => "FILE",
            Kind::Store(_) => "URL",
            Kind::Name(..) | Kind::Texts(..) => "TEXT",
            Kind::Zones(_) => "ZONE",
            Kind::Names(_) => "NAME",
            Kind::Prefixes(_) => "PREFIX",
            Kind::Servers(_) => "SERVER",
            Kind::Choice(..) | Kind::Words(..) => "WORD",
        }
    }

    /// Whether the value is a list: an array in the file, a flag that may be given several times.
    pub(crate) fn is_list(&self) -> bool {
        matches!(
            self,
            Kind::Addresses(_)
                | Kind::Waiting(..)
                | Kind::Resolvers(_)
                | Kind::BackEnds(_)
                | Kind::Ips(_)
                | Kind::Paths(_)
                | Kind::Texts(..)
                | Kind::Zones(_)
                | Kind::Names(_)
                | Kind::Prefixes(_)
                | Kind::Servers(_)
                | Kind::Words(..)
        )
    }

    /// Reads a value into its field; for a list, an element behind those that are there.
    ///
    /// # Errors
    /// What was given instead, as a fragment such as "an integer".
    pub(crate) fn read(&self, given: &Given<'_>, place: Place, spec: &mut S) -> Result<(), Wrong> {
        match self {
            Kind::Version(slot) => set(slot(spec), version(given), place),
            Kind::Boolean(slot) => set(slot(spec), boolean(given), place),
            Kind::Integer(slot, range) => set(slot(spec), integer(given, range), place),
            Kind::Number(slot, range) => set(slot(spec), number(given, range), place),
            Kind::Octets(slot, range) => set(slot(spec), octets(given, range), place),
            Kind::Duration(slot, range) => set(slot(spec), duration(given, range), place),
            Kind::Address(slot) => set(slot(spec), address(given), place),
            Kind::Addresses(slots) => push(slots(spec), address(given), place),
            Kind::Waiting(slots, range) => push(slots(spec), waiting(given, range), place),
            Kind::Resolvers(slots) => push(slots(spec), resolver(given), place),
            Kind::BackEnds(slots) => push(slots(spec), back_end(given), place),
            Kind::Target(slot) => set(slot(spec), target(given), place),
            Kind::Ips(slots) => push(slots(spec), ip(given), place),
            Kind::Path(slot) => set(slot(spec), path(given), place),
            Kind::Paths(slots) => push(slots(spec), path(given), place),
            Kind::Store(slot) => set(slot(spec), store(given), place),
            Kind::Name(slot, _) => set(slot(spec), name(given), place),
            Kind::Texts(slots, _) => push(slots(spec), name(given), place),
            // The file's reader takes tables apart; nothing else is one.
            Kind::Ranks(_) => Err(match given {
                Given::File(value) => described(value),
                Given::Flag(text) => format!("{text:?}"),
            }),
            Kind::Zones(slots) | Kind::Names(slots) => push(slots(spec), domain_name(given), place),
            Kind::Prefixes(slots) => push(slots(spec), prefix(given), place),
            Kind::Servers(slots) => push(slots(spec), server(given), place),
            Kind::Words(slots, words) => push(slots(spec), choice(given, words), place),
            Kind::Choice(slot, words) => set(slot(spec), choice(given, words), place),
        }
    }

    /// Whether two configurations have the same value, wherever they have it from.
    pub(crate) fn is_same(&self, one: &mut S, other: &mut S) -> bool {
        match self {
            Kind::Version(slot) => same(slot(one), slot(other)),
            Kind::Boolean(slot) => same(slot(one), slot(other)),
            Kind::Integer(slot, _) | Kind::Octets(slot, _) => same(slot(one), slot(other)),
            Kind::Number(slot, _) => same(slot(one), slot(other)),
            Kind::Duration(slot, _) => same(slot(one), slot(other)),
            Kind::Address(slot) => same(slot(one), slot(other)),
            Kind::Target(slot) => same(slot(one), slot(other)),
            Kind::Path(slot) => same(slot(one), slot(other)),
            Kind::Store(slot) | Kind::Name(slot, _) => same(slot(one), slot(other)),
            Kind::Choice(slot, _) => same(slot(one), slot(other)),
            Kind::Addresses(slots) | Kind::Resolvers(slots) => same(slots(one), slots(other)),
            Kind::Waiting(slots, _) => same(slots(one), slots(other)),
            Kind::BackEnds(slots) => same(slots(one), slots(other)),
            Kind::Ips(slots) => same(slots(one), slots(other)),
            Kind::Paths(slots) => same(slots(one), slots(other)),
            Kind::Texts(slots, _) => same(slots(one), slots(other)),
            Kind::Ranks(slots) => same(slots(one), slots(other)),
            Kind::Zones(slots) | Kind::Names(slots) => {
                let wires = |zones: &[Placed<Folded>]| -> Vec<Vec<u8>> {
                    zones.iter().map(|zone| zone.value.wire().to_vec()).collect()
                };
                wires(slots(one)) == wires(slots(other))
            }
            Kind::Prefixes(slots) => same(slots(one), slots(other)),
            Kind::Servers(slots) => same(slots(one), slots(other)),
            Kind::Words(slots, _) => same(slots(one), slots(other)),
        }
    }

    /// Empties the field of a list, so that what is given next replaces what was there. Other fields keep
    /// what they have until there is something better, so that one fault does not lead to others.
    pub(crate) fn clear(&self, spec: &mut S) {
        match self {
            Kind::Addresses(slots) | Kind::Resolvers(slots) => slots(spec).clear(),
            Kind::BackEnds(slots) => slots(spec).clear(),
            Kind::Ips(slots) => slots(spec).clear(),
            Kind::Texts(slots, _) => slots(spec).clear(),
            Kind::Waiting(slots, _) => slots(spec).clear(),
            Kind::Paths(slots) => slots(spec).clear(),
            Kind::Zones(slots) => slots(spec).clear(),
            Kind::Prefixes(slots) => slots(spec).clear(),
            Kind::Servers(slots) => slots(spec).clear(),
            Kind::Words(slots, _) => slots(spec).clear(),
            _ => {}
        }
    }
}

/// Writes the words of a choice as a sentence has them.
pub(crate) fn one_of(words: &[&str]) -> String {
    match words {
        [] => String::new(),
        [word] => (*word).into(),
        [first @ .., last] => format!("{} or {last}", first.join(", ")),
    }
}

/// Says in words what a value of the file is.
pub(crate) fn described(value: &DeValue<'_>) -> String {
    match value {
        DeValue::String(text) => format!("{text:?}"),
        DeValue::Integer(number) => format!("the number {number}"),
        DeValue::Float(number) => format!("the number {number}"),
        DeValue::Boolean(value) => format!("{value}"),
        DeValue::Datetime(_) => "a date".into(),
        DeValue::Array(elements) if elements.is_empty() => "an empty array".into(),
        DeValue::Array(_) => "an array".into(),
        DeValue::Table(_) => "a table".into(),
    }
}

/// Whether the values are the same, places aside.
fn same<'a, T: PartialEq + 'a>(
    one: impl IntoIterator<Item = &'a mut Placed<T>>,
    other: impl IntoIterator<Item = &'a mut Placed<T>>,
) -> bool {
    let (one, other) =
        (one.into_iter().map(|placed| &placed.value), other.into_iter().map(|placed| &placed.value));
    one.eq(other)
}

fn set<T>(slot: &mut Option<Placed<T>>, read: Result<T, Wrong>, place: Place) -> Result<(), Wrong> {
    *slot = Some(Placed { value: read?, place });
    Ok(())
}

fn push<T>(slots: &mut Vec<Placed<T>>, read: Result<T, Wrong>, place: Place) -> Result<(), Wrong> {
    slots.push(Placed { value: read?, place });
    Ok(())
}

fn text<'a>(given: &'a Given<'_>) -> Result<&'a str, Wrong> {
    match given {
        Given::Flag(text) => Ok(text),
        Given::File(DeValue::String(text)) => Ok(text),
        Given::File(other) => Err(described(other)),
    }
}

fn version(given: &Given<'_>) -> Result<Version, Wrong> {
    match text(given)? {
        "v1" => Ok(Version),
        other => Err(format!("{other:?}")),
    }
}

fn boolean(given: &Given<'_>) -> Result<bool, Wrong> {
    match given {
        Given::File(DeValue::Boolean(value)) => Ok(*value),
        Given::File(other) => Err(described(other)),
        Given::Flag(text) => text.parse().map_err(|_| format!("{text:?}")),
    }
}

fn integer(given: &Given<'_>, range: &RangeInclusive<u64>) -> Result<u64, Wrong> {
    let (read, wrong) = match given {
        Given::File(value @ DeValue::Integer(number)) => {
            (u64::from_str_radix(number.as_str(), number.radix()).ok(), described(value))
        }
        Given::File(other) => return Err(described(other)),
        Given::Flag(text) => (text.parse().ok(), format!("{text:?}")),
    };
    read.filter(|number| range.contains(number)).ok_or(wrong)
}

fn number(given: &Given<'_>, range: &RangeInclusive<f64>) -> Result<f64, Wrong> {
    let (read, wrong): (Option<f64>, _) = match given {
        Given::File(value @ DeValue::Integer(number)) => {
            (u64::from_str_radix(number.as_str(), number.radix()).ok().map(|n| n as f64), described(value))
        }
        Given::File(value @ DeValue::Float(number)) => (number.as_str().parse().ok(), described(value)),
        Given::File(other) => return Err(described(other)),
        Given::Flag(text) => (text.parse().ok(), format!("{text:?}")),
    };
    read.filter(|number| range.contains(number)).ok_or(wrong)
}

fn ip(given: &Given<'_>) -> Result<IpAddr, Wrong> {
    let text = text(given)?;
    text.parse().map_err(|_| format!("{text:?}"))
}

fn target(given: &Given<'_>) -> Result<Target, Wrong> {
    let text = text(given)?;
    if let Ok(address) = text.parse() {
        return Ok(Target::Address(address));
    }
    let wire = dns::name::host_from_text(text).map_err(|_| format!("{text:?}"))?;
    Ok(Target::Cname(dns::name::to_text(&wire)))
}

fn octets(given: &Given<'_>, range: &RangeInclusive<u64>) -> Result<u64, Wrong> {
    let (text, number, unit) = measure(given)?;
    let scale = match unit {
        "B" => Some(1),
        "KiB" => Some(1 << 10),
        "MiB" => Some(MIB),
        "GiB" => Some(1 << 30),
        _ => None,
    };
    let octets = scale.and_then(|scale: u64| number.checked_mul(scale));
    octets.filter(|octets| range.contains(octets)).ok_or_else(|| format!("{text:?}"))
}

fn duration(given: &Given<'_>, range: &RangeInclusive<Duration>) -> Result<Duration, Wrong> {
    let (text, number, unit) = measure(given)?;
    let scale_ms = match unit {
        "ms" => Some(1),
        "s" => Some(1_000),
        "min" => Some(60_000),
        "h" => Some(3_600_000),
        "d" => Some(86_400_000),
        _ => None,
    };
    let time = scale_ms.and_then(|scale: u64| number.checked_mul(scale)).map(Duration::from_millis);
    time.filter(|time| range.contains(time)).ok_or_else(|| format!("{text:?}"))
}

/// Splits a whole number from its unit; a space may stand between.
fn measure<'a>(given: &'a Given<'_>) -> Result<(&'a str, u64, &'a str), Wrong> {
    if let Given::File(value @ DeValue::Integer(_)) = given {
        return Err(format!("{} without a unit", described(value)));
    }
    let text = text(given)?;
    let digits = text.find(|c: char| !c.is_ascii_digit()).unwrap_or(text.len());
    let number = text[..digits].parse().map_err(|_| format!("{text:?}"))?;
    Ok((text, number, text[digits..].trim_start()))
}

/// An address of IPv4 that is written as one of IPv6 (`::ffff:192.0.2.1`) is its own: nothing can be bound to the other.
fn address(given: &Given<'_>) -> Result<SocketAddr, Wrong> {
    let text = text(given)?;
    text.parse().map(net::client::canonical).map_err(|_| format!("{text:?}"))
}

fn waiting(
    given: &Given<'_>,
    range: &RangeInclusive<Duration>,
) -> Result<(SocketAddr, Option<Duration>), Wrong> {
    let text = text(given)?;
    let (address, wait) = match text.split_once('+') {
        Some((address, wait)) => (address, duration(&Given::Flag(wait), range).map(Some)),
        None => (text, Ok(None)),
    };
    let read = self::address(&Given::Flag(address)).ok().zip(wait.ok());
    read.ok_or_else(|| format!("{text:?}"))
}

fn resolver(given: &Given<'_>) -> Result<SocketAddr, Wrong> {
    let text = text(given)?;
    with_port(text).map_err(|_| format!("{text:?}"))
}

/// Reads an address, whose port is DNS's where none is given; that of an IPv4 server written as one of IPv6
/// (`::ffff:192.0.2.1`) is its own.
///
/// # Errors
/// What is expected.
pub(crate) fn with_port(text: &str) -> Result<SocketAddr, &'static str> {
    with_port_or(text, 53).ok_or("expected an IP address, with a port where it is not 53")
}

/// Reads an address whose port is this one where none is given.
fn with_port_or(text: &str, port: u16) -> Option<SocketAddr> {
    let with_port = text.parse().or_else(|_| text.parse().map(|ip: IpAddr| SocketAddr::new(ip, port)));
    with_port.ok().map(net::client::canonical)
}

/// Reads a server's address, and behind `#` the name that its certificate is for, where it is asked over TLS.
///
/// # Errors
/// What is expected.
pub(crate) fn named(text: &str) -> Result<(SocketAddr, Option<ServerName<'static>>), &'static str> {
    let Some((at, name)) = text.split_once('#') else { return Ok((with_port(text)?, None)) };
    let address = with_port_or(at, 853);
    let named = address.zip(client::host(name));
    let (address, name) =
        named.ok_or("expected an IP address, with a port where it is not 853, #, and the name that its certificate is for")?;
    Ok((address, Some(name)))
}

fn back_end(given: &Given<'_>) -> Result<BackEndSpec, Wrong> {
    let text = text(given)?;
    let (at, weight) = text.split_once('=').unwrap_or((text, "1"));
    let weight = weight.parse().ok().filter(|weight| (1..=WEIGHT_MAX).contains(weight));
    let named = named(at).ok().zip(weight);
    let ((address, tls), weight) = named.ok_or_else(|| format!("{text:?}"))?;
    Ok(BackEndSpec { address, tls, weight })
}

fn path(given: &Given<'_>) -> Result<PathBuf, Wrong> {
    match text(given)? {
        "" => Err("an empty text".into()),
        text => Ok(text.into()),
    }
}

fn store(given: &Given<'_>) -> Result<String, Wrong> {
    let text = text(given)?;
    Store::check_url(text).map(|()| text.into()).map_err(|error| match (error, text.split_once(':')) {
        (OpenError::Url { url, cause }, _) => format!("{url:?}, which is wrong: {cause}"),
        // What stands behind may be a password.
        (_, Some((scheme, _))) if scheme != "sqlite" => format!("{:?}", format!("{scheme}:...")),
        _ => format!("{text:?}"),
    })
}

fn name(given: &Given<'_>) -> Result<String, Wrong> {
    match text(given)? {
        "" => Err("an empty text".into()),
        text => Ok(text.into()),
    }
}

fn domain_name(given: &Given<'_>) -> Result<Folded, Wrong> {
    let text = text(given)?;
    let wire = dns::name::folded_from_text(text).map_err(|_| format!("{text:?}"))?;
    Folded::read(&wire).ok_or_else(|| format!("{text:?}"))
}

fn prefix(given: &Given<'_>) -> Result<Prefix, Wrong> {
    let text = text(given)?;
    let address = text.parse::<IpAddr>().ok();
    let alone = address.and_then(|address| Prefix::new(address, if address.is_ipv4() { 32 } else { 128 }));
    alone.or_else(|| text.parse().ok()).ok_or_else(|| format!("{text:?}"))
}

fn server(given: &Given<'_>) -> Result<as_path::Server, Wrong> {
    let text = text(given)?;
    let wrong = || format!("{text:?}");
    let (address, asn) = match text.split_once('=') {
        None => (text, None),
        Some((address, asn)) => {
            let asn = asn.strip_prefix("AS").unwrap_or(asn);
            (address, Some(asn.parse().map_err(|_| wrong())?))
        }
    };
    Ok(as_path::Server { address: address.parse().map_err(|_| wrong())?, asn })
}

fn choice(given: &Given<'_>, words: &'static [&'static str]) -> Result<&'static str, Wrong> {
    let text = text(given)?;
    words.iter().find(|word| **word == text).copied().ok_or_else(|| format!("{text:?}"))
}

/// Reads a time as keys have it.
///
/// # Errors
/// What it should have been.
pub(crate) fn time(text: &str) -> Result<Duration, String> {
    duration(&Given::Flag(text), &(Duration::ZERO..=Duration::MAX))
        .map_err(|_| "expected a time such as 50ms, 2s, 5min, 1h or 7d".into())
}

/// Reads a time as keys have it, from and to so long.
///
/// # Errors
/// What it should have been.
pub(crate) fn time_within(text: &str, range: &RangeInclusive<Duration>) -> Result<Duration, String> {
    duration(&Given::Flag(text), range).map_err(|_| format!("expected {}", times(range)))
}

/// Reads a size as keys have it.
///
/// # Errors
/// What it should have been.
pub(crate) fn size(text: &str) -> Result<u64, String> {
    octets(&Given::Flag(text), &(0..=u64::MAX)).map_err(|_| "expected a size such as 64MiB or 2GiB".into())
}

/// Says which times there may be.
fn times(range: &RangeInclusive<Duration>) -> String {
    let (from, to) = (written(*range.start()), written(*range.end()));
    let longest = if *range.end() > DAY { ", h or d" } else { " or h" };
    format!("a time from {from} to {to}, in ms, s, min{longest}")
}

/// Writes a size in the largest unit that divides it.
fn written_size(octets: u64) -> String {
    match [(1 << 30, "GiB"), (MIB, "MiB"), (1 << 10, "KiB")]
        .iter()
        .find(|(unit, _)| octets.is_multiple_of(*unit))
    {
        Some((unit, name)) => format!("{} {name}", octets / unit),
        None => format!("{octets} B"),
    }
}

/// Writes a time in the largest unit that divides it.
fn written(time: Duration) -> String {
    let ms = time.as_millis();
    if ms == 0 {
        return "0 s".into();
    }
    if time > DAY && ms.is_multiple_of(86_400_000) {
        return format!("{} d", ms / 86_400_000);
    }
    match [(3_600_000, "h"), (60_000, "min"), (1_000, "s")].iter().find(|(unit, _)| ms.is_multiple_of(*unit))
    {
        Some((unit, name)) => format!("{} {name}", ms / unit),
        None => format!("{ms} ms"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::spec::Spec;

    fn check(kind: &Kind<Spec>, given: &str, read: Result<&str, &str>) {
        let value = DeValue::parse(given).expect("the test gives TOML");
        let mut spec = Spec::default();
        let found = kind.read(&Given::File(value.get_ref()), Place::Default, &mut spec);
        let field = |spec: &Spec| match kind {
            Kind::Duration(..) => format!("{:?}", spec.idle.as_ref().map(|idle| idle.value)),
            _ => format!("{:?}", spec.workers.as_ref().map(|number| number.value)),
        };
        let found = found.map(|()| field(&spec));
        let read = read.map(|value| format!("Some({value})")).map_err(str::to_owned);
        assert_eq!(found, read, "for {given}");
    }

    #[test]
    fn times_and_sizes_carry_units() {
        let time =
            Kind::Duration(|s: &mut Spec| &mut s.idle, Duration::from_millis(1)..=Duration::from_secs(3600));
        assert_eq!(time.expected(), "a time from 1 ms to 1 h, in ms, s, min or h");
        check(&time, "\"10s\"", Ok("10s"));
        check(&time, "\"500 ms\"", Ok("500ms"));
        check(&time, "\"2min\"", Ok("120s"));
        check(&time, "\"1h\"", Ok("3600s"));
        check(&time, "\"2h\"", Err("\"2h\""));
        check(&time, "\"0s\"", Err("\"0s\""));
        check(&time, "\"10\"", Err("\"10\""));
        check(&time, "\"s\"", Err("\"s\""));
        check(&time, "\"10 S\"", Err("\"10 S\""));
        check(&time, "\"99999999999999999999s\"", Err("\"99999999999999999999s\""));
        check(&time, "\"18446744073709551615h\"", Err("\"18446744073709551615h\""));
        check(&time, "10", Err("the number 10 without a unit"));
        check(&time, "[]", Err("an empty array"));
        check(&time, "[1]", Err("an array"));

        let size = Kind::Octets(|s: &mut Spec| &mut s.workers, 512..=4096);
        check(&size, "\"1232 B\"", Ok("1232"));
        check(&size, "\"4KiB\"", Ok("4096"));
        check(&size, "\"1 B\"", Err("\"1 B\""));
        check(&size, "\"1 GB\"", Err("\"1 GB\""));
        check(&size, "1232", Err("the number 1232 without a unit"));
    }

    #[test]
    fn numbers_have_ranges() {
        let number = Kind::Integer(|s: &mut Spec| &mut s.workers, 1..=0x100);
        check(&number, "256", Ok("256"));
        check(&number, "0x10", Ok("16"));
        check(&number, "1_0", Ok("10"));
        check(&number, "0", Err("the number 0"));
        check(&number, "-1", Err("the number -1"));
        check(&number, "257", Err("the number 257"));
        check(&number, "1.5", Err("the number 1.5"));
        check(&number, "\"4\"", Err("\"4\""));
        check(&number, "true", Err("true"));
    }
}
