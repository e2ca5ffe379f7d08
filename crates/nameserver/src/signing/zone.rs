//! A whole zone signed here: one that nobody has signed, and of which the key that its delegation trusts is here.
//!
//! All its keys are in it, and sign: those that the delegation trusts the keys, the others all else. So a key is exchanged by
//! having both for a while (RFC 6781 §4.1), and one key alone does both. A signature over a set that has not changed stays for
//! its period, and with the next one the serial number grows by one: secondaries see that there are new ones.

use dns::Rtype;

use super::{Key, Signing, sign};
use crate::names::NameHash;
use crate::zone::{Additions, PolicyId, ToSign, Zone};

/// The most records of a zone that is signed here, before that is done: each edit of it goes through all of them.
pub const RECORDS_MAX: usize = 100_000;

/// What the delegation's keys sign: what says which keys there are and shall be (RFC 4035 §2.2, RFC 7344 §4.1).
const OF_KEYS: [Rtype; 3] = [Rtype::DNSKEY, Rtype::CDS, Rtype::CDNSKEY];

impl Signing {
    /// Whether a zone is signed here: nobody has, and a key that its delegation trusts is here.
    pub fn signs(&self, zone: &Zone) -> bool {
        let is_ours = zone.is_signed_here() || !zone.is_signed();
        is_ours && self.zone_keys(zone).any(Key::is_trusted)
    }

    /// Signs a zone that is not signed, with its policies, of which `answers` are the types; what of `before` is the same and
    /// as old keeps its signatures.
    ///
    /// # Errors
    /// Why it cannot: what is wrong, and what was expected.
    ///
    /// # Panics
    /// Where a key cannot sign, which was seen when it was read.
    pub fn sign(
        &self,
        zone: &Zone,
        answers: &dyn Fn(PolicyId) -> Vec<Rtype>,
        before: Option<&Zone>,
        hash: &NameHash,
    ) -> Result<Zone, (String, String)> {
        let origin = zone.origin();
        if let Some(why) = zone.unsignable() {
            let what = format!("{origin:?} is to be signed here, but {why}");
            return Err((what, "a zone without them, or with its keys, as it was signed".into()));
        }
        if zone.records() > RECORDS_MAX {
            let what = format!("{origin:?} is to be signed here, and has {} records", zone.records());
            return Err((what, format!("at most {RECORDS_MAX}; larger ones are served as others sign them")));
        }
        let keys: Vec<&Key> = self.zone_keys(zone).collect();
        let public: Vec<&[u8]> = keys.iter().map(|key| &key.public[..]).collect();
        let additions =
            Additions { keys: &public, answers, serial: self.period as u32, until: self.expiration() };
        let sign = |set: &ToSign<'_>| {
            let signing = keys.iter().filter(|key| does_sign(key, &keys, OF_KEYS.contains(&set.rtype)));
            signing.map(|key| self.signature(key, set)).collect()
        };
        Ok(zone.signed(&additions, before, sign, hash))
    }

    fn zone_keys(&self, zone: &Zone) -> impl Iterator<Item = &Key> {
        self.keys.iter().filter(|key| key.zone.wire() == zone.origin().wire())
    }

    /// The data of the RRSIG record of a set, by this key.
    fn signature(&self, key: &Key, set: &ToSign<'_>) -> Vec<u8> {
        let head = self.head(key, set.owner, set.ttl);
        let is_as_now =
            |data: &&&[u8]| data.get(size_of::<u16>()..).is_some_and(|rest| rest.starts_with(&head));
        match set.known.iter().find(is_as_now) {
            Some(known) => known.to_vec(),
            None => sign(key, set.owner, set.rtype, set.ttl, &head, &set.data),
        }
    }
}

