//! DNS cookies as servers agree to make them (RFC 9018), so that several answer for one another.
//!
//! ```text
//! 0        1          4            8            16
//! | version | reserved | timestamp  | hash       |   hash = SipHash-2-4 of the client's cookie, the first
//! | 1       | 0        | Unix time  |            |   eight octets here, and the client's address
//! ```
//! A valid cookie proves that the client is where its packets say: what we answered there, it has seen.

use std::fmt;
use std::net::IpAddr;

use api::{Fault, Faults};
use dns::edns::{Cookie, SERVER_COOKIE, ServerCookie};
use siphasher::sip::SipHasher24;

/// The octets of a secret (RFC 9018 §4.4).
pub const SECRET: usize = 16;

/// The most secrets: each is tried on every cookie that is not ours, and two are enough to roll.
pub const SECRETS_MAX: usize = 8;

/// How old a cookie may be, in seconds (RFC 9018 §4.3).
const AGE_MAX: i32 = 3_600;

/// How far in the future, in seconds: the clocks of servers with one secret differ (RFC 9018 §4.3).
const AHEAD_MAX: i32 = 300;

/// From which age on a valid cookie is replaced, in seconds (RFC 9018 §4.3).
const RENEWED_FROM: i32 = 1_800;

/// The version of cookies that are made and known here (RFC 9018 §4.1).
const VERSION: u8 = 1;

/// The secrets that cookies are made and checked with: the first makes, all check.
///
/// Without any, cookies are neither made nor checked. No form of it shows a secret.
#[derive(Clone, Default, PartialEq, Eq)]
pub struct Secrets(Vec<[u8; SECRET]>);

/// What the cookie of a query is worth.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Presented {
    /// The client has no cookie of ours yet.
    ClientOnly,
    /// It has one that we, or a server with our secret, gave to its address within the hour.
    Valid,
    /// It has one that is not ours, not its own, or too old: to be treated as none (RFC 7873 §5.2.4).
    Invalid,
}

impl Secrets {
    /// One secret, with which cookies are made and checked.
    pub fn one(secret: [u8; SECRET]) -> Secrets {
        Secrets(vec![secret])
    }

    /// Reads a file of secrets: each 32 hexadecimal digits on a line of its own, the one to make cookies with
    /// first. Empty lines, and what stands behind `#`, are passed over.
    ///
    /// # Errors
    /// Every line that is no secret, none at all, or more than [`SECRETS_MAX`]. No fault quotes the file.
    pub fn read(source: &str, text: &[u8]) -> Result<Secrets, Faults> {
        const EXPECTED: &str = "32 hexadecimal digits, such as `openssl rand -hex 16` prints";
        let mut faults = Faults::default();
        let mut secrets = Vec::new();
        for (index, line) in text.split(|octet| *octet == b'\n').enumerate() {
            let line = line.split(|octet| *octet == b'#').next().unwrap_or(line).trim_ascii();
            if line.is_empty() {
                continue;
            }
            let number = u32::try_from(index + 1).unwrap_or(u32::MAX);
            match secret(line) {
                Some(secret) if secrets.len() < SECRETS_MAX => secrets.push(secret),
                Some(_) => {
                    let what = "there is a secret too many";
                    faults.push(Fault::at(source, number, 1, what, format!("at most {SECRETS_MAX}")));
                }
                None => faults.push(Fault::at(source, number, 1, "the line is no secret", EXPECTED)),
            }
        }
        if secrets.is_empty() && faults.is_empty() {
            faults.push(Fault::whole(source, "there is no secret", EXPECTED));
        }
        faults.or(Secrets(secrets))
    }

    /// Whether cookies are made and checked.
    pub fn are_given(&self) -> bool {
        !self.0.is_empty()
    }

    /// Checks a client's cookie; returns what it is worth and the server's cookie for the answer.
    ///
    /// `unix` is the time in seconds since 1970, of which only the low 32 bits count (RFC 9018 §4.3). `None`
    /// where there is no secret.
    pub fn check(
        &self,
        cookie: &Cookie,
        client: IpAddr,
        unix: u64,
    ) -> Option<(Presented, [u8; SERVER_COOKIE])> {
        let first = self.0.first()?;
        let now = unix as u32;
        let presented = match cookie.server {
            ServerCookie::Absent => Presented::ClientOnly,
            ServerCookie::Foreign => Presented::Invalid,
            ServerCookie::Present(server) => match self.age(cookie, &server, client, now) {
                Some((0, age)) if age < RENEWED_FROM => return Some((Presented::Valid, server)),
                Some(_) => Presented::Valid,
                None => Presented::Invalid,
            },
        };
        let mut fresh = [0; SERVER_COOKIE];
        fresh[0] = VERSION;
        fresh[4..8].copy_from_slice(&now.to_be_bytes());
        let hash = hash(first, cookie, &fresh, client);
        fresh[8..].copy_from_slice(&hash);
        Some((presented, fresh))
    }

