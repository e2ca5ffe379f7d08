//! Zones made of what was seen, with what a trace cannot show made up where something is missing.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write;
use std::iter;
use std::net::IpAddr;

use dns::Rtype;

use super::holdings::Holdings;
use super::name::{self, Name, ROOT};
use super::seen::{Key, Seen, Set};

/// The type of a record that only says that a name is there: of those for private use (RFC 6895 §3.1) nobody asks for it.
const PLACEHOLDER: Rtype = Rtype::from_int(65_280);

/// For how long what is made up is kept, in seconds: negative answers too.
const TTL: u32 = 60;

/// Refresh, retry and expiry of an SOA record that is made up, in seconds: nobody follows the zone.
const SOA_TIMES: [u32; 3] = [3_600, 600, 86_400];

/// The label of a name server that is made up.
const NAME_SERVER: &str = "made-up-ns";

/// What a trace's responses are made into.
#[derive(Debug, Default)]
pub struct Made {
    /// The zones, those above before those below.
    pub zones: Vec<Zone>,
    /// Which servers have which zones: each address once, and servers with the same zones together.
    pub servers: Vec<Servers>,
    /// RRsets of none of the zones that their server has, such as addresses of name servers elsewhere.
    pub outside: u64,
    /// What had to be made up.
    pub made_up: MadeUp,
}

/// A zone, as far as a trace shows it.
#[derive(Debug)]
pub struct Zone {
    /// Its apex, in wire form and lower case.
    pub origin: Box<[u8]>,
    /// Its records: SOA first.
    pub records: Vec<Record>,
}

/// A record of a zone.
#[derive(Debug)]
pub struct Record {
    /// Its owner, in wire form and lower case.
    pub owner: Box<[u8]>,
    /// Its type.
    pub rtype: Rtype,
    /// Its TTL in seconds.
    pub ttl: u32,
    /// Its data in canonical form (RFC 4034 §6.2).
    pub data: Vec<u8>,
}

/// Servers that have the same zones.
#[derive(Debug, PartialEq, Eq)]
pub struct Servers {
    /// Their addresses.
    pub addresses: Vec<IpAddr>,
    /// The apexes of the zones that they have, in wire form and lower case.
    pub zones: Vec<Box<[u8]>>,
}

/// What no response showed, and a zone or a resolver needs.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct MadeUp {
    /// SOA records.
    pub soa: u64,
    /// NS records of an apex.
    pub name_servers: u64,
    /// Zones that are there only to delegate others.
    pub zones: u64,
    /// Delegations.
    pub delegations: u64,
    /// Records of type 65280 that say that a name is there.
    pub names: u64,
}

/// An RRset's owner, its type and, for RRSIG, the type that is covered.
type SetKey = (Name, Rtype, Rtype);

/// RRsets of a zone: the TTL and the data of each.
type Sets = BTreeMap<SetKey, (u32, BTreeSet<Vec<u8>>)>;

/// Zones in the making.
struct Making {
    zones: BTreeMap<Name, Sets>,
    /// Addresses of hosts, wherever they were seen.
    hosts: BTreeMap<Name, BTreeSet<IpAddr>>,
    /// The name servers of zones, as they themselves or those above say.
    name_servers: BTreeMap<Name, BTreeSet<Name>>,
    /// Who has shown to have a zone.
    holders: BTreeMap<Name, BTreeSet<IpAddr>>,
    made_up: MadeUp,
}

impl Made {
    /// Makes zones of what was seen, which become of it: it is not held twice.
    ///
    /// With `hierarchy` a resolver can find all of them, beginning at the root: what is missing on the way is made up, and
    /// each zone is at all addresses of its name servers, not only at those that were asked.
    pub fn of(seen: Seen, hierarchy: bool) -> Made {
        let Seen { sets, nodata, .. } = seen;
        let holdings = Holdings::of(&sets);
        let (mut making, outside) = Making::begin(sets, &holdings);
        making.name_servers_of_apexes();
        if hierarchy {
            making.ways_down();
        }
        making.names_without_records(&nodata);
        let servers = making.servers(hierarchy);
        let Making { zones, mut made_up, .. } = making;
        let zones = zones.into_iter().map(|(origin, sets)| Zone::of(origin, sets, &mut made_up));
        let mut zones: Vec<Zone> = zones.collect();
        zones.sort_by_cached_key(|zone| (name::labels(&zone.origin), zone.origin.clone()));
        Made { zones, servers, outside, made_up }
    }
}

