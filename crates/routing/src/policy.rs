//! A policy as it is executed: MyXDNS's matrix (section 3.1 of the paper) in flat arrays.
//!
//! ```text
//!              servers of one family
//! row 0  │ default column: weights, TTLs          region -> row, sorted by region
//! row 1  │ weights, TTLs of some regions          (a region that is not there: row 0)
//! row 2  │ ...
//! ```
//! Equal rows are stored once. Weights are whole numbers, scaled to the row's largest.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Display;
use std::net::IpAddr;
use std::sync::Arc;

use api::place::{Origin, Pointed, pointer};
use api::policy::TTL_MAX;
use api::{Entry, Faults, Order, Target, WhenAllDown};

use crate::health::SlotId;
use crate::partition::{Partition, RANK_MAX};
use crate::region::RegionId;

/// The most servers of one policy: a decision names them in one octet each, and the pass over a row stays short.
pub const SERVERS_MAX: usize = 256;

/// The most regions that one policy has rows for.
pub const REGIONS_MAX: usize = 4_096;

/// The most owner names of one policy.
pub const NAMES_MAX: usize = 1_000_000;

/// The TTL in seconds where none is given (section 4.1 of the paper).
pub const TTL_DEFAULT: u32 = 360;

/// The weight of a row's most probable server; the sum of a row is at most 2^32.
const WEIGHT_MAX: f64 = (1u32 << 24) as f64;

/// What a policy's text refers to.
pub struct Context<'a> {
    /// The id of a region's name.
    pub region: &'a dyn Fn(&str) -> Option<RegionId>,
    /// The partition of a name.
    pub partition: &'a dyn Fn(&str) -> Option<Arc<Partition>>,
}

/// What a name resolves to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Family {
    /// Addresses of IPv4: A records.
    V4,
    /// Addresses of IPv6: AAAA records.
    V6,
    /// Another name: a CNAME record. A policy that has this family has no other.
    Cname,
}

impl Family {
    /// The one that a server is of.
    pub fn of(target: &Target) -> Family {
        match target {
            Target::Address(IpAddr::V4(_)) => Family::V4,
            Target::Address(IpAddr::V6(_)) => Family::V6,
            Target::Cname(_) => Family::Cname,
        }
    }
}

/// A compiled policy.
#[derive(Clone, Debug)]
pub struct Policy {
    pub(crate) v4: Matrix,
    pub(crate) v6: Matrix,
    pub(crate) cname: Matrix,
    pub(crate) answers: u16,
    pub(crate) order: Order,
    pub(crate) when_all_down: WhenAllDown,
    pub(crate) partition: Arc<Partition>,
}

/// The servers of one family and their rows.
#[derive(Clone, Debug, Default)]
pub(crate) struct Matrix {
    pub(crate) servers: Box<[Server]>,
    /// `servers.len()` cells a row; row 0 is the default column.
    pub(crate) weights: Box<[u32]>,
    pub(crate) ttls: Box<[u32]>,
    /// The regions that have rows, ascending: those of which a server of the family has an entry, or a rank.
    pub(crate) regions: Box<[(RegionId, u32)]>,
}

/// A server that may be answered.
#[derive(Clone, Debug)]
pub struct Server {
    /// What is answered.
    pub target: Target,
    /// Where its probe's result stands; [`SlotId::NONE`] where it has no probe.
    pub probe: SlotId,
}

