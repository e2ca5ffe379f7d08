//! What a trace is like, in a few numbers.

use std::collections::{BTreeMap, HashMap};
use std::net::IpAddr;
use std::time::Duration;

use api::TraceInfo;
use dns::{Folded, OptRcode, Rtype};

use super::message::{Message, Transport};
use super::{Damage, Trace};

/// The most clients that are told apart: about 250 MB. The busiest hour of a root server has 1.2 million.
const CLIENTS_MAX: usize = 1 << 22;

/// What was seen of a trace so far. Memory grows with the number of clients up to a limit only.
#[derive(Debug, Default)]
pub struct Summary {
    times: Option<Times>,
    gaps: Gaps,
    steps_back: u64,
    longest_gap: Duration,
    /// The packet, line or pair after the longest gap, and that of the first step back.
    longest_gap_packet: u64,
    step_back_packet: u64,
    /// The packet, line or pair that is added.
    packet: u64,
    clients: HashMap<IpAddr, u64>,
    queries: u64,
    responses: u64,
    transports: [u64; 2],
    dnssec_ok: u64,
    without_edns: u64,
    edns_sizes: BTreeMap<u16, u64>,
    types: BTreeMap<u16, u64>,
    unreadable: u64,
    /// At most 4,096: a code has 12 bits.
    rcodes: BTreeMap<u16, u64>,
}

#[derive(Clone, Copy, Debug)]
struct Times {
    earliest: Duration,
    latest: Duration,
    previous: Duration,
}

/// Mean and deviation in one pass (Welford 1962).
#[derive(Clone, Copy, Debug, Default)]
struct Gaps {
    count: u64,
    mean: f64,
    /// The sum of squared differences from the mean.
    squares: f64,
}

impl Summary {
    /// Reads a trace to its end, or to where it breaks off.
    pub fn of(trace: &mut Trace) -> TraceInfo {
        let mut summary = Summary::default();
        let mut damage = None;
        while let Some(message) = trace.next() {
            summary.packet = trace.packet();
            match message {
                Ok(message) => summary.add(&message),
                Err(found) => damage = Some(found),
            }
        }
        summary.told(trace, damage)
    }

    /// Adds a message.
    pub fn add(&mut self, message: &Message) {
        if message.is_response() {
            self.responses += 1;
            *self.rcodes.entry(message.rcode().to_int()).or_default() += 1;
            return;
        }
        self.queries += 1;
        self.time(message.time);
        self.client(message.client.ip());
        self.transports[usize::from(message.transport == Transport::Tcp)] += 1;
        let mut name = Folded::root();
        let Some(query) = message.query(&mut name) else {
            self.unreadable += 1;
            return;
        };
        *self.types.entry(query.rtype.to_int()).or_default() += 1;
        match query.edns {
            None => self.without_edns += 1,
            Some(edns) => {
                *self.edns_sizes.entry(edns.udp_payload_size).or_default() += 1;
                self.dnssec_ok += u64::from(edns.dnssec_ok);
            }
        }
    }

