//! Signatures (RFC 4034 §3): of what policies answer in signed zones, by a key of the zone that whoever signs it has, too; and
//! of a whole [`zone`], where the key of its delegation is here.
//!
//! What a policy may answer is known when it is put: each set of its servers that can be drawn is signed then, and an answer
//! only looks its signature up. What a name has not is proven by the zone as it was signed: where others did that, the types
//! that the policy answers are to be there, with any addresses.

pub mod fresh;
pub mod zone;

use std::borrow::Cow;
use std::collections::BTreeMap;
use std::fmt;
use std::net::IpAddr;
use std::sync::Arc;

use api::Target;
use dns::name::NAME_MAX;
use dns::{Folded, Rtype};
use domain::base::ToName;
use domain::base::iana::SecurityAlgorithm;
use domain::base::rdata::ComposeRecordData;
use domain::crypto::sign::{KeyPair, SecretKeyBytes, SignRaw};
use domain::dnssec::common::parse_from_bind;
use domain::utils::base64;
use routing::policy::{Family, TTL_DEFAULT};

use crate::names::{NameHash, NameTable, Value};
use crate::zone::{WILDCARD, Zone};

/// How many sets of addresses of a family are signed for a name: all that ten servers can make.
pub const SETS_MAX: usize = 1_023;

/// How many addresses a signed set has at most.
const ADDRESSES_MAX: usize = 10;

/// For how long before they are made signatures are valid, in seconds: validators' clocks differ.
const BEFORE: u64 = 3_600;

/// For how long signatures are valid, in seconds.
const VALID: u64 = 14 * DAY;

/// How long is signed as of one time, in seconds: a zone is left signed for more than ten days if this server is not run.
/// Where several have the same keys, all do so at the same times.
const PERIOD: u64 = 3 * DAY;

const DAY: u64 = 24 * 3_600;

/// The flags of a key of a zone, and of one that its delegation trusts, which signs keys alone, as a rule (RFC 4034 §2.1.1).
pub(crate) const ZONE_KEY: u16 = 256;
pub(crate) const TRUSTED: u16 = 257;

/// A zone's key, with its private part.
pub struct Key {
    zone: Folded,
    /// The data of its DNSKEY record.
    public: Arc<[u8]>,
    flags: u16,
    algorithm: u8,
    tag: u16,
    pair: KeyPair,
}

impl Key {
    /// A key of the two files that `dnssec-keygen`, `ldns-keygen` and `keymgr` write: the DNSKEY record, and the private part.
    ///
    /// # Errors
    /// What is wrong with either, as a fragment such as "the record is no DNSKEY"; nothing of the private part is told.
    pub fn read(public: &str, private: &str) -> Result<Key, String> {
        let record = parse_from_bind::<Vec<u8>>(public);
        let record = record.map_err(|_| "the public part is not one DNSKEY record".to_string())?;
        let dnskey = record.data();
        let flags = dnskey.flags();
        if !matches!(flags, ZONE_KEY | TRUSTED) {
            return Err(format!(
                "its flags are {flags}, and those of keys that sign are {ZONE_KEY} and {TRUSTED}"
            ));
        }
        let secret = SecretKeyBytes::parse_from_bind(&padded(private, dnskey.algorithm()))
            .map_err(|cause| format!("the private part cannot be read: {cause}"))?;
        let pair = KeyPair::from_bytes(&secret, dnskey)
            .map_err(|cause| format!("the two parts are not of one key that can be used: {cause}"))?;
        let mut data = Vec::new();
        dnskey.compose_rdata(&mut data).expect("memory has room");
        let wire = record.owner().to_canonical_name::<Vec<u8>>();
        Ok(Key {
            zone: Folded::read(wire.as_slice()).expect("the owner is a name"),
            public: data.into(),
            flags,
            algorithm: dnskey.algorithm().to_int(),
            tag: dnskey.key_tag(),
            pair,
        })
    }