impl Policy {
    /// Compiles a policy; `origin` says what it was read from, so that faults can name lines.
    ///
    /// # Errors
    /// All that is wrong with its meaning: unknown regions or partition, too many or no servers, servers
    /// listed twice or that no client could reach, names beside addresses.
    pub fn compile(spec: &api::Policy, origin: Origin<'_>, context: &Context<'_>) -> Result<Policy, Faults> {
        let mut found = Found::default();
        found.check_size(spec);
        found.check_families(spec);
        let partition = (context.partition)(&spec.partition);
        if partition.is_none() {
            let what = format!("there is no partition '{}'", spec.partition);
            found.add(pointer(&[&"partition"]), what, "one that was put before");
        }
        let mut cells = Vec::new();
        for (index, server) in spec.servers.iter().enumerate() {
            found.check_target(spec, index);
            found.check_entry(&server.default, &[&"servers", &index, &"default"]);
            for (name, entry) in &server.regions {
                let place: [&dyn Display; 4] = [&"servers", &index, &"regions", name];
                match (context.region)(name) {
                    Some(region) => cells.push(Cell { region, server: index, entry: *entry }),
                    None => {
                        let what = format!("there is no region '{name}'");
                        found.add(pointer(&place), what, "one that was added before");
                    }
                }
                found.check_entry(entry, &place);
            }
        }
        cells.sort_unstable_by_key(|cell| (cell.region, cell.server));
        let ranked = partition.as_ref().map(|partition| ranked(spec, partition, &cells)).unwrap_or_default();
        let regions: BTreeSet<_> =
            columns(&cells).map(|column| &column[0].region).chain(ranked.keys()).collect();
        if regions.len() > REGIONS_MAX {
            let what = format!("{} regions have entries or ranks", regions.len());
            found.add(pointer(&[&"servers"]), what, format!("at most {REGIONS_MAX}"));
        }
        let (true, Some(partition)) = (found.0.is_empty(), partition) else {
            return Err(origin.place(found.0));
        };
        let matrix = |family: Family| Matrix::compile(spec, family, &cells, &ranked);
        Ok(Policy {
            v4: matrix(Family::V4),
            v6: matrix(Family::V6),
            cname: matrix(Family::Cname),
            answers: spec.answers,
            order: spec.order,
            when_all_down: spec.when_all_down,
            partition,
        })
    }

    /// The servers of a family, in the order in which they were given.
    pub fn servers(&self, family: Family) -> &[Server] {
        &self.matrix(family).servers
    }

    /// Whether its names are aliases of other names, whatever type is asked for.
    #[inline]
    pub fn is_alias(&self) -> bool {
        !self.cname.servers.is_empty()
    }

    /// Has the answers heed probes: `slot` says where the result of each server's stands.
    pub fn heed_probes(&mut self, slot: impl Fn(&Target) -> SlotId) {
        for matrix in [&mut self.v4, &mut self.v6, &mut self.cname] {
            for server in &mut matrix.servers {
                server.probe = slot(&server.target);
            }
        }
    }

    /// The TTLs of a region's row, in seconds, a server each; the default column's where it has none.
    pub fn ttls(&self, family: Family, region: RegionId) -> &[u32] {
        self.matrix(family).row(region).1
    }

    /// Whether the order is a rotation: then a decision takes a turn.
    #[inline]
    pub fn rotates(&self) -> bool {
        self.order == Order::Rotate
    }

    /// The partition that tells a client's region.
    pub fn partition(&self) -> &Partition {
        &self.partition
    }

    /// Whether any region has a row of a family: without, all clients are alike and no scope is needed.
    #[inline]
    pub fn has_regions(&self, family: Family) -> bool {
        !self.matrix(family).regions.is_empty()
    }

    #[inline]
    pub(crate) fn matrix(&self, family: Family) -> &Matrix {
        match family {
            Family::V4 => &self.v4,
            Family::V6 => &self.v6,
            Family::Cname => &self.cname,
        }
    }
}