    /// What it comes to.
    pub fn told(&self, trace: &Trace, damage: Option<Damage>) -> TraceInfo {
        // A query file has no times: all its queries are at 0.
        let times = self.times.filter(|times| !times.latest.is_zero());
        let is_spaced = times.is_some() && self.gaps.count > 0;
        let mut edns_sizes = named(self.edns_sizes.iter(), |size| size.to_string());
        if self.without_edns > 0 {
            edns_sizes.insert("none".into(), self.without_edns);
        }
        let transports = [Transport::Udp, Transport::Tcp].map(Transport::name);
        TraceInfo {
            format: trace.format().into(),
            packets: trace.packets(),
            start_ns: times.map(|times| u64::try_from(times.earliest.as_nanos()).unwrap_or(u64::MAX)),
            seconds: times.map(|times| (times.latest - times.earliest).as_secs_f64()),
            gap_mean_seconds: is_spaced.then_some(self.gaps.mean),
            gap_deviation_seconds: is_spaced.then(|| self.gaps.deviation()),
            steps_back: self.steps_back,
            step_back_packet: self.step_back_packet,
            longest_gap_seconds: is_spaced.then_some(self.longest_gap.as_secs_f64()),
            longest_gap_packet: self.longest_gap_packet,
            clients: self.clients.len() as u64,
            busiest_share: self.busiest_share(),
            queries: self.queries,
            responses: self.responses,
            transports: transports.map(String::from).into_iter().zip(self.transports).collect(),
            dnssec_ok: self.dnssec_ok,
            edns_sizes,
            types: named(self.types.iter(), |rtype| Rtype::from_int(*rtype).to_string()),
            unreadable: self.unreadable,
            rcodes: named(self.rcodes.iter(), |code| OptRcode::masked_from_int(*code).to_string()),
            skipped: trace.skipped().named(),
            damage,
        }
    }

    fn time(&mut self, time: Duration) {
        let Some(times) = &mut self.times else {
            self.times = Some(Times { earliest: time, latest: time, previous: time });
            return;
        };
        match time.checked_sub(times.previous) {
            Some(gap) => {
                self.gaps.add(gap.as_secs_f64());
                if gap > self.longest_gap {
                    (self.longest_gap, self.longest_gap_packet) = (gap, self.packet);
                }
            }
            None => {
                if self.steps_back == 0 {
                    self.step_back_packet = self.packet;
                }
                self.steps_back += 1;
            }
        }
        times.previous = time;
        times.earliest = times.earliest.min(time);
        times.latest = times.latest.max(time);
    }

    fn client(&mut self, client: IpAddr) {
        if let Some(count) = self.clients.get_mut(&client) {
            *count += 1;
        } else if self.clients.len() < CLIENTS_MAX {
            self.clients.insert(client, 1);
        }
    }

    fn busiest_share(&self) -> Option<f64> {
        let mut counts: Vec<u64> = self.clients.values().copied().collect();
        if counts.is_empty() {
            return None;
        }
        counts.sort_unstable_by(|one, other| other.cmp(one));
        let busiest: u64 = counts[..counts.len().div_ceil(100)].iter().sum();
        Some(busiest as f64 / self.queries as f64)
    }
}

impl Gaps {
    fn add(&mut self, gap: f64) {
        self.count += 1;
        let off = gap - self.mean;
        self.mean += off / self.count as f64;
        self.squares += off * (gap - self.mean);
    }

    fn deviation(&self) -> f64 {
        (self.squares / self.count as f64).sqrt()
    }
}

