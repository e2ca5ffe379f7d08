//! What changed from each version of a zone to the next, for who has an earlier one (RFC 1995).
//!
//! ```text
//! a difference, in the order of RFC 1995 §4:  SOA before | what went ... | SOA after | what came ...
//! each record:  owner's octets (1) | owner | type (2) | TTL (4) | data's octets (2) | data
//! ```
//! It is found by holding one version against the other, however the later one came: who puts a zone puts it whole. Of
//! what was renewed alone, those owners are held against each other.

use std::collections::{HashMap, HashSet};
use std::sync::Arc;

use dns::{Folded, Rtype};

use super::{Found, Renewal, Rrset, Zone};
use crate::names::NameHash;
use crate::transfer::serial::is_greater;

/// The most differences that are kept of a zone: each is an SOA record more to send and to search.
const DIFFERENCES_MAX: usize = 256;

/// The share of a zone's memory that its differences may take, as a divisor. Beyond, who has an old version takes about
/// as little by taking the zone whole.
const SHARE: usize = 4;

/// The octets that the differences of a small zone may take all the same: one message of a transfer.
const OCTETS_MIN: usize = 16 << 10;

/// What led to a version.
#[derive(Clone, Default)]
pub(super) struct History {
    /// The oldest first; each begins where the one before it ends.
    differences: Vec<Arc<Difference>>,
    /// Whether another version may have had the same serial number: then nothing can be told to who has that.
    is_ambiguous: bool,
}

/// What changed from one version of a zone to the next.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Difference {
    /// The serial number of the version before.
    from: u32,
    octets: Vec<u8>,
}

/// A record that went or came.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Changed<'a> {
    /// The owner's name, folded, in wire form.
    pub owner: &'a [u8],
    /// The type.
    pub rtype: Rtype,
    /// The TTL in seconds.
    pub ttl: u32,
    /// The data in wire form, names uncompressed.
    pub data: &'a [u8],
}

impl Zone {
    /// What changed since the version of a serial number, step by step; `None` where that is not known.
    pub fn since(&self, serial: u32) -> Option<&[Arc<Difference>]> {
        let differences = &self.history.differences;
        let first = differences.iter().position(|difference| difference.from == serial)?;
        Some(&differences[first..])
    }

    /// Remembers what the version before remembered, and what changed since: of what was renewed, where that is known.
    /// Nothing where it is more than is kept, or where serial numbers do not tell the versions apart.
    pub(crate) fn remember(&mut self, before: &Zone, renewal: Option<&Renewal>, hash: &NameHash) {
        let octets_max = (self.bytes() / SHARE).max(OCTETS_MIN);
        let difference = Difference::between(before, self, renewal, hash, octets_max);
        let is_later = is_greater(self.serial(), before.serial());
        self.history = match difference {
            Some(difference) if is_later && !before.history.is_ambiguous => {
                let mut differences = before.history.differences.clone();
                differences.push(Arc::new(difference));
                History { differences, is_ambiguous: false }
            }
            Some(difference) if difference.is_nothing() => before.history.clone(),
            _ => History { differences: Vec::new(), is_ambiguous: !is_later },
        };
        self.history.shorten(octets_max);
    }

    /// Remembers nothing of the versions before, of which one may have had this one's serial number.
    pub(crate) fn forget(&mut self, is_ambiguous: bool) {
        self.history = History { differences: Vec::new(), is_ambiguous };
    }

    /// The records of another version that this one lacks, of what was renewed where that is known; the SOA record is none
    /// of them.
    fn lacking<'a>(
        &'a self,
        other: &'a Zone,
        renewal: Option<&'a Renewal>,
        hash: &'a NameHash,
    ) -> impl Iterator<Item = Changed<'a>> {
        let here = Owners::new(self, hash);
        let there = other.placed_sets(renewal, hash);
        let both =
            there.scan(here, |here, (owner, sets, place)| Some((owner, here.sets(owner)[place], sets)));
        both.filter(|(_, here, there)| here != there).flat_map(|(owner, here, there)| {
            let here: HashSet<Changed<'_>> = Changed::of(owner, here).collect();
            Changed::of(owner, there).filter(move |record| !here.contains(record))
        })
    }

    /// The owners, or those that were renewed, with their sets, and which of [`Owners::sets`] those are.
    fn placed_sets<'a>(
        &'a self,
        renewal: Option<&'a Renewal>,
        hash: &'a NameHash,
    ) -> Box<dyn Iterator<Item = (&'a [u8], &'a [u8], usize)> + 'a> {
        if let Some(renewal) = renewal {
            let mut here = Owners::new(self, hash);
            return Box::new(renewal.owners().map(move |owner| (owner, here.sets(owner)[0], 0)));
        }
        let names = self.names.iter().map(|(name, node)| (name, Found { node, is_apex: false }.sets(), 0));
        Box::new(names.chain(self.hidden().map(|(owner, sets)| (owner, sets, 1))))
    }

    /// The owners of NSEC3 records, which are no names of the zone, with their sets.
    pub(super) fn hidden(&self) -> impl Iterator<Item = (&[u8], &[u8])> {
        (0..self.links.hidden.len()).map(|index| self.links.hidden.get(index))
    }
}

