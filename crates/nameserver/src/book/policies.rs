//! Policies: the matrix under its names, and which of its servers are down.

use std::collections::{BTreeMap, HashMap, HashSet};
use std::sync::Arc;

use api::place::{Origin, Pointed, pointer};
use api::{Fault, Faults, Target};
use dns::Folded;
use routing::health::SLOTS_MAX;
use routing::policy::Context;
use routing::{Policy, SlotId};
use store::Change;

use super::partitions::region_ids;
use super::{Book, Condition, Etag, Refused, folded};
use crate::health::Slot;
use crate::policies::{Steered, ttl_min};
use crate::zone::PolicyId;

/// The slots of a policy's probes.
type Slots = Box<[Arc<Slot>]>;

impl Book {
    /// A policy by its first name, with its tag.
    pub fn policy(&self, owner: &str) -> Option<(api::Policy, Etag)> {
        let owner = folded(owner, "").ok()?;
        let steered = self.generation.policies.get(self.policy_of(&owner)?)?;
        (steered.key() == owner.wire()).then(|| (api::Policy::clone(&steered.spec), tag(&steered.spec)))
    }

    /// Every policy name, in folded wire form, with its policy.
    pub(super) fn steered_names(&self) -> impl Iterator<Item = (PolicyId, &[u8])> {
        let each = self.generation.policies.iter();
        each.flat_map(|(id, steered)| steered.names.iter().map(move |name| (id, &name[..])))
    }

    pub(super) fn load_policy(&mut self, spec: api::Policy) -> Result<(), Faults> {
        let key = spec.names.first().map_or("", String::as_str);
        let source = format!("stored policy {key}");
        let key = folded(key, &source)?;
        let cnames = |spec: &api::Policy| -> Vec<String> {
            spec.servers.iter().filter_map(|server| server.target.cname().map(str::to_owned)).collect()
        };
        let (written, written_cnames) = (spec.names.clone(), cnames(&spec));
        let origin = Origin { source: &source, text: None };
        self.install_policy(spec, &key, origin)?;
        // The store finds a policy by the text of its name, and ours is the canonical one.
        let installed = self.policy_of(&key).and_then(|id| self.generation.policies.get(id));
        let canonical = &installed.expect("the policy was put").spec;
        let differ = |written: &[String], canonical: &[String], place: &dyn Fn(usize) -> String| {
            let each = written.iter().zip(canonical).enumerate();
            let differ = each.filter(|(_, (written, canonical))| written != canonical);
            let fault = |(index, (written, canonical)): (usize, (&String, &String))| Pointed {
                pointer: place(index),
                what: format!("{written} is another form of {canonical}"),
                expected: canonical.clone(),
            };
            differ.map(fault).collect::<Vec<_>>()
        };
        let mut found = differ(&written, &canonical.names, &|index| pointer(&[&"names", &index]));
        let of_server = |index| pointer(&[&"servers", &index, &"cname"]);
        found.extend(differ(&written_cnames, &cnames(canonical), &of_server));
        if found.is_empty() { Ok(()) } else { Err(origin.place(found)) }
    }

    pub(super) fn put_policy(
        &mut self,
        owner: Option<&str>,
        spec: api::Policy,
        origin: Origin<'_>,
        condition: &Condition,
    ) -> Result<Vec<Change>, Refused> {
        let first = owner.or(spec.names.first().map(String::as_str));
        let Some(key) = first.map(|name| folded(name, origin.source)).transpose()? else {
            return Err(Faults::from(Fault::whole(
                origin.source,
                "the policy has no name",
                "at least one in names",
            ))
            .into());
        };
        condition.check(|| self.policy(&dns::name::to_text(key.wire())).map(|(_, tag)| tag))?;
        let mut faults = Faults::default();
        self.check_probes(&spec, origin).unwrap_or_else(|found| faults.append(found));
        self.install_policy(spec, &key, origin).unwrap_or_else(|found| faults.append(found));
        faults.in_order().or(())?;
        let stored = self.policy_of(&key).and_then(|id| self.generation.policies.get(id));
        Ok(vec![Change::PutPolicy(stored.expect("the policy was put").spec.clone())])
    }

