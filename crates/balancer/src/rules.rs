//! Which pool takes a query, and what is answered here instead: rules, of which the first that a query meets decides.
//!
//! All names are in one table, each with the rules that have it: what a query costs depends on how deep the rules' names go,
//! and not on how many there are. Types are found the same way; clients' prefixes are looked through, and only those of
//! rules that a query meets otherwise.

use std::collections::HashMap;
use std::hash::BuildHasher;
use std::net::IpAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use dns::edns::ExtendedError;
use dns::{Query, Rcode, Rtype};
use foldhash::fast::{FixedState, RandomState};
use routing::meter::Rate;
use routing::{Meter, Prefix};

use crate::message::Says;

/// The most rules: one bit of a word is each one's.
pub const RULES_MAX: usize = u64::BITS as usize;

/// The most names of all rules together: some ten megabytes.
pub const NAMES_MAX: usize = 100_000;

/// The most prefixes of all rules together: they are looked through one by one.
pub const PREFIXES_MAX: usize = 1_024;

/// The most queries a second that one client may be allowed.
pub const PER_SECOND_MAX: u32 = 1_000_000;

/// A rule: which queries it is for, and what becomes of them. A query meets it where each condition holds.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Rule {
    /// What it is called in metrics.
    pub name: String,
    /// Names, folded and in wire form, that a query's name is at or below; any where it is not given.
    pub names: Option<Vec<Vec<u8>>>,
    /// The types that are asked for; any where there are none.
    pub types: Vec<Rtype>,
    /// Where its client is; anywhere where there are none.
    pub clients: Vec<Prefix>,
    /// How many of such queries a client may ask in a second, from 1 to [`PER_SECOND_MAX`]: the rule is for those beyond.
    pub per_second: Option<u32>,
    /// What becomes of them.
    pub then: Then,
}

/// What becomes of a query.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Then {
    /// It goes to a back end of this pool.
    Pool(usize),
    /// REFUSED.
    Refused,
    /// There is no such name.
    Nxdomain,
    /// There is nothing of that type.
    Nodata,
    /// These addresses, as far as they are of that type; of each family at most
    /// [`ADDRESSES_MAX`](crate::message::ADDRESSES_MAX).
    Addresses(Vec<IpAddr>),
    /// These resolvers that speak encrypted, the data of SVCB records, as [`Says::Services`] tells.
    Services(Vec<Vec<u8>>),
    /// It is to be asked over TCP. Over connections the rule is passed over.
    Truncated,
    /// It is dropped; over connections, where its client would wait, it is REFUSED.
    Nothing,
}

/// What rules say of a query.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Verdict<'a> {
    /// It goes to a back end of this pool.
    Pool(usize),
    /// It is answered so.
    Says(Says<'a>),
    /// It is dropped.
    Nothing,
}

/// Whose a query is, how it came, and when.
#[derive(Clone, Copy, Debug)]
pub struct Arrival {
    /// The client's address.
    pub client: IpAddr,
    /// Whether the query came as a datagram.
    pub is_datagram: bool,
    /// Now, in nanoseconds of the monotonic clock.
    pub now_ns: u64,
}

/// Rules, made ready.
#[derive(Debug, Default)]
pub struct Rules {
    rules: Vec<Ready>,
    /// The rules that have a name, by its wire form.
    names: HashMap<Box<[u8]>, u64, RandomState>,
    /// The most labels of a name among them.
    labels_max: usize,
    /// The rules that have a type.
    types: HashMap<u16, u64, RandomState>,
    /// The rules without names, and those without types.
    of_any_name: u64,
    of_any_type: u64,
    /// Who has asked how much, where that matters.
    meter: Option<Arc<Meter>>,
}

/// A rule as it is looked at.
#[derive(Debug)]
struct Ready {
    name: String,
    clients: Vec<Prefix>,
    rate: Option<Rate>,
    /// What makes a client's account with this rule another one than with others, by the rule's name.
    account: u64,
    then: Then,
    met: Arc<AtomicU64>,
}

