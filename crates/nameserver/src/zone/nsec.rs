//! The chain of NSEC records: which of them denies a name (RFC 4035 §3.1.3).

use std::cmp::Ordering;

use dns::name::NAME_MAX;
use dns::{Folded, Rtype};

use super::{Found, Rrset, Zone};
use crate::names::NameHash;

/// The owners of NSEC records in canonical order (RFC 4034 §6.1), found by binary search.
pub(super) struct Nsec {
    owners: Vec<Owner>,
    /// Their names below the apex, the labels from the root's side, each behind its length.
    octets: Vec<u8>,
}

struct Owner {
    /// The first octets of the label below the apex, which decide most comparisons.
    prefix: u64,
    /// The name's hash.
    hash: u64,
    start: u32,
    length: u8,
}

impl Nsec {
    /// The chain of a zone, and whether each record names the next one; `None` where its apex has no NSEC record.
    pub(super) fn of(zone: &Zone, hash: &NameHash) -> Option<(Nsec, bool)> {
        zone.apex_found().rrset(Rtype::NSEC)?;
        let depth = zone.origin().labels();
        let (mut owners, mut octets) = (Vec::new(), Vec::new());
        for (wire, node) in zone.names.iter() {
            let Some(record) = (Found { node, is_apex: false }).rrset(Rtype::NSEC) else { continue };
            let next = record.data().next().and_then(Folded::read);
            let name = Folded::read(wire).expect("names of a zone are valid");
            let start = octets.len();
            for depth in depth + 1..=name.labels() {
                octets.extend_from_slice(name.label(depth));
            }
            let owner = Owner {
                prefix: prefix(octets.get(start..).filter(|labels| !labels.is_empty())),
                hash: hash.of(&name),
                start: u32::try_from(start).expect("a zone's names take less than 4 GiB"),
                length: (octets.len() - start) as u8,
            };
            owners.push((owner, next.map(|next| hash.of(&next))));
        }
        owners.sort_unstable_by(|(a, _), (b, _)| {
            let labels = |owner: &Owner| labels(&octets[owner.start as usize..][..usize::from(owner.length)]);
            (a.prefix.cmp(&b.prefix)).then_with(|| canonical(labels(a), labels(b)))
        });
        let following = owners.iter().skip(1).chain(owners.first());
        let is_whole = owners.iter().zip(following).all(|((_, next), (owner, _))| *next == Some(owner.hash));
        octets.shrink_to_fit();
        Some((Nsec { owners: owners.into_iter().map(|(owner, _)| owner).collect(), octets }, is_whole))
    }

    /// The last owner that is not behind a name: the last `count` labels of `name`, and `front` before them.
    ///
    /// `apex` is the number of labels of the zone's own name.
    pub(super) fn at_or_before(&self, name: &Folded, count: usize, front: Option<&[u8]>, apex: usize) -> u32 {
        let asked = || (apex + 1..=count).map(|depth| name.label(depth)).chain(front);
        let first = prefix(asked().next());
        let behind = self.owners.partition_point(|owner| {
            let order = (owner.prefix.cmp(&first)).then_with(|| canonical(self.labels(owner), asked()));
            order != Ordering::Greater
        });
        // The apex, which no name precedes, is the first.
        behind.saturating_sub(1) as u32
    }

    /// An owner and its NSEC record.
    pub(super) fn proven<'a>(
        &'a self,
        index: u32,
        zone: &'a Zone,
        room: &'a mut [u8; NAME_MAX],
    ) -> (&'a [u8], Rrset<'a>) {
        let owner = &self.owners[index as usize];
        let (below, origin) = (usize::from(owner.length), zone.origin().wire());
        let mut at = below;
        for label in self.labels(owner) {
            at -= label.len();
            room[at..at + label.len()].copy_from_slice(label);
        }
        room[below..below + origin.len()].copy_from_slice(origin);
        let wire = &room[..below + origin.len()];
        let node = zone.names.find(owner.hash, wire).expect("names with NSEC records stay");
        let set = Found { node, is_apex: false }.rrset(Rtype::NSEC).expect("it had one");
        (wire, set)
    }

    pub(super) fn bytes(&self) -> usize {
        self.owners.capacity() * size_of::<Owner>() + self.octets.capacity()
    }

    fn labels(&self, owner: &Owner) -> impl Iterator<Item = &[u8]> {
        labels(&self.octets[owner.start as usize..][..usize::from(owner.length)])
    }
}

/// The labels that stand behind one another, each with its length octet.
fn labels(mut octets: &[u8]) -> impl Iterator<Item = &[u8]> {
    std::iter::from_fn(move || {
        let (label, rest) = octets.split_at(1 + usize::from(*octets.first()?));
        octets = rest;
        Some(label)
    })
}

/// The canonical order of names, given their labels from the root's side: octets decide, then lengths.
fn canonical<'a>(mut a: impl Iterator<Item = &'a [u8]>, mut b: impl Iterator<Item = &'a [u8]>) -> Ordering {
    loop {
        match (a.next(), b.next()) {
            (None, None) => return Ordering::Equal,
            (None, Some(_)) => return Ordering::Less,
            (Some(_), None) => return Ordering::Greater,
            (Some(a), Some(b)) => match a[1..].cmp(&b[1..]) {
                Ordering::Equal => {}
                order => return order,
            },
        }
    }
}

/// The first octets of the label at the front, as a number that is in the labels' order; 0 for none.
fn prefix(label: Option<&[u8]>) -> u64 {
    let Some((&length, octets)) = label.and_then(<[u8]>::split_first) else { return 0 };
    let octets = &octets[..usize::from(length).min(8)];
    let mut padded = [0; 8];
    padded[..octets.len()].copy_from_slice(octets);
    u64::from_be_bytes(padded)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_in_the_order_of_rfc_4034_section_6_1() {
        let order = [
            "example",
            "a.example",
            "yljkjljk.a.example",
            "Z.a.example",
            "zABC.a.EXAMPLE",
            "z.example",
            "\\001.z.example",
            "*.z.example",
            "\\200.z.example",
        ];
        let reversed = |text: &str| {
            let name = Folded::read(&dns::name::from_text(text).unwrap()).unwrap();
            (1..=name.labels()).map(|depth| name.label(depth).to_vec()).collect::<Vec<_>>()
        };
        for (i, a) in order.iter().enumerate() {
            for (j, b) in order.iter().enumerate() {
                let (a, b) = (reversed(a), reversed(b));
                let order = canonical(a.iter().map(Vec::as_slice), b.iter().map(Vec::as_slice));
                assert_eq!(order, i.cmp(&j), "{a:?} {b:?}");
            }
        }
    }

    #[test]
    fn prefixes_never_contradict_the_order() {
        use proptest::prelude::*;
        let label = || proptest::collection::vec(0u8..3, 1..12);
        proptest!(|(a in label(), b in label())| {
            let wire = |label: &[u8]| [&[label.len() as u8][..], label].concat();
            let order = prefix(Some(&wire(&a))).cmp(&prefix(Some(&wire(&b))));
            prop_assert!(order == Ordering::Equal || order == a.cmp(&b));
        });
    }
}
