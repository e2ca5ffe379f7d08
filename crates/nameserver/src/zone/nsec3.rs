//! The chain of NSEC3 records: which of them denies a name (RFC 5155 §7.2).

use api::{Fault, Faults};
use dns::{Folded, Rtype};
use domain::utils::base32;
use sha1::{Digest, Sha1};

use super::read::{Master, Record};
use super::{Rrset, WILDCARD, Zone};

/// The most additional iterations of the hash in a zone's NSEC3PARAM record.
///
/// RFC 9276 §3.1 asks for 0. No validator in use goes beyond 150 (the limit of BIND 9.16 and Unbound 1.13, since
/// lowered to 50 by some): a zone that asks for more is treated as unsigned, so hashing more for each query
/// would cost time and prove nothing to anybody.
pub(super) const ITERATIONS_MAX: u16 = 150;

/// SHA-1, the one hash algorithm of NSEC3 (RFC 5155 §11).
const SHA1: u8 = 1;

/// A hash: of SHA-1, 20 octets.
type Hash = [u8; 20];

/// The label of a hash, with its length octet: base32hex of 20 octets (RFC 5155 §3).
pub(super) const LABEL: usize = 1 + 32;

/// No entry of a chain.
const NONE: u32 = u32::MAX;

/// The NSEC3 RRsets of a zone.
#[derive(Default)]
pub(super) struct Records {
    /// For each: the owner behind its length, and the RRset with its signatures as a name's sets.
    octets: Vec<u8>,
    /// Where each begins.
    starts: Vec<u32>,
}

/// A chain: the hashes in their order, each that of the record of the same index in [`Records`].
pub(super) struct Nsec3 {
    hashes: Vec<Hash>,
    iterations: u16,
    salt: Box<[u8]>,
}

/// Where the chain proves things about a name that exists: indices of its records.
#[derive(Clone, Copy)]
pub(super) struct Link {
    /// The record that matches the name or, where none does, its closest ancestor that has one: the closest
    /// provable encloser (RFC 5155 §1.3).
    encloser: u32,
    /// Where none matches the name (Opt-Out): the one that covers the next closer name, on the way to it.
    cover: u32,
    /// The one that covers the wildcard right below the closest provable encloser.
    wildcard: u32,
}

impl Default for Link {
    fn default() -> Link {
        Link { encloser: NONE, cover: NONE, wildcard: NONE }
    }
}

/// Finds NSEC3PARAM records that ask for too much.
pub(super) fn check(master: &Master<'_>, faults: &mut Faults) {
    for record in master.records.iter().filter(|record| record.rtype == Rtype::NSEC3PARAM) {
        let Parameters { flags, iterations, .. } = Parameters::read(master.rdata(record));
        // One with flags is of no chain (RFC 5155 §4.1.2).
        if flags == 0 && iterations > ITERATIONS_MAX {
            faults.push_with(|| unusable(master, record, iterations));
        }
    }
}

fn unusable(master: &Master<'_>, record: &Record, iterations: u16) -> Fault {
    master.fault(
        record,
        format!("{iterations} additional iterations of NSEC3's hash: validators treat the zone as unsigned"),
        format!("at most {ITERATIONS_MAX}; sign with 0 (RFC 9276 §3.1)"),
    )
}

impl Records {
    /// Adds an owner, and what belongs to it, which `write` appends as a name's sets.
    pub(super) fn add(&mut self, owner: &[u8], write: impl FnOnce(&mut Vec<u8>)) {
        self.starts.push(u32::try_from(self.octets.len()).expect("a zone's text is smaller than 4 GiB"));
        self.octets.push(owner.len() as u8);
        self.octets.extend_from_slice(owner);
        write(&mut self.octets);
    }

    /// How many there are.
    pub(super) fn len(&self) -> usize {
        self.starts.len()
    }

    /// An owner, and what belongs to it as a name's sets.
    pub(super) fn get(&self, index: usize) -> (&[u8], &[u8]) {
        let start = self.starts[index] as usize;
        let end = self.starts.get(index + 1).map_or(self.octets.len(), |next| *next as usize);
        self.octets[start + 1..end].split_at(usize::from(self.octets[start]))
    }

    /// As [`Records::get`]; `None` behind the last.
    pub(super) fn at(&self, index: usize) -> Option<(&[u8], &[u8])> {
        (index < self.len()).then(|| self.get(index))
    }

    pub(super) fn bytes(&self) -> usize {
        self.octets.capacity() + self.starts.capacity() * size_of::<u32>()
    }

    fn rrset(&self, index: usize) -> (&[u8], Rrset<'_>) {
        let (owner, sets) = self.get(index);
        (owner, Rrset::all(sets).next().expect("a record is kept with its data"))
    }

    /// Puts records into this order.
    fn arrange(&mut self, order: impl Iterator<Item = usize>) {
        let mut arranged = Records::default();
        arranged.octets.reserve_exact(self.octets.len());
        arranged.starts.reserve_exact(self.starts.len());
        for (owner, sets) in order.map(|index| self.get(index)) {
            arranged.add(owner, |octets| octets.extend_from_slice(sets));
        }
        *self = arranged;
    }
}