fn named<'a, K: 'a>(
    counts: impl Iterator<Item = (&'a K, &'a u64)>,
    name: impl Fn(&K) -> String,
) -> BTreeMap<String, u64> {
    counts.map(|(key, count)| (name(key), *count)).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::trace::text;

    fn told(lines: &str) -> TraceInfo {
        let mut trace = Trace::read(std::io::Cursor::new(lines.to_owned().into_bytes()), 53).expect("a text");
        Summary::of(&mut trace)
    }

    #[test]
    fn a_trace_is_told_in_numbers() {
        let info = told(&format!(
            "{}\n\
             10.000000000 192.0.2.1:1 udp example. A rd,edns=1232,do\n\
             11.000000000 192.0.2.1:2 tcp example. AAAA -\n\
             14.000000000 [2001:db8::1]:1 udp example. A edns=512\n\
             13.000000000 192.0.2.1:1 udp example. A rd\n",
            text::HEADING
        ));
        assert_eq!(info.damage, None);
        assert_eq!((info.start_ns, info.seconds, info.steps_back), (Some(10_000_000_000), Some(4.0), 1));
        assert_eq!((info.gap_mean_seconds, info.gap_deviation_seconds), (Some(2.0), Some(1.0)));
        // The heading is the first line.
        assert_eq!(info.longest_gap_seconds, Some(3.0));
        assert_eq!((info.longest_gap_packet, info.step_back_packet), (4, 5));
        assert_eq!((info.queries, info.responses, info.clients, info.dnssec_ok), (4, 0, 2, 1));
        assert_eq!(info.busiest_share, Some(0.75));
        let counts = |map: &BTreeMap<String, u64>| {
            map.iter().map(|(key, count)| format!("{key}={count}")).collect::<Vec<_>>().join(" ")
        };
        assert_eq!(counts(&info.transports), "tcp=1 udp=3");
        assert_eq!(counts(&info.edns_sizes), "1232=1 512=1 none=2");
        assert_eq!(counts(&info.types), "A=3 AAAA=1");
    }

    #[test]
    fn codes_have_the_upper_bits_of_edns() {
        let response = |low: u8, records: &[u8]| {
            let answers = u8::from(records.starts_with(&[0xc0]));
            let octets =
                [&[0, 7, 0x84, low, 0, 1, 0, answers, 0, 0, 0, 1][..], b"\x01a\0\0\x01\0\x01", records];
            let octets = octets.concat();
            let (client, server) = (([192, 0, 2, 1], 1).into(), ([192, 0, 2, 2], 53).into());
            Message { time: Duration::ZERO, client, server, transport: Transport::Udp, octets }
        };
        let opt = |upper: u8| [0, 0, 41, 4, 0xd0, upper, 0, 0, 0, 0, 0];
        let behind = [b"\xc0\x0c\0\x01\0\x01\0\0\0\x3c\0\x04\xc0\0\x02\x09", &opt(1)[..]].concat();
        let cases: [(u8, &[u8], &str); 7] = [
            (7, &opt(1), "BADCOOKIE"),
            (0, &opt(1), "BADVERS"),
            (7, &opt(0), "YXRRSET"),
            (7, &behind, "BADCOOKIE"),
            (15, &opt(255), "4095"),
            (3, b"", "NXDOMAIN"),
            // What stands before the OPT record is cut off.
            (5, &behind[..9], "REFUSED"),
        ];
        let mut summary = Summary::default();
        for (low, records, name) in cases {
            let message = response(low, records);
            assert_eq!(message.rcode().to_string(), name);
            summary.add(&message);
        }
        let trace = Trace::read(std::io::Cursor::new(b"# nothing\n".to_vec()), 53).expect("an empty text");
        let told = summary.told(&trace, None).rcodes;
        let counts: Vec<String> = told.iter().map(|(name, count)| format!("{name}={count}")).collect();
        assert_eq!(counts.join(" "), "4095=1 BADCOOKIE=2 BADVERS=1 NXDOMAIN=1 REFUSED=1 YXRRSET=1");
    }

    #[test]
    fn what_was_not_measured_has_no_numbers() {
        let line = |at: u8| format!("{at}.5 192.0.2.1:1 udp example. A rd\n");
        let one_back = [line(3), line(2)].concat();
        for (lines, seconds, gap, busiest) in [
            ("# nothing\n", None, None, None),
            // A query file has no times.
            ("a. A\nb. A\n", None, None, Some(1.0)),
            (&line(2), Some(0.0), None, Some(1.0)),
            (&one_back, Some(1.0), None, Some(1.0)),
            (&[line(2), line(2)].concat(), Some(0.0), Some(0.0), Some(1.0)),
        ] {
            let info = told(lines);
            assert_eq!((info.seconds, info.busiest_share), (seconds, busiest), "{lines}");
            assert_eq!(info.start_ns.is_some(), seconds.is_some(), "{lines}");
            for told in [info.gap_mean_seconds, info.gap_deviation_seconds, info.longest_gap_seconds] {
                assert_eq!(told, gap, "{lines}");
            }
        }
    }
}
