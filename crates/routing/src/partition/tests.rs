//! What a partition answers, against the definition.

use std::collections::HashMap;

use proptest::prelude::*;

use super::*;
use crate::proximity::country_entries;

fn region(id: u32) -> RegionId {
    RegionId::new(id).unwrap()
}

fn prefix(text: &str) -> Prefix {
    text.parse().unwrap()
}

fn leaf(id: u32, scope: u8) -> Leaf {
    Leaf { region: region(id), scope }
}

/// A partition by definition: the prefixes, one after the other.
struct Plain(Vec<(Prefix, RegionId)>);

impl Plain {
    fn region(&self, address: IpAddr) -> RegionId {
        let covering = self.0.iter().filter(|(prefix, _)| prefix.contains(address));
        covering.max_by_key(|(prefix, _)| prefix.length()).map_or(RegionId::NONE, |entry| entry.1)
    }

    /// The region can change only where a prefix begins or right behind its end.
    fn is_uniform(&self, block: Prefix) -> bool {
        let expected = self.region(block.address());
        self.0
            .iter()
            .flat_map(|(prefix, _)| ends(*prefix))
            .all(|point| !point.is_some_and(|point| block.contains(point) && self.region(point) != expected))
    }

    fn lookup(&self, address: IpAddr) -> Leaf {
        let bits = if address.is_ipv4() { 32 } else { 128 };
        let scope = (0..=bits).find(|&n| self.is_uniform(Prefix::new(address, n).unwrap())).unwrap();
        Leaf { region: self.region(address), scope }
    }
}

/// The first address of a prefix and the one behind its last.
fn ends(prefix: Prefix) -> [Option<IpAddr>; 2] {
    let behind = match prefix.address() {
        IpAddr::V4(first) => 1u32
            .checked_shl(32 - u32::from(prefix.length()))
            .and_then(|n| first.to_bits().checked_add(n))
            .map(|n| Ipv4Addr::from_bits(n).into()),
        IpAddr::V6(first) => 1u128
            .checked_shl(128 - u32::from(prefix.length()))
            .and_then(|n| first.to_bits().checked_add(n))
            .map(|n| Ipv6Addr::from_bits(n).into()),
    };
    [Some(prefix.address()), behind]
}

fn before(address: IpAddr) -> Option<IpAddr> {
    match address {
        IpAddr::V4(a) => a.to_bits().checked_sub(1).map(|n| Ipv4Addr::from_bits(n).into()),
        IpAddr::V6(a) => a.to_bits().checked_sub(1).map(|n| Ipv6Addr::from_bits(n).into()),
    }
}

/// The corners of the entries, and a few addresses elsewhere.
fn probes(entries: &[(Prefix, RegionId)], others: Vec<IpAddr>) -> Vec<IpAddr> {
    let points = entries.iter().flat_map(|(prefix, _)| ends(*prefix)).flatten();
    let mut probes: Vec<IpAddr> = points.flat_map(|point| [Some(point), before(point)]).flatten().collect();
    probes.extend(others);
    for edge in ["0.0.0.0", "255.255.255.255", "::", "ffff:ffff:ffff:ffff:ffff:ffff:ffff:ffff"] {
        probes.push(edge.parse().unwrap());
    }
    probes
}

/// Addresses that often share leading bits, so that prefixes nest and touch.
fn address() -> impl Strategy<Value = IpAddr> {
    let v4 = (prop::sample::select(vec![0u32, 0xc000_0200, 0xffff_ff00]), 0u32..=32, any::<u32>())
        .prop_map(|(base, keep, noise)| base ^ (u64::from(noise) >> keep) as u32)
        .prop_map(|bits| IpAddr::from(Ipv4Addr::from_bits(bits)));
    let base = prop::sample::select(vec![0u128, 0x2001_0db8 << 96, 0x2001_0db8 << 96 | 1 << 63, u128::MAX]);
    let v6 = (base, 0u32..128, any::<u128>())
        .prop_map(|(base, keep, noise)| IpAddr::from(Ipv6Addr::from_bits(base ^ noise >> keep)));
    prop_oneof![v4, v6]
}

fn entry() -> impl Strategy<Value = (Prefix, RegionId)> {
    (address(), 0u8..=128, 0u32..4).prop_map(|(address, length, id)| {
        let length = if address.is_ipv4() { length % 33 } else { length };
        (Prefix::new(address, length).unwrap(), region(id))
    })
}

