//! A zone of which some owners have other records: all else is shared with the one before, and nothing else is looked at.
//!
//! What takes a look at all of a zone is not made so, but built: chains of proofs, signatures, what may be in a policy's way.

use std::collections::{BTreeMap, HashSet};

use dns::{Folded, Rtype};

use super::build::RRSETS_MAX;
use super::history::Owners;
use super::text::push_record;
use super::{Changed, Found, Rrset, Zone, rrset};
use crate::names::NameHash;

/// The share of a zone's names that are renewed at most, as a divisor: each makes a page of some hundred names anew, and to
/// build the zone is no slower from there on.
const SHARE: usize = 16;

/// How many names of a small zone are renewed all the same.
const OWNERS_MIN: usize = 256;

/// What some owners have anew in a zone, the apex with its SOA record always among them.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Renewal {
    /// Their RRsets, as a zone keeps those of a name; none where nothing is left. The SOA record is not among them.
    owners: BTreeMap<Vec<u8>, Vec<u8>>,
    /// Whose SOA record it is.
    origin: Vec<u8>,
    soa: Vec<u8>,
    soa_ttl: u32,
}

impl Renewal {
    /// A zone's new SOA record, and what its owners have anew.
    pub(super) fn new(
        zone: &Zone,
        (soa_ttl, soa): (u32, Vec<u8>),
        owners: BTreeMap<Vec<u8>, Vec<u8>>,
    ) -> Self {
        let origin = zone.origin.wire().to_vec();
        let mut renewal = Renewal { owners, origin: origin.clone(), soa, soa_ttl };
        renewal.owners.entry(origin).or_insert_with(|| without_soa(zone.apex_found().sets()));
        renewal
    }

    /// What owners have in a zone that is a part of a later version; `None` where that needs proofs or digests.
    pub(crate) fn of_part<'o>(
        part: &Zone,
        owners: impl IntoIterator<Item = &'o [u8]>,
        hash: &NameHash,
    ) -> Option<Renewal> {
        if !part.is_renewable() {
            return None;
        }
        let (soa, mut there) = (Changed::soa(part), Owners::new(part, hash));
        let owners = owners.into_iter().map(|owner| (owner.to_vec(), without_soa(there.sets(owner)[0])));
        Some(Renewal::new(part, (soa.ttl, soa.data.to_vec()), owners.collect()))
    }

    /// Whose records are others, in folded wire form.
    pub(super) fn owners(&self) -> impl Iterator<Item = &[u8]> {
        self.owners.keys().map(Vec::as_slice)
    }

    /// Their lines of the zone's canonical text, by owner.
    pub fn lines(&self) -> BTreeMap<String, String> {
        let mut lines = BTreeMap::new();
        for (owner, sets) in &self.owners {
            let mut text = String::new();
            if *owner == self.origin {
                push_record(&mut text, &self.soa());
            }
            Changed::of(owner, sets).for_each(|record| push_record(&mut text, &record));
            lines.insert(dns::name::to_text(owner), text);
        }
        lines
    }

    fn soa(&self) -> Changed<'_> {
        Changed { owner: &self.origin, rtype: Rtype::SOA, ttl: self.soa_ttl, data: &self.soa }
    }

    /// The RRsets of an owner as a zone keeps them, the SOA record in its place.
    fn whole_sets(&self, owner: &[u8]) -> Vec<u8> {
        let sets = &self.owners[owner];
        if owner != self.origin {
            return sets.clone();
        }
        let soa_first = Rtype::SOA.to_int();
        let (before, behind): (Vec<_>, Vec<_>) =
            Rrset::all(sets).partition(|set| set.rtype.to_int() < soa_first);
        let mut whole = Vec::with_capacity(sets.len() + self.soa.len());
        push_sets(before, &mut whole);
        rrset::write(Rtype::SOA, self.soa_ttl, &[&self.soa], &mut whole);
        push_sets(behind, &mut whole);
        whole
    }
}

impl Zone {
    /// The canonical text of the zone as it is with what is renewed.
    pub fn renewed_text(&self, renewal: &Renewal) -> String {
        let kept = self.all_sets().filter(|(owner, _)| !renewal.owners.contains_key(*owner));
        let renewed = renewal.owners.iter().map(|(owner, sets)| (&owner[..], &sets[..]));
        self.text_of(kept.chain(renewed), renewal.soa(), usize::MAX).expect("no text is longer")
    }