impl Rules {
    /// Makes rules ready, in this order; those that have the name of one of `before` go on with its count, and with what its
    /// clients have asked.
    ///
    /// # Panics
    /// Where there are more than [`RULES_MAX`], or one allows no query a second.
    pub fn new(rules: Vec<Rule>, before: &Rules) -> Rules {
        assert!(rules.len() <= RULES_MAX, "no more rules than bits");
        let mut ready = Rules::default();
        for (index, rule) in rules.into_iter().enumerate() {
            let Rule { name, names, types, clients, per_second, then } = rule;
            let bit = 1 << index;
            if names.is_none() {
                ready.of_any_name |= bit;
            }
            for name in names.into_iter().flatten() {
                ready.labels_max = ready.labels_max.max(labels(&name));
                *ready.names.entry(name.into()).or_default() |= bit;
            }
            if types.is_empty() {
                ready.of_any_type |= bit;
            }
            for rtype in types {
                *ready.types.entry(rtype.to_int()).or_default() |= bit;
            }
            // A second's worth at once: who asks in bursts asks no more than others.
            let rate = per_second.map(|per_second| Rate::new(per_second, per_second.into()));
            if rate.is_some() && ready.meter.is_none() {
                ready.meter = Some(before.meter.clone().unwrap_or_else(|| Arc::new(Meter::new())));
            }
            let account = FixedState::with_seed(0).hash_one(&*name);
            let met = before.rules.iter().find(|old| old.name == name);
            let met = met.map_or_else(Arc::default, |old| old.met.clone());
            ready.rules.push(Ready { name, clients, rate, account, then, met });
        }
        ready
    }

    /// What the first rule says that a query meets; without one it goes to the first pool. Rates are counted by rules that
    /// the query meets otherwise, by the client's hash, which nobody is to foresee.
    pub fn judge(&self, query: &Query<'_>, arrival: Arrival, hash: impl Fn() -> u64) -> Verdict<'_> {
        let mut left = self.candidates(query);
        while left != 0 {
            let index = left.trailing_zeros() as usize;
            left &= left - 1;
            let rule = &self.rules[index];
            if !rule.is_for(arrival) || self.is_within(rule, arrival.now_ns, &hash) {
                continue;
            }
            rule.met.fetch_add(1, Ordering::Relaxed);
            return rule.then.verdict(arrival.is_datagram);
        }
        Verdict::Pool(0)
    }

    /// Each rule's name, what becomes of queries by it, and on how many it has decided.
    pub fn met(&self) -> impl Iterator<Item = (&str, &Then, u64)> {
        self.rules.iter().map(|rule| (&*rule.name, &rule.then, rule.met.load(Ordering::Relaxed)))
    }

    /// The rules whose names and types a query meets, a bit each.
    #[inline]
    fn candidates(&self, query: &Query<'_>) -> u64 {
        let mut named = self.of_any_name;
        if !self.names.is_empty() {
            for labels in 0..=query.name.labels().min(self.labels_max) {
                named |= self.names.get(query.name.suffix(labels)).copied().unwrap_or(0);
            }
        }
        let typed = || self.types.get(&query.rtype.to_int()).copied().unwrap_or(0) | self.of_any_type;
        if named == 0 { 0 } else { named & typed() }
    }

    /// Whether the client has asked no more than the rule allows; never where it allows nothing.
    fn is_within(&self, rule: &Ready, now_ns: u64, hash: impl Fn() -> u64) -> bool {
        let (Some(rate), Some(meter)) = (rule.rate, &self.meter) else { return false };
        meter.is_within(hash() ^ rule.account, rate, now_ns)
    }
}

impl Ready {
    /// Whether it is for this client, however often that asks, and however it asks.
    fn is_for(&self, arrival: Arrival) -> bool {
        let client = arrival.client.to_canonical();
        let is_there = self.clients.is_empty() || self.clients.iter().any(|prefix| prefix.contains(client));
        is_there && (arrival.is_datagram || self.then != Then::Truncated)
    }
}

impl Then {
    /// What it is called; a pool by its name.
    pub fn word<'a>(&self, pools: &'a [String]) -> &'a str {
        match self {
            Then::Pool(pool) => pools.get(*pool).map_or("", |name| name),
            Then::Refused => "refused",
            Then::Nxdomain => "nxdomain",
            Then::Nodata => "nodata",
            Then::Addresses(_) => "addresses",
            Then::Services(_) => "services",
            Then::Truncated => "truncated",
            Then::Nothing => "nothing",
        }
    }

    fn verdict(&self, is_datagram: bool) -> Verdict<'_> {
        let blocked = |rcode| Verdict::Says(Says::Barred(rcode, ExtendedError::Blocked));
        let refused = Verdict::Says(Says::Barred(Rcode::REFUSED, ExtendedError::Prohibited));
        match self {
            Then::Pool(pool) => Verdict::Pool(*pool),
            Then::Refused => refused,
            Then::Nxdomain => blocked(Rcode::NXDOMAIN),
            Then::Nodata => blocked(Rcode::NOERROR),
            Then::Addresses(addresses) => Verdict::Says(Says::Addresses(addresses)),
            Then::Services(services) => Verdict::Says(Says::Services(services)),
            Then::Truncated => Verdict::Says(Says::Truncated),
            Then::Nothing if is_datagram => Verdict::Nothing,
            Then::Nothing => refused,
        }
    }
}

