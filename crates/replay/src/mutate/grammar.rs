//! How changes are written.
//!
//! Changes are written one after the other with commas between, and made in that order; a comma in a name is
//! `\044`. A share is a number from 0 to 100 with `%`.
//!
//! | change | what |
//! |---|---|
//! | `do=SHARE`, `rd=SHARE`, `ad=SHARE`, `cd=SHARE` | this share of the clients sets the flag, the others do not. DO adds an OPT where there is none; without DO the OPT stays |
//! | `edns=SIZE[@SHARE]` | an OPT with this UDP payload size |
//! | `edns=none[@SHARE]` | no OPT, nor what was in it |
//! | `ecs=client[@SHARE]` | client subnet with the client's address, 24 bits of IPv4 or 56 of IPv6 |
//! | `ecs=NETWORK[@SHARE]` | client subnet with this network, such as `192.0.2.0/24` |
//! | `ecs=none[@SHARE]` | no client subnet |
//! | `unique[@SHARE]` | a label before the name that no other query has: 16 hexadecimal digits |
//! | `prefix=NAME[@SHARE]` | these labels before the name |
//! | `suffix=OLD:NEW[@SHARE]` | names that end in OLD end in NEW; a colon in a name is `\058` |
//! | `type=TYPE[@SHARE]` | this type |

use std::fmt;
use std::net::IpAddr;

use dns::{Rtype, name};

/// The most changes in a list: each one is drawn for every query.
const CHANGES_MAX: usize = 64;

/// The share that has everyone, in per cent.
const ALL: f64 = 100.0;

/// What there is, for messages to people.
const EXPECTED: &str = "expected do=, rd=, ad= or cd=SHARE (such as do=100%), edns=SIZE or edns=none, ecs=client, \
                        ecs=NETWORK or ecs=none, unique, prefix=NAME, suffix=OLD:NEW, or type=TYPE, these with \
                        @SHARE behind them where not all are meant";

/// One change. Shares are in per cent, as they are written.
#[derive(Clone, Debug, PartialEq)]
#[expect(missing_docs, reason = "the fields are the words of the grammar")]
pub enum Change {
    /// `do=`, `rd=`, `ad=`, `cd=`: who sets a flag; all others do not.
    Flag { flag: Flag, share: f64 },
    /// `edns=`: an OPT with this UDP payload size, or none.
    Edns { size: Option<u16>, share: f64 },
    /// `ecs=`: client subnet.
    Subnet { subnet: Subnet, share: f64 },
    /// `unique`: a label of its own before each name.
    Unique { share: f64 },
    /// `prefix=`: labels, in wire form without the root, before the name.
    Prefix { labels: Vec<u8>, share: f64 },
    /// `suffix=`: names in wire form, one for the other.
    Suffix { from: Vec<u8>, to: Vec<u8>, share: f64 },
    /// `type=`: QTYPE.
    Type { rtype: Rtype, share: f64 },
}

/// A flag of a query.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Flag {
    /// DNSSEC OK, in EDNS (RFC 3225).
    DnssecOk,
    /// Recursion desired.
    Recursion,
    /// Authentic data (RFC 6840 §5.7).
    Authentic,
    /// Checking disabled.
    CheckingDisabled,
}

/// What becomes of client subnet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Subnet {
    /// It is removed.
    None,
    /// It is the client's address, cut.
    Client,
    /// It is this network: an address and the bits of it that count.
    Network(IpAddr, u8),
}

/// Reads a list of changes.
pub(super) fn changes(text: &str) -> Result<Vec<Change>, String> {
    let count = text.split(',').count();
    if count > CHANGES_MAX {
        return Err(format!("{count} changes, expected at most {CHANGES_MAX}"));
    }
    let (mut changes, mut wrong) = (Vec::new(), Vec::new());
    for read in text.split(',').map(change) {
        match read {
            Ok(change) => changes.push(change),
            Err(what) => wrong.push(what),
        }
    }
    if wrong.is_empty() { Ok(changes) } else { Err(wrong.join("\n")) }
}