impl History {
    /// Forgets the oldest differences beyond the limits.
    fn shorten(&mut self, octets_max: usize) {
        let mut octets = 0;
        let kept = self.differences.iter().rev().take(DIFFERENCES_MAX).take_while(|difference| {
            octets += difference.octets.len();
            octets <= octets_max
        });
        let forgotten = self.differences.len() - kept.count();
        self.differences.drain(..forgotten);
    }
}

/// The owners of a zone's records by name.
pub(super) struct Owners<'a> {
    zone: &'a Zone,
    hash: &'a NameHash,
    hidden: HashMap<&'a [u8], &'a [u8]>,
    /// Where a name is taken apart.
    name: Folded,
}

impl<'a> Owners<'a> {
    pub(super) fn new(zone: &'a Zone, hash: &'a NameHash) -> Owners<'a> {
        Owners { zone, hash, hidden: zone.hidden().collect(), name: Folded::root() }
    }

    /// What an owner has as a name's sets: first as a name of the zone, then as the owner of an NSEC3 record; nothing where
    /// it is no such name.
    pub(super) fn sets(&mut self, owner: &[u8]) -> [&'a [u8]; 2] {
        if !self.name.set(owner) {
            return [&[]; 2];
        }
        let found = self.zone.names.find(self.hash.of(&self.name), self.name.wire());
        let sets = found.map(|node| Found { node, is_apex: false }.sets());
        [sets.unwrap_or_default(), self.hidden.get(owner).copied().unwrap_or_default()]
    }
}

impl Difference {
    /// Nothing yet, from the version of a serial number on.
    pub fn new(from: u32) -> Difference {
        Difference { from, octets: Vec::new() }
    }

    /// The serial number of the version before.
    pub fn from(&self) -> u32 {
        self.from
    }

    /// Adds a record in its order: the SOA record before, what went, the SOA record after, what came.
    pub fn push(&mut self, record: &Changed<'_>) {
        record.write(&mut self.octets);
    }

    /// Holds one version against the one before it; `None` where the difference takes more octets than this.
    fn between(
        before: &Zone,
        after: &Zone,
        renewal: Option<&Renewal>,
        hash: &NameHash,
        octets_max: usize,
    ) -> Option<Difference> {
        let went = after.lacking(before, renewal, hash);
        let came = before.lacking(after, renewal, hash);
        let mut difference = Difference::new(before.serial());
        for (zone, records) in [(before, went), (after, came)] {
            for record in std::iter::once(Changed::soa(zone)).chain(records) {
                difference.push(&record);
                if difference.octets.len() > octets_max {
                    return None;
                }
            }
        }
        difference.octets.shrink_to_fit();
        Some(difference)
    }

    /// Whether both versions are the same.
    fn is_nothing(&self) -> bool {
        let records: Vec<Changed<'_>> = self.records(0).map(|(_, record)| record).take(3).collect();
        matches!(records[..], [before, after] if before == after)
    }

    /// Its records from a place on that this told of a record before; each with its place, which is 0 for the first of all.
    pub fn records(&self, place: usize) -> impl Iterator<Item = (usize, Changed<'_>)> {
        let mut rest = &self.octets[place..];
        std::iter::from_fn(move || {
            let place = self.octets.len() - rest.len();
            let record = Changed::read(&mut rest)?;
            Some((place, record))
        })
    }
}