    /// The zone with what is renewed; `None` where it has to be built of its text.
    pub fn renewed(&self, renewal: &Renewal, hash: &NameHash) -> Option<Zone> {
        let is_much = renewal.owners.len() > (self.names.len() / SHARE).max(OWNERS_MIN);
        if is_much || !self.is_renewable() || !renewal.owners.values().all(|sets| is_plain(sets)) {
            return None;
        }
        if self.is_steered() && renewal.owners.iter().any(|(owner, sets)| self.may_hinder(owner, sets, hash))
        {
            return None;
        }
        let mut zone = self.clone();
        let (mut cuts, mut addressed) = (Vec::new(), HashSet::new());
        for owner in renewal.owners() {
            let name = Folded::read(owner).expect("owners of a zone are valid names");
            let sets = renewal.whole_sets(owner);
            let here = self.names.find(hash.of(&name), owner).map(|node| Found { node, is_apex: false });
            let before = here.map(Found::sets).unwrap_or_default();
            zone.records = zone.records - records(before) + records(&sets);
            if !addresses(before).eq(addresses(&sets)) {
                addressed.insert(hash.of(&name));
            }
            zone.renew_name(&name, &sets, hash);
            if owner != self.origin.wire() {
                cuts.push(name);
            }
        }
        zone.renew_links(cuts, &addressed, hash).then_some(zone)
    }

    /// Whether all that an answer needs of other names than its own is found by walking.
    pub(crate) fn is_renewable(&self) -> bool {
        let is_signed = self.is_signed() || self.signed_until.is_some() || self.links.hidden.len() > 0;
        !is_signed && !self.is_sealed()
    }

    /// Whether an owner with these RRsets may keep a policy from deciding a name: its own, or one that they lead away from.
    fn may_hinder(&self, owner: &[u8], sets: &[u8], hash: &NameHash) -> bool {
        let has = |rtype| Rrset::all(sets).any(|set| set.rtype == rtype);
        if owner == self.origin.wire() {
            return has(Rtype::DNAME);
        }
        let name = Folded::read(owner).expect("owners of a zone are valid names");
        has(Rtype::NS) || has(Rtype::DNAME) || self.policy_at(&name, hash).is_some()
    }

    /// Gives a name these RRsets; it comes with all above it, or goes where it has none.
    fn renew_name(&mut self, name: &Folded, sets: &[u8], hash: &NameHash) {
        if !sets.is_empty() {
            self.ensure(name, hash);
        }
        self.names.renew(hash.of(name), name.wire(), |node, arena| {
            node.write_sets(arena, |arena| arena.extend_from_slice(sets));
        });
        self.prune(name, hash);
    }
}

/// The records of RRsets but for the SOA record, as RRsets.
fn without_soa(sets: &[u8]) -> Vec<u8> {
    let mut others = Vec::with_capacity(sets.len());
    let sets = Rrset::all(sets).flat_map(|set| [set, set.signatures()]);
    push_sets(sets.filter(|set| set.rtype != Rtype::SOA && set.data().next().is_some()), &mut others);
    others
}

fn push_sets<'a>(sets: impl IntoIterator<Item = Rrset<'a>>, octets: &mut Vec<u8>) {
    for set in sets {
        let data: Vec<&[u8]> = set.data().collect();
        rrset::write(set.rtype, set.ttl, &data, octets);
    }
}

/// Whether RRsets are none that proofs, signatures or digests are made of, and not too many.
fn is_plain(sets: &[u8]) -> bool {
    let is_of_proofs = |set: Rrset<'_>| {
        let of_keys = matches!(set.rtype, Rtype::DNSKEY | Rtype::RRSIG | Rtype::ZONEMD);
        of_keys || matches!(set.rtype, Rtype::NSEC | Rtype::NSEC3 | Rtype::NSEC3PARAM)
    };
    !Rrset::all(sets).any(is_of_proofs) && Rrset::all(sets).count() <= RRSETS_MAX
}

fn records(sets: &[u8]) -> usize {
    Rrset::all(sets).map(|set| set.data().count()).sum()
}

