//! A fresh key of a zone: one that signs all of it, and that its delegation trusts.

use std::fmt::Write as _;

use domain::base::Rtype;
use domain::base::rdata::ComposeRecordData;
use domain::crypto::sign::{GenerateParams, generate};
use domain::utils::base64;
use ring::digest;

use super::TRUSTED;

/// The digest of a DS record: SHA-256 (RFC 4509).
const SHA256: u8 = 2;

/// The algorithms that new keys may have.
#[derive(Clone, Copy, Debug)]
pub enum New {
    /// ECDSA with the curve P-256 (RFC 6605).
    EcdsaP256Sha256,
    /// ECDSA with the curve P-384 (RFC 6605).
    EcdsaP384Sha384,
    /// Ed25519 (RFC 8080).
    Ed25519,
}

/// A key as files have it, as `dnssec-keygen` writes them.
pub struct Made {
    /// The DNSKEY record.
    pub public: String,
    /// The private part.
    pub private: String,
    /// The DS record, on a line of its own: what the parent zone takes (RFC 4034 §5).
    pub ds: String,
}

/// Makes a key of a zone, given by its name in wire form; `None` where the system has no random octets.
pub fn make(zone: &[u8], algorithm: New) -> Option<Made> {
    let parameters = match algorithm {
        New::EcdsaP256Sha256 => GenerateParams::EcdsaP256Sha256,
        New::EcdsaP384Sha384 => GenerateParams::EcdsaP384Sha384,
        New::Ed25519 => GenerateParams::Ed25519,
    };
    let (secret, key) = generate(&parameters, TRUSTED).ok()?;
    let name = dns::name::to_text(zone);
    let (flags, protocol, number) = (key.flags(), key.protocol(), key.algorithm().to_int());
    let public = base64::encode_string(key.public_key());
    let mut digested = zone.to_ascii_lowercase();
    key.compose_rdata(&mut digested).expect("memory has room");
    let mut ds = format!("{name} IN DS {} {number} {SHA256} ", key.key_tag());
    for octet in digest::digest(&digest::SHA256, &digested).as_ref() {
        write!(ds, "{octet:02X}").expect("writing to a string cannot fail");
    }
    Some(Made {
        public: format!("{name} IN {} {flags} {protocol} {number} {public}\n", Rtype::DNSKEY),
        private: secret.display_as_bind().to_string(),
        ds: ds + "\n",
    })
}