/// How many labels a name in wire form has, the root's not counted.
fn labels(mut name: &[u8]) -> usize {
    let mut labels = 0;
    while let Some((length @ 1.., rest)) = name.split_first() {
        name = rest.get(usize::from(*length)..).unwrap_or_default();
        labels += 1;
    }
    labels
}

#[cfg(test)]
mod tests {
    use super::*;
    use dns::Folded;
    use dns::name::{folded_from_text, is_within};
    use proptest::prelude::*;

    const SECOND: u64 = 1_000_000_000;

    fn rule(name: &str, then: Then) -> Rule {
        Rule { name: name.into(), names: None, types: vec![], clients: vec![], per_second: None, then }
    }

    fn wire(name: &str) -> Vec<u8> {
        folded_from_text(name).expect("a name")
    }

    fn named(names: &[&str], then: Then) -> Rule {
        Rule { names: Some(names.iter().map(|name| wire(name)).collect()), ..rule(names[0], then) }
    }

    fn from(client: &str) -> Arrival {
        let client = client.parse().expect("an address");
        Arrival { client, is_datagram: true, now_ns: SECOND }
    }

    fn hash_of(client: IpAddr) -> u64 {
        let IpAddr::V4(v4) = client.to_canonical() else { return 0 };
        v4.to_bits().into()
    }

