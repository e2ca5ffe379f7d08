//! Regions of ASes that see the servers in the same order.

use std::collections::HashMap;
use std::fmt::Write;

use routing::partition::RANKS_MAX;
use routing::policy::REGIONS_MAX;
use routing::proximity::csv::UNCLASSIFIED;

use super::Server;
use super::graph::{Distance, Hops};
use super::table::Table;
use crate::book::NAME_MAX;

/// Which region each AS is in.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Regions {
    /// The region of each AS, as an index into `names`; none where no server can be reached.
    pub of_as: Vec<Option<u32>>,
    /// The name of each region.
    pub names: Vec<String>,
    /// The rank of each server's AS in each region, 0 for those that are out of reach or beyond `depth`.
    pub ranks: Vec<Vec<u8>>,
    /// How many ranks are told apart: all there are, or fewer where they would make too many regions.
    pub depth: u8,
}

/// Groups `ases` ASes by the order in which they see the servers' ASes: `hops[server][AS]`, and for each the number of the AS,
/// with how many servers are in it.
///
/// A region is named by its order: the nearest first, those that are equally near joined by hyphens, as in
/// `AS3333.AS701-AS7018`. The same order always has the same name, so its number stays over reloads.
pub fn group(hops: &[Hops], numbers: &[(u32, usize)], ases: usize) -> Regions {
    let most = hops.len().min(usize::from(u8::MAX)) as u8;
    let mut orders = Orders::tell(hops, ases, most);
    // Beyond the highest rank that there is, no order changes.
    let highest = orders.ranks.iter().flatten().copied().max().unwrap_or(0);
    orders.depth = highest;
    // With one rank there can still be too many, if each AS has another set of nearest servers; the policy says so.
    let lines = |ranks: &Vec<u8>| -> usize {
        ranks.iter().zip(numbers).filter(|(rank, _)| **rank > 0).map(|(_, (_, servers))| servers).sum()
    };
    let is_beyond = |orders: &Orders| {
        orders.ranks.len() > REGIONS_MAX || orders.ranks.iter().map(lines).sum::<usize>() > RANKS_MAX
    };
    while is_beyond(&orders) && orders.depth > 1 {
        orders = Orders::tell(hops, ases, orders.depth - 1);
    }
    let Orders { of_as, ranks, depth } = orders;
    let numbers: Vec<u32> = numbers.iter().map(|(number, _)| *number).collect();
    Regions { of_as, names: ranks.iter().map(|ranks| name(ranks, &numbers)).collect(), ranks, depth }
}

/// The different orders that ASes see, as [`Regions`] have them.
struct Orders {
    of_as: Vec<Option<u32>>,
    ranks: Vec<Vec<u8>>,
    depth: u8,
}

impl Orders {
    /// Tells ranks apart up to `depth`.
    fn tell(hops: &[Hops], ases: usize, depth: u8) -> Orders {
        let mut orders = Orders { of_as: Vec::with_capacity(ases), ranks: Vec::new(), depth };
        let mut known: HashMap<Vec<u8>, u32> = HashMap::new();
        for at in 0..ases {
            let seen: Vec<Option<Distance>> = hops.iter().map(|hops| hops[at]).collect();
            let ranks = rank(&seen, depth);
            orders.of_as.push(ranks.iter().any(|rank| *rank > 0).then(|| {
                *known.entry(ranks.clone()).or_insert_with(|| {
                    orders.ranks.push(ranks);
                    orders.ranks.len() as u32 - 1
                })
            }));
        }
        orders
    }
}

/// Ranks distances from 1 on, equal ones alike, without gaps; 0 where there is none, or the rank is beyond `depth`.
fn rank(distances: &[Option<Distance>], depth: u8) -> Vec<u8> {
    let mut different: Vec<Distance> = distances.iter().copied().flatten().collect();
    different.sort_unstable();
    different.dedup();
    let place = |distance: Distance| different.partition_point(|nearer| *nearer < distance) + 1;
    let rank = |distance: Option<Distance>| distance.map_or(0, place);
    distances
        .iter()
        .map(|distance| rank(*distance))
        .map(|rank| if rank > usize::from(depth) { 0 } else { rank as u8 })
        .collect()
}

/// The name of an order; a long one is cut, and ends in what stands for the whole.
fn name(ranks: &[u8], numbers: &[u32]) -> String {
    let mut whole = String::new();
    for rank in 1..=ranks.iter().copied().max().unwrap_or(0) {
        let mut tied: Vec<u32> =
            ranks.iter().zip(numbers).filter(|(of, _)| **of == rank).map(|(_, number)| *number).collect();
        tied.sort_unstable();
        for (number, first) in tied.into_iter().zip(std::iter::once(true).chain(std::iter::repeat(false))) {
            let joint = if !first {
                "-"
            } else if whole.is_empty() {
                ""
            } else {
                "."
            };
            write!(whole, "{joint}AS{number}").expect("a String takes everything");
        }
    }
    if whole.len() <= NAME_MAX {
        return whole;
    }
    let tail = format!(".x{:016x}", fnv(whole.as_bytes()));
    let kept = whole[..=NAME_MAX - tail.len()].rfind(['.', '-']).unwrap_or(0);
    format!("{}{tail}", &whole[..kept])
}

