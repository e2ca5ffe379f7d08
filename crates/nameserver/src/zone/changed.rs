//! A zone after what its primary changed (RFC 1995).

use std::collections::BTreeMap;
use std::fmt::Write as _;

use dns::Rtype;

use super::history::Owners;
use super::{Changed, Difference, Zone, forms};
use crate::names::NameHash;

/// The records of an owner by their type and data, with their TTLs; in an order that does not depend on chance.
type Records<'a> = BTreeMap<(Rtype, &'a [u8]), u32>;

/// The SOA record and the owners that differences are of, with what they have then.
struct Touched<'a> {
    soa: Changed<'a>,
    owners: BTreeMap<&'a [u8], Records<'a>>,
}

impl Zone {
    /// The zone after these differences, of which the first begins with its serial number, as a master file: each record's
    /// data in the form for any type (RFC 3597 §5).
    ///
    /// A record goes whatever its TTL is: those of an RRset are made one here.
    ///
    /// # Errors
    /// Where a record goes that is not here, or comes that is: then the zone is not the one that they are of.
    pub fn changed(&self, differences: &[Difference], hash: &NameHash) -> Result<String, String> {
        let Touched { soa, owners } = self.touched(differences, hash)?;
        let mut text = String::with_capacity(self.records * 64);
        push(&mut text, &soa);
        for (owner, sets) in self.all_sets().filter(|(owner, _)| !owners.contains_key(owner)) {
            Changed::of(owner, sets).for_each(|record| push(&mut text, &record));
        }
        push_all(&mut text, &owners);
        Ok(text)
    }

    /// The same of the apex and of those owners alone that differences are of; these owners are told, too.
    ///
    /// # Errors
    /// As [`Zone::changed`].
    pub fn changed_part<'a>(
        &'a self,
        differences: &'a [Difference],
        hash: &'a NameHash,
    ) -> Result<(String, Vec<&'a [u8]>), String> {
        let Touched { soa, owners } = self.touched(differences, hash)?;
        let mut text = String::new();
        push(&mut text, &soa);
        let apex = self.origin.wire();
        if !owners.contains_key(apex) {
            Changed::of(apex, self.apex_found().sets()).for_each(|record| push(&mut text, &record));
        }
        push_all(&mut text, &owners);
        Ok((text, owners.into_keys().collect()))
    }

    /// What the owners have after these differences that they are of.
    fn touched<'a>(
        &'a self,
        differences: &'a [Difference],
        hash: &'a NameHash,
    ) -> Result<Touched<'a>, String> {
        let mut here = Owners::new(self, hash);
        let mut touched = Touched { soa: Changed::soa(self), owners: BTreeMap::new() };
        for difference in differences {
            let mut goes = false;
            for (_, record) in difference.records(0) {
                if record.rtype == Rtype::SOA && record.owner == self.origin.wire() {
                    goes = !goes;
                    touched.soa = record;
                    continue;
                }
                let records = touched.owners.entry(record.owner).or_insert_with(|| {
                    let sets = here.sets(record.owner).into_iter();
                    let all = sets.flat_map(|sets| Changed::of(record.owner, sets));
                    all.map(|record| ((record.rtype, record.data), record.ttl)).collect()
                });
                let key = (record.rtype, record.data);
                let fits = if goes {
                    records.remove(&key).is_some()
                } else {
                    records.insert(key, record.ttl).is_none()
                };
                if !fits {
                    let (owner, rtype) = (dns::name::to_text(record.owner), record.rtype);
                    let how = if goes { "goes that is not here" } else { "comes that is here" };
                    return Err(format!("a record {owner} {rtype} {how}"));
                }
            }
        }
        Ok(touched)
    }
}

/// Writes the records of owners.
fn push_all(text: &mut String, owners: &BTreeMap<&[u8], Records<'_>>) {
    for (owner, records) in owners {
        for ((rtype, data), ttl) in records {
            push(text, &Changed { owner, rtype: *rtype, ttl: *ttl, data });
        }
    }
}

