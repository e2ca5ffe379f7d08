//! Who asks most, and for what, in memory that does not grow with the trace.
//!
//! So many of each kind are counted. Where there are more, the lesser half of them is forgotten, and who comes again, or for the
//! first time, begins with what any of those may have had. So nobody is counted too low, and each by no more too high than
//! is known of it (compare Space-Saving: Metwally, Agrawal and El Abbadi, ICDT 2005).

use std::borrow::Borrow;
use std::collections::HashMap;
use std::hash::Hash;
use std::net::IpAddr;

use api::{TraceCount, TraceTop};
use dns::name::to_text;
use dns::query::HEADER;
use dns::{Folded, OptRcode};
use routing::Prefix;

use super::Trace;
use super::message::Message;

/// The most of a kind that are told apart at a time: names take some 10 MB.
const COUNTED_MAX: usize = 1 << 17;

/// The labels of a name that are its domain: registries have longer ones, too, but most do not.
const DOMAIN: usize = 2;

/// The bits of an address that are its network.
const NETWORK_V4: u8 = 24;
const NETWORK_V6: u8 = 48;

/// What was seen of a trace so far.
#[derive(Debug, Default)]
pub struct Top {
    queries: u64,
    responses: u64,
    clients: Most<IpAddr>,
    networks: Most<Prefix>,
    names: Most<Box<[u8]>>,
    domains: Most<Box<[u8]>>,
    missing: Most<Box<[u8]>>,
    failed: Most<Box<[u8]>>,
}

impl Top {
    /// Reads a trace to its end, or to where it breaks off; tells so many of each kind.
    pub fn of(trace: &mut Trace, count: usize) -> TraceTop {
        let (mut top, mut damage) = (Top::default(), None);
        for message in trace.by_ref() {
            match message {
                Ok(message) => top.add(&message),
                Err(found) => damage = Some(found),
            }
        }
        TraceTop { damage, ..top.told(count) }
    }

    /// Adds a message.
    pub fn add(&mut self, message: &Message) {
        let has_question = message.octets.get(4..6).is_some_and(|count| count != [0, 0]);
        let name = message.octets.get(HEADER..).filter(|_| has_question).and_then(Folded::read);
        let domain = name.as_ref().map(|name| name.suffix(name.labels().min(DOMAIN)));
        if message.is_response() {
            self.responses += 1;
            match (message.rcode(), domain) {
                (OptRcode::NOERROR, _) | (_, None) => {}
                (OptRcode::NXDOMAIN, Some(domain)) => self.missing.add(domain, || domain.into()),
                (_, Some(domain)) => self.failed.add(domain, || domain.into()),
            }
            return;
        }
        self.queries += 1;
        let client = message.client.ip().to_canonical();
        self.clients.add(&client, || client);
        let bits = if client.is_ipv4() { NETWORK_V4 } else { NETWORK_V6 };
        let network = Prefix::new(client, bits).expect("an address has as many");
        self.networks.add(&network, || network);
        if let (Some(name), Some(domain)) = (&name, domain) {
            self.names.add(name.wire(), || name.wire().into());
            self.domains.add(domain, || domain.into());
        }
    }

    /// So many of each kind, the most frequent first.
    pub fn told(&self, count: usize) -> TraceTop {
        TraceTop {
            queries: self.queries,
            responses: self.responses,
            clients: self.clients.told(count, IpAddr::to_string),
            networks: self.networks.told(count, Prefix::to_string),
            names: self.names.told(count, to_text),
            domains: self.domains.told(count, to_text),
            missing: self.missing.told(count, to_text),
            failed: self.failed.told(count, to_text),
            damage: None,
        }
    }
}

/// How often each was seen, of those that may be among the most frequent.
#[derive(Debug)]
struct Most<K> {
    counts: HashMap<K, Counted>,
    /// How often any was seen at most that is not among them.
    forgotten: u64,
    counted_max: usize,
}

/// How often one was seen.
#[derive(Clone, Copy, Debug)]
struct Counted {
    /// At most.
    most: u64,
    /// At least.
    least: u64,
}

impl<K> Default for Most<K> {
    fn default() -> Most<K> {
        Most { counts: HashMap::new(), forgotten: 0, counted_max: COUNTED_MAX }
    }
}

impl<K: Eq + Hash> Most<K> {
    fn add<Q: Eq + Hash + ?Sized>(&mut self, key: &Q, own: impl FnOnce() -> K)
    where
        K: Borrow<Q>,
    {
        if let Some(counted) = self.counts.get_mut(key) {
            counted.most += 1;
            counted.least += 1;
            return;
        }
        if self.counts.len() >= self.counted_max {
            self.forget();
        }
        self.counts.insert(own(), Counted { most: self.forgotten + 1, least: 1 });
    }