    pub(super) fn delete_policy(
        &mut self,
        owner: &str,
        condition: &Condition,
    ) -> Result<Vec<Change>, Refused> {
        let owner = folded(owner, "owner name")?;
        let found =
            self.policy_of(&owner).and_then(|id| Some((id, self.generation.policies.get(id)?.clone())));
        let Some((id, steered)) = found.filter(|(_, steered)| steered.key() == owner.wire()) else {
            return Err(Refused::NotFound(format!("policy {owner:?}")));
        };
        condition.check(|| Some(tag(&steered.spec)))?;
        self.point(steered.names.iter(), None);
        self.generation.policies.remove(id);
        Ok(vec![Change::DeletePolicy { key: dns::name::to_text(owner.wire()) }])
    }

    pub(super) fn set_server(&mut self, server: Target, up: bool) -> Result<Vec<Change>, Refused> {
        let named = |spec: &api::Policy| spec.servers.iter().any(|other| other.target == server);
        // One that is down stays so without a policy.
        let is_down = self.servers.get(&server) == Some(&false);
        if !is_down && !self.generation.policies.iter().any(|(_, steered)| named(&steered.spec)) {
            return Err(Refused::NotFound(format!("server {server} in any policy")));
        }
        Arc::make_mut(&mut self.servers).insert(server.clone(), up);
        self.mark_down();
        Ok(vec![Change::SetServer { server, up }])
    }

    /// Carries what the operator said of servers over into the generation.
    pub(super) fn mark_down(&mut self) {
        let down = self.servers.iter().filter(|(_, up)| !**up).map(|(server, _)| server.clone());
        self.generation.down = Arc::new(down.collect());
    }

    /// Takes a region's entries out of every policy that has some.
    pub(super) fn take_region_out_of_policies(&mut self, region: &str) -> Result<(), Faults> {
        let has = |spec: &api::Policy| spec.servers.iter().any(|server| server.regions.contains_key(region));
        let users: Vec<PolicyId> =
            self.generation.policies.iter().filter(|(_, s)| has(&s.spec)).map(|(id, _)| id).collect();
        for id in users {
            let Some(steered) = self.generation.policies.get(id).cloned() else { continue };
            let mut spec = api::Policy::clone(&steered.spec);
            for server in &mut spec.servers {
                server.regions.remove(region);
            }
            self.replace_policy(id, &steered, spec.into())?;
        }
        Ok(())
    }

    /// Compiles those policies again that something has changed for.
    pub(super) fn compile_policies_again(
        &mut self,
        which: impl Fn(&api::Policy) -> bool,
    ) -> Result<(), Faults> {
        let users: Vec<(PolicyId, Arc<Steered>)> = self
            .generation
            .policies
            .iter()
            .filter(|(_, steered)| which(&steered.spec))
            .map(|(id, steered)| (id, steered.clone()))
            .collect();
        for (id, steered) in users {
            self.replace_policy(id, &steered, steered.spec.clone())?;
        }
        Ok(())
    }

    fn replace_policy(
        &mut self,
        id: PolicyId,
        steered: &Steered,
        spec: Arc<api::Policy>,
    ) -> Result<(), Faults> {
        let source = format!("policy {}", dns::name::to_text(steered.key()));
        let (policy, slots) = self.compile_policy(&spec, Origin { source: &source, text: None })?;
        let (names, key_hash) = (steered.names.clone(), steered.key_hash);
        let (cnames, empty_ttl) = (steered.cnames.clone(), ttl_min(&spec));
        let steered = Arc::new(Steered { spec, names, policy, cnames, slots, key_hash, empty_ttl });
        self.generation.policies.replace(id, steered.clone());
        self.sign_names(&steered, false, Origin { source: &source, text: None })
    }