impl Nsec3 {
    /// The chain of a zone, whose records are put into its order, and whether each names the next one; those of other
    /// chains come behind.
    ///
    /// `None` where no NSEC3PARAM record at the apex has a chain that the apex is in.
    pub(super) fn of(zone: &Zone, records: &mut Records) -> Option<(Nsec3, bool)> {
        let parameters = zone.apex_found().rrset(Rtype::NSEC3PARAM)?;
        let origin = zone.origin();
        let (chain, mut order, is_whole) =
            parameters.data().map(Parameters::read).find_map(|parameters| {
                // Flags are for signers that are not done yet (RFC 5155 §4.1.2).
                if parameters.algorithm != SHA1 || parameters.flags != 0 {
                    return None;
                }
                let order = parameters.chain(records, origin);
                let chain = Nsec3 {
                    hashes: order.iter().map(|(hash, _)| *hash).collect(),
                    iterations: parameters.iterations,
                    salt: parameters.salt.into(),
                };
                chain.matching(&chain.hash(origin.wire()))?;
                let following = chain.hashes.iter().skip(1).chain(chain.hashes.first());
                let is_whole = order.iter().zip(following).all(|((_, index), next)| {
                    let (_, set) = records.rrset(*index);
                    set.data().any(|data| parameters.are_of(data) && next_of(data) == Some(&next[..]))
                });
                Some((chain, order.into_iter().map(|(_, index)| index).collect::<Vec<_>>(), is_whole))
            })?;
        let mut is_in = vec![false; records.len()];
        for &index in &order {
            is_in[index] = true;
        }
        order.extend((0..records.len()).filter(|index| !is_in[*index]));
        records.arrange(order.into_iter());
        Some((chain, is_whole))
    }

    /// How the names of a zone that is signed here are hashed: as its first NSEC3PARAM record without flags says; `None` where
    /// it has none.
    pub(super) fn wanted(zone: &Zone) -> Option<Nsec3> {
        let records = zone.apex_found().rrset(Rtype::NSEC3PARAM)?;
        let mut wanted = records.data().map(Parameters::read);
        let Parameters { iterations, salt, .. } =
            wanted.find(|parameters| parameters.algorithm == SHA1 && parameters.flags == 0)?;
        Some(Nsec3 { hashes: Vec::new(), iterations, salt: salt.into() })
    }

    /// The records of names with these type bitmaps, none of them twice: the owners' names and the data, in order (RFC 5155
    /// §7.1).
    pub(super) fn records_of<'n>(
        &self,
        names: impl Iterator<Item = (&'n Folded, Vec<u8>)>,
        origin: &Folded,
    ) -> Vec<(Vec<u8>, Vec<u8>)> {
        let mut hashed: Vec<(Hash, Vec<u8>)> =
            names.map(|(name, types)| (self.hash(name.wire()), types)).collect();
        hashed.sort_unstable();
        let next = hashed.iter().skip(1).chain(hashed.first());
        let each = hashed.iter().zip(next).map(|((hash, types), (next, _))| {
            let label = base32::encode_string_hex(hash).to_ascii_lowercase();
            let owner = [&[label.len() as u8], label.as_bytes(), origin.wire()].concat();
            let mut data = vec![SHA1, 0];
            data.extend(self.iterations.to_be_bytes());
            for octets in [&self.salt[..], next] {
                data.push(octets.len() as u8);
                data.extend(octets);
            }
            data.extend(types);
            (owner, data)
        });
        each.collect()
    }

    /// The link of a name that exists; `apex` is the number of labels of the zone's own name.
    pub(super) fn link(&self, name: &Folded, apex: usize) -> Link {
        let mut below = None;
        for labels in (apex..=name.labels()).rev() {
            let hash = self.hash(name.suffix(labels));
            if let Some(encloser) = self.matching(&hash) {
                let wildcard = [WILDCARD, name.suffix(labels)].concat();
                let wildcard = self.covering(&self.hash(&wildcard));
                return Link { encloser, cover: below.map_or(NONE, |hash| self.covering(&hash)), wildcard };
            }
            below = Some(hash);
        }
        Link::default()
    }

    /// The proof that there is no record of the type at a name that exists, or no DS record at a delegation
    /// (RFC 5155 §7.2.3, §7.2.4, §7.2.7).
    pub(super) fn deny_type(&self, link: Link) -> [u32; 2] {
        [link.encloser, link.cover]
    }

    /// The closest encloser proof for a name that does not exist (RFC 5155 §7.2.1), given the link of its
    /// closest encloser and the name of one label more: the closest provable encloser's record, and the one that
    /// covers the next closer name.
    pub(super) fn closest(&self, link: Link, next_closer: &[u8]) -> [u32; 2] {
        let cover = if link.cover == NONE { self.covering(&self.hash(next_closer)) } else { link.cover };
        [link.encloser, cover]
    }

