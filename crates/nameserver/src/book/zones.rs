//! Zones come and go; the policies with names in them stay.

use std::sync::Arc;

use api::{Fault, Faults};
use dns::{Folded, Rtype};
use store::Change;

use super::{Book, Condition, Etag, Refused, folded, too_long};
use crate::transfer::serial::is_greater;
use crate::zone::read::{self, Master};
use crate::zone::{Hindrance, Renewal, Zone};

impl Book {
    /// The zone of an origin, with its tag.
    pub fn zone(&self, origin: &str) -> Option<(String, Etag)> {
        let origin = folded(origin, "").ok()?;
        let text = self.generation.zones.all().get(&origin, &self.generation.hash)?.to_text();
        let tag = Etag::of(text.as_bytes());
        Some((text, tag))
    }

    pub(super) fn load_zone(&mut self, origin: &str, text: &str) -> Result<(), Faults> {
        let zone = self.stored_zone(origin, text)?;
        let hash = self.generation.hash.clone();
        self.generation.zones.put(Arc::new(zone), &hash);
        Ok(())
    }

    /// A zone as it is stored, of one that is here.
    pub(super) fn given_zone(&self, zone: &Zone) -> Result<Zone, Faults> {
        let mut given = self.stored_zone(&dns::name::to_text(zone.origin().wire()), &zone.to_text())?;
        given.set_in_lines(zone.is_in_lines());
        Ok(given)
    }

    /// Builds a zone as it is stored, without its policies and what signing it here makes.
    pub(super) fn stored_zone(&self, origin: &str, text: &str) -> Result<Zone, Faults> {
        let source = format!("stored zone {origin}");
        let canonical = read::read_canonical(&source, text.as_bytes());
        let in_lines = canonical.is_some();
        let master = match canonical {
            Some(master) => master,
            // What another program wrote need not be canonical.
            None => {
                let include = |_: &str| Err("a stored zone includes nothing".to_string());
                let text = text.as_bytes();
                let read = read::Source { name: &source, text, origin: None, include: &include };
                read::read_stored(&read).map_err(|faults| quoting(faults, text))?
            }
        };
        let built = Zone::build(&master, &source, &self.generation.hash);
        let mut zone = built.map_err(|faults| quoting(faults, text.as_bytes()))?;
        zone.set_in_lines(in_lines);
        let named = dns::name::to_text(zone.origin().wire());
        if named != origin {
            let what = format!("the SOA record is of {named}");
            return Err(Fault::whole(source, what, format!("{origin}, as the zone is called")).into());
        }
        Ok(zone)
    }

    pub(super) fn put_zone(
        &mut self,
        zone: Zone,
        text: Option<&str>,
        master: &Master<'_>,
        condition: &Condition,
    ) -> Result<Vec<Change>, Refused> {
        let origin = dns::name::to_text(zone.origin().wire());
        condition.check(|| self.zone(&origin).map(|(_, tag)| tag))?;
        let text = text.ok_or_else(|| too_long(&origin))?;
        let mut faults = Faults::default();
        self.check_serial(&zone, master, text).unwrap_or_else(|fault| faults.push(fault));
        self.check_catalog(&zone, Some(master)).unwrap_or_else(|found| faults.append(found));
        let (name, hash) = (zone.origin().clone(), self.generation.hash.clone());
        let before = self.generation.zones.all().get(&name, &hash).cloned();
        self.place_zone(zone, before.clone(), Some(master)).unwrap_or_else(|found| faults.append(found));
        self.remember_zone(&name, before.as_deref(), None);
        Ok(vec![faults.or(Change::PutZone { origin, text: text.into() })?])
    }

    /// Puts a zone in the place of the one that it was made of, of which it has other records of some owners and all policies.
    ///
    /// # Errors
    /// [`Refused::Precondition`] where more is to be done for it than to put it: policies have come or gone, it is to be signed,
    /// or its serial number is not greater.
    /// Faults of a catalog.
    pub(super) fn change_owners(
        &mut self,
        mut zone: Zone,
        renewal: &Renewal,
        since: &Arc<Zone>,
    ) -> Result<Vec<Change>, Refused> {
        let (origin, hash) = (zone.origin().clone(), self.generation.hash.clone());
        let before = self.generation.zones.all().get(&origin, &hash).cloned();
        let is_as_it_was = before.as_ref().is_some_and(|before| {
            let has_its_policies = Arc::ptr_eq(before, since) || !before.is_steered() && !zone.is_steered();
            has_its_policies && is_greater(zone.serial(), before.serial())
        });
        if !is_as_it_was || self.signing.as_ref().is_some_and(|signing| self.signs(signing, &zone)) {
            return Err(Refused::Precondition { current: None });
        }
        self.check_catalog(&zone, None)?;
        zone.set_catalog(self.is_catalog(origin.wire()));
        zone.set_expired(false);
        self.generation.zones.put(Arc::new(zone), &hash);
        self.remember_zone(&origin, before.as_deref(), Some(renewal));
        Ok(vec![Change::ChangeZone { origin: dns::name::to_text(origin.wire()), owners: renewal.lines() }])
    }