impl Matrix {
    fn compile(spec: &api::Policy, family: Family, cells: &[Cell], ranked: &Ranked) -> Matrix {
        let of_family = |(_, server): &(usize, &api::Server)| Family::of(&server.target) == family;
        let given: Vec<(usize, &api::Server)> = spec.servers.iter().enumerate().filter(of_family).collect();
        let unprobed = |server: &api::Server| Server { target: server.target.clone(), probe: SlotId::NONE };
        let servers: Box<[Server]> = given.iter().map(|(_, server)| unprobed(server)).collect();
        let row = |entries: Vec<Option<Entry>>| {
            // Without any probability all servers are alike.
            let uniform = entries.iter().flatten().all(|entry| entry.probability.is_none());
            let (mut weights, ttls) = row(&entries, uniform);
            if uniform && spec.order == Order::Nearest {
                // Nothing tells one from another: they come as they are listed.
                descend(&mut weights);
            }
            (weights, ttls)
        };
        let defaults = row(given.iter().map(|(_, server)| Some(server.default)).collect());
        // Who has a rank comes before who has none; those keep the order of the default column.
        let rank_of = |ranks: &BTreeMap<IpAddr, u16>, server: &api::Server| {
            server.target.address().and_then(|address| ranks.get(&address).copied())
        };
        let of_rank = |ranks: &BTreeMap<IpAddr, u16>| {
            let (mut weights, ttls) = defaults.clone();
            for (weight, (_, server)) in weights.iter_mut().zip(&given) {
                if let Some(rank) = rank_of(ranks, server) {
                    *weight = WEIGHT_MAX as u32 + u32::from(RANK_MAX.saturating_sub(rank)) + 1;
                }
            }
            (weights, ttls)
        };
        let is_ranked =
            |ranks: &BTreeMap<IpAddr, u16>| given.iter().any(|(_, server)| rank_of(ranks, server).is_some());
        // What is said of servers of the other family makes no row of this one.
        let own = columns(cells).filter_map(|column| {
            let entry = |index: usize| {
                let found = column.binary_search_by_key(&index, |cell| cell.server);
                found.ok().map(|at| column[at].entry)
            };
            let entries: Vec<_> = given.iter().map(|(index, _)| entry(*index)).collect();
            entries.iter().any(Option::is_some).then(|| (column[0].region, row(entries)))
        });
        let ranked = ranked.iter().filter(|(_, ranks)| is_ranked(ranks));
        let mut own: Vec<_> = own.chain(ranked.map(|(region, ranks)| (*region, of_rank(ranks)))).collect();
        own.sort_by_key(|(region, _)| *region);
        let (mut weights, mut ttls) = defaults.clone();
        let mut rows = BTreeMap::from([(defaults, 0)]);
        let mut index = Vec::with_capacity(own.len());
        for (region, row) in own {
            let next = rows.len() as u32;
            let at = *rows.entry(row).or_insert_with_key(|row| {
                weights.extend_from_slice(&row.0);
                ttls.extend_from_slice(&row.1);
                next
            });
            index.push((region, at));
        }
        Matrix { servers, weights: weights.into(), ttls: ttls.into(), regions: index.into() }
    }

    /// The row of a region: its weights and TTLs, and whether it is the region's own.
    #[inline]
    pub(crate) fn row(&self, region: RegionId) -> (&[u32], &[u32], bool) {
        let found = self.regions.binary_search_by_key(&region, |(region, _)| *region);
        let row = found.map_or(0, |at| self.regions[at].1 as usize);
        let cells = row * self.servers.len()..(row + 1) * self.servers.len();
        (&self.weights[cells.clone()], &self.ttls[cells], found.is_ok())
    }
}

/// An entry of a server, which is the so many-th of all, for a region.
#[derive(Clone, Copy, Debug)]
struct Cell {
    region: RegionId,
    server: usize,
    entry: Entry,
}

/// The cells of each region; they are in order, and none is empty.
fn columns(cells: &[Cell]) -> impl Iterator<Item = &[Cell]> {
    cells.chunk_by(|one, other| one.region == other.region)
}

/// The ranks of a policy's servers, for each region that has some.
type Ranked = BTreeMap<RegionId, BTreeMap<IpAddr, u16>>;

/// The ranks that decide for regions without a row of the policy's own for the server's family, where the policy goes by
/// ranks.
fn ranked(spec: &api::Policy, partition: &Partition, own: &[Cell]) -> Ranked {
    let mut ranked = Ranked::new();
    if spec.order != Order::Nearest {
        return ranked;
    }
    let mut ours: Vec<IpAddr> = spec.servers.iter().filter_map(|server| server.target.address()).collect();
    ours.sort_unstable();
    let own: BTreeSet<(RegionId, bool)> =
        own.iter().map(|cell| (cell.region, spec.servers[cell.server].target.is_ipv4())).collect();
    for rank in partition.ranks() {
        let is_ours = ours.binary_search(&rank.server).is_ok();
        if is_ours && !own.contains(&(rank.region, rank.server.is_ipv4())) {
            ranked.entry(rank.region).or_default().insert(rank.server, rank.rank);
        }
    }
    ranked
}

/// Weights that keep servers as they are listed, of those that have any.
fn descend(weights: &mut [u32]) {
    let count = weights.len() as u32;
    weights
        .iter_mut()
        .zip(0..)
        .filter(|(weight, _)| **weight > 0)
        .for_each(|(weight, at)| *weight = count - at);
}