fn change(text: &str) -> Result<Change, String> {
    let text = text.trim();
    let wrong = |what: String| format!("{text}: {what}");
    let (key, value) = match text.split_once('=') {
        Some((key, value)) => (key, Some(value)),
        None => (text, None),
    };
    if let (Some(flag), Some(value)) = (Flag::named(key), value) {
        return Ok(Change::Flag { flag, share: share(value).map_err(wrong)? });
    }
    let behind = value.unwrap_or(key);
    let (what, share) = match behind.rsplit_once('@') {
        Some((what, behind)) => (what, share(behind).map_err(wrong)?),
        None => (behind, ALL),
    };
    match (key, value) {
        ("edns", Some(_)) => Ok(Change::Edns { size: size(what).map_err(wrong)?, share }),
        ("ecs", Some(_)) => Ok(Change::Subnet { subnet: subnet(what).map_err(wrong)?, share }),
        ("prefix", Some(_)) => {
            let mut labels = wire(what).map_err(wrong)?;
            // The root's octet, which every name ends with.
            labels.pop();
            match labels.is_empty() {
                true => Err(wrong("expected a label or more".into())),
                false => Ok(Change::Prefix { labels, share }),
            }
        }
        ("suffix", Some(_)) => {
            let (from, to) = what
                .split_once(':')
                .ok_or_else(|| wrong("expected two names with a colon between".into()))?;
            Ok(Change::Suffix { from: wire(from).map_err(wrong)?, to: wire(to).map_err(wrong)?, share })
        }
        ("type", Some(_)) => {
            let rtype = what.parse().map_err(|_| wrong(format!("{what} is no type")))?;
            Ok(Change::Type { rtype, share })
        }
        (_, None) if what == "unique" => Ok(Change::Unique { share }),
        _ => Err(wrong(EXPECTED.into())),
    }
}

fn share(text: &str) -> Result<f64, String> {
    let number =
        text.strip_suffix('%').filter(|number| number.bytes().all(|b| b.is_ascii_digit() || b == b'.'));
    match number.and_then(|number| number.parse::<f64>().ok()) {
        Some(percent) if percent <= ALL => Ok(percent),
        _ => Err(format!("{text} is no share, expected 0% to 100%")),
    }
}

fn size(text: &str) -> Result<Option<u16>, String> {
    match text {
        "none" => Ok(None),
        _ => text.parse().map(Some).map_err(|_| format!("{text} is neither a size from 0 to 65535 nor none")),
    }
}

fn subnet(text: &str) -> Result<Subnet, String> {
    let network = || {
        let (address, length) = text.split_once('/')?;
        let (address, length): (IpAddr, u8) = (address.parse().ok()?, length.parse().ok()?);
        let most = if address.is_ipv4() { 32 } else { 128 };
        (length <= most).then_some(Subnet::Network(address, length))
    };
    match text {
        "none" => Ok(Subnet::None),
        "client" => Ok(Subnet::Client),
        _ => network()
            .ok_or_else(|| format!("{text} is neither a network such as 192.0.2.0/24 nor client nor none")),
    }
}

fn wire(text: &str) -> Result<Vec<u8>, String> {
    name::from_text(text).map_err(|what| format!("{text} is no name: {what}"))
}

impl Change {
    /// The share of those it is made in, from 0 to 1.
    pub fn share(&self) -> f64 {
        self.percent() / ALL
    }

    fn percent(&self) -> f64 {
        match self {
            Change::Flag { share, .. }
            | Change::Edns { share, .. }
            | Change::Subnet { share, .. }
            | Change::Unique { share }
            | Change::Prefix { share, .. }
            | Change::Suffix { share, .. }
            | Change::Type { share, .. } => *share,
        }
    }

    /// Whether clients are in the share with all of their queries; else it is drawn for each query.
    pub fn is_by_client(&self) -> bool {
        matches!(self, Change::Flag { .. } | Change::Edns { .. } | Change::Subnet { .. })
    }
}

impl Flag {
    fn named(key: &str) -> Option<Flag> {
        [Flag::DnssecOk, Flag::Recursion, Flag::Authentic, Flag::CheckingDisabled]
            .into_iter()
            .find(|flag| flag.name() == key)
    }

    fn name(self) -> &'static str {
        match self {
            Flag::DnssecOk => "do",
            Flag::Recursion => "rd",
            Flag::Authentic => "ad",
            Flag::CheckingDisabled => "cd",
        }
    }

    /// The bit in the header's flags, or for DO in those of EDNS.
    pub(super) fn bit(self) -> u16 {
        match self {
            Flag::DnssecOk => 0x8000,
            Flag::Recursion => 0x0100,
            Flag::Authentic => 0x0020,
            Flag::CheckingDisabled => 0x0010,
        }
    }
}

