//! The octets of hellos and reports.
//!
//! All numbers are in network order. Both messages begin alike:
//!
//! ```text
//!  0  "PMCR"                       4  octets
//!  4  version                      1  always 2
//!  5  kind                         1  1 hello, 2 report
//!  6  transport of the service     1  1 UDP, 2 TCP
//!  7  flags                        1  of a report: 1 draining; all others 0
//!  8  address of the service      16  IPv4 as ::ffff:a.b.c.d
//! 24  port of the service          2
//! 26  zero                         6
//! 32  balancer                     8
//! 40  nonce                        8
//! 48  sequence                     8
//! 56  heard (hello), hello (report)8
//! 64  sent                         8
//! ```
//!
//! A hello goes on with
//!
//! ```text
//! 72  answered                     8
//! 80  digest                      32  of octets 0 to 79
//! ```
//!
//! and a report with
//!
//! ```text
//!  72  limit                       8
//!  80  drops                       8
//!  88  queue delay                 4  microseconds
//!  92  backlog                     4
//!  96  limit of the backlog        4
//! 100  lease                       4  microseconds
//! 104  quota                       4  microseconds; 0, with all to the digest, where none is known
//! 108  period                      4  microseconds
//! 112  until the next refill       4  microseconds
//! 116  left of the quota           4  microseconds, signed
//! 120  cost of a query             4  nanoseconds
//! 124  digest                     32  of octets 0 to 123
//! ```

use std::fmt;
use std::net::{IpAddr, Ipv6Addr, SocketAddr};
use std::str::FromStr;
use std::time::Duration;

use crate::key::{Key, MAC_LEN};

/// Octets of a hello.
pub const HELLO_LEN: usize = 112;

/// Octets of a report: 44 more than of a hello. An introduction, which anybody can send again from anywhere, is answered with
/// a hello and so with less; reports go to who has just sent a new hello.
pub const REPORT_LEN: usize = 156;

/// Octets of what a report says of a quota.
const QUOTA_LEN: usize = 20;

const MAGIC: [u8; 4] = *b"PMCR";
const VERSION: u8 = 2;
const KIND_HELLO: u8 = 1;
const KIND_REPORT: u8 = 2;
const FLAG_DRAINING: u8 = 1;

/// How a service is reached.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Transport {
    /// Datagrams; credit is counted in queries.
    Udp,
    /// Connections; credit is counted in connections.
    Tcp,
}

/// What a report is about: a transport, an address and a port, written `udp:192.0.2.1:53`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Service {
    transport: Transport,
    address: IpAddr,
    port: u16,
}

/// What a balancer tells an agent about one service, every [`INTERVAL`](crate::INTERVAL) and where half of the
/// credit is used.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Hello {
    /// Which balancer; stays the same over its restarts. Not 0.
    pub balancer: u64,
    /// Drawn when the balancer starts. Not 0.
    pub nonce: u64,
    /// Which service.
    pub service: Service,
    /// Rises with each hello about this service under this nonce.
    pub sequence: u64,
    /// The sequence of the last report or introduction that was taken; 0 before the first.
    pub heard: u64,
    /// Queries (UDP) or connections (TCP) that the balancer has sent to the service since it has this nonce.
    pub sent: u64,
    /// How many of them were answered, also too late (UDP), or have ended (TCP).
    pub answered: u64,
}

