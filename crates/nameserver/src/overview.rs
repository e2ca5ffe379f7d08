//! What the API shows of a book.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::net::IpAddr;
use std::sync::Arc;

use api::{
    AddressType, Counts, Entry, Explain, Explanation, Fault, Faults, Lookup, Order, PartitionSummary,
    PrimaryState, ProbeState, ProbeVerdict, Region, RowServer, Server, ServerState, Status, StoreState,
    Target, TransferState, WorkerState, ZoneSummary,
};
use dns::{Folded, Rtype};
use routing::route::probabilities;
use routing::{Choice, Family, RegionId, State, Why, route};

use crate::book::{Book, Etag};
use crate::edit::{Editor, Refused};
use crate::fast::Shared;
use crate::policies::Steered;
use crate::routed::{First, Routed};
use crate::transfer::serial::is_greater;
use crate::zone::{Walk, Zone};

impl Editor {
    /// All zones, by name, as things stand at a time in Unix seconds.
    pub fn zones(&self, now: u64) -> Vec<ZoneSummary> {
        let book = self.book();
        let summary = |zone: &Arc<Zone>| ZoneSummary {
            origin: dns::name::to_text(zone.origin().wire()),
            serial: zone.serial(),
            records: zone.records() as u64,
            signed_until: zone.signed_until(),
            warnings: warnings(zone, &book, now),
        };
        let mut zones: Vec<ZoneSummary> = book.generation.zones.all().iter().map(summary).collect();
        zones.sort_by(|a, b| a.origin.cmp(&b.origin));
        zones
    }

    /// The zone whose signatures are the first to expire, and when, as [`ZoneSummary::signed_until`] says it.
    pub fn first_to_expire(&self) -> Option<(String, u32)> {
        let book = self.book();
        let signed = book.generation.zones.all().iter().filter_map(|zone| Some((zone.signed_until()?, zone)));
        let (until, zone) = signed.min_by_key(|(until, _)| *until)?;
        Some((dns::name::to_text(zone.origin().wire()), until))
    }

    /// How many zones have warnings, at a time in Unix seconds.
    pub fn warned(&self, now: u64) -> u64 {
        let book = self.book();
        book.generation.zones.all().iter().filter(|zone| !warnings(zone, &book, now).is_empty()).count()
            as u64
    }

    /// A zone as a master file, with its tag.
    pub fn zone(&self, origin: &str) -> Option<(String, Etag)> {
        self.book().zone(origin)
    }

    /// All regions, by number.
    pub fn regions(&self) -> Vec<Region> {
        self.book().regions.iter().map(|(id, name)| Region { id: *id, name: name.clone() }).collect()
    }

    /// All partitions, by name.
    pub fn partitions(&self) -> Vec<PartitionSummary> {
        let book = self.book();
        let each = book.partitions.iter();
        each.map(|(name, found)| PartitionSummary {
            name: name.clone(),
            prefixes: found.partition.regions().map(|(_, prefixes)| prefixes).sum(),
        })
        .collect()
    }

    /// A partition's text, with its tag.
    pub fn partition(&self, name: &str) -> Option<(String, Etag)> {
        self.book().partition(name)
    }

    /// What a partition says of an address; where it says "ask", what the external service said so far.
    pub fn lookup(&self, partition: &str, address: IpAddr, fast: &Shared) -> Option<Lookup> {
        let book = self.book();
        let (leaf, _) = book.lookup(partition, address)?;
        let (region, scope) = match (leaf.region, fast.looking()) {
            (RegionId::ASK, Some(asking)) => {
                let told = asking.region(address, leaf.scope);
                (told.region, told.scope)
            }
            (RegionId::ASK, None) => (RegionId::NONE, leaf.scope),
            (region, _) => (region, leaf.scope),
        };
        let prefix = routing::Prefix::new(address, scope)?.to_string();
        Some(Lookup { region: named(book.region_name(region)), id: region.get(), prefix, scope })
    }

    /// All policies, by key.
    pub fn policies(&self) -> Vec<api::Policy> {
        let book = self.book();
        let mut policies: Vec<api::Policy> =
            book.generation.policies.iter().map(|(_, s)| api::Policy::clone(&s.spec)).collect();
        policies.sort_by(|a, b| a.names.cmp(&b.names));
        policies
    }

    /// A policy, with its tag.
    pub fn policy(&self, owner: &str) -> Option<(api::Policy, Etag)> {
        self.book().policy(owner)
    }

