//! TSIG keys, and the files that they stand in.

use std::collections::BTreeMap;
use std::fmt;
use std::sync::Arc;

use api::{Fault, Faults};
use domain::utils::base64;
use ring::hmac;

/// The least octets of a secret: RFC 8945 §6 asks for as many as the algorithm gives, shorter ones can be guessed
/// sooner than the code itself.
const SECRET_MIN: usize = 16;

/// The most keys that are kept: each server that follows us has one of its own at most.
pub const KEYS_MAX: usize = 10_000;

/// A key that messages are signed with. What it shows of itself never has the secret in it.
pub struct Key {
    name: Vec<u8>,
    algorithm: Algorithm,
    secret: hmac::Key,
}

/// How messages are signed (RFC 8945 §6). HMAC-MD5 is not there at all.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Algorithm {
    /// HMAC-SHA-1: for secondaries that know nothing better; whoever writes it in a key's line asks for it.
    Sha1,
    /// HMAC-SHA-256.
    Sha256,
    /// HMAC-SHA-384.
    Sha384,
    /// HMAC-SHA-512.
    Sha512,
}

/// Keys by name, at most [`KEYS_MAX`]: whoever sends what looks signed has one looked up.
#[derive(Clone, Debug, Default)]
pub struct Keys(BTreeMap<Vec<u8>, Arc<Key>>);

impl Algorithm {
    const ALL: [Algorithm; 4] = [Algorithm::Sha1, Algorithm::Sha256, Algorithm::Sha384, Algorithm::Sha512];

    /// The algorithm's name as text.
    pub fn text(self) -> &'static str {
        match self {
            Algorithm::Sha1 => "hmac-sha1",
            Algorithm::Sha256 => "hmac-sha256",
            Algorithm::Sha384 => "hmac-sha384",
            Algorithm::Sha512 => "hmac-sha512",
        }
    }

    /// The algorithm's name in wire form.
    pub fn wire(self) -> &'static [u8] {
        match self {
            Algorithm::Sha1 => b"\x09hmac-sha1\0",
            Algorithm::Sha256 => b"\x0bhmac-sha256\0",
            Algorithm::Sha384 => b"\x0bhmac-sha384\0",
            Algorithm::Sha512 => b"\x0bhmac-sha512\0",
        }
    }

    /// The octets of a whole message authentication code.
    pub fn code_length(self) -> usize {
        match self {
            Algorithm::Sha1 => 20,
            Algorithm::Sha256 => 32,
            Algorithm::Sha384 => 48,
            Algorithm::Sha512 => 64,
        }
    }

    fn hmac(self) -> hmac::Algorithm {
        match self {
            Algorithm::Sha1 => hmac::HMAC_SHA1_FOR_LEGACY_USE_ONLY,
            Algorithm::Sha256 => hmac::HMAC_SHA256,
            Algorithm::Sha384 => hmac::HMAC_SHA384,
            Algorithm::Sha512 => hmac::HMAC_SHA512,
        }
    }
}

impl Key {
    /// Makes a key; `name` is in wire form.
    pub fn new(name: &[u8], algorithm: Algorithm, secret: &[u8]) -> Key {
        let name = name.to_ascii_lowercase();
        Key { name, algorithm, secret: hmac::Key::new(algorithm.hmac(), secret) }
    }

    /// The key's name in wire form, in lower case.
    pub fn name(&self) -> &[u8] {
        &self.name
    }

    /// The one algorithm that it is used with.
    pub fn algorithm(&self) -> Algorithm {
        self.algorithm
    }

    /// Whether another one has the same name, with the same algorithm.
    pub(super) fn is_same(&self, other: &Key) -> bool {
        self.name == other.name && self.algorithm == other.algorithm
    }

    /// What codes are computed with.
    pub(super) fn context(&self) -> hmac::Context {
        hmac::Context::with_key(&self.secret)
    }
}

impl fmt::Debug for Key {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}:{}", self.algorithm.text(), dns::name::to_text(&self.name))
    }
}

impl Keys {
    /// Reads the keys of a file: one a line, `algorithm:name:secret`, as `dig -y` takes them; the secret is in
    /// base64, and `#` begins a comment.
    ///
    /// # Errors
    /// All lines that are wrong; the secrets are never told.
    pub fn read(&mut self, source: &str, text: &str) -> Result<(), Faults> {
        let mut faults = Faults::default();
        for (number, line) in text.lines().enumerate() {
            let line = line.split('#').next().unwrap_or_default().trim();
            if line.is_empty() {
                continue;
            }
            let added = parse(line).and_then(|key| self.add(key));
            if let Err((what, expected)) = added {
                faults.push(Fault::at(source, number as u32 + 1, 1, what, expected));
            }
        }
        faults.or(())
    }