/// One row: weights scaled so that the largest is [`WEIGHT_MAX`], and TTLs.
fn row(entries: &[Option<Entry>], uniform: bool) -> (Vec<u32>, Vec<u32>) {
    let probability = |entry: &Option<Entry>| match entry {
        Some(entry) if uniform => entry.probability.unwrap_or(1.0),
        Some(entry) => entry.probability.unwrap_or(0.0),
        None => 0.0,
    };
    let largest = entries.iter().map(probability).fold(0.0, f64::max);
    let weight = |p: f64| if p > 0.0 { (p / largest * WEIGHT_MAX).round().max(1.0) as u32 } else { 0 };
    let weights = entries.iter().map(|entry| weight(probability(entry))).collect();
    let ttls = entries.iter().map(|entry| entry.and_then(|entry| entry.ttl).unwrap_or(TTL_DEFAULT)).collect();
    (weights, ttls)
}

/// What was found wrong so far.
#[derive(Default)]
struct Found(Vec<Pointed>);

impl Found {
    fn add(&mut self, pointer: String, what: impl Into<String>, expected: impl Into<String>) {
        self.0.push(Pointed { pointer, what: what.into(), expected: expected.into() });
    }

    fn check_size(&mut self, spec: &api::Policy) {
        if spec.servers.is_empty() {
            self.add(pointer(&[&"servers"]), "the policy has no server", "at least one");
        }
        if spec.servers.len() > SERVERS_MAX {
            let what = format!("there are {} servers", spec.servers.len());
            self.add(pointer(&[&"servers"]), what, format!("at most {SERVERS_MAX}"));
        }
        if spec.names.len() > NAMES_MAX {
            let what = format!("there are {} names", spec.names.len());
            self.add(pointer(&[&"names"]), what, format!("at most {NAMES_MAX}"));
        }
    }

    /// An alias stands alone (RFC 1034 §3.6.2), and there is one of it (RFC 2181 §10.1).
    fn check_families(&mut self, spec: &api::Policy) {
        let is_alias = spec.servers.first().is_some_and(|server| server.target.is_cname());
        if let Some(other) = spec.servers.iter().position(|server| server.target.is_cname() != is_alias) {
            let key = if is_alias { "address" } else { "cname" };
            let what = "addresses and names are servers of one policy";
            self.add(pointer(&[&"servers", &other, &key]), what, "all with address, or all with cname");
        } else if is_alias && spec.answers != 1 {
            let what = format!("an alias is one name, not {}", spec.answers);
            self.add(pointer(&[&"answers"]), what, "1");
        }
    }

    fn check_target(&mut self, spec: &api::Policy, index: usize) {
        let target = &spec.servers[index].target;
        let key = if target.is_cname() { "cname" } else { "address" };
        let place = || pointer(&[&"servers", &index, &key]);
        if let Some(address) = target.address() {
            let mapped = matches!(address, IpAddr::V6(v6) if v6.to_ipv4_mapped().is_some());
            if address.is_unspecified() || address.is_multicast() || mapped {
                self.add(place(), format!("no client can reach {address}"), "the address of one host");
            }
        }
        // Beyond the limit nothing is compiled, so that this search stays short.
        if spec.servers[..index.min(SERVERS_MAX)].iter().any(|server| server.target == *target) {
            self.add(place(), format!("the server {target} is listed twice"), "each server once");
        }
    }