    /// All servers of policies, by address.
    pub fn servers(&self) -> Vec<ServerState> {
        servers(&self.book())
    }

    /// All servers under probes, those that fail first.
    pub fn probes(&self) -> Vec<ProbeState> {
        self.book().generation.health.states()
    }

    /// What a client would be answered, and why.
    ///
    /// # Errors
    /// [`Refused::Faults`] for a name that is none; [`Refused::NotFound`] where no policy decides.
    pub fn explain(&self, asked: &Explain, fast: &Shared) -> Result<Explanation, Refused> {
        let book = self.book();
        let wire = dns::name::folded_from_text(&asked.name).map_err(|what| {
            Faults::from(Fault::whole("body", what, "a domain name such as www.example.com"))
        })?;
        let name = Folded::read(&wire).expect("a name from text is valid");
        let steered = steered_at(&book, &name).map_err(|why| {
            Refused::NotFound(format!("policy that decides the addresses of {name:?} ({why})"))
        })?;
        Ok(explain(&book, steered, asked, fast))
    }

    /// What policies decided, by policy, region and server as text: a client of no region is `unclassified`, no server
    /// `none`. `labels` keeps what each was called first, so that no count ever leaves its name; what is no more when
    /// it is first read is `removed`.
    pub fn routed_names(
        &self,
        routed: BTreeMap<Routed, u64>,
        labels: &mut BTreeMap<Routed, [String; 3]>,
    ) -> BTreeMap<[String; 3], u64> {
        let book = self.book();
        let policies: HashMap<u64, &Steered> =
            book.generation.policies.iter().map(|(_, steered)| (steered.key_hash, &**steered)).collect();
        let labels_of = |Routed { policy, region, server }| {
            let steered = policies.get(&policy);
            let policy = steered.map(|steered| dns::name::to_text(steered.key()));
            let region = match region {
                RegionId::NONE => Some("unclassified".into()),
                region => book.regions.get(&region.get()).cloned(),
            };
            let server = match server {
                None => Some("none".into()),
                Some(First::Address(address)) => Some(address.to_string()),
                Some(First::Cname(hash)) => steered.and_then(|of| of.cname(hash, &book.generation.hash)),
            };
            [policy, region, server].map(|name| name.unwrap_or_else(|| "removed".into()))
        };
        let mut named = BTreeMap::new();
        for (what, count) in routed {
            let labels = labels.entry(what).or_insert_with(|| labels_of(what));
            *named.entry(labels.clone()).or_insert(0) += count;
        }
        named
    }

    /// How the server is doing; what was counted, and who follows zones, is filled in by who knows.
    pub fn status(&self) -> Status {
        let book = self.book();
        let served = self.published().served();
        let state = |(worker, generation)| WorkerState { worker, generation, queries: 0, batches: 0 };
        let complaint = self.store_complaint();
        Status {
            version: env!("CARGO_PKG_VERSION").into(),
            uptime_seconds: self.uptime().as_secs(),
            generation: book.generation.number,
            workers: (0..).zip(served).map(state).collect(),
            counts: counts(&book),
            store: StoreState {
                ok: complaint.is_none(),
                message: complaint,
                stuck_since: self.stuck_since(),
            },
            counters: api::Counters::default(),
            tcp: api::Counters::default(),
            tls: api::Counters::default(),
            transfers: TransferState::default(),
            primaries: PrimaryState::default(),
            health: book.generation.health.status(),
            partitions: self.partition_states(),
            imports: self.import_state(),
            external: None,
        }
    }
}

/// What is wrong with a zone that is served all the same.
fn warnings(zone: &Zone, book: &Book, now: u64) -> Vec<String> {
    let mut warnings = Vec::new();
    if zone.is_expired() {
        warnings.push("it has expired, as its primary does not confirm it: it is answered SERVFAIL".into());
    }
    if let Some(what) = zone.unproven() {
        warnings.push(format!("validators will not believe it about what it does not have: {what}"));
    }
    // Both count modulo 2^32 (RFC 4034 §3.1.5).
    if zone.signed_until().is_some_and(|until| !is_greater(until, now as u32)) {
        warnings.push("validators will not believe it: a signature has expired".into());
    }
    if zone.is_steered() && book.secondaries.name(zone.origin()) {
        warnings.push("secondaries follow it and cannot take it, for it has policies".into());
    }
    warnings
}

