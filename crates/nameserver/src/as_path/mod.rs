//! A partition by distance in AS hops (NetAirt): a BGP table says which AS an address is in, and which ASes are linked.
//!
//! ```text
//! MRT table ─> table: prefix -> origin AS, links ─> graph: hops[server's AS][AS] ─> regions: same order, same region
//!                                                     ^ relations: which links may follow one another
//! ```
//! One breadth-first search for each server's AS at load gives the distance of all clients. Addresses whose ASes see the
//! same order of servers form one region, so a query is a look-up like any other. What comes out is a text as
//! [`routing::proximity::csv`] has it, with the rank of every server in every region.

pub mod graph;
pub mod mrt;
pub mod regions;
pub mod relations;
pub mod table;

use std::net::IpAddr;

use api::{Fault, Faults};
use routing::{Partition, RegionId};

use graph::{Graph, Hops};
use relations::Relations;
use table::Table;

/// The most servers that one partition tells the distance of; NetAirt had 32.
pub const SERVERS_MAX: usize = 256;

/// A server, and its AS where it is not to be looked up in the table.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Server {
    /// Its address.
    pub address: IpAddr,
    /// The number of its AS.
    pub asn: Option<u32>,
}

/// A file of which the content is at hand.
#[derive(Clone, Copy, Debug)]
pub struct Source<'a> {
    /// What faults call it.
    pub name: &'a str,
    /// Its octets.
    pub octets: &'a [u8],
}

/// What was made of a table.
#[derive(Clone, Debug)]
pub struct Built {
    /// The partition, ranks and prefixes.
    pub text: String,
    /// The names of its regions, in the order in which the text has them.
    pub regions: Vec<String>,
    /// What was counted, each by its name.
    pub counts: Vec<(&'static str, u64)>,
}

/// Builds the partition of a table for these servers; with `relations`, distances are those of valley-free paths.
///
/// # Errors
/// A table or relations that cannot be read, with the record or line; servers of which the table has no AS, or an AS
/// that the table does not have.
pub fn build(table: Source<'_>, relations: Option<Source<'_>>, servers: &[Server]) -> Result<Built, Faults> {
    let read = table::read(table.name, table.octets)?;
    let relations =
        relations.map(|source| Relations::read(source.name, source.octets, &read.ases)).transpose()?;
    let ases = server_ases(table.name, &read, servers)?;
    let graph = Graph::new(read.ases.len(), &read.links);
    let from = distinct(&ases);
    let plain: Vec<Hops> = from.iter().map(|index| graph.hops(*index)).collect();
    let mut counts = read.counts.named();
    let hops = match &relations {
        None => plain,
        Some(relations) => {
            let kinds = graph.kinds(relations);
            let free: Vec<Hops> = from.iter().map(|index| graph.valley_free(*index, &kinds)).collect();
            counts.extend(compare(&plain, &free));
            counts.push(("links_without_relation", kinds.unknown() / 2));
            free
        }
    };
    let servers_in = |index: &u32| ases.iter().filter(|of| *of == index).count();
    let numbers: Vec<(u32, usize)> =
        from.iter().map(|index| (read.ases.number(*index), servers_in(index))).collect();
    let regions = regions::group(&hops, &numbers, read.ases.len());
    let text = regions::write(&read, &regions, servers, &ases, &from);
    counts.push(("regions", regions.names.len() as u64));
    counts.push(("ranks_deep", u64::from(regions.depth)));
    counts.push(("unreachable_ases", regions.of_as.iter().filter(|region| region.is_none()).count() as u64));
    Ok(Built { text, regions: regions.names, counts })
}

/// The AS of each server, as an index.
fn server_ases(source: &str, table: &Table, servers: &[Server]) -> Result<Vec<u32>, Faults> {
    let mut faults = Faults::default();
    if servers.is_empty() || servers.len() > SERVERS_MAX {
        let what = format!("there are {} servers to tell the distance of", servers.len());
        faults.push(Fault::whole(source, what, format!("1 to {SERVERS_MAX}")));
    }
    // A partition is what finds the longest prefix; indices stand for regions.
    let origins = table.origins.iter().map(|(prefix, index)| (*prefix, RegionId::new(index + 1)));
    let origins = origins.filter_map(|(prefix, id)| Some((prefix, id?)));
    let origins = Partition::compile(origins);
    let mut ases = Vec::with_capacity(servers.len());
    for Server { address, asn } in servers {
        let found = match asn {
            Some(number) => table.ases.index(*number).ok_or_else(|| {
                let what = format!("AS{number} of the server {address} is not in the table");
                Fault::whole(source, what, "an AS that some path of the table has")
            }),
            None => match origins.lookup(*address).region.get() {
                0 => {
                    let what = format!("no prefix of the table has the server {address}");
                    Err(Fault::whole(
                        source,
                        what,
                        format!("its AS in the configuration: \"{address}=AS64496\""),
                    ))
                }
                id => Ok(id - 1),
            },
        };
        found.map_or_else(|fault| faults.push(fault), |index| ases.push(index));
    }
    faults.or(ases)
}

/// Each of them once, in the order in which they come.
fn distinct(indices: &[u32]) -> Vec<u32> {
    let mut distinct: Vec<u32> = Vec::new();
    for index in indices {
        if !distinct.contains(index) {
            distinct.push(*index);
        }
    }
    distinct
}

/// How often paths without valleys differ from the shortest ones: pairs of an AS and a server's AS.
fn compare(plain: &[Hops], free: &[Hops]) -> [(&'static str, u64); 3] {
    let pairs = || plain.iter().zip(free).flat_map(|(plain, free)| plain.iter().zip(free));
    let reached = pairs().filter(|(plain, _)| plain.is_some());
    let longer = pairs().filter(|(plain, free)| free.is_some() && plain != free).count();
    let lost = pairs().filter(|(plain, free)| plain.is_some() && free.is_none()).count();
    [
        ("pairs", reached.count() as u64),
        ("pairs_longer_without_valleys", longer as u64),
        ("pairs_unreachable_without_valleys", lost as u64),
    ]
}

#[cfg(test)]
mod tests;