impl Zone {
    fn of(origin: Name, mut sets: Sets, made_up: &mut MadeUp) -> Zone {
        // A signature of nothing that was seen proves nothing.
        let is_there =
            |(owner, _, covered): &&SetKey| sets.contains_key(&(owner.clone(), *covered, *covered));
        let proving_nothing: Vec<SetKey> = sets.keys().filter(|key| !is_there(key)).cloned().collect();
        proving_nothing.iter().for_each(|key| drop(sets.remove(key)));
        let soa = (origin.clone(), Rtype::SOA, Rtype::SOA);
        let of_soa = sets.remove(&soa).unwrap_or_else(|| {
            made_up.soa += 1;
            (TTL, BTreeSet::from([[ROOT, ROOT, &soa_numbers()].concat()]))
        });
        let mut records = Vec::new();
        for ((owner, rtype, _), (ttl, data)) in iter::once((soa, of_soa)).chain(sets) {
            records.extend(data.into_iter().map(|data| Record { owner: owner.clone(), rtype, ttl, data }));
        }
        Zone { origin, records }
    }

    /// The zone as a master file with a record a line, data in the generic form that any server reads (RFC 3597 §5).
    pub fn master(&self) -> String {
        let mut text = String::new();
        for Record { owner, rtype, ttl, data } in &self.records {
            let (owner, length) = (dns::name::to_text(owner), data.len());
            let written = write!(text, "{owner} {ttl} IN {rtype} \\# {length} ");
            written
                .and_then(|()| data.iter().try_for_each(|octet| write!(text, "{octet:02x}")))
                .expect("writing to a string cannot fail");
            text.push('\n');
        }
        text
    }
}

/// Serial, refresh, retry, expiry and minimum of an SOA record that is made up.
fn soa_numbers() -> Vec<u8> {
    let [refresh, retry, expire] = SOA_TIMES;
    [1, refresh, retry, expire, TTL].map(u32::to_be_bytes).concat()
}

impl Making {
    /// Each RRset in its zone; of several the one with the most authority, then a signed one, then the first.
    fn begin(sets: BTreeMap<Key, Set>, holdings: &Holdings) -> (Making, u64) {
        let mut ranked: Vec<_> = sets.into_iter().collect();
        ranked.sort_by_key(|(key, set)| (key.place, key.signer.is_none(), set.number));
        let (mut zones, mut outside) = (BTreeMap::<Name, Sets>::new(), 0);
        let (mut hosts, mut name_servers) =
            (BTreeMap::<_, BTreeSet<_>>::new(), BTreeMap::<_, BTreeSet<_>>::new());
        for (key, set) in ranked {
            let addresses = set.data.iter().filter_map(|data| address(key.rtype, data));
            hosts.entry(key.owner.clone()).or_default().extend(addresses);
            if key.rtype == Rtype::NS {
                let names = set.data.iter().map(|data| Name::from(data.as_slice()));
                name_servers.entry(key.owner.clone()).or_default().extend(names);
            }
            match holdings.zone_of(&key) {
                Some(zone) => {
                    let at = (key.owner, key.rtype, key.covered);
                    zones.entry(zone).or_default().entry(at).or_insert((set.ttl, set.data));
                }
                None => outside += 1,
            }
        }
        hosts.retain(|_, addresses| !addresses.is_empty());
        let mut holders = BTreeMap::<_, BTreeSet<_>>::new();
        for (server, zones) in holdings.iter() {
            for zone in zones {
                holders.entry(zone.clone()).or_default().insert(server);
            }
        }
        (Making { zones, hosts, name_servers, holders, made_up: MadeUp::default() }, outside)
    }

    /// Gives each apex the NS records that it must have (RFC 1034 §4.2.1).
    fn name_servers_of_apexes(&mut self) {
        let zones: Vec<Name> = self.zones.keys().cloned().collect();
        for zone in zones {
            self.name_servers_of_apex(&zone);
        }
    }

    fn name_servers_of_apex(&mut self, zone: &Name) {
        let at = (zone.clone(), Rtype::NS, Rtype::NS);
        if self.zones.get(zone).is_some_and(|sets| sets.contains_key(&at)) {
            return;
        }
        self.made_up.name_servers += 1;
        let known = self.name_servers.get(zone).cloned().unwrap_or_default();
        let names = if known.is_empty() { self.make_up_name_server(zone) } else { known };
        self.zones.entry(zone.clone()).or_default().insert(at, (TTL, octets(&names)));
    }