#[test]
fn in_a_stack_the_first_that_has_a_region_decides() {
    let layer = |entries: &[(&str, u32)]| {
        Partition::compile(entries.iter().map(|(text, id)| (prefix(text), region(*id))))
    };
    let first = layer(&[("10.0.0.0/8", 1), ("10.1.0.0/16", 0), ("2001:db8::/32", 1)]);
    let second = layer(&[("10.1.2.0/24", 2), ("10.2.0.0/16", 2), ("0.0.0.0/0", 3)]);
    let stacked = Partition::compile(Partition::stack(&[first, second]).expect("few"));
    for (address, id) in [
        ("10.0.0.1", 1),
        ("10.2.0.1", 1),
        ("10.1.2.3", 2),
        ("10.1.3.3", 3),
        ("192.0.2.1", 3),
        ("255.255.255.255", 3),
        ("2001:db8::1", 1),
        ("2001:db9::", 0),
    ] {
        assert_eq!(stacked.lookup(address.parse().unwrap()).region, region(id), "{address}");
    }
    let whole = layer(&[("::/0", 7), ("0.0.0.0/0", 7)]);
    let both = vec![(prefix("0.0.0.0/0"), region(7)), (prefix("::/0"), region(7))];
    assert_eq!(Partition::stack(&[whole]), Some(both));
    assert_eq!(Partition::stack(&[]), Some(Vec::new()));
}

#[test]
fn blocks_are_bounded_before_they_are_made() {
    // A host cut out of all addresses leaves a block for each bit.
    let layer = |text: &str, id| Partition::compile([(prefix(text), region(id))]);
    let runs = overlay(&layer("2001:db8::1/128", 1).runs_v6(), &layer("::/0", 2).runs_v6());
    for (most, expected) in [(129, Some(())), (128, None)] {
        let mut made = Vec::new();
        assert_eq!(blocks(&runs, 128, most, &mut made), expected);
        assert!(made.len() <= most);
    }
}

proptest! {
    #[test]
    fn a_stack_is_what_its_layers_say(
        layers in prop::collection::vec(prop::collection::vec((address(), any::<u8>(), 0u32..4), 0..8), 0..4),
        others in prop::collection::vec(any::<IpAddr>(), 0..4),
    ) {
        let entries = |layer: &Vec<(IpAddr, u8, u32)>| -> Vec<(Prefix, RegionId)> {
            let prefix = |address: IpAddr, length: u8| {
                Prefix::new(address, length % if address.is_ipv4() { 33 } else { 129 }).unwrap()
            };
            layer.iter().map(|&(address, length, id)| (prefix(address, length), region(id))).collect()
        };
        let layers: Vec<Vec<(Prefix, RegionId)>> = layers.iter().map(entries).collect();
        let compiled: Vec<Partition> = layers.iter().cloned().map(Partition::compile).collect();
        let stacked = Partition::compile(Partition::stack(&compiled).unwrap());
        for probe in probes(&layers.concat(), others) {
            let mut each = compiled.iter().map(|layer| layer.lookup(probe).region);
            let expected = each.find(|region| !region.is_none()).unwrap_or(RegionId::NONE);
            prop_assert_eq!(stacked.lookup(probe).region, expected, "{}", probe);
        }
    }

    #[test]
    fn equals_a_linear_scan(
        entries in prop::collection::vec(entry(), 0..40),
        others in prop::collection::vec(address(), 0..20),
        gone in 0u32..4,
    ) {
        // Of equal prefixes the linear scan knows only the later one.
        let unique: BTreeMap<Prefix, RegionId> = entries.iter().copied().collect();
        let plain = Plain(unique.into_iter().collect());
        let partition = Partition::compile(entries.iter().copied());
        let without = Partition::compile(plain.0.iter().map(|&(prefix, id)| {
            (prefix, if id == region(gone) { RegionId::NONE } else { id })
        }));
        let removed = partition.without_region(region(gone));
        prop_assert_eq!(partition.size().prefixes, plain.0.len() as u64);
        prop_assert_eq!(removed.size().ranges, without.size().ranges);
        prop_assert_eq!(removed.regions().collect::<Vec<_>>(), without.regions().collect::<Vec<_>>());
        for probe in probes(&entries, others) {
            prop_assert_eq!(partition.lookup(probe), plain.lookup(probe), "{}", probe);
            prop_assert_eq!(removed.lookup(probe), without.lookup(probe), "{}", probe);
        }
    }

}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(32))]

    /// Enough prefixes that tables have tables.
    #[test]
    fn equals_a_linear_scan_where_prefixes_crowd(
        seed: u64,
        crowds in prop::collection::vec((address(), 8u8..40), 1..4),
    ) {
        let mut rng = fastrand::Rng::with_seed(seed);
        let mut entries = Vec::new();
        for (at, free) in crowds {
            for _ in 0..60 {
                let noise = rng.u64(..) >> (64 - free);
                let (at, bits) = match at {
                    IpAddr::V4(at) => (Ipv4Addr::from_bits(at.to_bits() ^ noise as u32).into(), 32),
                    IpAddr::V6(at) => {
                        (Ipv6Addr::from_bits(at.to_bits() ^ u128::from(noise) << 64).into(), 64)
                    }
                };
                entries.push((Prefix::new(at, rng.u8(bits - 4..=bits)).unwrap(), region(rng.u32(0..3))));
            }
        }
        let unique: BTreeMap<Prefix, RegionId> = entries.iter().copied().collect();
        let plain = Plain(unique.into_iter().collect());
        let partition = Partition::compile(entries.iter().copied());
        for &(prefix, _) in entries.iter().step_by(7) {
            for probe in ends(prefix).into_iter().flatten() {
                prop_assert_eq!(partition.lookup(probe), plain.lookup(probe), "{}", probe);
            }
        }
    }
}