/// What an agent tells a balancer about one service.
///
/// With `nonce` 0 it is an introduction: the agent is there, and has heard no hello. It grants nothing.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Report {
    /// Of the hello that is answered.
    pub balancer: u64,
    /// Of the hello that is answered.
    pub nonce: u64,
    /// Which service.
    pub service: Service,
    /// Rises with each report of an agent; begins at a drawn number, so that no other run of the agent has had it.
    pub sequence: u64,
    /// The sequence of the hello that is answered.
    pub hello: u64,
    /// Of the hello that is answered.
    pub sent: u64,
    /// The balancer may send until its own count is here. At or below its count: nothing.
    pub limit: u64,
    /// For how long the last in the queue will wait; whole microseconds, at most 71 minutes.
    pub queue_delay: Duration,
    /// Datagrams or connections that the kernel has turned away since the agent is there.
    pub drops: u64,
    /// Datagrams or connections that wait.
    pub backlog: u32,
    /// How many can wait; 0 where the service was not found.
    pub backlog_limit: u32,
    /// For how long the report is valid, from when the hello was sent; whole microseconds, at most 71 minutes.
    pub lease: Duration,
    /// Whether the service is about to stop: it serves what it has, and takes no more.
    pub draining: bool,
    /// What its quota of processor time leaves it; none where it has none, or too little is known of it.
    pub quota: Option<Quota>,
}

/// What a server's quota of processor time leaves it when a report is made.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Quota {
    /// How much it may use in each period; whole microseconds, at most 71 minutes, not 0.
    pub quota: Duration,
    /// From one refill to the next; whole microseconds, at most 71 minutes, not 0.
    pub period: Duration,
    /// Until the next refill; whole microseconds, at most the period.
    pub refill: Duration,
    /// What is left until then, in microseconds; below 0 where it has used more than it may.
    pub left_us: i32,
    /// How much a query uses; at most 4 s, not 0.
    pub cost: Duration,
}

/// Says why octets are no message. Each is to be counted, none is to be answered.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Refused {
    /// Not as long as such a message.
    Length,
    /// Not of this protocol, version or kind.
    Unknown,
    /// Not signed with this key, or changed on the way.
    Unsigned,
    /// Signed, and with a value that cannot be: written by another program.
    Malformed,
}

impl Service {
    /// Names a service. An IPv4 address that is written as IPv6 is the IPv4 address.
    pub fn new(transport: Transport, address: IpAddr, port: u16) -> Self {
        Self { transport, address: address.to_canonical(), port }
    }

    /// How it is reached.
    pub fn transport(&self) -> Transport {
        self.transport
    }

    /// Where it is reached.
    pub fn address(&self) -> SocketAddr {
        SocketAddr::new(self.address, self.port)
    }
}

impl Hello {
    /// Writes the message; returns [`HELLO_LEN`].
    ///
    /// # Panics
    /// Where `out` is shorter than that.
    pub fn write(&self, key: &Key, out: &mut [u8]) -> usize {
        let mut writer = Writer { out, at: 0 };
        writer.beginning(KIND_HELLO, 0, self.service, [self.balancer, self.nonce, self.sequence, self.heard]);
        writer.number(self.sent);
        writer.number(self.answered);
        writer.end(key)
    }

    /// Reads a message.
    ///
    /// # Errors
    /// [`Refused`].
    pub fn read(octets: &[u8], key: &Key) -> Result<Self, Refused> {
        let (mut reader, flags, service) = Reader::begin(octets, KIND_HELLO, HELLO_LEN, key)?;
        let hello = Self {
            balancer: reader.number(),
            nonce: reader.number(),
            service,
            sequence: reader.number(),
            heard: reader.number(),
            sent: reader.number(),
            answered: reader.number(),
        };
        if flags != 0 || hello.balancer == 0 || hello.nonce == 0 {
            return Err(Refused::Malformed);
        }
        Ok(hello)
    }
}

impl Report {
    /// Writes the message; returns [`REPORT_LEN`]. Durations that are too long are written as the longest.
    ///
    /// # Panics
    /// Where `out` is shorter than that.
    pub fn write(&self, key: &Key, out: &mut [u8]) -> usize {
        let mut writer = Writer { out, at: 0 };
        let flags = if self.draining { FLAG_DRAINING } else { 0 };
        writer.beginning(
            KIND_REPORT,
            flags,
            self.service,
            [self.balancer, self.nonce, self.sequence, self.hello],
        );
        writer.number(self.sent);
        writer.number(self.limit);
        writer.number(self.drops);
        writer.half(micros(self.queue_delay));
        writer.half(self.backlog);
        writer.half(self.backlog_limit);
        writer.half(micros(self.lease));
        writer.quota(self.quota);
        writer.end(key)
    }

