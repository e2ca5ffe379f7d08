//! Zones that are signed here, and what policies answer in signed zones: signed as they and the keys come.

use std::sync::Arc;

use api::{Fault, Faults, WhenAllDown};
use dns::{Folded, Rtype};

use super::Book;
use crate::generation::Generation;
use crate::signing::{Key, SETS_MAX, Signatures, Signed, Signing, types};
use crate::zone::{Walk, Zone};

/// Why what a policy answers at a name cannot be signed: what is wrong, and what was expected.
pub(super) type Unsigned = (String, String);

impl Book {
    /// Signs by these keys from now on.
    ///
    /// # Errors
    /// Zones that cannot be signed here; policies in signed zones of which no key is among them. What is signed may then have
    /// changed.
    pub fn choose_signing(&mut self, signing: Arc<Signing>) -> Result<(), Faults> {
        let is_as_before = self.signing.as_ref().is_some_and(|before| before.signs_as(&signing));
        let served = self.generation.clone();
        self.go_on_signing(signing, !is_as_before, &served)
    }

    /// Signs by these keys, by which zones that are signed here were signed, unless they are to be signed `anew`; signatures
    /// of what is `served` stay.
    pub(super) fn go_on_signing(
        &mut self,
        signing: Arc<Signing>,
        anew: bool,
        served: &Generation,
    ) -> Result<(), Faults> {
        let serves = self.signing.replace(signing.clone()).is_some();
        let mut faults = Faults::default();
        let is_to_change = |zone: &&Arc<Zone>| {
            let signs = self.signs(&signing, zone);
            zone.is_signed_here() != signs || signs && anew
        };
        let zones = self.generation.zones.all().iter().filter(is_to_change).cloned();
        for zone in zones.collect::<Vec<_>>() {
            let origin = zone.origin();
            // Where keys have changed, one may have the tag that another one had.
            let before = served.zones.all().get(origin, &served.hash).filter(|_| !anew);
            let placed = self.given_zone(&zone).and_then(|zone| self.place_zone(zone, before.cloned(), None));
            placed.unwrap_or_else(|found| faults.append(found));
            if serves {
                self.remember_zone(origin, Some(&zone), None);
            }
        }
        self.sign_all().unwrap_or_else(|found| faults.append(found));
        faults.or(())?;
        self.sign_proofs();
        Ok(())
    }

    /// Whether a zone is signed here: what a primary gives is served as it is.
    pub(super) fn signs(&self, signing: &Signing, zone: &Zone) -> bool {
        !self.generation.primary_zones.have(zone.origin()) && signing.signs(zone)
    }

    /// A zone with its policies, signed where that is done here.
    pub(super) fn as_signed(&self, zone: Zone, before: Option<&Zone>) -> Result<Zone, Unsigned> {
        let Some(signing) = self.signing.as_ref().filter(|signing| self.signs(signing, &zone)) else {
            return Ok(zone);
        };
        let answers = |policy| {
            let steered = self.generation.policies.get(policy);
            steered.map(|steered| types(&steered.spec)).unwrap_or_default()
        };
        let mut signed = signing.sign(&zone, &answers, before, &self.generation.hash)?;
        signed.set_in_lines(zone.is_in_lines());
        Ok(signed)
    }

    /// Signs zones once more, whose proofs tell of other types at names of policies than these answer now.
    ///
    /// # Panics
    /// Where one cannot be signed: it was.
    pub fn sign_proofs(&mut self) {
        for origin in std::mem::take(&mut self.unproven) {
            let origin = Folded::read(&origin).expect("the name of a zone is valid");
            let hash = self.generation.hash.clone();
            let zone = self.generation.zones.all().get(&origin, &hash).filter(|zone| zone.is_signed_here());
            let Some(zone) = zone.cloned() else { continue };
            let given = self.given_zone(&zone);
            let placed = given.and_then(|given| self.place_zone(given, Some(zone.clone()), None));
            placed.unwrap_or_else(|faults| panic!("a zone that was signed is signed again: {faults}"));
            self.remember_zone(&origin, Some(&zone), None);
        }
    }