    /// Whether it is one that a delegation trusts.
    fn is_trusted(&self) -> bool {
        self.flags == TRUSTED
    }

    /// The zone that it is of.
    pub fn zone(&self) -> &Folded {
        &self.zone
    }

    /// Whether a zone has it among its DNSKEY records.
    pub fn is_in(&self, zone: &Zone) -> bool {
        self.zone.wire() == zone.origin().wire()
            && zone.keys().is_some_and(|keys| keys.data().any(|data| *data == *self.public))
    }

    /// Whether signatures do not tell which of both made them: it is the same key, or, by chance, has the same tag.
    pub fn clashes(&self, other: &Key) -> bool {
        self.zone.wire() == other.zone.wire() && self.algorithm == other.algorithm && self.tag == other.tag
    }

    fn is_same(&self, other: &Key) -> bool {
        self.zone.wire() == other.zone.wire() && self.public == other.public
    }
}

impl fmt::Debug for Key {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Key").field("zone", &self.zone).field("tag", &self.tag).finish_non_exhaustive()
    }
}

/// The keys of signed zones, and when signatures are valid.
#[derive(Clone, Debug)]
pub struct Signing {
    keys: Arc<[Key]>,
    /// The number of the period, of all since 1970.
    period: u64,
}

impl Signing {
    /// Signs with these keys, from this Unix time in seconds on.
    pub fn new(keys: Arc<[Key]>, now: u64) -> Signing {
        Signing { keys, period: now / PERIOD }
    }

    /// The keys, in their order.
    pub fn keys(&self) -> &[Key] {
        &self.keys
    }

    /// The same, from now on, where that is to be.
    pub fn renewed(&self, now: u64) -> Option<Signing> {
        let renewed = Signing::new(self.keys.clone(), now);
        (renewed.period != self.period).then_some(renewed)
    }

    /// Whether another one makes the same signatures.
    pub fn signs_as(&self, other: &Signing) -> bool {
        let (ours, theirs) = (&self.keys, &other.keys);
        self.period == other.period
            && ours.len() == theirs.len()
            && ours.iter().zip(theirs.iter()).all(|(one, other)| one.is_same(other))
    }

    /// The key by which a zone is signed: one that its DNSKEY records have, best one that does not sign keys alone.
    pub fn key_of(&self, zone: &Zone) -> Option<&Key> {
        let mut keys: Vec<&Key> = self.keys.iter().filter(|key| key.is_in(zone)).collect();
        keys.sort_by_key(|key| key.is_trusted());
        keys.first().copied()
    }

    fn inception(&self) -> u32 {
        (self.period * PERIOD).saturating_sub(BEFORE) as u32
    }

    fn expiration(&self) -> u32 {
        (self.period * PERIOD + VALID) as u32
    }

    /// What the data of signatures at a name has behind the type (RFC 4034 §3.1): times are the last 32 bits of Unix time.
    fn head(&self, key: &Key, name: &Folded, ttl: u32) -> Vec<u8> {
        let labels = name.labels() - usize::from(name.wire().starts_with(WILDCARD));
        let mut head = vec![key.algorithm, labels as u8];
        for number in [ttl, self.expiration(), self.inception()] {
            head.extend(number.to_be_bytes());
        }
        head.extend(key.tag.to_be_bytes());
        head.extend(key.zone.wire());
        head
    }
}

/// The signatures of what one name may be answered.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Signatures {
    /// What they begin with, but for the type, and whose they are: what of both is the same, was signed in the same way.
    head: Vec<u8>,
    by: Arc<[u8]>,
    /// Of addresses of either family, and of aliases.
    by_set: [BySet; 3],
}

/// By addresses in their order, or by an alias's target: the data of an RRSIG record.
type BySet = BTreeMap<Box<[u8]>, Arc<[u8]>>;

