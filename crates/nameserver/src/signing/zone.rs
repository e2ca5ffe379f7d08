//! A whole zone signed here: one that nobody has signed, and of which the key that its delegation trusts is here.
//!
//! All its keys are in it, and sign: those that the delegation trusts the keys, the others all else. So a key is exchanged by
//! having both for a while (RFC 6781 §4.1), and one key alone does both. A signature over a set that has not changed stays for
//! its period, and with the next one the serial number grows by one: secondaries see that there are new ones.

use dns::Rtype;

use super::{Key, Signing, sign};
use crate::names::NameHash;
use crate::zone::{Additions, ToSign, Zone};

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

    /// Signs a zone that is not signed; what of `before` is the same and as old keeps its signatures.
    ///
    /// # Errors
    /// Why it cannot: what is wrong, and what was expected.
    ///
    /// # Panics
    /// Where a key cannot sign, which was seen when it was read.
    pub fn sign(
        &self,
        zone: &Zone,
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
        let additions = Additions { keys: &public, serial: self.period as u32, until: self.expiration() };
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