    /// Signs all that policies answer in signed zones; what is signed in the same way stays.
    fn sign_all(&mut self) -> Result<(), Faults> {
        let has_signed = self.generation.zones.all().iter().any(|zone| zone.is_steered() && zone.is_signed());
        let before = std::mem::replace(&mut self.generation.signed, Signed::new(0));
        if !has_signed {
            return Ok(());
        }
        let mut faults = Faults::default();
        let each = self.generation.policies.iter().map(|(_, steered)| steered.clone());
        for steered in each.collect::<Vec<_>>() {
            for wire in steered.names.iter() {
                let name = Folded::read(wire).expect("names of a policy are valid");
                let known =
                    before.find(self.generation.hash.of(&name), wire).map(|found| found.value.clone());
                if let Err((what, expected)) = self.sign_as(&name, &steered.spec, known) {
                    let policy = format!("policy {}", dns::name::to_text(steered.key()));
                    faults.push_with(|| Fault::whole(policy, what, expected));
                }
            }
        }
        faults.or(())
    }

    /// Signs what a policy answers at a name, where that is in a signed zone.
    ///
    /// # Errors
    /// Why it cannot.
    pub(super) fn sign(&mut self, name: &Folded, spec: &api::Policy) -> Result<(), Unsigned> {
        // At a start all is signed at once, behind the last policy.
        if self.signing.is_none() {
            return Ok(());
        }
        let before = self.generation.signed.remove(self.generation.hash.of(name), name.wire());
        self.sign_as(name, spec, before)
    }

    /// A policy decides a name no more.
    pub(super) fn forget_signed(&mut self, name: &Folded) {
        let hash = self.generation.hash.clone();
        if self.generation.signed.remove(hash.of(name), name.wire()).is_some()
            && let Some(zone) = self.generation.zones.all().closest(name, false, &hash)
        {
            self.unproven.insert(zone.origin().wire().into());
        }
    }

    fn sign_as(
        &mut self,
        name: &Folded,
        spec: &api::Policy,
        before: Option<Arc<Signatures>>,
    ) -> Result<(), Unsigned> {
        let hash = self.generation.hash.clone();
        let Some(zone) = self.generation.zones.all().closest(name, false, &hash) else { return Ok(()) };
        let (Some(signing), true) = (self.signing.clone(), zone.is_signed()) else { return Ok(()) };
        let key = self.may_sign(&signing, zone, name, spec)?;
        let signatures = Signatures::of(name, spec, (&signing, key), before.as_deref()).ok_or_else(|| {
            let what =
                format!("there are more sets of servers that {name:?} may be answered than are signed");
            (what, format!("at most {SETS_MAX}: fewer servers, or fewer in an answer"))
        })?;
        if zone.is_signed_here()
            && !before.as_ref().is_some_and(|before| before.types().eq(signatures.types()))
        {
            self.unproven.insert(zone.origin().wire().into());
        }
        let signatures = match before {
            Some(before) if *before == signatures => before,
            _ => Arc::new(signatures),
        };
        self.generation.signed.insert(hash.of(name), name.wire(), signatures);
        Ok(())
    }

    /// The key by which what a policy answers at a name of a signed zone is signed.
    ///
    /// What validators are told that the name has is what it had when the zone was signed (NSEC, NSEC3): that must be what the
    /// policy answers.
    fn may_sign<'a>(
        &self,
        signing: &'a Signing,
        zone: &Zone,
        name: &Folded,
        spec: &api::Policy,
    ) -> Result<&'a Key, Unsigned> {
        let origin = zone.origin();
        let Some(key) = signing.key_of(zone) else {
            let what = format!("{name:?} is in the signed zone {origin:?}, and no key of it is here");
            return Err((what, "one of its keys in signing_keys".into()));
        };
        if spec.when_all_down == WhenAllDown::Empty {
            let what =
                format!("{name:?} is in the signed zone {origin:?}, which proves what is answered there");
            return Err((what, "when_all_down \"answer\" there".into()));
        }
        // What is signed here is proven as the policy has it.
        if zone.is_signed_here() {
            return Ok(key);
        }
        if spec.servers.iter().any(|server| server.target.is_cname()) {
            let what =
                format!("{name:?} is in the zone {origin:?}, which others sign, and would be an alias");
            return Err((what, "addresses, or a zone that is signed here".into()));
        }
        let found = match zone.walk(name, &self.generation.hash) {
            Walk::Name(found) => Some(found),
            _ => None,
        };
        let answered = types(spec);
        for rtype in [Rtype::A, Rtype::AAAA] {
            let set = found.and_then(|found| found.rrset(rtype));
            let what = match (answered.contains(&rtype), set) {
                (true, Some(set)) if set.is_signed() => continue,
                (false, None) => continue,
                (true, _) => format!(
                    "{name:?} is answered with type {rtype}, of which the signed zone has no set there"
                ),
                (false, _) => {
                    format!("{name:?} has type {rtype} in the signed zone, of which the policy has no server")
                }
            };
            return Err((what, "the same types in both, in the zone with any addresses".into()));
        }
        Ok(key)
    }
}