    /// The key of a name, given as text.
    pub fn named(&self, name: &str) -> Option<&Arc<Key>> {
        let name = dns::name::folded_from_text(name).ok()?;
        self.0.get(&name)
    }

    /// The key of a name and algorithm, both as they stand in a message.
    pub(super) fn find(&self, name: &[u8], algorithm: &[u8]) -> Option<&Arc<Key>> {
        let key = self.0.get(&name.to_ascii_lowercase())?;
        key.algorithm.wire().eq_ignore_ascii_case(algorithm).then_some(key)
    }

    fn add(&mut self, key: Key) -> Result<(), (String, String)> {
        if self.0.contains_key(&key.name) {
            let what = format!("the key {} is given twice", dns::name::to_text(&key.name));
            return Err((what, "each name once".into()));
        }
        if self.0.len() == KEYS_MAX {
            return Err((format!("there are more than {KEYS_MAX} keys"), "fewer".into()));
        }
        self.0.insert(key.name.clone(), Arc::new(key));
        Ok(())
    }
}

/// Reads a line; else what is wrong, and what was expected.
fn parse(line: &str) -> Result<Key, (String, String)> {
    let mut parts = line.split(':').map(str::trim);
    let (Some(algorithm), Some(name), Some(secret), None) =
        (parts.next(), parts.next(), parts.next(), parts.next())
    else {
        return Err((
            "the line is no key".into(),
            "algorithm:name:secret, such as hmac-sha256:ns2:c2Vj...".into(),
        ));
    };
    let known = Algorithm::ALL.into_iter().find(|known| known.text().eq_ignore_ascii_case(algorithm));
    let algorithm = known.ok_or_else(|| {
        let shown: String = algorithm.escape_debug().take(20).collect();
        (
            format!("the algorithm is '{shown}'"),
            "hmac-sha256, hmac-sha384 or hmac-sha512 (or hmac-sha1)".to_string(),
        )
    })?;
    let name = dns::name::folded_from_text(name)
        .map_err(|what| (format!("the key's name: {what}"), "a domain name".to_string()))?;
    let secret = base64::decode::<Vec<u8>>(secret)
        .map_err(|_| ("the secret is not in base64".to_string(), "what `tsig-keygen` prints".to_string()))?;
    if secret.len() < SECRET_MIN {
        let what = format!("the secret has {} octets", secret.len());
        return Err((what, format!("{SECRET_MIN} or more; {} are right", algorithm.code_length())));
    }
    Ok(Key::new(&name, algorithm, &secret))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keys_are_read_line_by_line() {
        let text = "# ours\nhmac-sha256:NS2.example:MDEyMzQ1Njc4OWFiY2RlZg==\n\n  HMAC-SHA512 : b. : MDEyMzQ1Njc4OWFiY2RlZg==\n";
        let mut keys = Keys::default();
        keys.read("k", text).expect("both are right");
        let ns2 = keys.named("ns2.EXAMPLE.").expect("it is there");
        assert_eq!((ns2.name(), ns2.algorithm()), (&b"\x03ns2\x07example\0"[..], Algorithm::Sha256));
        assert!(keys.find(b"\x01B\0", b"\x0bHMAC-sha512\0").is_some());
        assert!(keys.find(b"\x01B\0", b"\x0bhmac-sha256\0").is_none(), "one key, one algorithm");
        assert_eq!(format!("{:?}", keys.0.values()), "[hmac-sha512:b., hmac-sha256:ns2.example.]");
    }

    #[test]
    fn wrong_lines_are_all_told_without_their_secrets() {
        let text = "hmac-md5:a:MDEyMzQ1Njc4OWFiY2RlZg==\nhmac-sha256:a\nhmac-sha256:a:!secret!\nhmac-sha256:a:c2VjcmV0\n\
                    hmac-sha256:a..b:MDEyMzQ1Njc4OWFiY2RlZg==\nhmac-sha1:a:MDEyMzQ1Njc4OWFiY2RlZg==\n\
                    hmac-sha256:A.:MDEyMzQ1Njc4OWFiY2RlZg==\n";
        let faults = Keys::default().read("k", text).expect_err("six are wrong");
        let told: Vec<String> = faults.faults.iter().map(ToString::to_string).collect();
        let starts = [
            "k:1:1: the algorithm is 'hmac-md5'",
            "k:2:1: the line is no key",
            "k:3:1: the secret is not in base64",
            "k:4:1: the secret has 6 octets",
            "k:5:1: the key's name",
            "k:7:1: the key a. is given twice",
        ];
        assert_eq!(told.len(), starts.len(), "{told:#?}");
        for (told, start) in told.iter().zip(starts) {
            assert!(told.starts_with(start), "{told}");
            assert!(
                !told.contains("secret!") && !told.contains("c2Vj") || start.contains("no key"),
                "{told}"
            );
        }
    }
}