impl<'a> Changed<'a> {
    pub(super) fn soa(zone: &'a Zone) -> Changed<'a> {
        let set = zone.soa();
        let data = set.data().next().expect("a zone has one SOA record");
        Changed { owner: zone.origin().wire(), rtype: Rtype::SOA, ttl: set.ttl, data }
    }

    fn write(&self, octets: &mut Vec<u8>) {
        octets.push(self.owner.len() as u8);
        octets.extend_from_slice(self.owner);
        octets.extend_from_slice(&self.rtype.to_int().to_be_bytes());
        octets.extend_from_slice(&self.ttl.to_be_bytes());
        octets.extend_from_slice(&(self.data.len() as u16).to_be_bytes());
        octets.extend_from_slice(self.data);
    }

    fn read(octets: &mut &'a [u8]) -> Option<Changed<'a>> {
        let (length, rest) = octets.split_first()?;
        let (owner, rest) = rest.split_at_checked(usize::from(*length))?;
        let (head, rest) = rest.split_first_chunk::<8>()?;
        let rtype = Rtype::from_int(u16::from_be_bytes([head[0], head[1]]));
        let ttl = u32::from_be_bytes([head[2], head[3], head[4], head[5]]);
        let (data, rest) = rest.split_at_checked(usize::from(u16::from_be_bytes([head[6], head[7]])))?;
        *octets = rest;
        Some(Changed { owner, rtype, ttl, data })
    }

    /// All records of an owner but the SOA record.
    pub(super) fn of(owner: &'a [u8], sets: &'a [u8]) -> impl Iterator<Item = Changed<'a>> {
        let sets = Rrset::all(sets).flat_map(|set| [set, set.signatures()]);
        sets.filter(|set| set.rtype != Rtype::SOA).flat_map(move |set| {
            set.data().map(move |data| Changed { owner, rtype: set.rtype, ttl: set.ttl, data })
        })
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::super::tests::{HEAD, build};
    use super::*;

    const HASH: u64 = 1;

    /// The zone of a text at a serial number, with what it remembers of those before it.
    fn versions(texts: &[(u32, String)]) -> Vec<Zone> {
        let hash = NameHash::new(HASH);
        let mut versions: Vec<Zone> = Vec::new();
        for (serial, text) in texts {
            let head = HEAD.replace(" 7 ", &format!(" {serial} "));
            let mut zone = build(&(head + text));
            if let Some(before) = versions.last() {
                zone.remember(before, None, &hash);
            }
            versions.push(zone);
        }
        versions
    }

    /// All records of a zone but the SOA record.
    fn records(zone: &Zone) -> HashSet<Changed<'_>> {
        let names = zone.names.iter().map(|(name, node)| (name, Found { node, is_apex: false }.sets()));
        names.chain(zone.hidden()).flat_map(|(owner, sets)| Changed::of(owner, sets)).collect()
    }

    /// What a secondary makes of a version and differences that lead to another; serial numbers are held against theirs.
    fn applied<'a>(from: &'a Zone, differences: &'a [Arc<Difference>], to: &Zone) -> HashSet<Changed<'a>> {
        let (mut all, mut serial) = (records(from), from.serial());
        for difference in differences {
            assert_eq!(difference.from, serial);
            let mut soas = 0;
            for (_, record) in difference.records(0) {
                match (record.rtype, soas) {
                    (Rtype::SOA, _) => {
                        let numbers = record.data.len() - 20;
                        serial = u32::from_be_bytes(record.data[numbers..][..4].try_into().unwrap());
                        soas += 1;
                    }
                    (_, 1) => assert!(all.remove(&record), "{record:?} was not there"),
                    (_, 2) => assert!(all.insert(record), "{record:?} was there"),
                    _ => panic!("{record:?} comes before its SOA record"),
                }
            }
            assert_eq!(soas, 2);
        }
        assert_eq!(serial, to.serial());
        all
    }

    #[test]
    fn a_version_remembers_what_led_to_it() {
        let signed =
            |serial: u32| format!("a RRSIG A 13 2 60 20300101000000 20200101000000 {serial} example. AAAA\n");
        let all = versions(&[
            (1, "a A 192.0.2.1\na A 192.0.2.2\nb.c TXT x\n".into()),
            (2, "a A 192.0.2.2\na A 192.0.2.3\nb.c TXT x\n".into()),
            // Another TTL is another record, of a name that the one before had alone above others.
            (5, "a 30 A 192.0.2.2\na 30 A 192.0.2.3\nc TXT x\n".into()),
            (6, format!("a 30 A 192.0.2.2\n{}*.c TXT x\n", signed(1))),
            (7, format!("a 30 A 192.0.2.2\n{}*.c TXT x\n", signed(2))),
        ]);
        let last = all.last().unwrap();
        for (index, from) in all.iter().enumerate().take(4) {
            let differences = last.since(from.serial()).expect("it is remembered");
            assert_eq!(differences.len(), 4 - index);
            assert_eq!(applied(from, differences, last), records(last));
        }
        assert!([0, 3, 4, 7, 8].iter().all(|unknown| last.since(*unknown).is_none()));
        let sizes: Vec<usize> =
            last.since(1).unwrap().iter().map(|difference| difference.records(0).count()).collect();
        assert_eq!(sizes, [2 + 2, 2 + 3 + 3, 2 + 2 + 2, 2 + 2], "no more than what changed");
    }

    #[test]
    fn the_same_once_more_changes_nothing_and_another_of_its_number_ends_it() {
        let text = |a: &str| format!("a A {a}\n");
        let [first, second, third] = ["192.0.2.1", "192.0.2.2", "192.0.2.3"].map(text);
        let all = versions(&[
            (1, first.clone()),
            (2, second.clone()),
            (2, second.clone()),
            (2, third.clone()),
            (3, second),
            (4, third),
        ]);
        let lengths: Vec<usize> = all.iter().map(|zone| zone.history.differences.len()).collect();
        assert_eq!(lengths, [0, 1, 1, 0, 0, 1]);
        let known = [1, 2, 3].map(|serial| all[5].since(serial).is_some());
        assert_eq!(known, [false, false, true]);
    }

    #[test]
    fn nsec3_records_are_among_what_changes() {
        let hashed = ["0p9mhaveqvm6t7vbl5lop2u3t2rp3tom", "2vptu5timamqttgl4luu9kg21e0aor3s"];
        let text = |types: &str| {
            format!(
                "@ DNSKEY 257 3 13 AAAA\n@ NSEC3PARAM 1 0 0 -\n\
                 {0} NSEC3 1 0 0 - {1} NS SOA DNSKEY NSEC3PARAM\n{1} NSEC3 1 0 0 - {0} {types}\n",
                hashed[0], hashed[1]
            )
        };
        let all = versions(&[(1, text("A")), (2, text("A AAAA"))]);
        let differences = all[1].since(1).unwrap();
        assert_eq!(applied(&all[0], differences, &all[1]), records(&all[1]));
        let types: Vec<Rtype> = differences[0].records(0).map(|(_, record)| record.rtype).collect();
        assert_eq!(types, [Rtype::SOA, Rtype::NSEC3, Rtype::SOA, Rtype::NSEC3]);
    }

    #[test]
    fn who_owns_an_nsec3_record_may_be_a_name_too() {
        let owner = "0p9mhaveqvm6t7vbl5lop2u3t2rp3tom";
        let text = |name: &str| {
            format!(
                "@ DNSKEY 257 3 13 AAAA\n@ NSEC3PARAM 1 0 0 -\n\
                 {owner} NSEC3 1 0 0 - {owner} NS SOA DNSKEY NSEC3PARAM\n{name}"
            )
        };
        let all = versions(&[(1, text("")), (2, text(&format!("{owner} TXT x\n"))), (3, text(""))]);
        let steps = all[2].since(1).unwrap();
        let counts: Vec<usize> = steps.iter().map(|step| step.records(0).count()).collect();
        assert_eq!(counts, [3, 3], "the NSEC3 record has not changed");
        assert_eq!(applied(&all[0], steps, &all[2]), records(&all[2]));
    }

    #[test]
    fn no_more_is_kept_than_a_share_of_the_zone_and_the_oldest_goes_first() {
        let text = |from: usize, count: usize| {
            (from..from + count).map(|i| format!("n{i} TXT \"{i:0100}\"\n")).collect::<String>()
        };
        // Each step takes a name away and adds one; then all of them change.
        let mut texts: Vec<(u32, String)> =
            (0..400).map(|step| (step + 1, text(step as usize, 20))).collect();
        texts.push((401, text(1_000, 200)));
        let all = versions(&texts);
        let kept = &all[399].history.differences;
        let octets: usize = kept.iter().map(|difference| difference.octets.len()).sum();
        assert!(octets <= OCTETS_MIN && octets > OCTETS_MIN - 500, "{octets}");
        assert_eq!(applied(&all[390], all[399].since(391).unwrap(), &all[399]), records(&all[399]));
        assert!(all[399].since(1).is_none());
        assert!(all[400].history.differences.is_empty(), "as much as the zone itself");
        let mut many = History { differences: [&kept[..]; 9].concat(), is_ambiguous: false };
        many.shorten(usize::MAX);
        assert_eq!(many.differences.len(), DIFFERENCES_MAX);
    }

    proptest! {
        #[test]
        fn any_version_leads_to_the_next(
            steps in prop::collection::vec(
                prop::collection::btree_set(("[a-c](\\.[a-c]){0,2}", 0..4_u8, prop::sample::select(vec![5_u32, 60])), 0..20),
                2..6,
            ),
        ) {
            let text = |records: &std::collections::BTreeSet<(String, u8, u32)>| {
                records.iter().map(|(name, data, ttl)| format!("{name} {ttl} TXT {data}\n")).collect::<String>()
            };
            let texts: Vec<(u32, String)> =
                steps.iter().enumerate().map(|(index, step)| (index as u32 + 1, text(step))).collect();
            let all = versions(&texts);
            let last = all.last().unwrap();
            for from in &all[..all.len() - 1] {
                let differences = last.since(from.serial()).expect("it is remembered");
                prop_assert_eq!(applied(from, differences, last), records(last));
            }
        }
    }
}