    /// Forgets those that were seen no more often than the middle one.
    fn forget(&mut self) {
        let mut counts: Vec<u64> = self.counts.values().map(|counted| counted.most).collect();
        let half = counts.len() / 2;
        let middle = *counts.select_nth_unstable(half).1;
        self.counts.retain(|_, counted| counted.most > middle);
        self.forgotten = middle;
    }

    fn told<Q: ?Sized>(&self, count: usize, shown: impl Fn(&Q) -> String) -> Vec<TraceCount>
    where
        K: Borrow<Q>,
    {
        let told = self.counts.iter().map(|(key, Counted { most, least })| TraceCount {
            what: shown(key.borrow()),
            most: *most,
            least: *least,
        });
        let mut told: Vec<TraceCount> = told.collect();
        told.sort_by(|one, other| other.most.cmp(&one.most).then_with(|| one.what.cmp(&other.what)));
        told.truncate(count);
        told
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::trace::PORT;
    use proptest::prelude::*;
    use std::io::Cursor;

    #[test]
    fn each_kind_is_told_in_its_order() {
        let lines = "\
10 192.0.2.1:1 udp www.Example.com. A rd
10 192.0.2.1:1 udp www.example.COM. AAAA rd
10 192.0.2.7:1 udp a.b.example.com. A rd
10 [2001:db8::1]:1 tcp com. NS rd
10 198.51.100.1:1 udp . NS rd
";
        let mut trace = Trace::read(Cursor::new(lines), PORT).expect("lines");
        let top = Top::of(&mut trace, 2);
        let shown = |counts: &[TraceCount]| {
            let shown = counts.iter().map(|TraceCount { what, most, least }| {
                assert_eq!(most, least, "all are told apart");
                format!("{what} {most}")
            });
            shown.collect::<Vec<_>>().join(", ")
        };
        assert_eq!((top.queries, top.responses), (5, 0));
        for (counts, expected) in [
            (&top.clients, "192.0.2.1 2, 192.0.2.7 1"),
            (&top.networks, "192.0.2.0/24 3, 198.51.100.0/24 1"),
            (&top.names, "www.example.com. 2, . 1"),
            (&top.domains, "example.com. 3, . 1"),
            (&top.missing, ""),
            (&top.failed, ""),
        ] {
            assert_eq!(shown(counts), expected);
        }
    }

    #[test]
    fn answers_without_a_name_or_with_a_fault_are_told_by_domain() {
        let response = |rcode: u8, name: &[u8]| {
            let head = [0, 7, 0x84, rcode, 0, 1, 0, 0, 0, 0, 0, 0];
            let (client, server) = (([192, 0, 2, 1], 1).into(), ([192, 0, 2, 2], 53).into());
            let octets = [&head[..], name, &[0, 1, 0, 1]].concat();
            Message {
                time: Default::default(),
                client,
                server,
                transport: crate::trace::Transport::Udp,
                octets,
            }
        };
        let mut top = Top::default();
        for (rcode, name) in [
            (0, &b"\x01a\x01b\x01c\0"[..]),
            (3, b"\x01x\x01b\x01c\0"),
            (3, b"\x01y\x01B\x01c\0"),
            (2, b"\x01z\x01d\x01c\0"),
            (5, b"\0"),
            (2, b"\x07a"),
        ] {
            top.add(&response(rcode, name));
        }
        let told = top.told(9);
        let shown = |counts: &[TraceCount]| {
            counts.iter().map(|count| format!("{} {}", count.what, count.most)).collect::<Vec<_>>().join(", ")
        };
        assert_eq!((told.queries, told.responses), (0, 6));
        assert_eq!([shown(&told.missing), shown(&told.failed)], ["b.c. 2", ". 1, d.c. 1"]);
    }

    proptest! {
        /// Room for a few, against a map that forgets nothing.
        #[test]
        fn nobody_is_counted_too_low_or_higher_than_is_said(
            room in 1usize..20,
            seen in proptest::collection::vec(0u8..40, 0..2_000),
        ) {
            let mut most = Most { counted_max: room, ..Most::default() };
            let mut model: HashMap<u8, u64> = HashMap::new();
            for one in &seen {
                most.add(one, || *one);
                *model.entry(*one).or_default() += 1;
                prop_assert!(most.counts.len() <= room);
            }
            for (one, true_count) in &model {
                match most.counts.get(one) {
                    Some(counted) => {
                        prop_assert!((counted.least..=counted.most).contains(true_count), "{counted:?} {true_count}");
                    }
                    None => prop_assert!(*true_count <= most.forgotten),
                }
            }
        }
    }
}