    /// Reads a message.
    ///
    /// # Errors
    /// [`Refused`].
    pub fn read(octets: &[u8], key: &Key) -> Result<Self, Refused> {
        let (mut reader, flags, service) = Reader::begin(octets, KIND_REPORT, REPORT_LEN, key)?;
        let report = Self {
            balancer: reader.number(),
            nonce: reader.number(),
            service,
            sequence: reader.number(),
            hello: reader.number(),
            sent: reader.number(),
            limit: reader.number(),
            drops: reader.number(),
            queue_delay: Duration::from_micros(reader.half().into()),
            backlog: reader.half(),
            backlog_limit: reader.half(),
            lease: Duration::from_micros(reader.half().into()),
            draining: flags & FLAG_DRAINING != 0,
            quota: reader.quota()?,
        };
        if flags & !FLAG_DRAINING != 0 {
            return Err(Refused::Malformed);
        }
        Ok(report)
    }
}

fn micros(duration: Duration) -> u32 {
    u32::try_from(duration.as_micros()).unwrap_or(u32::MAX)
}

/// Writes one field after the other.
struct Writer<'a> {
    out: &'a mut [u8],
    at: usize,
}

impl Writer<'_> {
    fn beginning(&mut self, kind: u8, flags: u8, service: Service, numbers: [u64; 4]) {
        let transport = match service.transport {
            Transport::Udp => 1,
            Transport::Tcp => 2,
        };
        let address = match service.address {
            IpAddr::V4(address) => address.to_ipv6_mapped(),
            IpAddr::V6(address) => address,
        };
        self.octets(&MAGIC);
        self.octets(&[VERSION, kind, transport, flags]);
        self.octets(&address.octets());
        self.octets(&service.port.to_be_bytes());
        self.octets(&[0; 6]);
        for number in numbers {
            self.number(number);
        }
    }

    fn number(&mut self, number: u64) {
        self.octets(&number.to_be_bytes());
    }

    fn half(&mut self, number: u32) {
        self.octets(&number.to_be_bytes());
    }

    fn quota(&mut self, quota: Option<Quota>) {
        let Some(Quota { quota, period, refill, left_us, cost }) = quota else {
            return self.octets(&[0; QUOTA_LEN]);
        };
        self.half(micros(quota));
        self.half(micros(period));
        self.half(micros(refill));
        self.octets(&left_us.to_be_bytes());
        self.half(u32::try_from(cost.as_nanos()).unwrap_or(u32::MAX));
    }

    fn octets(&mut self, octets: &[u8]) {
        self.out[self.at..][..octets.len()].copy_from_slice(octets);
        self.at += octets.len();
    }

    fn end(mut self, key: &Key) -> usize {
        let mac = key.sign(&self.out[..self.at]);
        self.octets(&mac);
        self.at
    }
}

/// Reads one field after the other, from what is known to be long enough.
struct Reader<'a>(&'a [u8]);

impl<'a> Reader<'a> {
    /// Holds length, kind and digest against what they must be, and reads up to the balancer.
    fn begin(octets: &'a [u8], kind: u8, length: usize, key: &Key) -> Result<(Self, u8, Service), Refused> {
        if octets.len() != length {
            return Err(Refused::Length);
        }
        if octets[..4] != MAGIC || octets[4] != VERSION || octets[5] != kind {
            return Err(Refused::Unknown);
        }
        let (message, mac) = octets.split_at(length - MAC_LEN);
        if !key.verifies(message, mac) {
            return Err(Refused::Unsigned);
        }
        let transport = match octets[6] {
            1 => Transport::Udp,
            2 => Transport::Tcp,
            _ => return Err(Refused::Malformed),
        };
        let mut reader = Self(&message[8..]);
        let address = Ipv6Addr::from(reader.array::<16>());
        let port = u16::from_be_bytes(reader.array());
        if reader.array::<6>() != [0; 6] {
            return Err(Refused::Malformed);
        }
        Ok((reader, octets[7], Service::new(transport, address.into(), port)))
    }