    /// Which secret made a cookie, and how many seconds ago; `None` where none did, or not in time.
    fn age(
        &self,
        cookie: &Cookie,
        server: &[u8; SERVER_COOKIE],
        client: IpAddr,
        now: u32,
    ) -> Option<(usize, i32)> {
        let [version, _, _, _, t0, t1, t2, t3, ..] = *server;
        // Serial number arithmetic: the clock of 32 bits goes round in 2106.
        let age = now.wrapping_sub(u32::from_be_bytes([t0, t1, t2, t3])).cast_signed();
        if version != VERSION || !(-AHEAD_MAX..=AGE_MAX).contains(&age) {
            return None;
        }
        let made_by = |secret| u64::from_ne_bytes(hash(secret, cookie, server, client));
        let [.., h0, h1, h2, h3, h4, h5, h6, h7] = *server;
        // Compared as one number, which takes as long for any two.
        let theirs = u64::from_ne_bytes([h0, h1, h2, h3, h4, h5, h6, h7]);
        self.0.iter().position(|secret| made_by(secret) == theirs).map(|index| (index, age))
    }
}

impl fmt::Debug for Secrets {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Secrets({})", self.0.len())
    }
}

/// The hash of a cookie whose first eight octets stand in `server` (RFC 9018 §4.4).
fn hash(
    secret: &[u8; SECRET],
    cookie: &Cookie,
    server: &[u8; SERVER_COOKIE],
    client: IpAddr,
) -> [u8; SERVER_COOKIE / 2] {
    let mut hashed = [0; 32];
    hashed[..8].copy_from_slice(&cookie.client);
    hashed[8..16].copy_from_slice(&server[..8]);
    let length = match client {
        IpAddr::V4(v4) => {
            hashed[16..20].copy_from_slice(&v4.octets());
            20
        }
        IpAddr::V6(v6) => {
            hashed[16..].copy_from_slice(&v6.octets());
            32
        }
    };
    SipHasher24::new_with_key(secret).hash(&hashed[..length]).to_le_bytes()
}