impl fmt::Display for Change {
    /// As it is read.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        // Letters that stand for something in a list; a name's text has a backslash before two of them.
        let text = |wire: &[u8]| {
            let text = name::to_text(wire).replace(',', "\\044").replace(':', "\\058");
            text.replace("\\@", "\\064").replace("\\ ", "\\032")
        };
        match self {
            Change::Flag { flag, share } => return write!(f, "{}={}%", flag.name(), share),
            Change::Edns { size: Some(size), .. } => write!(f, "edns={size}")?,
            Change::Edns { size: None, .. } => f.write_str("edns=none")?,
            Change::Subnet { subnet: Subnet::None, .. } => f.write_str("ecs=none")?,
            Change::Subnet { subnet: Subnet::Client, .. } => f.write_str("ecs=client")?,
            Change::Subnet { subnet: Subnet::Network(address, length), .. } => {
                write!(f, "ecs={address}/{length}")?;
            }
            Change::Unique { .. } => f.write_str("unique")?,
            Change::Prefix { labels, .. } => write!(f, "prefix={}", text(&[labels, &[0][..]].concat()))?,
            Change::Suffix { from, to, .. } => write!(f, "suffix={}:{}", text(from), text(to))?,
            Change::Type { rtype, .. } => write!(f, "type={rtype}")?,
        }
        match self.percent() {
            ALL => Ok(()),
            percent => write!(f, "@{percent}%"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn changes_are_written_as_they_were_read() {
        for text in [
            "do=100%",
            "do=0%",
            "rd=12.5%",
            "rd=29%",
            "type=A@0.07%",
            "ad=100%",
            "cd=50%",
            "edns=1232",
            "edns=none@25%",
            "ecs=client",
            "ecs=none@50%",
            "ecs=2001:db8::/32",
            "unique",
            "unique@75%",
            "prefix=a.b.",
            "suffix=example.com.:example.net.@50%",
            "suffix=.:a\\044b\\058c\\064d\\032e.",
            "suffix=.:a\\\\\\044b\\\\\\058c\\\\\\064d\\\\\\032e.",
            "type=AAAA",
            "type=TYPE65280@50%",
        ] {
            let read = changes(text).unwrap_or_else(|what| panic!("{what}"));
            assert_eq!(read.len(), 1);
            assert_eq!(read[0].to_string(), text);
        }
        assert_eq!(changes("do=100%, unique,edns=512@1%").map(|changes| changes.len()), Ok(3));
        assert_eq!(changes("suffix=a:b").unwrap()[0].to_string(), "suffix=a.:b.");
    }

    #[test]
    fn what_is_no_change_is_told() {
        for (text, expected) in [
            ("", ": expected do="),
            ("do", "do: expected do="),
            ("do=yes", "do=yes: yes is no share"),
            ("do=101%", "do=101%: 101% is no share"),
            ("do=1e1%", "do=1e1%: 1e1% is no share"),
            ("do=-1%", "do=-1%: -1% is no share"),
            ("do=nan%", "do=nan%: nan% is no share"),
            ("edns=65536", "edns=65536: 65536 is neither"),
            ("edns=512@", "edns=512@:  is no share"),
            ("ecs=192.0.2.0", "ecs=192.0.2.0: 192.0.2.0 is neither"),
            ("ecs=192.0.2.0/33", "ecs=192.0.2.0/33: "),
            ("prefix=", "prefix=: "),
            ("prefix=.", "prefix=.: expected a label"),
            ("suffix=a.", "suffix=a.: expected two names"),
            ("type=HOUSE", "type=HOUSE: HOUSE is no type"),
            ("unique=1", "unique=1: expected do="),
            ("rd=100%,colour=red", "colour=red: expected do="),
            ("do=2,rd=1%,ecs=0,type=AAA", "do=2: 2 is no share, expected 0% to 100%\necs=0: 0 is neither"),
        ] {
            let what = changes(text).expect_err(text);
            assert!(what.starts_with(expected), "{text}: {what}");
        }
        assert_eq!(changes("do=2,rd=1%,ecs=0,type=AAA").unwrap_err().lines().count(), 3);
        assert!(changes(&["unique"; 65].join(",")).unwrap_err().starts_with("65 changes"));
    }
}