    /// Puts a zone in its place with the policies that have names in it, and signed where that is done here; signatures of
    /// `before` stay. `master` is what it was read from, where that is at hand.
    pub(super) fn place_zone(
        &mut self,
        mut zone: Zone,
        before: Option<Arc<Zone>>,
        master: Option<&Master<'_>>,
    ) -> Result<(), Faults> {
        let hash = self.generation.hash.clone();
        let origin = zone.origin().clone();
        zone.set_catalog(self.is_catalog(origin.wire()));
        let mut faults = Faults::default();
        let (mut moved, mut steered) = (Vec::new(), Vec::new());
        // A zone that holds no name of a policy has none to give away, and all others below are in zones of their own.
        let closest = self.generation.zones.all().closest(&origin, false, &hash);
        let holds_none = closest.is_some_and(|zone| !zone.is_steered());
        for (id, wire) in self.steered_names().filter(|_| !holds_none) {
            if !dns::name::is_within(wire, origin.wire()) {
                continue;
            }
            let name = Folded::read(wire).expect("names of a policy are valid");
            let holder =
                self.generation.zones.all().closest(&name, false, &hash).map(|zone| zone.origin().clone());
            if holder.as_ref().is_some_and(|holder| holder.labels() > origin.labels()) {
                continue;
            }
            let policy = self.generation.policies.get(id);
            let is_alias = policy.is_some_and(|steered| steered.policy.is_alias());
            steered.extend(policy.map(|policy| (name.clone(), policy.spec.clone())));
            match zone.may_steer(&name, is_alias, &hash) {
                Ok(()) => zone.set_policy(&name, Some(id), &hash),
                Err(Hindrance { owner, rtype, what }) => {
                    let what = format!("{what}, and a policy decides it");
                    faults.push_with(|| {
                        fault(master, (&owner, rtype), &origin, what, "the policy deleted first")
                    });
                }
            }
            // A new zone between the name and the zone that had it takes the name over.
            if let Some(holder) = holder.filter(|holder| holder.wire() != origin.wire()) {
                if self.secondaries.name(&origin) {
                    let what = format!(
                        "secondaries follow the zone, and cannot take it with {name:?}, which a policy decides"
                    );
                    let expected = "the policy deleted first, or the zone taken out of [[secondary]]";
                    let soa = (origin.wire(), Rtype::SOA);
                    faults.push_with(|| fault(master, soa, &origin, what, expected));
                }
                moved.push((holder, name));
            }
        }
        let zone = faults.or(zone)?;
        let zone = self.as_signed(zone, before.as_deref()).map_err(|(what, expected)| {
            fault(master, (origin.wire(), Rtype::SOA), &origin, what, &expected)
        })?;
        for (holder, name) in moved {
            self.change_zone(&holder, |zone| zone.set_policy(&name, None, &hash));
        }
        self.generation.zones.put(Arc::new(zone), &hash);
        let mut faults = Faults::default();
        for (name, spec) in steered {
            if let Err((what, expected)) = self.sign(&name, &spec) {
                let at = (origin.wire(), Rtype::DNSKEY);
                let what = format!("{what}, and a policy decides it");
                faults.push_with(|| fault(master, at, &origin, what, &expected));
            }
        }
        // Whatever they answer, it was signed with them.
        self.unproven.remove(origin.wire());
        faults.or(())
    }

    /// Remembers what changed in a zone since a version was served, where somebody follows it: all or what was renewed. A
    /// version in between, which nobody was given, does not count.
    pub(super) fn remember_zone(
        &mut self,
        origin: &Folded,
        before: Option<&Zone>,
        renewal: Option<&Renewal>,
    ) {
        let (hash, is_followed) = (self.generation.hash.clone(), self.secondaries.follow(origin));
        let were_deleted = self.zones_were_deleted;
        self.change_zone(origin, |zone| match before {
            Some(before) if is_followed && !zone.is_steered() => zone.remember(before, renewal, &hash),
            Some(before) => zone.forget(!is_greater(zone.serial(), before.serial())),
            None => zone.forget(were_deleted),
        });
    }