fn secret(line: &[u8]) -> Option<[u8; SECRET]> {
    let digits: &[u8; 2 * SECRET] = line.try_into().ok()?;
    let mut secret = [0; SECRET];
    for (octet, pair) in secret.iter_mut().zip(digits.chunks_exact(2)) {
        let digit = |at: usize| (pair[at] as char).to_digit(16);
        *octet = (digit(0)? << 4 | digit(1)?) as u8;
    }
    Some(secret)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn hex(text: &str) -> Vec<u8> {
        (0..text.len() / 2).map(|i| u8::from_str_radix(&text[2 * i..2 * i + 2], 16).unwrap()).collect()
    }

    fn cookie(text: &str) -> Cookie {
        let octets = hex(text);
        let server = match octets.len() {
            8 => ServerCookie::Absent,
            24 => ServerCookie::Present(octets[8..].try_into().unwrap()),
            _ => ServerCookie::Foreign,
        };
        Cookie { client: octets[..8].try_into().unwrap(), server }
    }

    fn secrets(text: &str) -> Secrets {
        Secrets::read("t", text.as_bytes()).unwrap()
    }

    /// What is presented from an address at a time, and the cookie of the answer.
    fn check(secrets: &Secrets, text: &str, client: &str, unix: u64, expected: Presented, answered: &str) {
        let cookie = cookie(text);
        let (presented, server) = secrets.check(&cookie, client.parse().unwrap(), unix).unwrap();
        let whole = [&cookie.client[..], &server].concat();
        assert_eq!((presented, whole), (expected, hex(answered)), "{text} from {client} at {unix}");
    }

    #[test]
    fn the_examples_of_rfc_9018_appendix_a() {
        let one = secrets("e5e973e5a6b2a43f48e7dc849e37bfcf");
        let (new, renewed) = (
            "2464c4abcf10c957010000005cf79f111f8130c3eee29480",
            "2464c4abcf10c957010000005cf7a871d4a564a1442aca77",
        );
        check(&one, "2464c4abcf10c957", "198.51.100.100", 1_559_731_985, Presented::ClientOnly, new);
        check(&one, new, "198.51.100.100", 1_559_734_385, Presented::Valid, renewed);
        // With reserved octets set, which count as they are. The example is answered after more than an hour, when
        // the cookie is no longer taken here.
        let reserved = "fc93fc62807ddb8601abcdef5cf78f71a314227b6679ebf5";
        check(&one, reserved, "203.0.113.203", 1_559_727_985, Presented::Valid, reserved);
        let renewed = "fc93fc62807ddb86010000005cf7a9acf73a7810aca2381e";
        check(&one, reserved, "203.0.113.203", 1_559_734_700, Presented::Invalid, renewed);

        let rolled = secrets("445536bcd2513298075a5d379663c962\ndd3bdf9344b678b185a6f5cb60fca715\n");
        let (old, renewed) = (
            "22681ab97d52c298010000005cf7c57926556bd0934c72f8",
            "22681ab97d52c298010000005cf7c609a6bb79d16625507a",
        );
        let client = "2001:db8:220:1:59de:d0f4:8769:82b8";
        check(&rolled, old, client, 1_559_741_961, Presented::Valid, renewed);
        check(&rolled, renewed, client, 1_559_741_961, Presented::Valid, renewed);
        let later = secrets("445536bcd2513298075a5d379663c962");
        check(&later, old, client, 1_559_741_961, Presented::Invalid, renewed);
    }

    #[test]
    fn a_cookie_is_of_an_address_a_time_and_a_version() {
        let one = secrets("e5e973e5a6b2a43f48e7dc849e37bfcf");
        let made = 1_559_731_985;
        let good = "2464c4abcf10c957010000005cf79f111f8130c3eee29480";
        let worth = |text: &str, client: &str, unix| {
            one.check(&cookie(text), client.parse().unwrap(), unix).unwrap().0
        };
        for (client, unix, expected) in [
            ("198.51.100.100", made, Presented::Valid),
            ("198.51.100.101", made, Presented::Invalid),
            ("::ffff:198.51.100.100", made, Presented::Invalid),
            ("198.51.100.100", made + 3_600, Presented::Valid),
            ("198.51.100.100", made + 3_601, Presented::Invalid),
            ("198.51.100.100", made - 300, Presented::Valid),
            ("198.51.100.100", made - 301, Presented::Invalid),
            ("198.51.100.100", 0, Presented::Invalid),
        ] {
            assert_eq!(worth(good, client, unix), expected, "{client} at {unix}");
        }
        let flipped = |at: usize| {
            let mut octets = hex(good);
            octets[at] ^= 1;
            octets.iter().map(|octet| format!("{octet:02x}")).collect::<String>()
        };
        for at in 0..24 {
            assert_eq!(worth(&flipped(at), "198.51.100.100", made), Presented::Invalid, "octet {at}");
        }
        assert_eq!(worth(&good[..40], "198.51.100.100", made), Presented::Invalid, "too short");
    }

    #[test]
    fn the_clock_of_32_bits_goes_round() {
        let one = Secrets::one([9; 16]);
        let before = u64::from(u32::MAX) - 10;
        let (_, server) =
            one.check(&cookie("0102030405060708"), "192.0.2.1".parse().unwrap(), before).unwrap();
        let again = Cookie { server: ServerCookie::Present(server), ..cookie("0102030405060708") };
        let (presented, _) = one.check(&again, "192.0.2.1".parse().unwrap(), before + 20).unwrap();
        assert_eq!(presented, Presented::Valid);
    }

    #[test]
    fn files_of_secrets() {
        let hex = "E5e973e5a6b2a43f48e7dc849e37bfcf";
        assert_eq!(secrets(&format!("# ours\n\n {hex} # since May\r\n")), secrets(hex));
        for (text, faults) in [
            ("", "t: there is no secret"),
            ("# none\n", "t: there is no secret"),
            (&hex[1..], "t:1:1: the line is no secret"),
            (
                &format!("{hex}\n{hex}0\nzz{}", &hex[2..]),
                "t:2:1: the line is no secret\nt:3:1: the line is no secret",
            ),
            (&[hex; 9].join("\n"), "t:9:1: there is a secret too many"),
        ] {
            let found = Secrets::read("t", text.as_bytes()).unwrap_err().to_string();
            let told: Vec<&str> = found.lines().map(|line| line.split(';').next().unwrap()).collect();
            assert_eq!(told.join("\n"), faults);
            assert!(!found.contains("e973e5a6"), "a secret is shown: {found}");
        }
        assert_eq!(format!("{:?}", secrets(hex)), "Secrets(1)");
        assert!(!Secrets::default().are_given());
        let nothing = Secrets::default().check(&cookie("0102030405060708"), "::1".parse().unwrap(), 1);
        assert_eq!(nothing, None);
    }

    proptest! {
        #[test]
        fn what_is_given_is_valid_for_an_hour_and_what_is_guessed_never(
            secret: [u8; 16], client: [u8; 8], guess: [u8; 16], v6: [u8; 16], unix in 0u64..1 << 40, age in 0u64..3_600,
        ) {
            let secrets = Secrets::one(secret);
            let from = IpAddr::from(v6);
            let asked = Cookie { client, server: ServerCookie::Absent };
            let (_, server) = secrets.check(&asked, from, unix).unwrap();
            let (worth, _) = secrets.check(&Cookie { client, server: ServerCookie::Present(server) }, from, unix + age).unwrap();
            prop_assert_eq!(worth, Presented::Valid);
            let guessed = Cookie { client, server: ServerCookie::Present(guess) };
            prop_assert_eq!(secrets.check(&guessed, from, unix).unwrap().0, Presented::Invalid);
        }
    }
}
