//! Source addresses: one a client, copies counted, as long as the prefix has enough.
//!
//! Clients are numbered in the order in which the trace has them, so that all who read it number them alike. A permutation
//! that the seed draws makes addresses of numbers; those beyond the last address begin again at the first, so that no
//! address has more than one client more than another.

use std::collections::hash_map::Entry;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use routing::Prefix;

use super::draw::{self, For};
use crate::tables::Tables;

/// The most clients that are numbered; half as many where they have copies. That takes about 150 MiB; the busiest hour of a
/// root server has 1.2 million. Addresses of those beyond are drawn, so that some are shared; their queries are counted.
pub const CLIENTS_MAX: usize = 1 << 22;

/// The most bits of an address that are given out: more clients than these tell apart are nowhere.
const BITS_MAX: u32 = 64;

/// Where an address must not be, in a prefix of more than two: the first and the last may be a network's own.
const EDGES: usize = 2;

/// The numbers of clients, and their addresses in a prefix.
#[derive(Debug)]
pub struct Sources {
    prefix: Prefix,
    seed: u64,
    /// How many bits of an address are given out, and how many addresses these make.
    bits: u32,
    addresses: u64,
    /// Of clients, and of each one's further copies, the number of the first.
    numbers: Tables<u64, u64>,
    /// How many entries there are, and how many clients, copies counted.
    entries: usize,
    clients: u64,
    /// Queries of clients beyond [`CLIENTS_MAX`].
    pub unnumbered: u64,
}

/// The numbers of a client and its copies.
#[derive(Clone, Copy, Debug)]
pub(super) struct Numbers {
    own: u64,
    /// That of copy 1; the others follow.
    copies: u64,
}

impl Sources {
    /// No client yet.
    pub fn new(prefix: Prefix, seed: u64) -> Sources {
        let all = if prefix.address().is_ipv4() { 32 } else { 128 };
        let bits = (all - u32::from(prefix.length())).min(BITS_MAX);
        let edges = if bits < 2 { 0 } else { EDGES as u128 };
        // 64 bits less two edges fit.
        let addresses = ((1_u128 << bits) - edges) as u64;
        let numbers = Tables::new();
        Sources { prefix, seed, bits, addresses, numbers, entries: 0, clients: 0, unnumbered: 0 }
    }

    /// The numbers of a query's client with so many copies, itself counted; new ones where it was not there before.
    pub(super) fn numbers(&mut self, client: IpAddr, copies: u32) -> Numbers {
        let mut is_numbered = true;
        let mut first = |copy: u32, count: u32| {
            let key = draw::client(client, copy);
            if count == 0 {
                return 0;
            }
            self.number(key, count.into()).unwrap_or_else(|| {
                is_numbered = false;
                draw::draw(self.seed, For::Source, key)
            })
        };
        let numbers = Numbers { own: first(0, copies.min(1)), copies: first(1, copies.saturating_sub(1)) };
        self.unnumbered += u64::from(!is_numbered);
        numbers
    }

    /// Clients, copies counted, whose address another had before.
    pub fn sharing(&self) -> u64 {
        self.clients.saturating_sub(self.addresses)
    }

    /// The first of so many numbers, which are the same for the same key; `None` where the table is full.
    fn number(&mut self, key: u64, count: u64) -> Option<u64> {
        match self.numbers.of_mut(&key).entry(key) {
            Entry::Occupied(known) => Some(*known.get()),
            Entry::Vacant(new) if self.entries < CLIENTS_MAX => {
                self.entries += 1;
                let first = *new.insert(self.clients);
                self.clients += count;
                Some(first)
            }
            Entry::Vacant(_) => None,
        }
    }

    /// The address of a number: of client 0, 1 and so on.
    pub fn address(&self, number: u64) -> IpAddr {
        let host = self.host(number % self.addresses);
        match self.prefix.address() {
            IpAddr::V4(first) => Ipv4Addr::from(u32::from(first) | host as u32).into(),
            IpAddr::V6(first) => Ipv6Addr::from(u128::from(first) | u128::from(host)).into(),
        }
    }

    /// The bits of an address behind the prefix.
    fn host(&self, number: u64) -> u64 {
        if self.bits < 2 {
            return number;
        }
        let mut host = self.mixed(number + 1);
        // A number that comes to lie at an edge takes the place of that edge's own, or of the other edge's: nobody else's.
        for _ in 0..EDGES {
            if host == 0 || host == self.mask() {
                host = self.mixed(host);
            }
        }
        host
    }

    /// A permutation of all numbers of so many bits: each step can be undone.
    fn mixed(&self, mut number: u64) -> u64 {
        for round in 0..2 {
            let drawn = draw::draw(self.seed, For::Source, round);
            number = number.wrapping_mul(drawn | 1).wrapping_add(drawn >> 32) & self.mask();
            number ^= number >> self.bits.div_ceil(2);
        }
        number
    }

    fn mask(&self) -> u64 {
        u64::MAX >> (u64::BITS - self.bits)
    }
}

impl Numbers {
    /// That of a copy.
    pub(super) fn of(self, copy: u32) -> u64 {
        match copy.checked_sub(1) {
            None => self.own,
            Some(further) => self.copies.wrapping_add(further.into()),
        }
    }
}

#[cfg(test)]
mod tests {
    use std::collections::HashMap;

    use super::*;

    #[test]
    fn each_number_has_an_address_of_its_own_until_there_are_none_left() {
        for (prefix, count) in [
            ("127.1.0.0/16", 65_534),
            ("10.0.0.0/21", 2_046),
            ("192.0.2.0/29", 6),
            ("192.0.2.0/30", 2),
            ("192.0.2.8/31", 2),
            ("192.0.2.7/32", 1),
            ("2001:db8::/48", u64::MAX - 1),
            ("2001:db8::/120", 254),
            ("::1/128", 1),
        ] {
            let prefix: Prefix = prefix.parse().expect("a prefix");
            for seed in 0..3 {
                let sources = Sources::new(prefix, seed);
                assert_eq!(sources.addresses, count, "{prefix}");
                let some = count.min(70_000);
                let mut seen: HashMap<IpAddr, u64> = HashMap::new();
                for number in 0..2 * some {
                    let address = sources.address(number % count);
                    assert!(prefix.contains(address), "{address} in {prefix}");
                    assert!(count <= 2 || address != prefix.address(), "{address} in {prefix}");
                    *seen.entry(address).or_default() += 1;
                }
                let most = if count == some { 2 } else { 1 };
                assert!(seen.values().all(|clients| *clients == most), "{prefix}, seed {seed}");
            }
        }
    }

    #[test]
    fn the_seed_draws_which_client_has_which_address() {
        let first = |seed| {
            let sources = Sources::new("127.1.0.0/16".parse().expect("a prefix"), seed);
            (0..4).map(|number| sources.address(number)).collect::<Vec<_>>()
        };
        assert_eq!(first(1), first(1));
        assert_ne!(first(1), first(2));
    }

    #[test]
    fn clients_beyond_the_table_are_drawn_and_counted() {
        let mut sources = Sources::new("10.0.0.0/8".parse().expect("a prefix"), 1);
        let mut number = |client: u8| sources.numbers([192, 0, 2, client].into(), 3).of(2);
        assert_eq!((number(1), number(2), number(1)), (2, 5, 2));
        sources.entries = CLIENTS_MAX;
        let drawn = [3, 3].map(|client| sources.numbers([192, 0, 2, client].into(), 1).of(0));
        assert_eq!(drawn[0], drawn[1]);
        assert_eq!((sources.unnumbered, sources.clients, sources.sharing()), (2, 6, 0));
    }
}