    fn number(&mut self) -> u64 {
        u64::from_be_bytes(self.array())
    }

    fn half(&mut self) -> u32 {
        u32::from_be_bytes(self.array())
    }

    fn quota(&mut self) -> Result<Option<Quota>, Refused> {
        let octets = self.array::<QUOTA_LEN>();
        if octets == [0; QUOTA_LEN] {
            return Ok(None);
        }
        let mut reader = Reader(&octets);
        let quota = Quota {
            quota: Duration::from_micros(reader.half().into()),
            period: Duration::from_micros(reader.half().into()),
            refill: Duration::from_micros(reader.half().into()),
            left_us: i32::from_be_bytes(reader.array()),
            cost: Duration::from_nanos(reader.half().into()),
        };
        let is_whole = !quota.quota.is_zero() && !quota.cost.is_zero() && !quota.period.is_zero();
        let can_be = is_whole && quota.refill <= quota.period;
        can_be.then_some(Some(quota)).ok_or(Refused::Malformed)
    }

    fn array<const N: usize>(&mut self) -> [u8; N] {
        let (array, rest) = self.0.split_first_chunk().expect("the length was held against the kind");
        self.0 = rest;
        *array
    }
}

impl fmt::Display for Transport {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Udp => "udp",
            Self::Tcp => "tcp",
        })
    }
}

impl fmt::Display for Service {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}:{}", self.transport, self.address())
    }
}

impl FromStr for Service {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let expected = || format!("{text:?} is no service: expected udp:ADDRESS:PORT or tcp:ADDRESS:PORT");
        let (transport, address) = text.split_once(':').ok_or_else(expected)?;
        let transport = match transport {
            "udp" => Transport::Udp,
            "tcp" => Transport::Tcp,
            _ => return Err(expected()),
        };
        let address: SocketAddr = address.parse().map_err(|_| expected())?;
        if address.port() == 0 {
            return Err(format!("{text:?} is no service: its port is 0"));
        }
        Ok(Self::new(transport, address.ip(), address.port()))
    }
}

impl fmt::Display for Refused {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Length => "not as long as such a message",
            Self::Unknown => "not of this protocol, version or kind",
            Self::Unsigned => "not signed with this key",
            Self::Malformed => "with a value that cannot be",
        })
    }
}