#[test]
fn an_empty_partition_is_one_block() {
    let partition = Partition::default();
    for address in ["0.0.0.0", "192.0.2.1", "255.255.255.255", "::", "2001:db8::1"] {
        assert_eq!(partition.lookup(address.parse().unwrap()), leaf(0, 0), "{address}");
    }
    assert_eq!(partition.size().prefixes, 0);
    assert_eq!(partition.size().ranges, 2);
}

#[test]
fn equal_neighbours_are_one_block() {
    let partition = Partition::compile([
        (prefix("192.0.2.0/25"), region(7)),
        (prefix("192.0.2.128/25"), region(7)),
        (prefix("2001:db8::/33"), region(7)),
        (prefix("2001:db8:8000::/33"), region(7)),
        (prefix("2001:db8:0:1::1/128"), region(8)),
    ]);
    for (address, expected) in [
        ("192.0.2.200", leaf(7, 24)),
        ("192.0.3.0", leaf(0, 24)),
        ("10.0.0.0", leaf(0, 1)),
        ("2001:db8:ffff::", leaf(7, 33)),
        ("2001:db8:0:1::1", leaf(8, 128)),
        ("2001:db8:0:1::", leaf(7, 128)),
        ("2001:db8:0:1::2", leaf(7, 127)),
        ("2001:db8:0:1:8000::", leaf(7, 65)),
        ("2001:db8:0:0:8000::", leaf(7, 64)),
        ("::ffff:192.0.2.1", leaf(0, 3)),
    ] {
        assert_eq!(partition.lookup(address.parse().unwrap()), expected, "{address}");
    }
}

#[test]
fn a_removed_region_leaves_a_hole() {
    let partition = Partition::compile([
        (prefix("192.0.0.0/16"), region(1)),
        (prefix("192.0.2.0/24"), region(2)),
        (prefix("192.0.2.0/24"), region(3)),
    ]);
    assert_eq!(partition.regions().collect::<Vec<_>>(), [(region(1), 1), (region(3), 1)]);
    let without = partition.without_region(region(3));
    assert_eq!(without.lookup("192.0.2.1".parse().unwrap()), leaf(0, 24));
    assert_eq!(without.lookup("192.0.3.1".parse().unwrap()), leaf(1, 24));
    assert_eq!(without.regions().collect::<Vec<_>>(), [(region(0), 1), (region(1), 1)]);
}

/// 243,034 real prefixes against the longest match found length by length.
#[test]
fn real_prefixes() {
    let Some(entries) = country_entries() else { return };
    let partition = Partition::compile(entries.iter().copied());
    assert_eq!(partition.size().prefixes, entries.len() as u64);
    let by_prefix: HashMap<Prefix, RegionId> = entries.iter().copied().collect();
    let region = |address: IpAddr| {
        let max = if address.is_ipv4() { 32 } else { 128 };
        let lengths = (0..=max).rev().filter_map(|length| Prefix::new(address, length));
        lengths.filter_map(|prefix| by_prefix.get(&prefix)).next().copied().unwrap_or_default()
    };
    let mut points: Vec<IpAddr> = entries.iter().flat_map(|entry| ends(entry.0)).flatten().collect();
    points.sort_unstable();
    points.dedup();
    let is_uniform = |block: Prefix| {
        let first = points.partition_point(|point| *point < block.address());
        let expected = region(block.address());
        points[first..].iter().take_while(|point| block.contains(**point)).all(|p| region(*p) == expected)
    };
    let mut rng = fastrand::Rng::with_seed(20_260_200);
    for i in 0..4_000 {
        let (prefix, _) = entries[rng.usize(..entries.len())];
        let address = match prefix.address() {
            _ if i % 4 == 0 => Ipv4Addr::from_bits(rng.u32(..)).into(),
            IpAddr::V4(a) => Ipv4Addr::from_bits(a.to_bits() ^ rng.u32(..) >> rng.u32(..32)).into(),
            IpAddr::V6(a) => Ipv6Addr::from_bits(a.to_bits() ^ rng.u128(..) >> rng.u32(..128)).into(),
        };
        let found = partition.lookup(address);
        assert_eq!(found.region, region(address), "{address}");
        assert!(is_uniform(Prefix::new(address, found.scope).unwrap()), "{address} {found:?}");
        if found.scope > 0 {
            assert!(!is_uniform(Prefix::new(address, found.scope - 1).unwrap()), "{address} {found:?}");
        }
    }
}