/// The addresses among RRsets, with their TTLs.
fn addresses(sets: &[u8]) -> impl Iterator<Item = (Rtype, u32, &[u8])> {
    let sets = Rrset::all(sets).filter(|set| matches!(set.rtype, Rtype::A | Rtype::AAAA));
    sets.flat_map(|set| set.data().map(move |data| (set.rtype, set.ttl, data)))
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::super::tests::{HEAD, build, name, try_build};
    use super::super::{Operation, Update};
    use super::*;

    const HASH: u64 = 1;

    /// All that an answer goes by.
    fn all_of(zone: &Zone) -> Vec<String> {
        let mut all = vec![format!("{:?}", (zone.links.negative(), zone.negative_ttl(), zone.records()))];
        for (wire, node) in zone.names.iter() {
            let (value, is_apex) = (node.value, wire == zone.origin.wire());
            let flags = (value.has_ns, value.has_dname, value.has_wildcard, value.children);
            let referral = zone.referral(Found { node, is_apex });
            let sets = Found { node, is_apex }.sets();
            all.push(format!("{} {flags:?} {sets:?} {referral:?}", dns::name::to_text(wire)));
        }
        all[1..].sort_unstable();
        all
    }

    /// Makes an update on a zone; holds what is renewed against a zone that is built of the text.
    fn renew(zone: &Zone, operations: Vec<Operation>) -> Zone {
        let hash = NameHash::new(HASH);
        let update = Update { operations, ..Update::default() };
        let Some(renewal) = zone.updated(&update, &hash).expect("nothing is to hold") else {
            return zone.clone();
        };
        let text = zone.renewed_text(&renewal);
        let (renewed, built) = (zone.renewed(&renewal, &hash).expect("it is renewed"), build(&text));
        assert_eq!(renewed.to_text(), text);
        assert_eq!(all_of(&renewed), all_of(&built), "{text}");
        assert!(!renewed.has_records_of(zone));
        let told = |mut version: Zone, renewal| {
            version.remember(zone, renewal, &hash);
            let difference = &version.since(zone.serial()).expect("it is remembered")[0];
            let mut records: Vec<String> =
                difference.records(0).map(|(_, record)| format!("{record:?}")).collect();
            records.sort_unstable();
            records
        };
        assert_eq!(told(renewed.clone(), Some(&renewal)), told(built, None), "{text}");
        renewed
    }

    /// An operation of a record as a line of a zone; it is added unless there is a '-' before it.
    fn operation(line: &str) -> Operation {
        let (is_added, line) = line.strip_prefix('-').map_or((true, line), |line| (false, line));
        let alone =
            try_build(&format!("$TTL 60\n@ SOA ns hm 7 2 3 4 5\n@ NS other\n{line}\n")).expect("a record");
        let owner = line.split(' ').next().expect("it has one");
        let owner = if owner == "@" { "example".into() } else { format!("{owner}.example") };
        let sets = alone.glue(&name(&owner), &NameHash::new(HASH)).expect("it is there").rrsets();
        let is_it = |set: &Rrset<'_>| {
            line.contains(&format!(" {} ", set.rtype)) && (set.rtype != Rtype::NS || !line.starts_with('@'))
        };
        let set = sets.into_iter().find(is_it).expect("it has the record");
        let data = set.data().next().expect("an RRset has a record").to_vec();
        let owner = name(&owner).wire().to_vec();
        match is_added {
            true => Operation::Add(owner, set.rtype, set.ttl, data),
            false => Operation::Delete(owner, set.rtype, data),
        }
    }

    #[test]
    fn what_leads_to_a_name_is_renewed_with_it() {
        let zone = build(&format!(
            "{HEAD}sub NS ns.sub\nsub NS ns\nother NS ns.sub\nother NS none\nns.sub A 192.0.2.1\n*.w TXT x\na.b A 192.0.2.2\n"
        ));
        let steps: &[&[&str]] = &[
            // Glue of two delegations, below the one and beside the other.
            &["ns.sub A 192.0.2.7"],
            &["none A 192.0.2.8"],
            &["-ns.sub A 192.0.2.1", "-ns.sub A 192.0.2.7"],
            &["ns AAAA 2001:db8::1"],
            // A delegation goes, and comes again with another server.
            &["-sub NS ns.sub", "-sub NS ns"],
            &["sub NS late", "deep.sub A 192.0.2.3"],
            &["late 7 A 192.0.2.9"],
            // Wildcards and empty non-terminals come and go.
            &["-*.w TXT x", "x.y.z TXT x"],
            &["-a.b A 192.0.2.2", "*.b A 192.0.2.2"],
            &["-x.y.z TXT x", "*.w DNAME ns"],
            &["@ TXT apex", "@ A 192.0.2.3"],
        ];
        let mut now = zone;
        for lines in steps {
            let before = now.serial();
            now = renew(&now, lines.iter().map(|line| operation(line)).collect());
            assert_eq!(now.serial(), before + 1, "{lines:?}");
        }
    }

    #[test]
    fn what_proofs_need_is_not_renewed() {
        let hash = NameHash::new(HASH);
        let renewed = |text: &str, line: &str| {
            let zone = build(&format!("{HEAD}{text}"));
            let update = Update { operations: vec![operation(line)], ..Update::default() };
            let renewal = zone.updated(&update, &hash).expect("nothing is to hold").expect("it changes");
            zone.renewed(&renewal, &hash).is_some()
        };
        assert!(renewed("", "a A 192.0.2.1"));
        for (text, line) in [
            ("@ DNSKEY 257 3 13 AAAA\n", "a A 192.0.2.1"),
            ("@ ZONEMD 7 1 240 000000000000000000000000\n", "a A 192.0.2.1"),
            ("", "@ DNSKEY 257 3 13 AAAA"),
            ("", "@ NSEC3PARAM 1 0 0 -"),
        ] {
            assert!(!renewed(text, line), "{text}{line}");
        }
    }

    #[test]
    fn policies_stay_where_nothing_can_be_in_their_way() {
        let hash = NameHash::new(HASH);
        let mut steered = build(&format!("{HEAD}a.b A 192.0.2.1\n"));
        let names = ["example", "www.example", "x.b.example"];
        for steer in names {
            steered.set_policy(&name(steer), super::super::PolicyId::new(1), &hash);
        }
        for (line, is_renewed) in [
            ("_acme-challenge.www TXT token", true),
            ("-a.b A 192.0.2.1", true),
            ("@ TXT v=spf1", true),
            ("c CNAME www", true),
            ("www TXT token", false),
            ("b NS ns", false),
            ("b DNAME ns", false),
            ("@ DNAME ns.other.", false),
        ] {
            let update = Update { operations: vec![operation(line)], ..Update::default() };
            let renewal = steered.updated(&update, &hash).expect("nothing is to hold").expect("it changes");
            let renewed = steered.renewed(&renewal, &hash);
            assert_eq!(renewed.is_some(), is_renewed, "{line}");
            let Some(renewed) = renewed else { continue };
            assert_eq!(renewed.to_text(), steered.renewed_text(&renewal), "{line}");
            assert!(names.iter().all(|steer| renewed.policy_at(&name(steer), &hash).is_some()), "{line}");
            assert_eq!(renewed.steered, 3, "{line}");
        }
    }

    #[test]
    fn what_was_composed_since_has_an_end() {
        let hash = NameHash::new(HASH);
        let mut zone = build(&format!("{HEAD}ns A 192.0.2.1\n"));
        let mut renewed = 0;
        for number in 0..3_000 {
            let update =
                Update { operations: vec![operation(&format!("d{number} NS ns"))], ..Update::default() };
            let renewal = zone.updated(&update, &hash).expect("nothing is to hold").expect("it changes");
            let Some(next) = zone.renewed(&renewal, &hash) else { break };
            (zone, renewed) = (next, renewed + 1);
        }
        assert_eq!(renewed, super::super::links::SINCE_MAX);
    }

    proptest! {
        #[test]
        fn renewed_is_as_built(
            steps in prop::collection::vec(
                prop::collection::vec(("(\\*|[a-c])(\\.[a-c]){0,2}", 0..5_u8, 0..3_u8, prop::bool::weighted(0.6)), 1..5),
                1..12,
            ),
        ) {
            let mut zone = build(HEAD);
            for step in steps {
                let line = |(owner, kind, data, is_added): (String, u8, u8, bool)| {
                    let target = ["a", "b.c", "c"][usize::from(data)];
                    let record = match kind {
                        0 => format!("A 192.0.2.{data}"),
                        1 => format!("NS {target}"),
                        2 => format!("CNAME {target}"),
                        3 => format!("AAAA 2001:db8::{data}"),
                        _ => format!("NS ns.{target}"),
                    };
                    operation(&format!("{}{owner} {record}", if is_added { "" } else { "-" }))
                };
                zone = renew(&zone, step.into_iter().map(line).collect());
            }
        }
    }
}
