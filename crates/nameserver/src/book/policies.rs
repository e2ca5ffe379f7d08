//! Policies: the matrix under its names, and which of its servers are down.

use std::collections::BTreeMap;
use std::net::IpAddr;
use std::sync::Arc;

use api::place::{Origin, Pointed, pointer};
use api::{Fault, Faults};
use dns::Folded;
use routing::Policy;
use routing::policy::Context;
use store::Change;

use super::{Book, Etag, Refused, check_tag, folded};
use crate::policies::Steered;
use crate::zone::PolicyId;

impl Book {
    /// A policy by its first name, with its tag.
    pub fn policy(&self, owner: &str) -> Option<(api::Policy, Etag)> {
        let owner = folded(owner, "").ok()?;
        let steered = self.generation.policies.get(self.policy_of(&owner)?)?;
        (steered.key() == owner.wire()).then(|| (steered.spec.clone(), tag(&steered.spec)))
    }

    /// Every policy name, in folded wire form, with its policy.
    pub(super) fn steered_names(&self) -> impl Iterator<Item = (PolicyId, &[u8])> {
        let each = self.generation.policies.iter();
        each.flat_map(|(id, steered)| steered.names.iter().map(move |name| (id, &name[..])))
    }

    pub(super) fn load_policy(&mut self, spec: api::Policy) -> Result<(), Faults> {
        let source = format!("stored policy {}", spec.names.first().map_or("", String::as_str));
        self.install_policy(spec, Origin { source: &source, text: None })
    }

    pub(super) fn put_policy(
        &mut self,
        owner: Option<&str>,
        source: &str,
        text: &[u8],
        if_match: Option<Etag>,
    ) -> Result<Vec<Change>, Refused> {
        let text = std::str::from_utf8(text).map_err(|cause| {
            Faults::from(Fault::whole(source, format!("the text is not UTF-8: {cause}"), "JSON"))
        })?;
        let mut spec = api::Policy::read(source, text)?;
        if let Some(owner) = owner {
            let wanted = folded(owner, "owner name")?;
            match spec.names.first() {
                None => spec.names.push(owner.into()),
                Some(first) if folded(first, source).is_ok_and(|first| first.wire() == wanted.wire()) => {}
                Some(first) => {
                    let what = format!("the first of the names is {first}");
                    return Err(Faults::from(Fault::whole(
                        source,
                        what,
                        format!("{wanted:?}, the policy's key"),
                    ))
                    .into());
                }
            }
        }
        if let Some(key) = spec.names.first() {
            check_tag(if_match.as_ref(), || self.policy(key).map(|(_, tag)| tag))?;
        }
        let key = spec.names.first().cloned();
        self.install_policy(spec, Origin { source, text: Some(text) })?;
        let stored = key.and_then(|key| self.policy(&key)).map(|(spec, _)| spec);
        Ok(vec![Change::PutPolicy(stored.expect("the policy was put"))])
    }

    pub(super) fn delete_policy(
        &mut self,
        owner: &str,
        if_match: Option<Etag>,
    ) -> Result<Vec<Change>, Refused> {
        let owner = folded(owner, "owner name")?;
        let found =
            self.policy_of(&owner).and_then(|id| Some((id, self.generation.policies.get(id)?.clone())));
        let Some((id, steered)) = found.filter(|(_, steered)| steered.key() == owner.wire()) else {
            return Err(Refused::NotFound(format!("policy {owner:?}")));
        };
        check_tag(if_match.as_ref(), || Some(tag(&steered.spec)))?;
        self.point(steered.names.iter(), None);
        self.generation.policies.remove(id);
        Ok(vec![Change::DeletePolicy { key: dns::name::to_text(owner.wire()) }])
    }

    pub(super) fn set_server(&mut self, address: IpAddr, up: bool) -> Result<Vec<Change>, Refused> {
        if self.generation.servers.id(address).is_none() {
            return Err(Refused::NotFound(format!("server {address} in any policy")));
        }
        Arc::make_mut(&mut self.servers).insert(address, up);
        self.mark_down();
        Ok(vec![Change::SetServer { address, up }])
    }

    /// Carries what the operator said of servers over into the generation.
    pub(super) fn mark_down(&mut self) {
        let down = self.servers.iter().filter(|(_, up)| !**up).map(|(address, _)| *address);
        Arc::make_mut(&mut self.generation.servers).set_down(down);
    }