    fn check_entry(&mut self, entry: &Entry, place: &[&dyn Display]) {
        if entry.probability.is_some_and(|p| !p.is_finite() || p < 0.0) {
            let place = pointer(&[place, &[&"probability"]].concat());
            self.add(place, "this is no probability", "a number from 0");
        }
        if entry.ttl.is_some_and(|ttl| ttl > TTL_MAX) {
            let place = pointer(&[place, &[&"ttl"]].concat());
            self.add(place, "the TTL is too large", format!("at most {TTL_MAX}"));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn compile(text: &str) -> Result<Policy, Vec<String>> {
        let listed = |faults: Faults| faults.faults.iter().map(ToString::to_string).collect::<Vec<_>>();
        let spec = api::Policy::read("p", text).map_err(listed)?;
        let context = Context {
            region: &|name| match name {
                "eu" => RegionId::new(1),
                "us" => RegionId::new(2),
                "asia" => RegionId::new(3),
                _ => None,
            },
            partition: &|name| (name == "default").then(|| Arc::new(Partition::compile([]))),
        };
        Policy::compile(&spec, Origin { source: "p", text: Some(text) }, &context).map_err(listed)
    }

    fn rows(policy: &Policy, region: u32) -> (Vec<u32>, Vec<u32>) {
        let (weights, ttls, _) = policy.v4.row(RegionId::new(region).unwrap());
        (weights.to_vec(), ttls.to_vec())
    }

    const FULL: u32 = 1 << 24;

    #[test]
    fn rows_exist_where_any_server_of_the_family_has_an_entry() {
        let policy = compile(
            r#"{"servers":[
                {"address":"192.0.2.1","default":{"probability":1,"ttl":30},"regions":{"eu":{"probability":0.9,"ttl":60}}},
                {"address":"192.0.2.2","default":{"probability":3}},
                {"address":"2001:db8::1","regions":{"us":{"ttl":20}}},
                {"address":"2001:db8::2","default":{"ttl":10}}]}"#,
        )
        .unwrap();
        assert_eq!(rows(&policy, 0), (vec![FULL / 3, FULL], vec![30, 360]));
        assert_eq!(rows(&policy, 1), (vec![FULL, 0], vec![60, 360]));
        assert_eq!(rows(&policy, 3), rows(&policy, 0));
        // What is said of the other family, of probabilities or of a region, is of no account.
        assert_eq!(rows(&policy, 2), rows(&policy, 0));
        let v6 = |region: u32| policy.v6.row(RegionId::new(region).unwrap());
        assert_eq!((v6(0).0, v6(0).1), (&[FULL, FULL][..], &[360, 10][..]));
        assert_eq!((v6(1).0, v6(1).1), (v6(0).0, v6(0).1));
        assert_eq!((v6(2).0, v6(2).1), (&[FULL, 0][..], &[20, 360][..]));
        assert_eq!([1, 2].map(|region| policy.v4.row(RegionId::new(region).unwrap()).2), [true, false]);
        assert_eq!([1, 2].map(|region| v6(region).2), [false, true]);
        assert!(policy.has_regions(Family::V4) && policy.has_regions(Family::V6));
        let policy =
            compile(r#"{"servers":[{"address":"192.0.2.1"},{"address":"2001:db8::1","regions":{"us":{}}}]}"#)
                .unwrap();
        assert!(!policy.has_regions(Family::V4) && policy.has_regions(Family::V6));
    }

    #[test]
    fn without_any_probability_a_column_is_uniform() {
        let policy = compile(
            r#"{"servers":[{"address":"192.0.2.1","regions":{"eu":{"ttl":5}}},{"address":"192.0.2.2","regions":{"eu":{}}},
                {"address":"192.0.2.3"}]}"#,
        )
        .unwrap();
        assert_eq!(rows(&policy, 0), (vec![FULL; 3], vec![360; 3]));
        assert_eq!(rows(&policy, 1), (vec![FULL, FULL, 0], vec![5, 360, 360]));
        let zeros = compile(r#"{"servers":[{"address":"192.0.2.1","default":{"probability":0}}]}"#).unwrap();
        assert_eq!(rows(&zeros, 0).0, [0]);
    }

    #[test]
    fn the_least_probable_server_keeps_a_weight_and_equal_rows_are_one() {
        let policy = compile(
            r#"{"servers":[
                {"address":"192.0.2.1","default":{"probability":1e-30},"regions":{"eu":{"probability":2},"us":{"probability":4}}},
                {"address":"192.0.2.2","default":{"probability":1e30},"regions":{"eu":{"probability":1},"us":{"probability":2}}}]}"#,
        )
        .unwrap();
        assert_eq!(rows(&policy, 0).0, [1, FULL]);
        assert_eq!(policy.v4.weights.len(), 4, "two rows of two servers");
    }

    #[test]
    fn what_is_wrong_is_listed_with_its_place() {
        let listed = compile(
            "{\"partition\": \"geo\",\n\"servers\": [{\"address\": \"0.0.0.0\"},\n{\"address\": \"192.0.2.1\", \
             \"regions\": {\"mars\": {}}},\n{\"address\": \"192.0.2.1\"}, {\"address\": \"::ffff:192.0.2.9\"}]}",
        )
        .unwrap_err();
        let starts = [
            "p:1:15: there is no partition 'geo'",
            "p:2:25: no client can reach 0.0.0.0",
            "p:3:46: there is no region 'mars'",
            "p:4:13: the server 192.0.2.1 is listed twice",
            "p:4:39: no client can reach ::ffff:192.0.2.9",
        ];
        assert_eq!(listed.len(), starts.len(), "{listed:#?}");
        for (line, start) in listed.iter().zip(starts) {
            assert!(line.starts_with(start), "{line}\nbut expected {start}");
        }
        assert!(compile(r#"{"servers":[]}"#).unwrap_err()[0].contains("no server"));
    }
}