    /// A name server in the zone, at the addresses of those that have it.
    fn make_up_name_server(&mut self, zone: &Name) -> BTreeSet<Name> {
        let name = name::below(&[NAME_SERVER], &**zone).unwrap_or_else(|| zone.clone());
        if let Some(addresses) = self.holders.get(zone).or_else(|| self.holders.get(ROOT)) {
            self.hosts.entry(name.clone()).or_default().extend(addresses);
        }
        self.add_addresses(zone, &name);
        self.name_servers.entry(zone.clone()).or_default().insert(name.clone());
        BTreeSet::from([name])
    }

    /// Adds the addresses of a host to a zone, where it has none.
    fn add_addresses(&mut self, zone: &Name, host: &Name) {
        let Some(addresses) = self.hosts.get(host) else { return };
        let sets = self.zones.entry(zone.clone()).or_default();
        for rtype in [Rtype::A, Rtype::AAAA] {
            let data = addresses.iter().filter_map(|address| match (rtype, address) {
                (Rtype::A, IpAddr::V4(address)) => Some(address.octets().to_vec()),
                (Rtype::AAAA, IpAddr::V6(address)) => Some(address.octets().to_vec()),
                _ => None,
            });
            let data: BTreeSet<Vec<u8>> = data.collect();
            if !data.is_empty() {
                sets.entry((host.clone(), rtype, rtype)).or_insert((TTL, data));
            }
        }
    }

    /// Delegates each zone in the one above it, up to the root, where that was not seen, with an address to go on at.
    fn ways_down(&mut self) {
        let addresses =
            ROOT_SERVERS.iter().map(|address| address.parse::<IpAddr>().expect("they are addresses"));
        self.holders.entry(ROOT.into()).or_default().extend(addresses);
        // The deepest first: a zone that is made up for one is delegated in its turn.
        let mut made: BTreeSet<Name> = self.zones.keys().cloned().collect();
        let mut left: BTreeSet<(usize, Name)> =
            made.iter().map(|zone| (name::labels(zone), zone.clone())).collect();
        let cuts = self.zones.values().flat_map(BTreeMap::keys).filter(|(_, rtype, _)| *rtype == Rtype::NS);
        let mut apexes: BTreeSet<Name> = cuts.map(|(owner, ..)| owner.clone()).collect();
        apexes.extend(made.iter().cloned());
        while let Some((_, zone)) = left.pop_last() {
            if *zone == *ROOT {
                self.root();
                continue;
            }
            let root = || ROOT.into();
            let above = name::closest_above(&apexes, &zone).cloned().unwrap_or_else(root);
            let mut needed = vec![above.clone()];
            // A resolver looks for the addresses of name servers in the zone where they belong.
            for host in self.delegate(&zone, &above) {
                let home = name::closest(&apexes, &host).cloned().unwrap_or_else(root);
                self.add_addresses(&home, &host);
                needed.push(home);
            }
            for zone in needed {
                if made.insert(zone.clone()) {
                    self.made_up.zones += 1;
                    self.name_servers_of_apex(&zone);
                    left.insert((name::labels(&zone), zone));
                }
            }
        }
    }

    /// Delegates a zone in the one above it; returns its name servers of which an address is known.
    fn delegate(&mut self, zone: &Name, above: &Name) -> Vec<Name> {
        let at = (zone.clone(), Rtype::NS, Rtype::NS);
        let seen = self.zones.get(above).and_then(|sets| sets.get(&at));
        let mut names: BTreeSet<Name> = match seen {
            Some((_, data)) => data.iter().map(|data| data.as_slice().into()).collect(),
            None => {
                self.made_up.delegations += 1;
                self.name_servers.get(zone).cloned().unwrap_or_default()
            }
        };
        if !names.iter().any(|name| self.hosts.contains_key(name)) {
            names.extend(self.make_up_name_server(zone));
        }
        // Below the cut nobody but its parent can tell them.
        for host in names.iter().filter(|host| dns::name::is_within(host, zone)) {
            self.add_addresses(above, host);
        }
        let sets = self.zones.entry(above.clone()).or_default();
        let (_, data) = sets.entry(at).or_insert_with(|| (TTL, BTreeSet::new()));
        data.extend(octets(&names));
        names.retain(|host| self.hosts.contains_key(host));
        names.into_iter().collect()
    }