    /// Takes a region's entries out of every policy that has some.
    pub(super) fn take_region_out_of_policies(&mut self, region: &str) -> Result<(), Faults> {
        let has = |spec: &api::Policy| spec.servers.iter().any(|server| server.regions.contains_key(region));
        let users: Vec<PolicyId> =
            self.generation.policies.iter().filter(|(_, s)| has(&s.spec)).map(|(id, _)| id).collect();
        for id in users {
            let Some(steered) = self.generation.policies.get(id).cloned() else { continue };
            let mut spec = steered.spec.clone();
            for server in &mut spec.servers {
                server.regions.remove(region);
            }
            self.replace_policy(id, &steered, spec)?;
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

    fn replace_policy(&mut self, id: PolicyId, steered: &Steered, spec: api::Policy) -> Result<(), Faults> {
        let source = format!("policy {}", dns::name::to_text(steered.key()));
        let policy = self.compile_policy(&spec, Origin { source: &source, text: None })?;
        let names = steered.names.clone();
        self.generation.policies.replace(id, Arc::new(Steered { spec, names, policy }));
        Ok(())
    }

    /// Compiles a policy and puts it under its names, in the place of the one with the same key.
    fn install_policy(&mut self, mut spec: api::Policy, origin: Origin<'_>) -> Result<(), Faults> {
        let mut faults = Faults::default();
        let policy = self.compile_policy(&spec, origin).map_err(|found| faults.append(found));
        let names = self.check_names(&spec, origin, &mut faults);
        let (Ok(policy), Some(key)) = (policy, names.first()) else { return faults.or(()) };
        // Put under a key that belongs to another policy is a fault already.
        let old = self.policy_of(key);
        faults.or(())?;
        spec.names = names.iter().map(|name| dns::name::to_text(name.wire())).collect();
        let names: Arc<[Box<[u8]>]> = names.iter().map(|name| name.wire().into()).collect();
        let steered = Arc::new(Steered { spec, names: names.clone(), policy });
        let (id, before) = match old {
            Some(id) => {
                let before = self.generation.policies.get(id).map(|old| old.names.clone());
                self.generation.policies.replace(id, steered);
                (id, before)
            }
            None => (self.generation.policies.add(steered), None),
        };
        // A policy that only changes its rows leaves its names alone.
        if before.as_ref() != Some(&names) {
            self.point(before.iter().flat_map(|names| names.iter()), None);
            self.point(names.iter(), Some(id));
        }
        Ok(())
    }

    /// Checks where the names are: each in a zone of ours, each of this policy alone.
    fn check_names(&self, spec: &api::Policy, origin: Origin<'_>, faults: &mut Faults) -> Vec<Folded> {
        let hash = &self.generation.hash;
        let mut names: Vec<Folded> = Vec::with_capacity(spec.names.len());
        let mut seen = std::collections::HashSet::new();
        let mut found = Vec::new();
        for (index, shown) in spec.names.iter().enumerate() {
            let mut fault = |what: String, expected: &str| {
                found.push(Pointed {
                    pointer: pointer(&[&"names", &index]),
                    what,
                    expected: expected.into(),
                });
            };
            let name = match folded(shown, origin.source) {
                Ok(name) => name,
                Err(wrong) => {
                    let what = wrong.faults.into_iter().map(|fault| fault.what).collect();
                    fault(what, "a domain name such as www.example.com");
                    continue;
                }
            };
            let Some(zone) = self.generation.zones.closest(&name, false, hash) else {
                fault(format!("{shown} is in none of our zones"), "a name in a zone that is served");
                continue;
            };
            if let Err(why) = zone.may_steer(&name, hash) {
                fault(why, "a name whose addresses are ours to decide");
            }
            if !seen.insert(name.wire().to_vec()) {
                fault(format!("{shown} is listed twice"), "each name once");
            }
            let key = names.first().unwrap_or(&name);
            let other = zone.policy_at(&name, hash).and_then(|id| self.generation.policies.get(id));
            if let Some(other) = other.filter(|other| other.key() != key.wire()) {
                let what = format!("{shown} belongs to the policy {}", dns::name::to_text(other.key()));
                fault(what, "a name of no other policy, or that policy deleted first");
            }
            names.push(name);
        }
        faults.append(origin.place(found));
        if spec.names.is_empty() {
            faults.push(Fault::whole(origin.source, "the policy has no name", "at least one in names"));
        }
        names
    }

    fn compile_policy(&mut self, spec: &api::Policy, origin: Origin<'_>) -> Result<Policy, Faults> {
        let mut servers = Arc::clone(&self.generation.servers);
        let mut context = Context {
            region: &|name| self.region_id(name),
            partition: &|name| self.compiled(name),
            server: &mut |address| match servers.id(address) {
                Some(id) => id,
                None => Arc::make_mut(&mut servers).add(address),
            },
        };
        let policy = Policy::compile(spec, origin, &mut context);
        self.generation.servers = servers;
        policy
    }

    /// The policy at a name.
    fn policy_of(&self, name: &Folded) -> Option<PolicyId> {
        let hash = &self.generation.hash;
        self.generation.zones.closest(name, false, hash)?.policy_at(name, hash)
    }

    /// Makes names refer to a policy, or to none.
    fn point<'n>(&mut self, names: impl Iterator<Item = &'n Box<[u8]>>, policy: Option<PolicyId>) {
        let hash = self.generation.hash.clone();
        let mut by_zone: BTreeMap<Vec<u8>, (Folded, Vec<Folded>)> = BTreeMap::new();
        for wire in names {
            let name = Folded::read(wire).expect("names of a policy are valid");
            if let Some(zone) = self.generation.zones.closest(&name, false, &hash) {
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

/// What stands for a policy: its canonical JSON decides.
fn tag(spec: &api::Policy) -> Etag {
    Etag::of(&serde_json::to_vec(spec).expect("a policy has a JSON form"))
}