fn counts(book: &Book) -> Counts {
    let servers = servers(book);
    Counts {
        zones: book.generation.zones.all().len() as u64,
        records: book.generation.zones.all().iter().map(|zone| zone.records() as u64).sum(),
        regions: book.regions.len() as u64,
        partitions: book.partitions.len() as u64,
        policies: book.generation.policies.len() as u64,
        names: book.generation.policies.iter().map(|(_, steered)| steered.names.len() as u64).sum(),
        servers: servers.len() as u64,
        servers_down: servers.iter().filter(|server| !server.up).count() as u64,
    }
}

fn servers(book: &Book) -> Vec<ServerState> {
    let each = book.generation.policies.iter().flat_map(|(_, steered)| &steered.spec.servers);
    // A server that is down stays so without a policy, and is down in the next one that names it.
    let down = book.servers.iter().filter(|(_, up)| !**up).map(|(target, _)| target);
    let targets: BTreeSet<&Target> = each.map(|server| &server.target).chain(down).collect();
    let up = |target| book.servers.get(target).copied().unwrap_or(true);
    targets.into_iter().map(|target| ServerState { up: up(target), target: target.clone() }).collect()
}

/// The policy that decides a name's addresses, by a wildcard too; else who decides them, in words.
fn steered_at<'b>(book: &'b Book, name: &Folded) -> Result<&'b Steered, String> {
    let (zones, hash) = (book.generation.zones.all(), &book.generation.hash);
    let zone = zones.closest(name, false, hash).ok_or("it is in none of the zones here")?;
    let origin = zone.origin();
    if zone.is_expired() {
        return Err(format!("the zone {origin:?} has expired, as its primary does not confirm it"));
    }
    let found = match zone.walk(name, hash) {
        Walk::Name(found) => Some(found),
        Walk::Missing(encloser, labels) => zone.wildcard(encloser, name, labels, hash),
        Walk::Delegation(..) => return Err(format!("the zone {origin:?} delegates it")),
        Walk::Dname(..) => return Err(format!("a DNAME record of the zone {origin:?} is above it")),
    };
    let found = found.ok_or_else(|| format!("the zone {origin:?} has no such name"))?;
    let policy = found.policy().and_then(|number| book.generation.policies.get(number));
    let zones_own = || format!("the zone {origin:?} answers it with records of its own");
    policy.map(|steered| &**steered).ok_or_else(zones_own)
}

fn explain(book: &Book, steered: &Steered, asked: &Explain, fast: &Shared) -> Explanation {
    // As the probes' results are at one epoch: they change beside the generation.
    let health = book.generation.health.snapshot();
    let (policy, state) = (&steered.policy, book.generation.down.state().with_health(&health));
    let verdict = |server: &Target| {
        let slot = steered.slots.iter().find(|slot| slot.key().0 == *server)?;
        Some(match (health.is_failing(slot.id()), book.generation.health.verdict(slot)) {
            (true, _) => ProbeVerdict::Failing,
            (false, ProbeVerdict::Unknown) => ProbeVerdict::Unknown,
            (false, _) => ProbeVerdict::Passing,
        })
    };
    let family = family(steered, asked.qtype);
    let choice =
        route(policy, family, asked.client, state.with_asking(fast.looking()), &mut fastrand::Rng::new());
    let servers = policy.servers(family);
    let shares = |state: State<'_>| probabilities(policy, family, choice.region, state);
    let row = servers.iter().zip(shares(State::ALL_UP)).zip(policy.ttls(family, choice.region));
    let row = row
        .map(|((server, probability), ttl)| RowServer {
            target: server.target.clone(),
            probability,
            ttl: *ttl,
            up: state.is_up(&server.target),
            health: verdict(&server.target),
        })
        .collect();
    let now = if choice.order().is_empty() { vec![0.0; servers.len()] } else { shares(state) };
    let now = servers.iter().zip(now).filter(|(_, share)| *share > 0.0);
    let region = named(book.region_name(choice.region));
    Explanation {
        generation: book.generation.number,
        epoch: health.epoch(),
        policy: dns::name::to_text(steered.key()),
        partition: steered.spec.partition.clone(),
        id: choice.region.get(),
        scope: choice.scope,
        row,
        probabilities: now.map(|(server, share)| (server.target.to_string(), share)).collect(),
        answer: choice.order().iter().map(|index| servers[usize::from(*index)].target.to_string()).collect(),
        ttl: choice.ttl,
        why: why(&choice, region.as_deref(), steered, asked.qtype)
            + order(&choice, region.as_deref(), steered, family),
        region,
    }
}

