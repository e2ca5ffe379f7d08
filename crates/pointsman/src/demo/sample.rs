//! What the demo serves: a zone, three sites, a partition, two policies, and the script of changes.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use api::{Entry, NewServerState, Order, Policy, Server, WhenAllDown};
use hyper::Method;
use routing::proximity::csv;
use routing::{Prefix, RegionId};

use web::client::{Body, Call, segment};

/// The zone's name; nobody has names below `example` (RFC 2606 §2).
pub(super) const ORIGIN: &str = "demo.example.";

/// The name that clients ask for.
pub(super) const NAME: &str = "www.demo.example.";

/// The zone as a master file.
pub(super) const ZONE: &str = include_str!("demo.example.zone");

/// The partition's text. Its prefixes are never longer than what clients tell of themselves.
pub(super) const PARTITION: &str = include_str!("partition.csv");

/// The regions in the order in which the demo counts them; the last is region 0, which is always there.
pub(super) const REGIONS: [&str; 4] = ["europe", "americas", "asia", "unclassified"];

/// The place of region 0 among [`REGIONS`].
pub(super) const UNCLASSIFIED: usize = REGIONS.len() - 1;

/// A client's network to try by hand, as `dig` takes it: one in Europe.
pub(super) const EXAMPLE: &str = "10.1.2.0/24";

/// How long the answers hold, in seconds: short, as the servers change often here.
const TTL: u32 = 30;

/// How many bits of its address a client tells: what RFC 7871 §11.1 recommends.
const SOURCE: [u8; 2] = [24, 56];

/// How many simulated clients each region has.
const CLIENTS: usize = 128;

/// How often an address is drawn for each client that is wanted: within one of the prefixes, half of the
/// addresses at most are of another region.
const DRAWS_PER_CLIENT: usize = 64;

/// A place with servers.
#[derive(Clone, Copy, Debug)]
pub(super) struct Site {
    pub(super) name: &'static str,
    v4: Ipv4Addr,
    v6: Ipv6Addr,
}

/// Where the servers are: documentation addresses (RFC 5737, RFC 3849).
pub(super) const SITES: [Site; 3] = [
    Site {
        name: "frankfurt",
        v4: Ipv4Addr::new(192, 0, 2, 10),
        v6: Ipv6Addr::new(0x2001, 0xdb8, 1, 0, 0, 0, 0, 0x10),
    },
    Site {
        name: "new-york",
        v4: Ipv4Addr::new(198, 51, 100, 10),
        v6: Ipv6Addr::new(0x2001, 0xdb8, 2, 0, 0, 0, 0, 0x10),
    },
    Site {
        name: "singapore",
        v4: Ipv4Addr::new(203, 0, 113, 10),
        v6: Ipv6Addr::new(0x2001, 0xdb8, 3, 0, 0, 0, 0, 0x10),
    },
];

/// A number for each site.
pub(super) type BySite<T> = [T; SITES.len()];

/// A number for each region and site.
pub(super) type Cells<T> = [BySite<T>; REGIONS.len()];

/// A policy of the demo: the probability of each site for each region.
#[derive(Debug, PartialEq)]
pub(super) struct Matrix {
    pub(super) name: &'static str,
    pub(super) rows: Cells<f64>,
}

/// Each region to the site that is near.
pub(super) const NEAREST: Matrix = Matrix {
    name: "nearest site",
    rows: [[0.8, 0.2, 0.0], [0.2, 0.8, 0.0], [0.0, 0.0, 1.0], [0.4, 0.4, 0.2]],
};

/// The same while there is work to be done on one site.
const DRAINED: Matrix = Matrix {
    name: "frankfurt drained",
    rows: [[0.0, 0.6, 0.4], [0.0, 1.0, 0.0], [0.0, 0.0, 1.0], [0.0, 0.5, 0.5]],
};

/// The changes, which begin again when they are through. Each sends a region where it was not sent before, so
/// that the first answer that follows it can be told.
pub(super) const SCRIPT: [Change; 4] = [
    Change::Policy(&DRAINED),
    Change::Policy(&NEAREST),
    Change::Site { site: 2, up: false },
    Change::Site { site: 2, up: true },
];

/// A change as an operator makes it.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) enum Change {
    /// Another policy.
    Policy(&'static Matrix),
    /// Both servers of a site are taken down or up.
    Site { site: usize, up: bool },
}

impl Site {
    /// Its servers.
    pub(super) fn servers(&self) -> [IpAddr; 2] {
        [self.v4.into(), self.v6.into()]
    }
}

impl Change {
    /// Says what it does.
    pub(super) fn what(&self) -> String {
        match self {
            Change::Policy(matrix) => format!("policy: {}", matrix.name),
            Change::Site { site, up } => format!("{} {}", SITES[*site].name, if *up { "up" } else { "down" }),
        }
    }

    /// The calls that make it, in any order.
    pub(super) fn calls(&self) -> Vec<Call> {
        match self {
            Change::Policy(matrix) => vec![put_policy(matrix)],
            Change::Site { site, up } => {
                SITES[*site].servers().map(|server| set_server(server, *up)).to_vec()
            }
        }
    }
}

/// The call that puts a policy.
fn put_policy(matrix: &Matrix) -> Call {
    let mut call = Call::new(Method::PUT, format!("/v1/policies/{}", segment(NAME)));
    call.body = Some(Body::json(&policy(matrix)));
    call
}

