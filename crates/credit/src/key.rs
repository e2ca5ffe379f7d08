//! The secret that a balancer and its agents share.

use std::fmt;

use ring::hmac;

/// Octets of a key: as many as its digest has, which RFC 2104 §3 recommends.
pub const KEY_LEN: usize = 32;

/// Octets of the digest behind each message: HMAC-SHA256, whole.
pub const MAC_LEN: usize = 32;

/// A key for HMAC-SHA256 (RFC 2104). It is never printed.
#[derive(Clone)]
pub struct Key(hmac::Key);

/// Says why a text is no key. The text itself is never told.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum KeyError {
    /// It has another number of characters.
    Length(usize),
    /// A character is no hexadecimal digit; its place, counted from 1.
    NotHexadecimal(usize),
}

impl Key {
    /// Makes a key of its octets.
    pub fn new(octets: &[u8; KEY_LEN]) -> Self {
        Self(hmac::Key::new(hmac::HMAC_SHA256, octets))
    }

    /// Reads a key as a file holds it: 64 hexadecimal digits, blanks and line ends around them.
    ///
    /// # Errors
    /// [`KeyError`]; nothing of the text is in it.
    pub fn parse(text: &str) -> Result<Self, KeyError> {
        let text = text.trim();
        let length = text.chars().count();
        if length != 2 * KEY_LEN {
            return Err(KeyError::Length(length));
        }
        let mut octets = [0; KEY_LEN];
        for (at, digit) in text.chars().enumerate() {
            let value = digit.to_digit(16).ok_or(KeyError::NotHexadecimal(at + 1))?;
            octets[at / 2] = octets[at / 2] << 4 | value as u8;
        }
        Ok(Self::new(&octets))
    }

    /// Writes a key's octets as a file holds them, with a line end.
    pub fn text(octets: &[u8; KEY_LEN]) -> String {
        let digits: String = octets.iter().map(|octet| format!("{octet:02x}")).collect();
        digits + "\n"
    }

    /// The digest of a message.
    pub fn sign(&self, message: &[u8]) -> [u8; MAC_LEN] {
        let mut mac = [0; MAC_LEN];
        mac.copy_from_slice(hmac::sign(&self.0, message).as_ref());
        mac
    }

    /// Whether the digest is the message's, in a time that tells nothing of where they differ.
    pub(crate) fn verifies(&self, message: &[u8], mac: &[u8]) -> bool {
        hmac::verify(&self.0, message, mac).is_ok()
    }
}

impl fmt::Debug for Key {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Key(secret)")
    }
}

impl fmt::Display for KeyError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Length(length) => write!(f, "it has {length} characters and not {}", 2 * KEY_LEN),
            Self::NotHexadecimal(place) => write!(f, "its character {place} is no hexadecimal digit"),
        }
    }
}

impl std::error::Error for KeyError {}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_key_is_64_hexadecimal_digits() {
        let whole = "00112233445566778899aabbccddeeFF".repeat(2);
        for (text, error) in [
            (whole.clone(), None),
            (format!("  {whole}\r\n"), None),
            (String::new(), Some(KeyError::Length(0))),
            (whole[1..].to_owned(), Some(KeyError::Length(63))),
            (format!("{whole}0"), Some(KeyError::Length(65))),
            (format!("{}g", &whole[1..]), Some(KeyError::NotHexadecimal(64))),
            (format!("{} {}", &whole[..9], &whole[10..]), Some(KeyError::NotHexadecimal(10))),
            ("é".repeat(64), Some(KeyError::NotHexadecimal(1))),
        ] {
            assert_eq!(Key::parse(&text).err(), error, "{text:?}");
        }
    }

    #[test]
    fn what_is_written_is_read_again() {
        let octets = std::array::from_fn(|at| at as u8 * 7);
        let again = Key::parse(&Key::text(&octets)).expect("a key");
        assert!(again.verifies(b"a message", &Key::new(&octets).sign(b"a message")));
    }

    #[test]
    fn a_key_is_not_printed() {
        let key = Key::new(&[0xab; KEY_LEN]);
        assert_eq!(format!("{key:?}"), "Key(secret)");
    }

    /// RFC 4231 §4.2: its key of 20 octets is padded with zeros, as ours of 32 is.
    #[test]
    fn the_digest_is_that_of_the_rfc() {
        let mut octets = [0; KEY_LEN];
        octets[..20].fill(0x0b);
        let mac: String =
            Key::new(&octets).sign(b"Hi There").iter().map(|octet| format!("{octet:02x}")).collect();
        assert_eq!(mac, "b0344c61d8db38535ca8afceaf0bf12b881dc200c9833da726e9376c2e32cff7");
    }
}