    /// Sees to it that some name server of the root has an address.
    fn root(&mut self) {
        let root = Name::from(ROOT);
        let mut names = self.name_servers.get(ROOT).cloned().unwrap_or_default();
        if !names.iter().any(|name| self.hosts.contains_key(name)) {
            names = self.make_up_name_server(&root);
            let at = (root.clone(), Rtype::NS, Rtype::NS);
            self.zones.entry(root.clone()).or_default().insert(at, (TTL, octets(&names)));
        }
        names.iter().for_each(|host| self.add_addresses(&root, host));
    }

    /// Keeps names in a zone that are there, but of which no record was seen: without one they would not exist.
    fn names_without_records(&mut self, nodata: &BTreeSet<(Name, Name)>) {
        for (zone, sets) in &mut self.zones {
            let of_zone = nodata.range((zone.clone(), Name::default())..).take_while(|(of, _)| of == zone);
            // A name is there as well where only one below it has records (RFC 4592 §2.2.2).
            let owners = sets.keys().flat_map(|(owner, ..)| name::upward(owner));
            let there: BTreeSet<Name> = owners.map(Name::from).collect();
            let cuts = sets.keys().filter(|(owner, rtype, _)| *rtype == Rtype::NS && owner != zone);
            let cuts: BTreeSet<Name> = cuts.map(|(owner, ..)| owner.clone()).collect();
            let is_wildcard =
                |above: &[u8]| name::below(&["*"], above).is_some_and(|name| there.contains(&name));
            let is_missing = |owner: &Name| {
                let encloser = name::upward(owner).find(|name| there.contains(*name)).unwrap_or(zone);
                !there.contains(owner) && name::closest(&cuts, owner).is_none() && !is_wildcard(encloser)
            };
            let missing: Vec<Name> =
                of_zone.map(|(_, owner)| owner).filter(|owner| is_missing(owner)).cloned().collect();
            self.made_up.names += missing.len() as u64;
            let placeholder = (TTL, BTreeSet::from([Vec::new()]));
            sets.extend(
                missing.into_iter().map(|owner| ((owner, PLACEHOLDER, PLACEHOLDER), placeholder.clone())),
            );
        }
    }

    /// Who has what: those that showed it and, with `hierarchy`, all that are said to.
    fn servers(&self, hierarchy: bool) -> Vec<Servers> {
        let mut zones_of: BTreeMap<IpAddr, BTreeSet<&Name>> = BTreeMap::new();
        for zone in self.zones.keys() {
            let holders = self.holders.get(zone).into_iter().flatten();
            let names = self.name_servers.get(zone).filter(|_| hierarchy).into_iter().flatten();
            let told = names.filter_map(|name| self.hosts.get(name)).flatten();
            for address in holders.chain(told) {
                zones_of.entry(*address).or_default().insert(zone);
            }
        }
        let mut alike: BTreeMap<BTreeSet<&Name>, Vec<IpAddr>> = BTreeMap::new();
        for (address, zones) in zones_of {
            alike.entry(zones).or_default().push(address);
        }
        let servers = alike.into_iter();
        servers
            .map(|(zones, addresses)| Servers { addresses, zones: zones.into_iter().cloned().collect() })
            .collect()
    }
}

/// Where resolvers look for the root: the addresses of a.root-servers.net to m.root-servers.net (IANA's root hints).
const ROOT_SERVERS: [&str; 26] = [
    "198.41.0.4",
    "170.247.170.2",
    "192.33.4.12",
    "199.7.91.13",
    "192.203.230.10",
    "192.5.5.241",
    "192.112.36.4",
    "198.97.190.53",
    "192.36.148.17",
    "192.58.128.30",
    "193.0.14.129",
    "199.7.83.42",
    "202.12.27.33",
    "2001:503:ba3e::2:30",
    "2801:1b8:10::b",
    "2001:500:2::c",
    "2001:500:2d::d",
    "2001:500:a8::e",
    "2001:500:2f::f",
    "2001:500:12::d0d",
    "2001:500:1::53",
    "2001:7fe::53",
    "2001:503:c27::2:30",
    "2001:7fd::1",
    "2001:500:9f::42",
    "2001:dc3::35",
];

fn octets(names: &BTreeSet<Name>) -> BTreeSet<Vec<u8>> {
    names.iter().map(|name| name.to_vec()).collect()
}

fn address(rtype: Rtype, data: &[u8]) -> Option<IpAddr> {
    match rtype {
        Rtype::A => <[u8; 4]>::try_from(data).ok().map(IpAddr::from),
        Rtype::AAAA => <[u8; 16]>::try_from(data).ok().map(IpAddr::from),
        _ => None,
    }
}