fn set_server(address: IpAddr, up: bool) -> Call {
    let mut call = Call::new(Method::PUT, format!("/v1/servers/{}/state", segment(&address.to_string())));
    call.body = Some(Body::json(&NewServerState { up }));
    call
}

fn policy(matrix: &Matrix) -> Policy {
    let entry =
        |region: usize, site: usize| Entry { probability: Some(matrix.rows[region][site]), ttl: Some(TTL) };
    let server = |site: usize, address: IpAddr| Server {
        probe: None,
        target: address.into(),
        default: entry(UNCLASSIFIED, site),
        regions: (0..UNCLASSIFIED).map(|region| (REGIONS[region].into(), entry(region, site))).collect(),
    };
    Policy {
        answers: 1,
        order: Order::Weighted,
        when_all_down: WhenAllDown::Answer,
        partition: "default".into(),
        names: vec![NAME.into()],
        servers: SITES
            .iter()
            .enumerate()
            .flat_map(|(site, place)| place.servers().map(|address| server(site, address)))
            .collect(),
    }
}

/// Draws the networks of simulated clients, for each region.
pub(super) fn clients(rng: &mut fastrand::Rng) -> [Vec<Prefix>; REGIONS.len()] {
    let partition = partition();
    REGIONS.map(|region| {
        let within: Vec<Prefix> =
            partition.iter().filter(|(_, of)| REGIONS[*of] == region).map(|(prefix, _)| *prefix).collect();
        (0..CLIENTS * DRAWS_PER_CLIENT)
            .map(|_| network(&within[rng.usize(..within.len())], rng))
            .filter(|client| REGIONS[region_of(&partition, client.address())] == region)
            .take(CLIENTS)
            .collect()
    })
}

/// The partition's prefixes with the places of their regions among [`REGIONS`].
fn partition() -> Vec<(Prefix, usize)> {
    let id = |name: &str| {
        let place = REGIONS[..UNCLASSIFIED].iter().position(|region| *region == name)?;
        RegionId::new(place as u32 + 1)
    };
    let read = csv::read("partition.csv", PARTITION, &id).expect("a test reads the partition");
    let place = |id: RegionId| if id.is_none() { UNCLASSIFIED } else { id.get() as usize - 1 };
    read.into_iter().map(|(prefix, id)| (prefix, place(id))).collect()
}

/// The region of an address by the longest of all prefixes that contain it. Looked for one by one: what the
/// server found by its tables is checked against this.
fn region_of(partition: &[(Prefix, usize)], address: IpAddr) -> usize {
    let containing = partition.iter().filter(|(prefix, _)| prefix.contains(address));
    containing.max_by_key(|(prefix, _)| prefix.length()).map_or(UNCLASSIFIED, |(_, region)| *region)
}

/// Draws what a client within `prefix` tells of its address.
fn network(prefix: &Prefix, rng: &mut fastrand::Rng) -> Prefix {
    let length = u32::from(prefix.length());
    let (address, source) = match prefix.address() {
        IpAddr::V4(v4) => {
            let host = rng.u32(..).checked_shr(length).unwrap_or(0);
            (Ipv4Addr::from_bits(v4.to_bits() | host).into(), SOURCE[0])
        }
        IpAddr::V6(v6) => {
            let host = rng.u128(..).checked_shr(length).unwrap_or(0);
            (Ipv6Addr::from_bits(v6.to_bits() | host).into(), SOURCE[1])
        }
    };
    Prefix::new(address, source).expect("what clients tell is no longer than an address")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_region_has_its_clients() {
        let partition = partition();
        for (prefix, _) in &partition {
            let source = SOURCE[usize::from(prefix.address().is_ipv6())];
            assert!(prefix.length() <= source, "{prefix} would divide what a client tells");
        }
        for (region, clients) in clients(&mut fastrand::Rng::with_seed(1)).iter().enumerate() {
            assert_eq!(clients.len(), CLIENTS, "{}", REGIONS[region]);
            assert!(clients.iter().all(|client| region_of(&partition, client.address()) == region));
            assert!(clients.iter().any(|client| client.address().is_ipv4()), "{}", REGIONS[region]);
            assert!(clients.iter().any(|client| client.address().is_ipv6()), "{}", REGIONS[region]);
        }
    }

    #[test]
    fn the_longest_prefix_decides() {
        let partition = partition();
        for (address, region) in [
            (EXAMPLE.split('/').next().expect("a prefix has an address"), "europe"),
            ("10.12.64.9", "americas"),
            ("10.31.128.9", "unclassified"),
            ("10.150.1.1", "europe"),
            ("10.151.1.1", "asia"),
            ("192.168.1.1", "unclassified"),
            ("3fff:180:4000::1", "asia"),
            ("3fff:180:5000::1", "europe"),
        ] {
            let found = region_of(&partition, address.parse().expect("an address"));
            assert_eq!(REGIONS[found], region, "{address}");
        }
    }

    #[test]
    fn a_policy_has_each_site_in_both_families() {
        let policy = policy(&NEAREST);
        assert_eq!(policy.servers.len(), 2 * SITES.len());
        assert_eq!(policy.servers[0].regions["europe"].probability, Some(0.8));
        assert_eq!(policy.servers[5].target, "2001:db8:3::10".parse::<IpAddr>().expect("an address"));
        assert_eq!(policy.servers[5].default.probability, Some(0.2));
    }
}