    /// Compiles a policy and puts it under its key and its other names, in the place of the one with that key.
    fn install_policy(
        &mut self,
        mut spec: api::Policy,
        key: &Folded,
        origin: Origin<'_>,
    ) -> Result<(), Faults> {
        let mut faults = Faults::default();
        let cnames = take_cnames(&mut spec, origin).map_err(|found| faults.append(found));
        let policy = self.compile_policy(&spec, origin).map_err(|found| faults.append(found));
        let names = self.check_names(&spec, key, origin).unwrap_or_else(|found| {
            faults.append(found);
            Vec::new()
        });
        check_targets(&spec, &names, origin).unwrap_or_else(|found| faults.append(found));
        let (Ok((policy, slots)), Ok(cnames)) = (policy, cnames) else { return Err(faults) };
        faults.or(())?;
        // A key that is another policy's further name is a fault already.
        let old = self.policy_of(key);
        spec.names = names.iter().map(|name| dns::name::to_text(name)).collect();
        let names: Arc<[Box<[u8]>]> = names.into();
        let key_hash = self.generation.hash.of(key);
        let empty_ttl = ttl_min(&spec);
        let spec = Arc::new(spec);
        let steered =
            Arc::new(Steered { spec, names: names.clone(), policy, cnames, slots, key_hash, empty_ttl });
        let (id, before) = match old {
            Some(id) => {
                let before = self.generation.policies.get(id).map(|old| old.names.clone());
                self.generation.policies.replace(id, steered.clone());
                (id, before)
            }
            None => (self.generation.policies.add(steered.clone()), None),
        };
        // A policy that only changes its rows leaves its names alone.
        let has_moved = before.as_ref() != Some(&names);
        if has_moved {
            self.point(before.iter().flat_map(|names| names.iter()), None);
            self.point(names.iter(), Some(id));
        }
        self.sign_names(&steered, has_moved, origin)
    }

    /// Signs what a policy answers at its names in signed zones; new rows alone need that where anything is signed.
    fn sign_names(&mut self, steered: &Steered, has_moved: bool, origin: Origin<'_>) -> Result<(), Faults> {
        let mut found = Vec::new();
        let is_to_sign = has_moved || !self.generation.signed.is_empty();
        for wire in steered.names.iter().filter(|_| is_to_sign) {
            let name = Folded::read(wire).expect("names of a policy are valid");
            if let Err((what, expected)) = self.sign(&name, &steered.spec) {
                found.push(Pointed { pointer: pointer(&[&"names"]), what, expected });
            }
        }
        if found.is_empty() { Ok(()) } else { Err(origin.place(found)) }
    }

    /// Checks where the names are: each in a zone of ours, each of this policy alone. Returns them folded, the key
    /// first, wherever in the list it stands.
    fn check_names(
        &self,
        spec: &api::Policy,
        key: &Folded,
        origin: Origin<'_>,
    ) -> Result<Vec<Box<[u8]>>, Faults> {
        let key_shown = dns::name::to_text(key.wire());
        let listed = spec.names.iter().enumerate().map(|(index, shown)| (shown.as_str(), Some(index)));
        let mut names: Vec<Box<[u8]>> = Vec::with_capacity(spec.names.len() + 1);
        let mut seen = HashSet::new();
        let mut found = Vec::new();
        let mut key_listed = false;
        for (shown, index) in std::iter::once((key_shown.as_str(), None)).chain(listed) {
            let mut fault = |what: String, expected: &str| {
                let pointer =
                    index.map_or_else(|| pointer(&[&"names"]), |index| pointer(&[&"names", &index]));
                found.push(Pointed { pointer, what, expected: expected.into() });
            };
            let name = match folded(shown, origin.source) {
                Ok(name) => name,
                Err(wrong) => {
                    let what = wrong.faults.into_iter().map(|fault| fault.what).collect();
                    fault(what, "a domain name such as www.example.com");
                    continue;
                }
            };
            let is_key = !names.is_empty() && name.wire() == key.wire();
            if !seen.insert(name.wire().to_vec()) && (!is_key || std::mem::replace(&mut key_listed, true)) {
                fault(format!("{shown} is listed twice"), "each name once");
            }
            if !is_key {
                if let Err((what, expected)) = self.check_place(&name, shown, key, spec) {
                    fault(what, expected);
                }
                names.push(name.wire().into());
            }
        }
        if found.is_empty() { Ok(names) } else { Err(origin.place(found)) }
    }