impl Signatures {
    /// Signs each set of its servers that a policy may answer at a name; those of `before` that are still right stay. `None`
    /// where there are more than [`SETS_MAX`].
    ///
    /// # Panics
    /// Where the key cannot sign, which was seen when it was read.
    pub fn of(
        name: &Folded,
        policy: &api::Policy,
        (signing, key): (&Signing, &Key),
        before: Option<&Signatures>,
    ) -> Option<Signatures> {
        let entries =
            policy.servers.iter().flat_map(|server| server.regions.values().chain([&server.default]));
        // What is answered for less is right, too (RFC 4035 §5.3.3).
        let ttl = entries.map(|entry| entry.ttl.unwrap_or(TTL_DEFAULT)).max().unwrap_or(TTL_DEFAULT);
        let head = signing.head(key, name, ttl);
        let before = before.filter(|before| before.head == head && before.by == key.public);
        let mut by_set = [BTreeMap::new(), BTreeMap::new(), BTreeMap::new()];
        for family in FAMILIES {
            let place = place(family);
            let mut servers: Vec<Vec<u8>> = policy
                .servers
                .iter()
                .filter_map(|server| data(&server.target))
                .filter_map(|(of, data)| (of == family).then_some(data))
                .collect();
            servers.sort();
            let most = match (family, policy.answers) {
                (Family::Cname, _) => 1,
                (_, 0) => servers.len(),
                (_, answers) => answers.into(),
            };
            for set in sets(&servers, most)? {
                let known = before.and_then(|before| before.by_set[place].get(&set.concat()[..]));
                let data =
                    known.cloned().unwrap_or_else(|| sign(key, name, rtype(family), ttl, &head, &set).into());
                by_set[place].insert(set.concat().into(), data);
            }
        }
        Some(Signatures { head, by: key.public.clone(), by_set })
    }

    /// The types of what is signed.
    pub fn types(&self) -> impl Iterator<Item = Rtype> {
        FAMILIES.into_iter().filter(|family| !self.by_set[place(*family)].is_empty()).map(rtype)
    }

    /// The data of the RRSIG record of these addresses, in any order.
    pub fn get(&self, family: Family, addresses: impl Iterator<Item = IpAddr>) -> Option<&[u8]> {
        let (mut set, mut count) = ([[0; 16]; ADDRESSES_MAX], 0);
        for address in addresses {
            // In front, so that they are in their order, whichever family it is.
            match address {
                IpAddr::V4(v4) => set.get_mut(count)?[..4].copy_from_slice(&v4.octets()),
                IpAddr::V6(v6) => set.get_mut(count)?.copy_from_slice(&v6.octets()),
            }
            count += 1;
        }
        set[..count].sort_unstable();
        let length = if family == Family::V4 { 4 } else { 16 };
        let mut wanted = [0; 16 * ADDRESSES_MAX];
        for (to, address) in wanted.chunks_mut(length).zip(&set[..count]) {
            to.copy_from_slice(&address[..length]);
        }
        self.by_set[place(family)].get(&wanted[..count * length]).map(|data| &**data)
    }

    /// The data of the RRSIG record of an alias's target, given by its folded name in wire form.
    pub fn of_alias(&self, target: &[u8]) -> Option<&[u8]> {
        self.by_set[place(Family::Cname)].get(target).map(|data| &**data)
    }
}

impl Value for Arc<Signatures> {}

/// The signatures of all names that policies decide in signed zones.
pub type Signed = NameTable<Arc<Signatures>>;

/// The signatures of a name: the last so many labels of one that was asked, or the wildcard below these.
pub fn find<'a>(
    signed: &'a Signed,
    name: &Folded,
    labels: usize,
    is_wildcard: bool,
    hash: &NameHash,
) -> Option<&'a Signatures> {
    let (above, key) = (name.suffix(labels), hash.of_suffix(name, labels));
    let found = match is_wildcard {
        false => signed.find(key, above),
        true => {
            let mut wire = [0; NAME_MAX];
            wire[..2].copy_from_slice(WILDCARD);
            wire.get_mut(2..2 + above.len())?.copy_from_slice(above);
            signed.find(hash.child(key, WILDCARD), &wire[..2 + above.len()])
        }
    };
    found.map(|found| &**found.value)
}