    /// The record of an index, with its owner.
    pub(super) fn proven(index: u32, records: &Records) -> (&[u8], Rrset<'_>) {
        records.rrset(index as usize)
    }

    pub(super) fn bytes(&self) -> usize {
        self.hashes.capacity() * size_of::<Hash>() + self.salt.len()
    }

    /// The hash of a folded name (RFC 5155 §5).
    fn hash(&self, name: &[u8]) -> Hash {
        let once =
            |octets: &[u8]| Sha1::new().chain_update(octets).chain_update(&self.salt).finalize().into();
        (0..self.iterations).fold(once(name), |hash, _| once(&hash))
    }

    fn matching(&self, hash: &Hash) -> Option<u32> {
        self.hashes.binary_search(hash).ok().map(|index| index as u32)
    }

    /// The last that is not behind a hash; behind the last comes the first.
    fn covering(&self, hash: &Hash) -> u32 {
        let behind = self.hashes.partition_point(|other| other <= hash);
        behind.checked_sub(1).unwrap_or(self.hashes.len() - 1) as u32
    }
}

impl Link {
    /// The record that matches the name, where one does.
    pub(super) fn matching(self) -> u32 {
        if self.cover == NONE { self.encloser } else { NONE }
    }

    /// The record that covers the wildcard below the closest provable encloser.
    pub(super) fn wildcard(self) -> u32 {
        self.wildcard
    }
}

/// Whether an index is one.
pub(super) fn is_some(index: u32) -> bool {
    index != NONE
}

/// How a chain hashes: the data of an NSEC3PARAM record, and the first fields of an NSEC3 record's.
#[derive(PartialEq)]
struct Parameters<'a> {
    algorithm: u8,
    flags: u8,
    iterations: u16,
    salt: &'a [u8],
}

impl<'a> Parameters<'a> {
    fn read(data: &'a [u8]) -> Parameters<'a> {
        Parameters {
            algorithm: data[0],
            flags: data[1],
            iterations: u16::from_be_bytes([data[2], data[3]]),
            salt: &data[5..][..usize::from(data[4])],
        }
    }

    /// Whether an NSEC3 record with this data has these parameters; its flags are its own.
    fn are_of(&self, data: &[u8]) -> bool {
        Parameters { flags: 0, ..Parameters::read(data) } == *self
    }

    /// The hashes that records with these parameters have in their owners' first labels, in their order, with
    /// the records' indices.
    fn chain(&self, records: &Records, origin: &Folded) -> Vec<(Hash, usize)> {
        let mut chain: Vec<(Hash, usize)> = (0..records.len())
            .filter_map(|index| {
                let (owner, set) = records.rrset(index);
                let hash = hash_in(owner, origin.wire())?;
                set.data().any(|data| self.are_of(data)).then_some((hash, index))
            })
            .collect();
        chain.sort_unstable();
        chain
    }
}

/// The next hash in an NSEC3 record's data: behind the salt and its own length (RFC 5155 §3.2).
fn next_of(data: &[u8]) -> Option<&[u8]> {
    let (length, behind) = data.get(5 + usize::from(data[4])..)?.split_first()?;
    behind.get(..usize::from(*length))
}

/// The hash in an NSEC3 record's owner: 32 digits of base32hex, right below the zone's name (RFC 5155 §3).
fn hash_in(owner: &[u8], origin: &[u8]) -> Option<Hash> {
    let (label, rest) = owner.split_first_chunk::<33>()?;
    if label[0] != 32 || rest != origin {
        return None;
    }
    let mut hash = Hash::default();
    for (digits, octets) in label[1..].chunks_exact(8).zip(hash.chunks_exact_mut(5)) {
        let mut bits = 0u64;
        for digit in digits {
            let value = match digit {
                b'0'..=b'9' => digit - b'0',
                b'a'..=b'v' => digit - b'a' + 10,
                _ => return None,
            };
            bits = bits << 5 | u64::from(value);
        }
        octets.copy_from_slice(&bits.to_be_bytes()[3..]);
    }
    Some(hash)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_hashes_of_rfc_5155_appendix_a() {
        let chain = Nsec3 { hashes: Vec::new(), iterations: 12, salt: [0xaa, 0xbb, 0xcc, 0xdd].into() };
        for (name, label) in [
            ("example", "0p9mhaveqvm6t7vbl5lop2u3t2rp3tom"),
            ("a.example", "35mthgpgcu1qg68fab165klnsnk3dpvl"),
            ("ai.example", "gjeqe526plbf1g8mklp59enfd789njgi"),
            ("*.w.example", "r53bq7cc2uvmubfu5ocmm6pers9tk9en"),
            ("x.y.w.example", "2vptu5timamqttgl4luu9kg21e0aor3s"),
        ] {
            let owner = dns::name::folded_from_text(&format!("{label}.example")).unwrap();
            let expected = hash_in(&owner, b"\x07example\0").unwrap();
            assert_eq!(chain.hash(&dns::name::folded_from_text(name).unwrap()), expected, "{name}");
        }
        assert!(hash_in(b"\x020p\x07example\0", b"\x07example\0").is_none());
    }
}