    /// What is said of a question.
    fn judged<'a>(rules: &'a Rules, name: &[u8], rtype: Rtype, from: Arrival) -> Verdict<'a> {
        let head = [&[0, 1, 1, 0, 0, 1, 0, 0, 0, 0, 0, 0], name].concat();
        let message = [&head[..], &rtype.to_int().to_be_bytes(), &[0, 1]].concat();
        let mut folded = Folded::root();
        rules.judge(&Query::read(&message, &mut folded).expect("a query"), from, || hash_of(from.client))
    }

    #[test]
    fn the_first_rule_that_a_query_meets_decides() {
        let rules = Rules::new(
            vec![
                named(&["ads.example", "track.example"], Then::Nxdomain),
                Rule { types: vec![Rtype::ANY], ..rule("any", Then::Truncated) },
                Rule {
                    clients: vec!["10.0.0.0/8".parse().expect("a prefix")],
                    ..named(&["corp.example", "."], Then::Pool(2))
                },
                named(&["corp.example"], Then::Nothing),
            ],
            &Rules::default(),
        );
        let (inside, outside) = (from("::ffff:10.1.2.3"), from("192.0.2.1"));
        let connected = Arrival { is_datagram: false, ..outside };
        let blocked = Verdict::Says(Says::Barred(Rcode::NXDOMAIN, ExtendedError::Blocked));
        let refused = Verdict::Says(Says::Barred(Rcode::REFUSED, ExtendedError::Prohibited));
        for (name, rtype, from, expected) in [
            ("ads.example", Rtype::A, outside, blocked),
            ("x.y.track.example", Rtype::ANY, inside, blocked),
            ("bads.example", Rtype::A, outside, Verdict::Pool(0)),
            ("example", Rtype::A, outside, Verdict::Pool(0)),
            ("example", Rtype::ANY, outside, Verdict::Says(Says::Truncated)),
            ("example", Rtype::ANY, connected, Verdict::Pool(0)),
            ("www.corp.example", Rtype::A, inside, Verdict::Pool(2)),
            (".", Rtype::NS, inside, Verdict::Pool(2)),
            ("www.corp.example", Rtype::A, outside, Verdict::Nothing),
            ("www.corp.example", Rtype::A, connected, refused),
        ] {
            assert_eq!(judged(&rules, &wire(name), rtype, from), expected, "{name} {rtype} {from:?}");
        }
        let met: Vec<u64> = rules.met().map(|(_, _, met)| met).collect();
        assert_eq!(met, [2, 1, 2, 2]);
        let again =
            Rules::new(vec![rule("new", Then::Refused), named(&["corp.example"], Then::Nothing)], &rules);
        let expected = [("new", &Then::Refused, 0), ("corp.example", &Then::Nothing, 2)];
        assert_eq!(again.met().collect::<Vec<_>>(), expected);
    }

    #[test]
    fn a_rate_is_of_each_client_and_each_rule_and_is_for_what_is_beyond() {
        let limited =
            |name: &str, per_second, then| Rule { per_second: Some(per_second), ..named(&[name], then) };
        let rules = Rules::new(
            vec![limited("a", 2, Then::Truncated), limited(".", 3, Then::Refused)],
            &Rules::default(),
        );
        let arrival = |last, now_ns| {
            let client = [192, 0, 2, last].into();
            Arrival { client, now_ns, ..from("192.0.2.1") }
        };
        let ask = |name: &str, last, now_ns| judged(&rules, &wire(name), Rtype::A, arrival(last, now_ns));
        let refused = Verdict::Says(Says::Barred(Rcode::REFUSED, ExtendedError::Prohibited));
        let truncated = Verdict::Says(Says::Truncated);
        let first = [(); 3].map(|()| ask("a", 1, SECOND));
        assert_eq!(first, [Verdict::Pool(0), Verdict::Pool(0), truncated], "the second rule has counted two");
        assert_eq!([(); 2].map(|()| ask("b", 1, SECOND)), [Verdict::Pool(0), refused]);
        assert_eq!(ask("b", 2, SECOND), Verdict::Pool(0));
        assert_eq!(ask("b", 1, 2 * SECOND), Verdict::Pool(0));
        // Other rules change nothing of what was asked: somebody who asks too much would wait for that.
        let more = vec![limited("b", 1, Then::Nxdomain), limited("a", 2, Then::Truncated)];
        let again = Rules::new(more, &rules);
        let ask = |name: &str, last| judged(&again, &wire(name), Rtype::A, arrival(last, SECOND));
        assert_eq!(
            [("a", 1), ("a", 2), ("b", 1)].map(|(name, last)| ask(name, last)),
            [truncated, Verdict::Pool(0), Verdict::Pool(0)]
        );
    }

    /// Names of few letters, so that some meet.
    fn name() -> impl Strategy<Value = Vec<u8>> {
        proptest::collection::vec("[ab]{1,2}", 0..5).prop_map(|labels| wire(&(labels.join(".") + ".")))
    }

    fn any_rule() -> impl Strategy<Value = Rule> {
        let types = proptest::collection::vec(1u16..4, 0..3);
        let clients = proptest::collection::vec((0u8..4, 30u8..=32), 0..3);
        let names = proptest::option::of(proptest::collection::vec(name(), 0..4));
        (names, types, clients, 0usize..4).prop_map(|(names, types, clients, pool)| Rule {
            names,
            types: types.into_iter().map(Rtype::from_int).collect(),
            clients: clients
                .into_iter()
                .map(|(last, bits)| {
                    let first = last & (0xffu16 << (32 - bits)) as u8;
                    format!("192.0.2.{first}/{bits}").parse().expect("a prefix")
                })
                .collect(),
            ..rule("", Then::Pool(pool))
        })
    }

    proptest! {
        #[test]
        fn all_rules_in_one_table_say_what_each_says_by_itself(
            rules in proptest::collection::vec(any_rule(), 0..RULES_MAX),
            questions in proptest::collection::vec((name(), 1u16..5, 0u8..5), 1..50),
        ) {
            let ready = Rules::new(rules.clone(), &Rules::default());
            for (name, rtype, last) in questions {
                let (rtype, client) = (Rtype::from_int(rtype), IpAddr::from([192, 0, 2, last]));
                let is_met = |rule: &&Rule| {
                    let any = |is_empty, holds| is_empty || holds;
                    rule.names.iter().all(|names| names.iter().any(|zone| is_within(&name, zone)))
                        && any(rule.types.is_empty(), rule.types.contains(&rtype))
                        && any(rule.clients.is_empty(), rule.clients.iter().any(|prefix| prefix.contains(client)))
                };
                let expected = match rules.iter().find(is_met).map(|rule| &rule.then) {
                    Some(Then::Pool(pool)) => Verdict::Pool(*pool),
                    _ => Verdict::Pool(0),
                };
                let from = Arrival { client, ..from("192.0.2.1") };
                prop_assert_eq!(judged(&ready, &name, rtype, from), expected);
            }
        }
    }
}