/// The private part of a key, its number in as many octets as the curve has: one key in 256 begins with zeros, which
/// `dnssec-keygen` leaves out, and `domain` misses.
fn padded(private: &str, algorithm: SecurityAlgorithm) -> Cow<'_, str> {
    let octets = match algorithm {
        SecurityAlgorithm::ECDSAP256SHA256 => 32,
        SecurityAlgorithm::ECDSAP384SHA384 => 48,
        _ => return private.into(),
    };
    let line = private.lines().find_map(|line| line.strip_prefix(PRIVATE_KEY));
    match line.map(|text| (text, base64::decode::<Vec<u8>>(text.trim()))) {
        Some((text, Ok(number))) if number.len() < octets => {
            let whole = [vec![0; octets - number.len()], number].concat();
            let line = |text: &str| format!("{PRIVATE_KEY}{text}");
            private.replace(&line(text), &line(&format!(" {}", base64::encode_string(&whole)))).into()
        }
        _ => private.into(),
    }
}

/// What the line of the number begins with.
const PRIVATE_KEY: &str = "PrivateKey:";

/// What a policy answers: all that is signed.
const FAMILIES: [Family; 3] = [Family::V4, Family::V6, Family::Cname];

fn place(family: Family) -> usize {
    match family {
        Family::V4 => 0,
        Family::V6 => 1,
        Family::Cname => 2,
    }
}

fn rtype(family: Family) -> Rtype {
    match family {
        Family::V4 => Rtype::A,
        Family::V6 => Rtype::AAAA,
        Family::Cname => Rtype::CNAME,
    }
}

/// The types that a policy answers with.
pub fn types(policy: &api::Policy) -> Vec<Rtype> {
    let answered = |family: &Family| policy.servers.iter().any(|server| family_of(&server.target) == *family);
    FAMILIES.into_iter().filter(answered).map(rtype).collect()
}

/// The data of a server's record in canonical form (RFC 4034 §6.2), and what it is; `None` where it cannot be written.
fn data(target: &Target) -> Option<(Family, Vec<u8>)> {
    let data = match target {
        Target::Address(IpAddr::V4(v4)) => v4.octets().into(),
        Target::Address(IpAddr::V6(v6)) => v6.octets().into(),
        Target::Cname(name) => dns::name::folded_from_text(name).ok()?,
    };
    Some((family_of(target), data))
}

fn family_of(target: &Target) -> Family {
    match target {
        Target::Address(IpAddr::V4(_)) => Family::V4,
        Target::Address(IpAddr::V6(_)) => Family::V6,
        Target::Cname(_) => Family::Cname,
    }
}

/// Each set of one to `most` of these, in their order; `None` where there are too many.
fn sets(addresses: &[Vec<u8>], most: usize) -> Option<Vec<Vec<&[u8]>>> {
    let mut sets: Vec<Vec<&[u8]>> = vec![Vec::new()];
    for address in addresses {
        let with: Vec<Vec<&[u8]>> = sets
            .iter()
            .filter(|set| set.len() < most)
            .map(|set| [&set[..], &[&address[..]]].concat())
            .collect();
        sets.extend(with);
        if sets.len() > 1 + SETS_MAX {
            return None;
        }
    }
    sets.retain(|set| !set.is_empty());
    Some(sets)
}