    /// Holds a zone that a primary gives us to what that gives, and another one to what others put.
    pub(super) fn check_given(
        &self,
        origin: &Folded,
        master: Option<&Master<'_>>,
        by_primary: bool,
    ) -> Result<(), Refused> {
        if self.secondaries.have_catalog(origin.wire()) {
            let what =
                format!("{origin:?} is a catalog that is made here, of the zones that secondaries may take");
            let expected = "another zone, or no `catalog` of this name in [[secondary]]";
            let fault = fault(master, (origin.wire(), Rtype::SOA), origin, what, expected);
            return Err(Refused::Faults(fault.into()));
        }
        let (what, expected) = match (self.generation.primary_zones.have(origin), by_primary) {
            (true, true) | (false, false) => return Ok(()),
            (true, false) => (
                format!("{origin:?} is given by a primary"),
                "a change there, or the zone taken out of [[primary]], or of its catalog",
            ),
            // It was asked for before.
            (false, true) => (
                format!("{origin:?} is given by no primary any more"),
                "a zone of [[primary]] or of a catalog",
            ),
        };
        let fault = fault(master, (origin.wire(), Rtype::SOA), origin, what, expected);
        Err(Refused::Faults(fault.into()))
    }

    /// Whether the zone of this one's name has its records still.
    pub(super) fn check_unchanged(&self, zone: &Zone) -> Result<(), Refused> {
        let now = self.generation.zones.all().get(zone.origin(), &self.generation.hash);
        if now.is_some_and(|now| now.has_records_of(zone)) {
            return Ok(());
        }
        Err(Refused::Precondition { current: now.map(|now| Etag::of(now.to_text().as_bytes())) })
    }

    /// Holds a zone that somebody follows to a serial number that grows with each change (RFC 1982): a secondary
    /// that sees the same or a smaller one never takes the change, and nothing tells.
    fn check_serial(&self, zone: &Zone, master: &Master<'_>, text: &str) -> Result<(), Fault> {
        let Some(old) = self.generation.zones.all().get(zone.origin(), &self.generation.hash) else {
            return Ok(());
        };
        let (was, is) = (old.serial_given(), zone.serial_given());
        let follows = is_greater(is, was) || !self.secondaries.follow(zone.origin()) || old.to_text() == text;
        if follows {
            return Ok(());
        }
        let origin = zone.origin();
        let what =
            format!("{origin:?} has changed and has secondaries, but its serial {is} is not after {was}");
        let expected = format!("a serial greater than the last (RFC 1982), such as {}", was.wrapping_add(1));
        Err(fault(Some(master), (origin.wire(), Rtype::SOA), origin, what, &expected))
    }

    pub(super) fn delete_zone(
        &mut self,
        origin: &str,
        condition: &Condition,
    ) -> Result<Vec<Change>, Refused> {
        let name = folded(origin, "origin")?;
        let hash = self.generation.hash.clone();
        let Some(zone) = self.generation.zones.all().get(&name, &hash) else {
            return Err(Refused::NotFound(format!("zone {name:?}")));
        };
        let zone = zone.clone();
        condition.check(|| Some(Etag::of(zone.to_text().as_bytes())))?;
        let names = self.steered_names().filter(|_| zone.is_steered());
        let used = names
            .filter_map(|(_, wire)| Folded::read(wire))
            .find(|steered| zone.policy_at(steered, &hash).is_some());
        if let Some(steered) = used {
            return Err(Refused::InUse(format!("a policy has the name {steered:?} in the zone {name:?}")));
        }
        self.generation.zones.remove(&name, &hash);
        self.zones_were_deleted = true;
        Ok(vec![Change::DeleteZone { origin: dns::name::to_text(name.wire()) }])
    }

    /// Changes a zone that is there.
    pub(super) fn change_zone(&mut self, origin: &Folded, change: impl FnOnce(&mut Zone)) {
        let hash = self.generation.hash.clone();
        if let Some(zone) = self.generation.zones.all().get(origin, &hash) {
            let mut zone = Zone::clone(zone);
            change(&mut zone);
            self.generation.zones.put(Arc::new(zone), &hash);
        }
    }
}

/// How many faults of a stored text quote it.
const QUOTING_MAX: usize = 10;

/// How much of a line is quoted, in characters.
const QUOTED_MAX: usize = 120;

/// Has faults say which line of a stored text they mean, which nobody can look up.
fn quoting(mut faults: Faults, text: &[u8]) -> Faults {
    for fault in faults.faults.iter_mut().take(QUOTING_MAX) {
        let line = fault
            .line
            .and_then(|line| text.split(|octet| *octet == b'\n').nth((line as usize).checked_sub(1)?));
        if let Some(line) = line {
            let quoted: String = String::from_utf8_lossy(line).chars().take(QUOTED_MAX).collect();
            fault.what += &format!(", in '{quoted}'");
        }
    }
    faults
}

/// A fault of a zone: at the first record of a type at a name, or of the whole where its text is not at hand.
pub(super) fn fault(
    master: Option<&Master<'_>>,
    (owner, rtype): (&[u8], Rtype),
    origin: &Folded,
    what: String,
    expected: &str,
) -> Fault {
    match master.and_then(|master| Some((master, master.first(owner, rtype)?))) {
        Some((master, record)) => master.fault(record, what, expected),
        None => Fault::whole(dns::name::to_text(origin.wire()), what, expected),
    }
}