/// What a policy answers a type with.
fn family(steered: &Steered, qtype: AddressType) -> Family {
    match qtype {
        _ if steered.policy.is_alias() => Family::Cname,
        AddressType::A => Family::V4,
        AddressType::Aaaa => Family::V6,
    }
}

fn why(choice: &Choice, region: Option<&str>, steered: &Steered, qtype: AddressType) -> String {
    let family = family(steered, qtype);
    let shown = match family {
        Family::V4 => Rtype::A,
        Family::V6 => Rtype::AAAA,
        Family::Cname => Rtype::CNAME,
    };
    let (has_regions, id) = (steered.policy.has_regions(family), choice.region);
    let (an_entry, entries) = match steered.spec.order {
        Order::Nearest => ("an entry or a rank", "entries or ranks"),
        _ => ("an entry", "entries"),
    };
    match (choice.why, region) {
        (Why::Region, _) => decided_by(steered, family, id, region.unwrap_or_default()),
        (Why::NotYet, _) => "the default column: the external proximity service has not said yet".into(),
        (Why::Default, Some(region)) => {
            format!("the default column: no server for {shown} has {an_entry} for region {region}")
        }
        (Why::Default, None) if has_regions && id.is_none() => {
            "the default column: the client is unclassified".into()
        }
        (Why::Default, None) => {
            format!("the default column: the policy has no regional {entries} for {shown}")
        }
        (Why::AllDown, _) => "all servers are down, and the policy answers as if none were".into(),
        (Why::AllFailing, _) => {
            "all servers that are up fail their probes, and the policy answers as if none did".into()
        }
        (Why::Empty, _) => "all servers are down or fail their probes, and the policy answers nothing".into(),
        (Why::NoFamily, _) => format!("the policy has no server for {shown}"),
    }
}

/// What a region's row is made of: the policy's own entries, or else the ranks of its partition, which are listed.
fn decided_by(steered: &Steered, family: Family, id: RegionId, region: &str) -> String {
    if !own_entries(steered, family, region).is_empty() {
        return format!("the row of region {region}");
    }
    let ranks = steered.policy.partition().ranks().iter().filter(|rank| rank.region == id);
    let ranks: HashMap<IpAddr, u16> = ranks.map(|rank| (rank.server, rank.rank)).collect();
    // As the policy lists them: first those that have one.
    let mut ranked: BTreeMap<(bool, Option<u16>), Vec<String>> = BTreeMap::new();
    for server in of_family(steered, family) {
        let rank = server.target.address().and_then(|address| ranks.get(&address).copied());
        ranked.entry((rank.is_none(), rank)).or_default().push(server.target.to_string());
    }
    let drawn = ranked.iter().any(|((_, rank), servers)| rank.is_some() && servers.len() > 1);
    let each = ranked.into_iter().map(|((_, rank), servers)| {
        let rank = rank.map_or_else(|| "none".into(), |rank| format!("rank {rank}"));
        format!("{rank}: {}", servers.join(" "))
    });
    let each = each.collect::<Vec<_>>().join(", ");
    let drawn = if drawn { "; those of one rank are drawn evenly" } else { "" };
    format!("the ranks of region {region} in the partition {} ({each}){drawn}", steered.spec.partition)
}

/// In which order the servers of a row come, where they are not drawn.
fn order(choice: &Choice, region: Option<&str>, steered: &Steered, family: Family) -> &'static str {
    let entries = match choice.why {
        Why::Region => own_entries(steered, family, region.unwrap_or_default()),
        Why::Default | Why::NotYet => of_family(steered, family).map(|server| server.default).collect(),
        _ => return "",
    };
    match steered.spec.order {
        Order::Weighted => "",
        Order::Rotate => "; in turn",
        Order::Nearest if entries.is_empty() => "; the nearest first",
        Order::Nearest if entries.iter().any(|entry| entry.probability.is_some()) => {
            "; the most probable first"
        }
        Order::Fixed | Order::Nearest => "; in the order of the policy",
    }
}

/// What a policy's servers of a family have for a region; nothing where its row is of ranks.
fn own_entries(steered: &Steered, family: Family, region: &str) -> Vec<Entry> {
    of_family(steered, family).filter_map(|server| server.regions.get(region).copied()).collect()
}

fn of_family(steered: &Steered, family: Family) -> impl Iterator<Item = &Server> {
    steered.spec.servers.iter().filter(move |server| Family::of(&server.target) == family)
}

fn named(region: &str) -> Option<String> {
    (!region.is_empty()).then(|| region.to_string())
}
