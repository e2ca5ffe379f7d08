//! The prefixes that partitions are made of: real ones from files, and made-up ones like them.

use std::collections::BTreeSet;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use anyhow::{Context, Result};
use fastrand::Rng;
use routing::{Prefix, RegionId};

use crate::machine;
use crate::steering::{self, COUNTRIES, REGIONS};

/// Half of the larger partition: as many prefixes of each family.
const MADE_UP: usize = 500_000;

/// How often IPv6 prefixes of these lengths are seen, in percent, as in today's routing tables.
const V6_LENGTHS: &[(u8, u32)] =
    &[(29, 3), (32, 12), (36, 4), (40, 9), (42, 3), (44, 16), (46, 3), (47, 2), (48, 47), (56, 1)];

/// The prefixes of [`COUNTRIES`].
///
/// # Errors
/// Where the file is not there or cannot be read.
pub(crate) fn countries() -> Result<Vec<(Prefix, RegionId)>> {
    steering::countries(&machine::data(COUNTRIES)?)
}

/// A million prefixes: 500,000 of IPv4, drawn from the routing table of 2014 in `ipasn_20140513.dat.gz`,
/// and as many made-up ones of IPv6.
///
/// An IPv4 prefix's region follows from its origin AS. The IPv6 prefixes lie in 20,000 allocations of /32 in
/// 2000::/3, with the lengths of [`V6_LENGTHS`]; the region follows from the allocation, but for one in four.
/// So neighbours are often, not always, in one region.
///
/// # Errors
/// Where the file is not there or cannot be read.
pub(crate) fn million(seed: u64) -> Result<Vec<(Prefix, RegionId)>> {
    let mut rng = Rng::with_seed(seed);
    let region = |number: u64| RegionId::new((number % u64::from(REGIONS)) as u32 + 1).expect("small");
    let mut v4 = Vec::new();
    let routes = machine::unpacked(&machine::data("routing/ipasn_20140513.dat.gz")?)?;
    for line in routes.lines().filter(|line| !line.starts_with(';')) {
        let (prefix, origin) = line.split_once('\t').with_context(|| format!("no tab: {line}"))?;
        let origin: u64 = origin.trim().parse().context("not an AS number")?;
        v4.push((prefix.parse().ok().context("not a prefix")?, region(origin)));
    }
    rng.shuffle(&mut v4);
    v4.truncate(MADE_UP);
    let allocations: Vec<(u32, u64)> =
        (0..20_000).map(|_| (0x2000_0000 | rng.u32(..) >> 3, rng.u64(..))).collect();
    let mut seen = BTreeSet::new();
    let mut v6 = Vec::new();
    while v6.len() < MADE_UP {
        let (allocation, own) = allocations[rng.usize(..allocations.len())];
        let mut draw = rng.u32(..100);
        let length = V6_LENGTHS.iter().find(|(_, percent)| match draw.checked_sub(*percent) {
            Some(rest) => {
                draw = rest;
                false
            }
            None => true,
        });
        let length = length.expect("the percentages sum up to 100").0;
        let address = u128::from(allocation) << 96 | u128::from(rng.u32(..)) << 64;
        let address = address >> (128 - length) << (128 - length);
        if seen.insert((address, length)) {
            let number = if rng.u8(..4) == 0 { rng.u64(..) } else { own };
            let prefix = Prefix::new(Ipv6Addr::from_bits(address).into(), length).expect("at most 128");
            v6.push((prefix, region(number)));
        }
    }
    v4.append(&mut v6);
    Ok(v4)
}

/// IPv4 addresses, all equally likely.
pub(crate) fn uniform_v4(count: usize, rng: &mut Rng) -> Vec<Ipv4Addr> {
    (0..count).map(|_| Ipv4Addr::from_bits(rng.u32(..))).collect()
}

/// IPv6 addresses inside prefixes, which are equally likely; within one, all addresses are.
pub(crate) fn covered_v6(entries: &[(Prefix, RegionId)], count: usize, rng: &mut Rng) -> Vec<Ipv6Addr> {
    let prefixes: Vec<(u128, u8)> = entries
        .iter()
        .filter_map(|(prefix, _)| match prefix.address() {
            IpAddr::V6(address) => Some((address.to_bits(), prefix.length())),
            IpAddr::V4(_) => None,
        })
        .collect();
    (0..count)
        .map(|_| {
            let (address, length) = prefixes[rng.usize(..prefixes.len())];
            Ipv6Addr::from_bits(address | rng.u128(..).checked_shr(length.into()).unwrap_or(0))
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_lengths_are_percentages() {
        assert_eq!(V6_LENGTHS.iter().map(|(_, percent)| percent).sum::<u32>(), 100);
    }
}