/// Signs a set, whose records' data is in canonical order; returns the data of its RRSIG record (RFC 4034 §3.1.8.1).
///
/// # Panics
/// Where the key cannot sign, which was seen when it was read.
fn sign(key: &Key, name: &Folded, rtype: Rtype, ttl: u32, head: &[u8], set: &[impl AsRef<[u8]>]) -> Vec<u8> {
    let mut data = rtype.to_int().to_be_bytes().to_vec();
    data.extend(head);
    let mut signed = data.clone();
    for record in set {
        let record = record.as_ref();
        signed.extend(name.wire());
        signed.extend(rtype.to_int().to_be_bytes());
        signed.extend([0, 1]);
        signed.extend(ttl.to_be_bytes());
        signed.extend((record.len() as u16).to_be_bytes());
        signed.extend_from_slice(record);
    }
    let signature = key.pair.sign_raw(&signed).expect("the key was read, and can sign");
    data.extend(signature.as_ref());
    data
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;
    pub(crate) use domain::crypto::sign::GenerateParams;
    use domain::crypto::sign::generate;

    /// A key of `example.`
    fn key() -> Key {
        key_with_record(&GenerateParams::EcdsaP256Sha256, ZONE_KEY).0
    }

    /// A key of `example.` with these flags, and its record as it stands in a zone.
    pub(crate) fn key_with_record(algorithm: &GenerateParams, flags: u16) -> (Key, String) {
        let (secret, public) = generate(algorithm, flags).expect("randomness");
        let public = format!(
            "; a key\nexample. IN DNSKEY {flags} 3 {} {}\n",
            public.algorithm().to_int(),
            base64::encode_string(public.public_key())
        );
        let key = Key::read(&public, &secret.display_as_bind().to_string()).expect("both are of one");
        (key, public)
    }

    fn policy(answers: u16, last: u8, ttl: u32) -> api::Policy {
        let servers: Vec<String> = (1..=last)
            .map(|last| format!(r#"{{"address":"192.0.2.{last}","default":{{"ttl":{ttl}}}}}"#))
            .collect();
        let servers = format!(r#"{},{{"address":"2001:db8::1"}}"#, servers.join(","));
        api::Policy::read("p", &format!(r#"{{"answers":{answers},"servers":[{servers}]}}"#))
            .expect("a policy")
    }

    fn name(text: &str) -> Folded {
        Folded::read(&dns::name::from_text(text).expect("a name")).expect("a name")
    }

    const NOW: u64 = 1_800_000_000;

    #[test]
    fn each_set_that_can_be_drawn_is_found_in_any_order() {
        let (key, signing) = (key(), Signing::new(Arc::default(), NOW));
        let of = |name: &Folded, policy: &api::Policy| Signatures::of(name, policy, (&signing, &key), None);
        let (www, wild) = (name("www.example"), name("*.example"));
        let two = of(&www, &policy(2, 4, 30)).expect("few sets");
        let v4 = |last: &[u8]| -> Vec<IpAddr> { last.iter().map(|last| [192, 0, 2, *last].into()).collect() };
        for (drawn, is_signed) in [
            (&[1][..], true),
            (&[4, 2], true),
            (&[2, 4], true),
            (&[1, 2, 3], false),
            (&[5], false),
            (&[], false),
            (&[1; 20], false),
        ] {
            assert_eq!(two.get(Family::V4, v4(drawn).into_iter()).is_some(), is_signed, "{drawn:?}");
        }
        assert_eq!(
            two.get(Family::V4, v4(&[2, 4]).into_iter()),
            two.get(Family::V4, v4(&[4, 2]).into_iter())
        );
        let v6 = two.get(Family::V6, std::iter::once("2001:db8::1".parse().unwrap())).expect("one server");
        // AAAA, ECDSA, two labels, the longest TTL that any has.
        assert_eq!(v6[..8], [0, 28, 13, 2, 0, 0, 1, 104]);
        let star = of(&wild, &policy(1, 1, 30)).expect("few sets");
        assert_eq!(star.get(Family::V4, v4(&[1]).into_iter()).expect("one server")[3], 1, "the star is none");
        assert_eq!(two.by_set[0].len(), 4 + 6);
        assert!(of(&www, &policy(0, 10, 30)).is_some() && of(&www, &policy(0, 11, 30)).is_none());
    }

    #[test]
    fn what_is_signed_so_already_stays() {
        let (key, signing) = (key(), Signing::new(Arc::default(), NOW));
        let www = name("www.example");
        let of = |policy: &api::Policy, signing: &Signing, before: Option<&Signatures>| {
            Signatures::of(&www, policy, (signing, &key), before).expect("few sets")
        };
        let first = of(&policy(1, 2, 30), &signing, None);
        let same = |later: &Signatures| {
            let pairs =
                first.by_set[0].iter().filter_map(|(set, data)| Some((data, later.by_set[0].get(set)?)));
            pairs.filter(|(before, after)| Arc::ptr_eq(before, after)).count()
        };
        assert_eq!(same(&of(&policy(1, 3, 30), &signing, Some(&first))), 2, "one has come");
        assert_eq!(same(&of(&policy(1, 2, 3_600), &signing, Some(&first))), 0, "another TTL");
        assert!(signing.renewed(NOW + 1).is_none());
        let renewed = signing.renewed(NOW + PERIOD).expect("it is time");
        assert_eq!(same(&of(&policy(1, 2, 30), &renewed, Some(&first))), 0, "another time");
        assert!(!renewed.signs_as(&signing) && signing.signs_as(&Signing::new(Arc::default(), NOW + 1)));
        assert!(signing.expiration() - signing.inception() == 14 * 24 * 3_600 + 3_600);
    }

    #[test]
    fn a_number_without_its_zeros_is_the_same_key() {
        for (algorithm, number) in
            [(GenerateParams::EcdsaP256Sha256, 13), (GenerateParams::EcdsaP384Sha384, 14)]
        {
            let begins_with_zero = (0..100_000).find_map(|_| {
                let (secret, public) = generate(&algorithm, ZONE_KEY).expect("randomness");
                let whole = secret.display_as_bind().to_string();
                let text =
                    whole.lines().find_map(|line| line.strip_prefix("PrivateKey: ")).expect("it has one");
                let octets = base64::decode::<Vec<u8>>(text).expect("it is Base64");
                let short = octets.strip_prefix(&[0])?;
                let private = whole.replace(text, &base64::encode_string(short));
                let public = base64::encode_string(public.public_key());
                Some((format!("example. IN DNSKEY 256 3 {number} {public}"), private, whole))
            });
            let (public, short, whole) = begins_with_zero.expect("one in 256");
            assert_ne!(short, whole);
            assert!(Key::read(&public, &short).is_ok() && Key::read(&public, &whole).is_ok());
            let cut = short.replace("PrivateKey: ", "PrivateKey: ====");
            assert!(Key::read(&public, &cut).is_err());
        }
    }

    #[test]
    fn what_is_no_key_is_told() {
        let (secret, public) = generate(&GenerateParams::Ed25519, 256).expect("randomness");
        let (other, _) = generate(&GenerateParams::EcdsaP256Sha256, 256).expect("randomness");
        let record = format!("example. IN DNSKEY 256 3 15 {}", base64::encode_string(public.public_key()));
        let [secret, other] = [secret, other].map(|secret| secret.display_as_bind().to_string());
        assert!(Key::read(&record, &secret).is_ok());
        for (public, private, expected) in [
            ("example. A 192.0.2.1", &secret[..], "the public part is not one DNSKEY record"),
            ("", &secret, "the public part is not one DNSKEY record"),
            (&record, "", "the private part cannot be read"),
            (&record, &record, "the private part cannot be read"),
            (&record, &other, "the two parts are not of one key"),
            (&record.replace(" 256 ", " 385 "), &secret, "its flags are 385"),
        ] {
            let why = Key::read(public, private).expect_err(expected);
            assert!(why.contains(expected), "{why}");
        }
    }
}