    /// Whether the policy of `key` may have a name; else what is wrong, and what was expected.
    fn check_place(
        &self,
        name: &Folded,
        shown: &str,
        key: &Folded,
        spec: &api::Policy,
    ) -> Result<(), (String, &'static str)> {
        let hash = &self.generation.hash;
        let (is_alias, expected) = match spec.servers.first() {
            Some(server) if server.target.is_cname() => (true, "a name of ours without records"),
            _ => (false, "a name whose addresses are ours to decide"),
        };
        let Some(zone) = self.generation.zones.all().closest(name, false, hash) else {
            return Err((format!("{shown} is in none of our zones"), "a name in a zone that is served"));
        };
        zone.may_steer(name, is_alias, hash).map_err(|hindrance| (hindrance.what, expected))?;
        // What is steered already may change: its operator must be able to drain a server.
        if zone.policy_at(name, hash).is_none() && self.secondaries.name(zone.origin()) {
            let zone = dns::name::to_text(zone.origin().wire());
            let what = format!(
                "{shown} is in the zone {zone}, which secondaries follow, and they cannot take a zone with policies"
            );
            return Err((what, "a name in a zone that no [[secondary]] names"));
        }
        let other = zone.policy_at(name, hash).and_then(|id| self.generation.policies.get(id));
        match other.filter(|other| other.key() != key.wire()) {
            Some(other) => {
                let what = format!("{shown} belongs to the policy {}", dns::name::to_text(other.key()));
                Err((what, "a name of no other policy, or that policy deleted first"))
            }
            None => Ok(()),
        }
    }

    /// Checks that the probes exist. What is stored may name others: the configuration has changed since, and that must
    /// not keep a server from starting.
    fn check_probes(&self, spec: &api::Policy, origin: Origin<'_>) -> Result<(), Faults> {
        let mut found = Vec::new();
        for (index, server) in spec.servers.iter().enumerate() {
            let Some(probe) = server.probe.as_ref().filter(|probe| !self.probes.contains_key(*probe)) else {
                continue;
            };
            let known: Vec<&str> = self.probes.keys().map(String::as_str).collect();
            found.push(Pointed {
                pointer: pointer(&[&"servers", &index, &"probe"]),
                what: format!("there is no probe '{}'", probe.escape_debug()),
                expected: match known.as_slice() {
                    [] => "a [[probe]] in the configuration first".into(),
                    known => format!("one of the configuration's: {}", known.join(", ")),
                },
            });
        }
        if found.is_empty() { Ok(()) } else { Err(origin.place(found)) }
    }

    /// Compiles a policy, with the slots of its servers' probes.
    fn compile_policy(&self, spec: &api::Policy, origin: Origin<'_>) -> Result<(Policy, Slots), Faults> {
        // For a few entries, to look through the regions takes less than a table of them.
        let entries: usize = spec.servers.iter().map(|server| server.regions.len()).sum();
        let regions = (entries > self.regions.len()).then(|| region_ids(&self.regions));
        let context = Context {
            region: &|name| match &regions {
                Some(regions) => regions.get(name).copied(),
                None => self.region_id(name),
            },
            partition: &|name| self.compiled(name),
        };
        let mut policy = Policy::compile(spec, origin, &context)?;
        let slots = self.slots(spec, origin)?;
        if !slots.is_empty() {
            let of = |server: &Target| slots.iter().find(|slot| slot.key().0 == *server);
            policy.heed_probes(|server| of(server).map_or(SlotId::NONE, |slot| slot.id()));
        }
        Ok((policy, slots))
    }