/// Writes a record as a line.
fn push(text: &mut String, record: &Changed<'_>) {
    dns::name::push_text(text, record.owner);
    let _ = writeln!(
        text,
        " {} CLASS1 TYPE{} {}",
        record.ttl,
        record.rtype.to_int(),
        forms::generic(record.data)
    );
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::super::Renewal;
    use super::super::tests::{HEAD, build};
    use super::*;

    const HASH: u64 = 1;

    fn at(serial: u32, text: &str) -> Zone {
        build(&(HEAD.replace(" 7 ", &format!(" {serial} ")) + text))
    }

    /// What a primary that has these versions tells who has the first.
    fn told(versions: &[Zone]) -> Vec<Difference> {
        let hash = NameHash::new(HASH);
        let mut last = versions[0].clone();
        for next in &versions[1..] {
            let mut next = next.clone();
            next.remember(&last, None, &hash);
            last = next;
        }
        let known = last.since(versions[0].serial()).expect("it is remembered");
        known.iter().map(|difference| Difference::clone(difference)).collect()
    }

    /// The lines of a zone in one order: that of an RRset's records may differ.
    fn lines(zone: &Zone) -> Vec<String> {
        let mut lines: Vec<String> = zone.to_text().lines().map(str::to_string).collect();
        lines.sort_unstable();
        lines
    }

    #[test]
    fn a_zone_becomes_the_one_that_its_primary_has() {
        let hashed = ["0p9mhaveqvm6t7vbl5lop2u3t2rp3tom", "2vptu5timamqttgl4luu9kg21e0aor3s"];
        let signed = |types: &str| {
            format!(
                "@ DNSKEY 257 3 13 AAAA\n@ NSEC3PARAM 1 0 0 -\n\
                 {0} NSEC3 1 0 0 - {1} NS SOA DNSKEY NSEC3PARAM\n{1} NSEC3 1 0 0 - {0} {types}\n",
                hashed[0], hashed[1]
            )
        };
        let versions = [
            at(1, "a A 192.0.2.1\nb.c TXT x\nd 30 MX 10 a\n"),
            at(2, "a A 192.0.2.2\nb.c 30 TXT x\nd 30 MX 10 a\nd 30 MX 20 b\n"),
            at(3, &("a A 192.0.2.1\n*.c TXT x\n".to_string() + &signed("A"))),
            // The owner of an NSEC3 record may be a name, too.
            at(8, &(format!("a A 192.0.2.1\n{} TXT x\n*.c TXT x\n", hashed[0]) + &signed("A"))),
            at(9, &("a A 192.0.2.1\n*.c TXT x\n".to_string() + &signed("A AAAA"))),
        ];
        let (told, hash) = (told(&versions), NameHash::new(HASH));
        assert_eq!(told.len(), 4);
        for from in 0..4 {
            let text = versions[from].changed(&told[from..], &hash).expect("it fits");
            assert_eq!(build(&text).to_text(), versions[4].to_text(), "from {from}");
        }
        assert_eq!(build(&versions[4].changed(&[], &hash).unwrap()).to_text(), versions[4].to_text());
    }

    #[test]
    fn what_does_not_fit_is_told() {
        let hash = NameHash::new(HASH);
        let told = told(&[at(1, "a A 192.0.2.1\n"), at(2, "b A 192.0.2.1\n")]);
        for (here, expected) in [
            ("a A 192.0.2.9\n", "a record a.example. A goes that is not here"),
            ("a A 192.0.2.1\nb A 192.0.2.1\n", "a record b.example. A comes that is here"),
        ] {
            assert_eq!(at(1, here).changed(&told, &hash), Err(expected.into()));
        }
        // The least TTL of an RRset is that of all its records here.
        let here = at(1, "a 7 A 192.0.2.1\n");
        let text = here.changed(&told, &hash).expect("it fits");
        assert_eq!(build(&text).to_text(), at(2, "b A 192.0.2.1\n").to_text());
    }

    proptest! {
        #[test]
        fn any_zone_becomes_any_other(
            steps in prop::collection::vec(
                prop::collection::btree_set(("[a-c](\\.[a-c]){0,2}", 0..4_u8), 0..20),
                2..5,
            ),
        ) {
            let text = |records: &std::collections::BTreeSet<(String, u8)>| {
                records.iter().map(|(name, data)| format!("{name} TXT {data}\n")).collect::<String>()
            };
            let versions: Vec<Zone> =
                steps.iter().enumerate().map(|(index, step)| at(index as u32 + 1, &text(step))).collect();
            let (hash, told, last) = (NameHash::new(HASH), told(&versions), &versions[versions.len() - 1]);
            let changed = versions[0].changed(&told, &hash).expect("it fits");
            prop_assert_eq!(lines(&build(&changed)), lines(last));
            let (part, owners) = versions[0].changed_part(&told, &hash).expect("it fits");
            let renewal = Renewal::of_part(&build(&part), owners, &hash).expect("it has no proofs");
            let renewed = versions[0].renewed(&renewal, &hash).expect("it has none either");
            prop_assert_eq!((lines(&renewed), renewed.records()), (lines(last), last.records()));
            prop_assert_eq!(renewed.to_text(), build(&changed).to_text());
        }
    }
}