impl std::error::Error for Refused {}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn key(octet: u8) -> Key {
        Key::new(&[octet; 32])
    }

    fn service(text: &str) -> Service {
        text.parse().expect("a service")
    }

    fn hello() -> Hello {
        Hello {
            balancer: 0x0102_0304_0506_0708,
            nonce: 0x1112_1314_1516_1718,
            service: service("udp:192.0.2.1:53"),
            sequence: 0x2122_2324_2526_2728,
            heard: 0x3132_3334_3536_3738,
            sent: 0x4142_4344_4546_4748,
            answered: 0x5152_5354_5556_5758,
        }
    }

    fn report() -> Report {
        Report {
            balancer: 1,
            nonce: 2,
            service: service("tcp:[2001:db8::1]:853"),
            sequence: 3,
            hello: 4,
            sent: 5,
            limit: 6,
            queue_delay: Duration::from_micros(0x0102_0304),
            drops: 7,
            backlog: 8,
            backlog_limit: 9,
            lease: Duration::from_millis(60),
            draining: true,
            quota: Some(Quota {
                quota: Duration::from_millis(20),
                period: Duration::from_millis(100),
                refill: Duration::from_micros(77),
                left_us: -2,
                cost: Duration::from_nanos(0x0504_0302),
            }),
        }
    }

    /// The layout at the top of this file, octet by octet: what other programs will be written by.
    #[test]
    fn a_hello_lies_as_documented() {
        let mut out = [0xff; HELLO_LEN];
        assert_eq!(hello().write(&key(1), &mut out), HELLO_LEN);
        let mut expected = b"PMCR\x02\x01\x01\x00".to_vec();
        expected.extend([0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0xff, 0xff, 192, 0, 2, 1, 0, 53, 0, 0, 0, 0, 0, 0]);
        for high in [0x00, 0x10, 0x20, 0x30, 0x40, 0x50] {
            expected.extend((1..=8).map(|low| high | low));
        }
        assert_eq!(out[..HELLO_LEN - MAC_LEN], expected);
        assert_eq!(out[HELLO_LEN - MAC_LEN..], key(1).sign(&expected));
    }

    #[test]
    fn a_report_lies_as_documented() {
        let mut out = [0xff; REPORT_LEN];
        assert_eq!(report().write(&key(1), &mut out), REPORT_LEN);
        let mut expected =
            b"PMCR\x02\x02\x02\x01\x20\x01\x0d\xb8\0\0\0\0\0\0\0\0\0\0\0\x01\x03\x55\0\0\0\0\0\0".to_vec();
        for number in [1_u64, 2, 3, 4, 5, 6, 7] {
            expected.extend(number.to_be_bytes());
        }
        expected.extend([1, 2, 3, 4, 0, 0, 0, 8, 0, 0, 0, 9, 0, 0, 0xea, 0x60]);
        let without = expected.clone();
        expected
            .extend([0, 0, 0x4e, 0x20, 0, 1, 0x86, 0xa0, 0, 0, 0, 77, 0xff, 0xff, 0xff, 0xfe, 5, 4, 3, 2]);
        assert_eq!(out[..REPORT_LEN - MAC_LEN], expected);
        Report { quota: None, ..report() }.write(&key(1), &mut out);
        assert_eq!(out[..REPORT_LEN - MAC_LEN], [&without[..], &[0; QUOTA_LEN]].concat());
    }

    #[test]
    fn each_changed_octet_is_seen() {
        let (mut hello_octets, mut report_octets) = ([0; HELLO_LEN], [0; REPORT_LEN]);
        hello().write(&key(1), &mut hello_octets);
        report().write(&key(1), &mut report_octets);
        for at in 0..HELLO_LEN {
            let mut changed = hello_octets;
            changed[at] ^= 0x10;
            let expected = if at < 6 { Refused::Unknown } else { Refused::Unsigned };
            assert_eq!(Hello::read(&changed, &key(1)), Err(expected), "octet {at}");
        }
        for at in 0..REPORT_LEN {
            let mut changed = report_octets;
            changed[at] ^= 0x10;
            let expected = if at < 6 { Refused::Unknown } else { Refused::Unsigned };
            assert_eq!(Report::read(&changed, &key(1)), Err(expected), "octet {at}");
        }
    }

    #[test]
    fn another_key_kind_or_length_is_refused() {
        let mut octets = [0; REPORT_LEN];
        hello().write(&key(1), &mut octets);
        let of_hello = &octets[..HELLO_LEN];
        assert_eq!(Hello::read(of_hello, &key(1)), Ok(hello()));
        assert_eq!(Hello::read(of_hello, &key(2)), Err(Refused::Unsigned));
        assert_eq!(Report::read(&octets, &key(1)), Err(Refused::Unknown));
        for length in [0, 1, HELLO_LEN - 1, HELLO_LEN + 1] {
            assert_eq!(Hello::read(&octets[..length], &key(1)), Err(Refused::Length));
        }
    }

    /// Signed values that cannot be: only another program with the key writes them.
    #[test]
    fn a_signed_value_that_cannot_be_is_refused() {
        let signed = |length: usize, change: &dyn Fn(&mut [u8])| {
            let mut octets = vec![0; length];
            match length {
                HELLO_LEN => hello().write(&key(1), &mut octets),
                _ => report().write(&key(1), &mut octets),
            };
            change(&mut octets);
            let mac = key(1).sign(&octets[..length - MAC_LEN]);
            octets[length - MAC_LEN..].copy_from_slice(&mac);
            octets
        };
        for change in [
            &|octets: &mut [u8]| octets[6] = 3,
            &|octets: &mut [u8]| octets[7] = 2,
            &|octets: &mut [u8]| octets[26] = 1,
        ] as [&dyn Fn(&mut [u8]); 3]
        {
            assert_eq!(Hello::read(&signed(HELLO_LEN, change), &key(1)), Err(Refused::Malformed));
            assert_eq!(Report::read(&signed(REPORT_LEN, change), &key(1)), Err(Refused::Malformed));
        }
        // Parts of a quota that are 0, and a refill that is further away than a period.
        for (field, octet) in [(104..108, 0), (108..112, 0), (120..124, 0), (112..113, 1)] {
            let changed = signed(REPORT_LEN, &|octets| octets[field.clone()].fill(octet));
            assert_eq!(Report::read(&changed, &key(1)), Err(Refused::Malformed), "{field:?}");
        }
        for field in [32..40, 40..48] {
            let zero = signed(HELLO_LEN, &|octets| octets[field.clone()].fill(0));
            assert_eq!(Hello::read(&zero, &key(1)), Err(Refused::Malformed));
        }
    }

    #[test]
    fn a_service_has_one_spelling() {
        for (text, expected) in [
            ("udp:192.0.2.1:53", Some("udp:192.0.2.1:53")),
            ("tcp:[2001:DB8::1]:853", Some("tcp:[2001:db8::1]:853")),
            ("udp:[::ffff:192.0.2.1]:53", Some("udp:192.0.2.1:53")),
            ("udp:192.0.2.1:0", None),
            ("udp:192.0.2.1", None),
            ("192.0.2.1:53", None),
            ("sctp:192.0.2.1:53", None),
            ("udp:name.example:53", None),
        ] {
            assert_eq!(
                text.parse::<Service>().ok().map(|service| service.to_string()).as_deref(),
                expected,
                "{text}"
            );
        }
    }

    prop_compose! {
        fn services()(is_udp: bool, address: u128, v4: bool, port: u16) -> Service {
            let address = if v4 { IpAddr::V4((address as u32).into()) } else { IpAddr::V6(address.into()) };
            Service::new(if is_udp { Transport::Udp } else { Transport::Tcp }, address, port)
        }
    }

    proptest! {
        #[test]
        fn what_is_written_is_read(
            service in services(),
            numbers: [u64; 7],
            halves: [u32; 4],
            quota in proptest::option::of((1..=u32::MAX, 1..=u32::MAX, any::<u32>(), any::<i32>(), 1..=u32::MAX)),
            draining: bool,
        ) {
            let [balancer, nonce, sequence, heard, sent, answered, drops] = numbers;
            let hello = Hello { balancer: balancer | 1, nonce: nonce | 1, service, sequence, heard, sent, answered };
            let mut out = [0; REPORT_LEN];
            let length = hello.write(&key(3), &mut out);
            prop_assert_eq!(Hello::read(&out[..length], &key(3)), Ok(hello));
            let micros = |half: u32| Duration::from_micros(half.into());
            let quota = quota.map(|(quota, period, refill, left_us, cost)| Quota {
                quota: micros(quota), period: micros(period), refill: micros(refill.min(period)), left_us,
                cost: Duration::from_nanos(cost.into()),
            });
            let report = Report {
                balancer, nonce, service, sequence, hello: heard, sent, limit: answered, drops, draining, quota,
                queue_delay: micros(halves[0]), backlog: halves[1], backlog_limit: halves[2], lease: micros(halves[3]),
            };
            let length = report.write(&key(3), &mut out);
            prop_assert_eq!(Report::read(&out[..length], &key(3)), Ok(report));
        }
    }
}