/// Whether a key signs what tells of keys, or all else: where no other of its algorithm does, it signs both (RFC 4035 §2.2).
fn does_sign(key: &Key, keys: &[&Key], of_keys: bool) -> bool {
    let is_meant = |key: &Key| key.is_trusted() == of_keys;
    is_meant(key) || !keys.iter().any(|other| other.algorithm == key.algorithm && is_meant(other))
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use proptest::prelude::*;

    use super::super::tests::{GenerateParams, key_with_record};
    use super::super::{TRUSTED, ZONE_KEY};
    use super::*;
    use crate::names::Cursor;
    use crate::zone::read;

    const NOW: u64 = 1_800_000_000;
    const HEAD: &str = "$TTL 60\n@ SOA ns hm 7 2 3 4 5\n@ NS ns\n";

    fn build(text: &str) -> Zone {
        build_at(b"\x07example\0", text)
    }

    fn build_at(origin: &[u8], text: &str) -> Zone {
        let include = |_: &str| Err("nothing is included".to_string());
        let text = format!("{HEAD}{text}");
        let source =
            read::Source { name: "t", text: text.as_bytes(), origin: Some(origin), include: &include };
        let built = read::read(&source).and_then(|master| Zone::build(&master, "t", &NameHash::new(1)));
        built.unwrap_or_else(|faults| panic!("{faults}\n{text}"))
    }

    fn signing(keys: Vec<Key>) -> Signing {
        Signing::new(keys.into(), NOW)
    }

    fn key(algorithm: &GenerateParams, flags: u16) -> Key {
        key_with_record(algorithm, flags).0
    }

    fn sign(signing: &Signing, zone: &Zone, before: Option<&Zone>) -> Zone {
        signing.sign(zone, &|_| vec![], before, &NameHash::new(1)).expect("it can be signed")
    }

    /// The key tags of the signatures, by owner and type; each set that is there has an entry.
    fn tags(zone: &Zone) -> BTreeMap<(String, Rtype), Vec<u16>> {
        let (mut cursor, mut tags) = (Cursor::default(), BTreeMap::<_, Vec<u16>>::new());
        while let Some((owner, sets)) = zone.owner_at(&mut cursor) {
            for set in sets {
                let owner = dns::name::to_text(owner);
                if set.rtype != Rtype::RRSIG && set.data().next().is_some() {
                    tags.entry((owner, set.rtype)).or_default();
                    continue;
                }
                for data in set.data() {
                    let [covered, tag] = [0, 16].map(|at| u16::from_be_bytes([data[at], data[at + 1]]));
                    tags.entry((owner.clone(), Rtype::from_int(covered))).or_default().push(tag);
                }
            }
            cursor = cursor.next();
        }
        tags
    }

    #[test]
    fn keys_share_the_work() {
        let zone = build("@ CDS 0 0 0 00\na A 192.0.2.1\n");
        let (ecdsa, ed25519) = (GenerateParams::EcdsaP256Sha256, GenerateParams::Ed25519);
        for (keys, of_keys, of_all_else) in [
            (vec![key(&ecdsa, TRUSTED)], &[0][..], &[0][..]),
            (vec![key(&ecdsa, ZONE_KEY), key(&ecdsa, TRUSTED)], &[1], &[0]),
            (vec![key(&ecdsa, TRUSTED), key(&ecdsa, TRUSTED), key(&ecdsa, ZONE_KEY)], &[0, 1], &[2]),
            (vec![key(&ecdsa, TRUSTED), key(&ed25519, ZONE_KEY)], &[0, 1], &[0, 1]),
        ] {
            let expected =
                [of_keys, of_all_else].map(|by| by.iter().map(|key| keys[*key].tag).collect::<Vec<_>>());
            let count = keys.len();
            let signed = sign(&signing(keys), &zone, None);
            assert_eq!(signed.keys().expect("they are in it").data().count(), count);
            for ((owner, rtype), tags) in tags(&signed) {
                assert_eq!(tags, expected[usize::from(!OF_KEYS.contains(&rtype))], "{owner} {rtype}");
            }
        }
        assert!(!signing(vec![key(&ecdsa, ZONE_KEY)]).signs(&zone), "no delegation trusts it");
        let foreign = build("@ DNSKEY 257 3 13 AAAA\n");
        assert!(!signing(vec![key(&ecdsa, TRUSTED)]).signs(&foreign), "somebody else signs it");
    }

    #[test]
    fn what_cannot_be_signed_is_told() {
        let signing = signing(vec![key(&GenerateParams::Ed25519, TRUSTED)]);
        let rrsig = "a RRSIG A 13 2 60 20300101000000 20200101000000 1 example. AAAA\n";
        let nsec3 = "0000000000000000000000000000000a NSEC3 1 0 0 - 0000000000000000000000000000000b A\n";
        let many = || (0..RECORDS_MAX).map(|index| format!("n{index} A 192.0.2.1\n")).collect::<String>();
        for (text, expected) in [
            ("a A 192.0.2.1\n".to_string() + rrsig, "but it has RRSIG records"),
            (rrsig.to_string(), "but it has RRSIG records"),
            (nsec3.to_string(), "but it has NSEC3 records"),
            ("a NSEC example. A\n".to_string(), "but it has NSEC records"),
            ("@ ZONEMD 1 1 241 00112233445566778899aabbccddeeff\n".to_string(), "but it has ZONEMD records"),
            (many(), "and has 100002 records"),
        ] {
            let told =
                signing.sign(&build(&text), &|_| vec![], None, &NameHash::new(1)).err().expect(expected);
            assert!(
                told.0.contains(expected) && told.0.starts_with("example. is to be signed here"),
                "{}",
                told.0
            );
        }
    }

    #[test]
    fn a_hash_before_a_long_name_is_no_name() {
        let signing = signing(vec![key(&GenerateParams::Ed25519, TRUSTED)]);
        for (octets, is_signed) in [(222, true), (223, false)] {
            let labels = [[62; 63]; 3].concat();
            let last = octets - labels.len() - 2;
            let origin = [&labels, &[last as u8][..], &vec![b'a'; last], &[0]].concat();
            let sign = |text| signing.sign(&build_at(&origin, text), &|_| vec![], None, &NameHash::new(1));
            let told = sign("@ NSEC3PARAM 1 0 0 -\n").err().map(|(what, _)| what);
            assert_eq!(told.as_ref().is_none(), is_signed, "{told:?}");
            assert!(told.is_none_or(|what| what.contains("its name is too long")));
            assert!(sign("").is_ok());
        }
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(64))]
        #[test]
        fn any_zone_is_signed_where_it_is_its_own(
            records in prop::collection::btree_set(("([a-b*])(\\.[a-b]){0,3}", 0..4_u8), 0..12),
            is_hashed in any::<bool>(),
        ) {
            // Delegations are below other names, and have names below them.
            let lines = records.iter().map(|(name, kind)| match kind {
                0 => format!("{name} A 192.0.2.1\n"),
                1 => format!("{name} TXT {name}\n"),
                2 => format!("{name} NS ns.{name}\n"),
                _ => format!("{name} NS ns\n{name} DS 1 13 2 00\n"),
            });
            let hashed = if is_hashed { "@ NSEC3PARAM 1 0 0 -\n" } else { "" };
            let zone = build(&(lines.collect::<String>() + hashed));
            let signing = signing(vec![key(&GenerateParams::Ed25519, TRUSTED)]);
            let signed = sign(&signing, &zone, None);
            prop_assert_eq!(signed.unproven(), None);
            prop_assert_eq!(signed.to_text(), zone.to_text());
            prop_assert_eq!(signed.serial_given(), 7);
            let cuts: Vec<String> = tags(&zone).into_keys()
                .filter(|(owner, rtype)| *rtype == Rtype::NS && owner != "example.").map(|(owner, _)| owner).collect();
            let mut of_sets = 0;
            for ((owner, rtype), tags) in tags(&signed) {
                let is_below = cuts.iter().any(|cut| owner.ends_with(&format!(".{cut}")));
                let is_cut = cuts.contains(&owner);
                let is_own = !is_below && (!is_cut || matches!(rtype, Rtype::DS | Rtype::NSEC | Rtype::NSEC3));
                prop_assert_eq!(tags.len(), usize::from(is_own), "{} {}", owner, rtype);
                of_sets += 1;
            }
            prop_assert!(of_sets > 3);
            // With the version before it, nothing is signed again; Ed25519 would sign all as it was, another key does not.
            let other = Signing::new(vec![key(&GenerateParams::Ed25519, TRUSTED)].into(), NOW);
            prop_assert_eq!(tags(&sign(&signing, &zone, Some(&signed))), tags(&signed));
            prop_assert_ne!(tags(&sign(&other, &zone, Some(&signed))), tags(&signed));
        }
    }
}