    /// The slots of a policy's probes, for servers that have one.
    fn slots(&self, spec: &api::Policy, origin: Origin<'_>) -> Result<Slots, Faults> {
        let mut slots = Vec::new();
        for (index, server) in spec.servers.iter().enumerate() {
            let Some(probe) = &server.probe else { continue };
            match self.generation.health.slot(&server.target, probe) {
                Some(slot) => slots.push(slot),
                None => {
                    let fault = Pointed {
                        pointer: pointer(&[&"servers", &index, &"probe"]),
                        what: format!("{SLOTS_MAX} servers are probed already"),
                        expected: "fewer servers with probes".into(),
                    };
                    return Err(origin.place(vec![fault]));
                }
            }
        }
        Ok(slots.into())
    }

    /// The policy at a name.
    pub(super) fn policy_of(&self, name: &Folded) -> Option<PolicyId> {
        let hash = &self.generation.hash;
        self.generation.zones.all().closest(name, false, hash)?.policy_at(name, hash)
    }

    /// Makes names refer to a policy, or to none.
    pub(super) fn point<'n>(&mut self, names: impl Iterator<Item = &'n Box<[u8]>>, policy: Option<PolicyId>) {
        let hash = self.generation.hash.clone();
        let mut by_zone: BTreeMap<Vec<u8>, (Folded, Vec<Folded>)> = BTreeMap::new();
        for wire in names {
            let name = Folded::read(wire).expect("names of a policy are valid");
            if policy.is_none() {
                self.forget_signed(&name);
            }
            if let Some(zone) = self.generation.zones.all().closest(&name, false, &hash) {
                let origin = zone.origin();
                let entry = by_zone.entry(origin.wire().to_vec());
                entry.or_insert_with(|| (origin.clone(), Vec::new())).1.push(name);
            }
        }
        for (origin, names) in by_zone.into_values() {
            self.change_zone(&origin, |zone| {
                names.iter().for_each(|name| zone.set_policy(name, policy, &hash))
            });
        }
    }
}

/// Puts the names of a policy's servers in canonical form; returns them in wire form.
fn take_cnames(spec: &mut api::Policy, origin: Origin<'_>) -> Result<Box<[Box<[u8]>]>, Faults> {
    let (mut wires, mut found) = (Vec::new(), Vec::new());
    for (index, server) in spec.servers.iter_mut().enumerate() {
        let Target::Cname(name) = &mut server.target else { continue };
        match dns::name::host_from_text(name) {
            Ok(wire) => {
                *name = dns::name::to_text(&wire);
                wires.push(wire.into());
            }
            Err(what) => found.push(Pointed {
                pointer: pointer(&[&"servers", &index, &"cname"]),
                what,
                expected: "a domain name such as www.cdn.example".into(),
            }),
        }
    }
    if found.is_empty() { Ok(wires.into()) } else { Err(origin.place(found)) }
}

/// Checks that no name of a policy is an alias of itself.
fn check_targets(spec: &api::Policy, names: &[Box<[u8]>], origin: Origin<'_>) -> Result<(), Faults> {
    let servers = spec.servers.iter().enumerate();
    let cnames: HashMap<&str, usize> =
        servers.filter_map(|(index, server)| Some((server.target.cname()?, index))).collect();
    if cnames.is_empty() {
        return Ok(());
    }
    let own = names.iter().map(|name| dns::name::to_text(name)).filter_map(|name| {
        Some(Pointed {
            pointer: pointer(&[&"servers", cnames.get(name.as_str())?, &"cname"]),
            what: format!("{name} would be an alias of itself"),
            expected: "another name".into(),
        })
    });
    let found: Vec<Pointed> = own.collect();
    if found.is_empty() { Ok(()) } else { Err(origin.place(found)) }
}

/// What stands for a policy: its canonical JSON decides.
fn tag(spec: &api::Policy) -> Etag {
    Etag::of(&serde_json::to_vec(spec).expect("a policy has a JSON form"))
}