/// FNV-1a of 64 bits: short, and the same on every machine and for ever, as names must be.
fn fnv(octets: &[u8]) -> u64 {
    octets
        .iter()
        .fold(0xcbf2_9ce4_8422_2325, |hash, octet| (hash ^ u64::from(*octet)).wrapping_mul(0x100_0000_01b3))
}

/// Writes ranks and prefixes; `ases` is the AS of each server, `from` each of them once, in the order of the ranks.
pub fn write(table: &Table, regions: &Regions, servers: &[Server], ases: &[u32], from: &[u32]) -> String {
    let mut text = String::new();
    let mut line = |line: std::fmt::Arguments<'_>| text.write_fmt(line).expect("a String takes everything");
    for (name, ranks) in regions.names.iter().zip(&regions.ranks) {
        for (server, index) in servers.iter().zip(ases) {
            let place = from.iter().position(|known| known == index);
            if let Some(rank) = place.map(|place| ranks[place]).filter(|rank| *rank > 0) {
                line(format_args!("@{name},{},{rank}\n", server.address));
            }
        }
    }
    line(format_args!("prefix,region\n"));
    for (prefix, origin) in &table.origins {
        let region = regions.of_as[*origin as usize];
        let name = region.map_or(UNCLASSIFIED, |region| regions.names[region as usize].as_str());
        line(format_args!("{prefix},{name}\n"));
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    fn hops(text: &str) -> Hops {
        text.chars().map(|c| c.to_digit(10).map(|digit| digit as u8)).collect()
    }

    #[test]
    fn the_same_order_is_the_same_region() {
        // Three servers' ASes, seven clients'.
        let hops = [hops("0123-2-"), hops("1113-59"), hops("22239--")];
        let regions = group(&hops, &[(30, 1), (10, 1), (20, 1)], 7);
        assert_eq!(
            regions.names,
            [
                "AS30.AS10.AS20",
                "AS10-AS30.AS20",
                "AS10.AS20-AS30",
                "AS10-AS20-AS30",
                "AS20",
                "AS30.AS10",
                "AS10"
            ]
        );
        assert_eq!(regions.of_as, [0, 1, 2, 3, 4, 5, 6].map(Some));
        assert_eq!(regions.ranks[2], [2, 1, 2]);
        let none = group(&[self::hops("-3"), self::hops("-4")], &[(1, 1), (2, 1)], 2);
        assert_eq!((none.of_as, none.names.len()), (vec![None, Some(0)], 1));
        assert_eq!((regions.depth, none.depth), (3, 2), "no AS has more ranks");
        // One hop more to all is the same order.
        let same = group(&[self::hops("13"), self::hops("35")], &[(1, 1), (2, 1)], 2);
        assert_eq!((same.of_as, same.depth), (vec![Some(0), Some(0)], 2));
        let alike = group(&[self::hops("1"), self::hops("1"), self::hops("1")], &[(1, 1), (2, 1), (3, 1)], 1);
        assert_eq!(alike.depth, 1, "three servers, and one distance");
    }

    #[test]
    fn too_many_orders_are_told_apart_by_their_first_ranks_alone() {
        let mut rng = fastrand::Rng::with_seed(1);
        let hops: Vec<Hops> = (0..12).map(|_| (0..20_000).map(|_| Some(rng.u8(1..9))).collect()).collect();
        let numbers: Vec<(u32, usize)> = (1..=12).map(|number| (number, 1)).collect();
        let regions = group(&hops, &numbers, 20_000);
        assert!(regions.depth < 8 && regions.names.len() <= REGIONS_MAX, "{}", regions.names.len());
        assert!(regions.ranks.iter().flatten().all(|rank| *rank <= regions.depth));
        // Of a thousand orders with 256 servers, not all ranks have room either.
        let hops: Vec<Hops> = (0..8).map(|_| (0..2_000).map(|_| Some(rng.u8(1..9))).collect()).collect();
        let servers: Vec<(u32, usize)> = (1..=8).map(|number| (number, 32)).collect();
        let [one, all] = [1, 32].map(|each| {
            let numbers: Vec<(u32, usize)> = servers.iter().map(|(number, _)| (*number, each)).collect();
            group(&hops, &numbers, 2_000)
        });
        let ranked = all.ranks.iter().flatten().filter(|rank| **rank > 0).count();
        assert!(one.depth > all.depth && 32 * ranked <= RANKS_MAX, "{} {}", one.depth, all.depth);
    }

    #[test]
    fn a_long_name_is_cut_and_still_its_own() {
        let numbers: Vec<u32> = (400_000..400_020).collect();
        let ranks: Vec<u8> = (1..=20).collect();
        let one = name(&ranks, &numbers);
        let mut swapped = ranks.clone();
        swapped.swap(18, 19);
        let other = name(&swapped, &numbers);
        assert!(one.len() <= NAME_MAX && other.len() <= NAME_MAX && one != other, "{one} {other}");
        assert_eq!(one.split(".x").next(), other.split(".x").next());
        assert!(one.starts_with("AS400000.AS400001.") && one.is_ascii(), "{one}");
        assert_eq!(fnv(b"a"), 0xaf63_dc4c_8601_ec8c, "the published value");
    }
}
